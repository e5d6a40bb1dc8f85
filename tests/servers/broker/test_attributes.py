"""Changes of attributes, checked and applied as 5.4.0 does; `test_attributes_and_priorities.py` compares both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.tables.attributes import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    BadAttribute,
    changed_attributes,
    parsed_changes,
)
from tests.servers.broker.serving import Served, serving

FACTOR = "priority.factor"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("", {}),
        ("+a=1", {"+a": "1"}),
        ("+a=1,-b,,", {"+a": "1", "-b": ""}),
        ("+a=1=2", {"+a": "1"}),
        ("a+=1", {"a+": "1"}),
    ],
)
def test_the_text_of_changes(text: str, changes: dict[str, str]) -> None:
    assert parsed_changes(text) == changes


@pytest.mark.parametrize("text", ["a", "a=1", "+a", "-a=1", "=", "+a=", ",", " ", "+a=1,,+b=1", "+a=1,+a=2", "-a,-a"])
def test_texts_that_are_no_changes(text: str) -> None:
    if text == ",":  # nothing is left when the empty parts at the end are dropped
        assert parsed_changes(text) == {}
        return
    with pytest.raises(BadAttribute):
        parsed_changes(text)


@pytest.mark.parametrize(
    ("present", "changes", "attributes"),
    [
        (None, {"+message.type": "FIFO", "+queue.type": "BatchCQ"}, {"message.type": "FIFO", "queue.type": "BatchCQ"}),
        ({"message.type": "FIFO"}, {}, {"message.type": "FIFO"}),
        ({"message.type": "FIFO"}, {"-message.type": "", "+reserve.time": "-1"}, {"reserve.time": "-1"}),
        ({"old": "kept"}, {"+lite.topic.expiration": "43200"}, {"old": "kept", "lite.topic.expiration": "43200"}),
    ],
)
def test_changes_of_a_topic(
    present: dict[str, str] | None, changes: dict[str, str], attributes: dict[str, str]
) -> None:
    assert changed_attributes(TOPIC_ATTRIBUTES, present, changes) == attributes


@pytest.mark.parametrize(
    ("present", "changes"),
    [
        (None, {"-message.type": ""}),
        ({}, {"-message.type": ""}),
        ({"message.type": "FIFO"}, {"+message.type": "NORMAL", "-message.type": ""}),
        ({"queue.type": "SimpleCQ"}, {"+queue.type": "SimpleCQ"}),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}),
        ({"no.such": "x"}, {"-no.such": ""}),
        ({}, {"message.type": "FIFO"}),
        ({}, {"": "FIFO"}),
        ({}, {"+": "FIFO"}),
        ({}, {"++message.type": "FIFO"}),
        ({}, {"+message.type": "fifo"}),
        ({}, {"+reserve.time": "soon"}),
        ({}, {"+reserve.time": "-2"}),
        ({}, {"+lite.topic.expiration": "43201"}),
        ({}, {"+priority.type": "x"}),
    ],
)
def test_refused_changes(present: dict[str, str] | None, changes: dict[str, str]) -> None:
    with pytest.raises(BadAttribute):
        changed_attributes(TOPIC_ATTRIBUTES, present, changes)


def test_the_priority_of_a_group() -> None:
    assert changed_attributes(GROUP_ATTRIBUTES, None, {f"+{FACTOR}": "100"}) == {FACTOR: "100"}
    for value in ("101", "-1", "1.5", ""):
        with pytest.raises(BadAttribute):
            changed_attributes(GROUP_ATTRIBUTES, None, {f"+{FACTOR}": value})


async def changed_group(
    served: Served, attributes: object, code: int = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
) -> int:
    group = {"groupName": "G", "retryMaxTimes": 3, **({} if attributes is None else {"attributes": attributes})}
    listed = {"groupConfigList": [group]} if code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST else group
    return (await served.ask(Command(code, {}, json.dumps(listed).encode()))).code


@pytest.mark.parametrize(
    "code", [RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST]
)
async def test_changes_of_a_group(tmp_path: Path, code: int) -> None:
    """An update without attributes keeps those that are there, and a refused one changes nothing of the group."""
    async with serving(tmp_path) as served:
        groups = served.running.broker.tables.groups

        def attributes() -> object:
            config = groups.known("G")
            return None if config is None else config["attributes"]

        assert await changed_group(served, {f"-{FACTOR}": ""}, code) == ResponseCode.SYSTEM_ERROR
        assert attributes() is None
        assert await changed_group(served, {f"+{FACTOR}": 50}, code) == ResponseCode.SUCCESS
        assert attributes() == {FACTOR: "50"}
        no_changes: tuple[object, ...] = (None, {})
        for changes in no_changes:
            assert await changed_group(served, changes, code) == ResponseCode.SUCCESS
            assert attributes() == {FACTOR: "50"}
        assert await changed_group(served, {f"+{FACTOR}": "101"}, code) == ResponseCode.SYSTEM_ERROR
        assert await changed_group(served, ["x"], code) == ResponseCode.INVALID_PARAMETER
        assert attributes() == {FACTOR: "50"}
        assert await changed_group(served, {f"-{FACTOR}": ""}, code) == ResponseCode.SUCCESS
        assert attributes() == {}


async def test_a_list_of_topics_takes_each_value_whole(tmp_path: Path) -> None:
    """A comma in a value of a list's JSON separates no changes."""
    async with serving(tmp_path) as served:
        topic = {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        listed = {"topicConfigList": [{**topic, "attributes": {"+message.type": "FIFO,+reserve.time=5"}}]}
        request = Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, json.dumps(listed).encode())
        assert (await served.ask(request)).code == ResponseCode.SYSTEM_ERROR
        assert "T" not in served.running.broker.tables.topics
