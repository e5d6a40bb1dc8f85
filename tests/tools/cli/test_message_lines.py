"""The lines of `pyrmq send` as values: bodies, JSON objects, and what is wrong with others."""

from __future__ import annotations

import base64
import fcntl
import gc
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyrmq_core import InvalidMessage, Message
from pyrmq_core.protocol.messages.batch_payloads import checked_batch
from pyrmq_core.protocol.messages.payload import encode_one
from pyrmq_core.tools.cli.line_sending import OBJECTS_BETWEEN_COLLECTIONS, _rare_collections, is_sent_singly
from pyrmq_core.tools.cli.message_lines import LineForm, read_lines

JSON = LineForm("orders", {"tags": "paid", "keys": None}, as_json=True)


def test_a_line_is_a_body() -> None:
    form = LineForm("orders", {"tags": "paid", "keys": "1 2", "properties": {"a": "b"}, "delay_level": 3})
    expected = Message("orders", b'{"body": 1}', tags="paid", keys="1 2", properties={"a": "b"}, delay_level=3)
    assert form.message(b'{"body": 1}') == expected
    with pytest.raises(InvalidMessage, match="the body has 4194305 bytes"):
        form.message(b"x" * 4_194_305)


def test_fields_that_no_message_may_have_are_refused_before_the_first_line() -> None:
    with pytest.raises(InvalidMessage, match="UNIQ_KEY is a name RocketMQ keeps for itself"):
        LineForm("orders", {"properties": {"UNIQ_KEY": "x"}})
    with pytest.raises(InvalidMessage, match="delay is 0:00:00"):
        LineForm("orders", {"delay": timedelta(0)})


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"body": "größe"}, Message("orders", "größe".encode(), tags="paid")),
        ({"bodyBase64": "/wA="}, Message("orders", b"\xff\0", tags="paid")),
        ({"body": "?", "bodyBase64": "/wA="}, Message("orders", b"\xff\0", tags="paid")),
        ({"bodyBase64": "/wA=", "body": "?"}, Message("orders", b"\xff\0", tags="paid")),
        ({"body": "x", "tags": "sent", "flag": 7}, Message("orders", b"x", tags="sent", flag=7)),
        ({"body": "x", "tags": None, "keys": ["a", "b"]}, Message("orders", b"x", tags="paid", keys=["a", "b"])),
        (
            {"body": "x", "shardingKey": "k", "properties": {"a": "b"}},
            Message("orders", b"x", tags="paid", sharding_key="k", properties={"a": "b"}),
        ),
        ({"body": "x", "tags": None, "properties": None}, Message("orders", b"x", tags="paid")),
        ({"body": "x", "tags": "sent", "keys": []}, Message("orders", b"x", tags="sent", keys=[])),
        ({"body": "x", "properties": {}}, Message("orders", b"x", tags="paid", properties={})),
        ({"body": "x", "delay": 1.5}, Message("orders", b"x", tags="paid", delay=timedelta(seconds=1.5))),
        ({"body": "x", "delayLevel": 18}, Message("orders", b"x", tags="paid", delay_level=18)),
        (
            {"body": "x", "deliverAt": "2030-01-01T00:00:00+00:00"},
            Message("orders", b"x", tags="paid", deliver_at=datetime(2030, 1, 1, tzinfo=UTC)),
        ),
        (
            {"body": "x", "msgId": "1", "queueId": 2, "properties": {"UNIQ_KEY": "1", "__SHARDINGKEY": "k", "a": "b"}},
            Message("orders", b"x", tags="paid", sharding_key="k", properties={"a": "b"}),
        ),
    ],
)
def test_an_object_is_a_message(members: dict[str, Any], expected: Message) -> None:
    line = json.dumps(members).encode()
    assert JSON.message(line) == expected
    assert JSON.unchecked_message(line) == expected


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"text", r"it is no JSON .*char 0.\)$"),
        (b"\xff", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b"[1]", "it is no JSON object"),
        (b"{}", "neither body nor bodyBase64"),
        (b'{"body": 1}', "body is 1; it has to be a text"),
        (b'{"body": ""}', "the body is empty"),
        (b'{"body": "\\ud800"}', "half of a surrogate pair"),
        (b'{"bodyBase64": "/w"}', "bodyBase64 is not in base 64"),
        (b'{"bodyBase64": "\xc3\xbc"}', "bodyBase64 is not in base 64"),
        (b'{"body": "x", "tag": "y"}', "there is no member 'tag'; there are body, bodyBase64, tags"),
        (b'{"body": "x", "keys": 1}', "keys is 1; it has to be a text"),
        (b'{"body": "x", "keys": [1]}', "keys: 1 is no key"),
        (b'{"body": "x", "keys": {"a": 1}}', "keys is {'a': 1}; it has to be a text"),
        (b'{"body": "x", "keys": ""}', "keys holds no word"),
        (b'{"body": "x", "tags": 5}', "tags is 5; it has to be a text"),
        (b'{"body": "x", "tags": ""}', "property 'TAGS' has an empty value"),
        (b'{"body": "x", "shardingKey": false}', "shardingKey is False; it has to be a text"),
        (b'{"body": "x", "properties": 0}', "properties is 0; it has to be an object"),
        (b'{"body": "x", "properties": ""}', "properties is ''; it has to be an object"),
        (b'{"body": null, "tags": "y"}', "neither body nor bodyBase64"),
        (b'{"body": "x", "flag": 99999999999999999999}', "flag is 1e.20; it has to be a whole number"),
        (b'{"body": "x", "properties": []}', r"properties is \[\]; it has to be an object"),
        (b'{"body": "x", "properties": {"a": 1}}', "property 'a' is 1"),
        (b'{"body": "x", "properties": {"UNIQ_KEY": "1"}}', "UNIQ_KEY is a name RocketMQ keeps"),
        (b'{"body": "x", "flag": 1.5}', "flag is 1.5; it has to be a whole number"),
        (b'{"body": "x", "flag": true}', "flag is True; it has to be a whole number"),
        (b'{"body": "x", "flag": 99999999999}', "flag is 99999999999; it is a whole number of 32 bits"),
        (b'{"body": "x", "delay": "1"}', "delay is '1'; it has to be a number of seconds"),
        (b'{"body": "x", "delay": NaN}', "delay is nan; it has to be a number of seconds"),
        (b'{"body": "x", "delay": 1e300}', "delay is 1e.300; it has to be a number of seconds"),
        (b'{"body": "x", "delay": -1}', "delay is -1 day"),
        (b'{"body": "x", "delay": 1, "delayLevel": 1}', "exclude one another"),
        (b'{"body": "x", "deliverAt": "tomorrow"}', "deliverAt is 'tomorrow'; it has to be an ISO-8601 time"),
    ],
)
def test_another_line_is_refused_with_what_to_do(line: bytes, text: str) -> None:
    with pytest.raises(InvalidMessage, match=text):
        JSON.message(line)
    assert is_refused_when_sent(JSON, line)


def is_refused_when_sent(form: LineForm, line: bytes) -> bool:
    """Returns whether the line is refused when it is read, or at the latest when it is encoded, alone or in a list."""
    try:
        message = form.unchecked_message(line)
    except InvalidMessage:
        return True
    for encoded in (checked_batch, lambda messages: encode_one(messages[0], "0" * 32)):
        with pytest.raises(InvalidMessage):
            encoded([message])
    return True


@pytest.mark.parametrize(
    ("message", "alone"),
    [
        (Message("orders", b"x" * 4095), False),
        (Message("orders", b"x" * 4096), True),
        (Message("orders", b"x", delay=timedelta(1)), True),
        (Message("orders", b"x", delay_level=1), True),
        (Message("orders", b"x", deliver_at=datetime.now(UTC)), True),
        (Message("%RETRY%g", b"x"), True),
        (Message("orders", b"x", sharding_key="k", keys="k"), False),
    ],
)
def test_messages_that_no_batch_may_hold_go_alone(message: Message, alone: bool) -> None:
    assert is_sent_singly(message) is alone


async def test_lines_are_numbered_over_all_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrmq_core.tools.cli.message_lines.CHUNK_BYTES", 7)
    content = b"one\r\n\ntwo\nthree and more\n\nlast"
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    numbered_lines = [line async for lines in read_lines(reading) for line in lines]
    os.close(reading)
    assert numbered_lines == list(enumerate((line.rstrip(b"\r") for line in content.split(b"\n")), 1))


@pytest.mark.parametrize(
    "line", [b' {"body": "x"} ', b'\xef\xbb\xbf{"body": "x"}', '{"body": "x"}'.encode("utf-16-le")]
)
def test_json_may_have_spaces_and_any_of_its_encodings(line: bytes) -> None:
    assert JSON.message(line) == Message("orders", b"x", tags="paid")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'{"body": "x"} {"body": "y"}', "it is no JSON .Extra data"),
        (b'{"body": "x"},', "it is no JSON .Extra data"),
        (b'{"body": "x", "properties": {"a": "1", "UNIQ_KEY": "1"}}', "UNIQ_KEY is a name RocketMQ keeps"),
        (b'{"body": "x", "properties": {"a": ""}}', "property 'a' has an empty value"),
        (b'{"body": "x", "properties": {"a": "\\u0001"}}', "'a'"),
        (b'{"body": "x", "tags": "\\u0002"}', "TAGS"),
        (b'{"body": "x", "keys": "  "}', "keys holds no word"),
        (b'{"body": "x", "properties": {"a": "' + b"y" * 40_000 + b'"}}', "the properties take 40"),
        (b'{"body": "x", "properties": {"a": {}}}', "property 'a' is dict of length 0"),
    ],
)
def test_names_that_were_checked_do_not_excuse_the_next_line(line: bytes, text: str) -> None:
    form = LineForm("orders", {}, as_json=True)
    good = b'{"body": "x", "tags": "t", "keys": "k", "properties": {"a": "1"}}'
    for _ in range(2):
        assert form.message(good) == Message("orders", b"x", tags="t", keys="k", properties={"a": "1"})
    with pytest.raises(InvalidMessage, match=text):
        form.message(line)
    assert is_refused_when_sent(form, line)
    assert form.message(good).properties == {"a": "1"}


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="this system cannot change the room of a pipe")
async def test_a_pipe_has_room_for_a_whole_request() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\n")
    os.close(writing)
    assert [lines async for lines in read_lines(reading)] == [[(1, b"one")]]
    room = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ)
    os.close(reading)
    assert room == 1024 * 1024


def test_options_hold_for_lines_of_common_members() -> None:
    form = LineForm(
        "orders", {"sharding_key": "k", "properties": {"a": "b"}, "flag": 3, "delay_level": 2}, as_json=True
    )
    expected = Message("orders", b"x", sharding_key="k", properties={"a": "b"}, flag=3, delay_level=2)
    assert form.message(b'{"body": "x"}') == expected
    line = b'{"body": "x", "shardingKey": "l", "properties": {"c": "d"}}'
    assert form.message(line) == replace(expected, sharding_key="l", properties={"c": "d"})


def test_a_program_that_calls_the_command_keeps_its_collections() -> None:
    before, during = gc.get_threshold(), list[tuple[int, int, int]]()

    def interrupted() -> None:
        with _rare_collections():
            during.append(gc.get_threshold())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert during == [(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])]
    assert gc.get_threshold() == before


def test_base64_is_what_tail_prints() -> None:
    assert JSON.message(json.dumps({"bodyBase64": base64.b64encode(b"\x00").decode()}).encode()).body == b"\x00"
