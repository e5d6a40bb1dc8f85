"""VIEW_MESSAGE_BY_ID (33) and QUERY_MESSAGE (12): both ways, garbage, and Java's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.query_message import MessagesFound, QueryMessage, ViewMessage
from tests.protocol.conversations import SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT
from tests.support import golden

SAID: st.SearchStrategy[Said] = st.one_of(
    st.builds(ViewMessage, INT64, st.none() | SOME_TEXT),
    st.builds(QueryMessage, SOME_TEXT, SOME_TEXT, INT32, INT64, INT64, st.booleans(), st.none() | SOME_TEXT),
    st.builds(MessagesFound, INT64, INT64, st.binary(max_size=30)),
)


@given(SAID, SERIALIZATIONS)
def test_both_sides_survive(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.data(), SAID)
def test_garbage_is_named(data: st.DataObject, said: Said) -> None:
    assert_garbage_is_named(type(said), said, data)


@pytest.mark.parametrize(("version", "index_type"), [("5.4.0", "K"), ("4.9.7", None)])
def test_what_mqadmin_asked_and_brokers_found(version: str, index_type: str | None) -> None:
    asked, answered = (recorded(version, is_answer=is_answer) for is_answer in (False, True))
    request = QueryMessage.from_command(asked)
    assert request == QueryMessage("CapTopic", "K1", 64, 0, 2**63 - 1, False, index_type)
    assert request.to_command().ext == dict(asked.ext)
    messages = MessagesFound.from_command(answered)
    assert messages.to_command().ext == dict(answered.ext)
    (record,) = iterate_records(messages.records)
    assert record.topic == "CapTopic"
    assert decode_properties(record.properties)["KEYS"] == "K1"


def recorded(version: str, *, is_answer: bool) -> Command:
    (frame,) = [
        frame
        for frame in golden.frames()
        if frame.request == 12 and frame.source.startswith(version) and frame.is_answer is is_answer
    ]
    decoder = FrameDecoder()
    decoder.feed(frame.raw)
    command = decoder.next_command()
    assert command is not None
    return command
