"""Batches in halves, and messages for another topic: no part of a message is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.batch_payloads import encode_batch
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from pyrmq_core.protocol.messages.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from pyrmq_core.protocol.messages.split_payload import halves, readdressed


def batch(count: int) -> Payload:
    messages = [Message("orders", f"body {number}".encode(), keys=str(number), flag=number) for number in range(count)]
    return encode_batch(messages, [f"id{number}" for number in range(count)])


@given(st.integers(2, 40))
def test_halves_hold_every_message_once_in_order(count: int) -> None:
    whole = batch(count)
    first, second = halves(whole)
    assert [*iterate_batch_body(first.body), *iterate_batch_body(second.body)] == list(iterate_batch_body(whole.body))
    assert (first.count + second.count, abs(first.count - second.count) <= 1) == (count, True)
    assert (*(first.unique_ids or ()), *(second.unique_ids or ())) == whole.unique_ids


def test_a_message_of_a_batch_goes_to_another_topic_by_itself() -> None:
    half, _ = halves(batch(2))
    moved = readdressed(half, "refused", {"why": "it is"})
    assert (moved.topic, bytes(moved.body), moved.count, moved.batch, moved.flag) == ("refused", b"body 0", 1, False, 0)
    properties = decode_properties(moved.properties)
    assert (properties["KEYS"], properties["why"], properties["UNIQ_KEY"]) == ("0", "it is", "id0")
    assert moved.unique_ids == ("id0",)


@given(st.integers(0, 600), st.text("aß語", min_size=1, max_size=700), st.sampled_from(["", "x" * 100]))
def test_of_the_further_properties_goes_what_there_is_room_for(room: int, last: str, first: str) -> None:
    """The last is cut between two letters, one before it left out."""
    message = Message("orders", b"x", keys="k" * (MAX_PROPERTIES_BYTES - 100 - room))
    further = {"first": first, "last": last} if first else {"last": last}
    properties = decode_properties(readdressed(encode_one(message, "0" * 32), "refused", further).properties)
    assert len(encode_properties(properties).encode()) <= MAX_PROPERTIES_BYTES
    assert properties.keys() >= {"KEYS", "UNIQ_KEY"}
    assert properties.get("first", first) == first
    assert last.startswith(properties.get("last", ""))
    if room > 100 + len(first) + 3 * len(last):
        assert {name: properties[name] for name in further} == further


@given(st.integers(0, 600), st.integers(1, 700))
def test_a_further_property_replaces_the_own_of_its_name_even_if_left_out(room: int, count: int) -> None:
    own = {"first": "old" * 30, "filler": "k" * (MAX_PROPERTIES_BYTES - 200 - room)}
    further = {"first": "x" * count, "last": "y" * 700}
    payload = encode_one(Message("orders", b"x", properties=own), "0" * 32)
    properties = decode_properties(readdressed(payload, "refused", further).properties)
    assert len(encode_properties(properties).encode()) <= MAX_PROPERTIES_BYTES
    assert properties.get("first", further["first"]) == further["first"]


def test_a_delayed_message_is_no_longer_delayed_there() -> None:
    moved = readdressed(encode_one(Message("orders", b"x", tags="t", delay_level=3), "id"), "refused", {})
    assert decode_properties(moved.properties).keys() == {"TAGS", "UNIQ_KEY", "WAIT"}


def test_a_body_that_is_no_batch_is_reported() -> None:
    with pytest.raises(BodyError):
        halves(Payload("orders", b"garbage", 2, "", batch=True))
