"""Payloads: messages to requests, alone, in batches and divided."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument, InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.batch_payloads import encode_batch, split_batch
from pyrmq_core.protocol.messages.compression import CompressionType, decompress
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import decode_properties, message_properties
from tests.protocol.strategies import KINDS, MESSAGES, TOPICS
from tests.support import golden

ID = "7F0000010001000000000000000A0000"


def ids(count: int) -> list[str]:
    return [f"7F000001000100000000000000{number:06X}" for number in range(count)]


def test_one_message() -> None:
    payload = encode_one(Message("T", b"x", tags="a", flag=7), ID)
    assert payload == Payload("T", b"x", 1, f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02TAGS\x01a\x02", 0, 7, False, (ID,))


@pytest.mark.parametrize("kind", CompressionType)
def test_large_bodies_are_compressed(kind: CompressionType) -> None:
    message = Message("T", b"y" * 4096)
    payload = encode_one(message, ID, compression=kind)
    assert payload.sys_flag == kind.sys_flag
    assert decompress(payload.body, payload.sys_flag, max_bytes=4096) == message.body
    assert encode_one(Message("T", b"y" * 4095), ID, compression=kind).sys_flag == 0
    assert encode_one(message, ID, compression=None).body == message.body
    assert encode_one(message, ID, compress_over_bytes=5000).sys_flag == 0


def test_the_limit_counts_the_plain_body() -> None:
    with pytest.raises(InvalidMessage, match="5000 bytes; 4999 at most"):
        encode_one(Message("T", bytes(5000)), ID, max_message_bytes=4999)


@pytest.mark.parametrize(
    "message",
    [
        Message("a b", b"x"),
        Message("SELF_TEST_TOPIC", b"x"),
        Message("T", b""),
        Message("T", b"x", tags="\x01"),
        Message("T", b"x", properties={"KEYS": "k"}),
        Message("T", b"x", delay_level=99),
    ],
)
def test_what_breaks_a_rule_is_neither_sent_alone_nor_in_a_batch(message: Message) -> None:
    with pytest.raises(InvalidMessage):
        encode_one(message, ID)
    with pytest.raises(InvalidMessage):
        encode_batch([message], [ID])


def test_delays() -> None:
    assert decode_properties(encode_one(Message("T", b"x", delay_level=3), ID).properties)["DELAY"] == "3"
    at = Message("T", b"x", deliver_at=datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC))
    assert decode_properties(encode_one(at, ID).properties)["TIMER_DELIVER_MS"] == "1700000000000"
    after = Message("T", b"x", delay=timedelta(seconds=2))
    assert decode_properties(encode_one(after, ID).properties)["TIMER_DELAY_MS"] == "2000"


def test_javas_batch() -> None:
    messages = [Message("TopicTest", b"b1", keys="K1", tags="TagA"), Message("TopicTest", b"body2")]
    unique_ids = ["7F0000010001000000000000000A0001", "7F0000010001000000000000000A0002"]
    payload = encode_batch(messages, unique_ids)
    assert bytes(payload.body).hex() == golden.vectors()["batch"]
    assert payload == Payload("TopicTest", payload.body, 2, "", 0, 0, True, tuple(unique_ids))


def test_the_request_of_a_batch_names_no_message() -> None:
    """A UNIQ_KEY there would stand in place of every message's own on 4.9."""
    payload = encode_batch([Message("T", b"x"), Message("T", b"y")], ids(2))
    assert payload.properties == ""
    waiting = [Message("T", b"x", wait_store_msg_ok=False)] * 2
    assert encode_batch(waiting, ids(2)).properties == "WAIT\x01false\x02"


T = Message("T", b"x")
NO_BATCHES = [
    ([T, Message("U", b"x")], "a batch has one topic; message 1 is for U, the first for T"),
    ([T, Message("T", b"x", wait_store_msg_ok=False)], "one wait_store_msg_ok; message 1 of T differs"),
    ([T, T, Message("T", b"x", delay_level=1)], "a batch cannot be delayed; message 2 of T is"),
    ([Message("T", b"x", delay=timedelta(1))], "a batch cannot be delayed; message 0"),
    ([Message("T", b"x", deliver_at=datetime(2026, 1, 1, tzinfo=UTC))], "a batch cannot be delayed"),
    ([T, Message("T", b"x", priority=0)], "brokers ignore a priority in a batch; message 1 of T has one"),
    ([T, Message("T", b"x", lite_topic="a")], "no lite topic gets messages of a batch; send message 1 of T alone"),
    ([Message("%RETRY%g", b"x")], "topic %RETRY%g: retry topics take no batches"),
    ([], "a batch holds at least one message"),
]


@pytest.mark.parametrize(("messages", "reason"), NO_BATCHES)
def test_what_a_batch_cannot_hold(messages: list[Message], reason: str) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        encode_batch(messages, ids(len(messages)))
    with pytest.raises(InvalidMessage, match=reason):
        list(split_batch(messages, ids(len(messages))))


def test_each_message_has_an_id() -> None:
    with pytest.raises(InvalidArgument, match="2 messages and 1 ids"):
        encode_batch([T, T], ids(1))


def test_a_batch_above_the_limit_is_refused_or_divided() -> None:
    messages = [Message("T", bytes(100)) for _ in range(10)]
    whole = encode_batch(messages, ids(10))
    assert encode_batch(messages, ids(10), max_message_bytes=len(whole.body)) == whole
    with pytest.raises(InvalidMessage, match=rf"10 messages takes {len(whole.body)} bytes; {len(whole.body) - 1} at"):
        encode_batch(messages, ids(10), max_message_bytes=len(whole.body) - 1)
    parts = list(split_batch(messages, ids(10), max_message_bytes=len(whole.body) - 1))
    assert [part.count for part in parts] == [9, 1]
    assert b"".join(bytes(part.body) for part in parts) == whole.body
    assert [unique_id for part in parts for unique_id in part.unique_ids or ()] == ids(10)


def test_parts_may_be_smaller_than_the_limit() -> None:
    messages = [Message("T", bytes(size)) for size in (100, 100, 900, 100)]
    parts = list(split_batch(messages, ids(4), request_bytes=500))
    assert [part.count for part in parts] == [2, 1, 1]
    assert [unique_id for part in parts for unique_id in part.unique_ids or ()] == ids(4)
    with pytest.raises(InvalidMessage, match="900 bytes; 600 at most"):
        list(split_batch(messages, ids(4), request_bytes=500, max_message_bytes=600))


def test_a_producers_own_properties_may_have_reserved_names() -> None:
    own = {"TRAN_MSG": "true", "PGROUP": "g"}
    properties = decode_properties(encode_one(Message("T", b"x"), ID, system_properties=own).properties)
    assert properties == {"UNIQ_KEY": ID, "WAIT": "true", **own}


def test_a_message_that_fits_no_batch_is_reported() -> None:
    with pytest.raises(InvalidMessage, match=r"does not fit into a batch; 120 at most .* send it alone"):
        encode_batch([Message("T", bytes(100))], ids(1), max_message_bytes=120)


@given(
    st.lists(MESSAGES, min_size=1, max_size=8),
    TOPICS,
    st.booleans(),
    st.none() | KINDS,
    st.integers(1200, 3000),
)
def test_batches_survive(
    messages: list[Message], topic: str, wait: bool, kind: CompressionType | None, limit: int
) -> None:
    topic = "T" + topic[:100]
    messages = [dataclasses.replace(message, topic=topic, wait_store_msg_ok=wait) for message in messages]
    unique_ids = ids(len(messages))
    parts = list(split_batch(messages, unique_ids, compression=kind, max_message_bytes=limit))
    assert all(len(part.body) <= limit and part.topic == topic and part.batch for part in parts)
    assert sum(part.count for part in parts) == len(messages)
    assert {part.sys_flag for part in parts} == {0 if kind is None else kind.sys_flag}
    items = [(part, item) for part in parts for item in iterate_batch_body(part.body)]
    for message, unique_id, (part, item) in zip(messages, unique_ids, items, strict=True):
        assert decompress(item.body, part.sys_flag, max_bytes=1000) == message.body
        assert decode_properties(item.properties.decode()) == message_properties(message, unique_id)
        assert item.flag == message.flag
