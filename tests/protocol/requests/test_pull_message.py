"""Pulling: the request, and the four answers that carry offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import RESPONSE_BIT, Command, Serialization
from pyrmq_core.protocol.framing.headers import LazyFields
from pyrmq_core.protocol.requests.broker.pull_message import PULL_ANSWERS, PullAnswer, PullMessage, pull_offsets
from tests.protocol.conversations import SERIALIZATIONS, assert_garbage_is_named, assert_survives, over_the_wire
from tests.protocol.strategies import INT32, INT64, SOME_TEXT
from tests.protocol.test_real_conversations import command_of
from tests.support import golden

PULLS = st.builds(
    PullMessage,
    consumer_group=SOME_TEXT,
    topic=SOME_TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    max_msg_nums=INT32,
    sys_flag=INT32,
    commit_offset=INT64,
    suspend_timeout_ms=INT64,
    subscription=st.none() | SOME_TEXT,
    sub_version=INT64,
    expression_type=SOME_TEXT,
    max_msg_bytes=st.none() | INT32,
    broker_name=st.none() | SOME_TEXT,
)
ANSWERS = st.builds(
    PullAnswer,
    code=st.sampled_from(sorted(PULL_ANSWERS)).map(int),
    remark=st.none() | SOME_TEXT,
    next_begin_offset=INT64,
    min_offset=INT64,
    max_offset=INT64,
    suggest_which_broker_id=INT64,
    offset_delta=st.none() | INT64,
    topic_sys_flag=INT32,
    group_sys_flag=INT32,
    records=st.binary(max_size=30),
)


@given(PULLS, SERIALIZATIONS)
def test_requests_survive(pull: PullMessage, serialization: Serialization) -> None:
    assert_survives(pull, serialization)


@given(ANSWERS, SERIALIZATIONS)
def test_answers_survive(answer: PullAnswer, serialization: Serialization) -> None:
    assert_survives(answer, serialization)


@given(st.data(), PULLS, ANSWERS)
def test_garbage_is_named(data: st.DataObject, pull: PullMessage, answer: PullAnswer) -> None:
    assert_garbage_is_named(PullMessage, pull, data)
    assert_garbage_is_named(PullAnswer, answer, data)


@given(ANSWERS, SERIALIZATIONS)
def test_offsets_are_read_alike_in_passing(answer: PullAnswer, serialization: Serialization) -> None:
    command = over_the_wire(replace(answer.to_command(), flag=RESPONSE_BIT), serialization)
    assert pull_offsets(command) == (answer.next_begin_offset, answer.max_offset, answer.min_offset)


def test_offsets_of_real_answers() -> None:
    """Answers of both releases: the fields as they write them need not be parsed."""
    answers = [command_of(frame) for frame in golden.answers(11) if frame.code == 0]
    assert len({frame.source for frame in golden.answers(11) if frame.code == 0}) >= 2
    for answer in answers:
        assert type(answer.ext) is LazyFields
        read = PullAnswer.from_command(answer)
        assert pull_offsets(answer) == (read.next_begin_offset, read.max_offset, read.min_offset)


@pytest.mark.parametrize(
    "fields", [{}, {"nextBeginOffset": "3"}, {"nextBeginOffset": "x", "minOffset": "0", "maxOffset": "3"}]
)
def test_offsets_that_are_missing(fields: dict[str, str]) -> None:
    assert pull_offsets(Command(0, fields)) is None


def test_an_absent_subscription_is_none() -> None:
    """Consumers that sent it in their heartbeat leave it out; to a broker it is not equal to `*`."""
    pull = PullMessage("g", "T", 0, 0, 32)
    assert "subscription" not in pull.to_command().ext
    assert PullMessage.from_command(pull.to_command()).subscription is None
