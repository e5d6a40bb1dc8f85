"""The properties that make a batch one record of a batch topic, made from those of its messages."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import Message
from pyrmq_core.protocol.messages.batch_payloads import encode_batch, split_batch
from pyrmq_core.protocol.messages.batch_topic import can_be_one_record, is_batch_topic, record_properties
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.split_payload import halves
from tests.protocol.strategies import PLAIN


def ids(count: int) -> list[str]:
    return [f"ID{number}" for number in range(count)]


@given(st.none() | PLAIN, st.integers(1, 5), st.booleans())
def test_the_name_and_the_tag_stand_before_what_was_there(tag: str | None, count: int, waits: bool) -> None:
    messages = [Message("T", b"x", tags=tag, properties={"n": "1"}, wait_store_msg_ok=waits)] * count
    payload = encode_batch(messages, ids(count))
    own = {"UNIQ_KEY": "R"} | ({} if waits else {"WAIT": "false"}) | ({} if tag is None else {"TAGS": tag})
    assert can_be_one_record(payload)
    assert decode_properties(record_properties(payload, "R")) == own
    assert payload.properties == ("" if waits else "WAIT\x01false\x02")


@given(st.lists(st.none() | st.sampled_from(["a", "b"]), min_size=1, max_size=12), st.booleans())
def test_a_request_says_whether_its_messages_share_their_tag(tags: list[str | None], apart: bool) -> None:
    messages = [Message("T", b"x", tags=tag) for tag in tags]
    payloads = list(split_batch(messages, ids(len(tags)), request_messages=3, split_by_tag=apart))
    assert sum(payload.count for payload in payloads) == len(tags)
    first = 0
    for payload in payloads:
        together = tags[first : first + payload.count]
        assert payload.single_tag == (len(set(together)) == 1)
        assert payload.single_tag or not apart
        first += payload.count


def test_what_is_never_one_record() -> None:
    messages = [Message("T", b"x" * 100)] * 2
    assert not can_be_one_record(encode_batch(messages, ids(2), compression=CompressionType.ZLIB))
    assert not can_be_one_record(encode_one(messages[0], "I"))
    whole = Payload("T", b"", 32_767, "", batch=True, single_tag=True)
    assert can_be_one_record(whole)
    assert not can_be_one_record(replace(whole, count=32_768))


def test_halves_of_a_batch_may_be_records_themselves() -> None:
    payload = encode_batch([Message("T", b"x", tags="a")] * 5, ids(5))
    assert [(half.count, half.single_tag) for half in halves(payload)] == [(2, True), (3, True)]


@pytest.mark.parametrize(
    ("attributes", "expected"), [({"queue.type": "BatchCQ"}, True), ({"queue.type": "SimpleCQ"}, False), ({}, False)]
)
def test_a_batch_topic_is_known_by_its_attribute(attributes: dict[str, str], expected: bool) -> None:
    assert is_batch_topic(attributes) is expected
