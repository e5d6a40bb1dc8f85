"""Members of automatic batches: checked when sent, written out when their request leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.client.producer.batch_member import BatchMember, batch_member, join_members
from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import Message
from pyrmq_core.protocol.messages.batch_payloads import encode_batch
from pyrmq_core.protocol.messages.batch_topic import can_be_one_record
from pyrmq_core.protocol.messages.payload import Payload, encode_one
from tests.protocol.strategies import MESSAGES

OWN = {"INSTANCE_ID": "tenant"}


def ids(count: int) -> list[str]:
    return [f"7F000001000100000000000000{number:06X}" for number in range(count)]


def joined(members: list[BatchMember], *, single_tag: bool = False) -> Payload:
    parts = [(message.flag, message.body, before, after) for message, before, after, _ in members]
    first = members[0][0]
    return join_members(first.topic, first.wait_store_msg_ok, parts, ids(len(parts)), single_tag=single_tag)


def members_of(messages: list[Message]) -> list[BatchMember]:
    members = [batch_member(message, 4096) for message in messages]
    return [member for member in members if member is not None]


@given(st.lists(MESSAGES, min_size=2, max_size=6), st.booleans())
def test_members_join_into_the_batch_of_their_messages(messages: list[Message], wait: bool) -> None:
    messages = [replace(message, topic="T", wait_store_msg_ok=wait) for message in messages]
    batch = encode_batch(messages, ids(len(messages)))
    assert joined(members_of(messages), single_tag=batch.single_tag) == batch


@given(st.text("ab", min_size=1), st.text("kéy ", max_size=5).filter(str.strip) | st.none())
def test_a_member_knows_its_size_in_a_batch(body: str, keys: str | None) -> None:
    """In characters: those beyond ASCII take more bytes than it says."""
    member = batch_member(Message("T", body.encode(), keys=keys, tags="t", properties={"n": "v"}), 4096)
    assert member is not None
    whole = bytes(joined([member, member]).body)
    assert 2 * member[3] == len(whole) - 2 * (keys or "").count("é")


@given(MESSAGES, st.sampled_from([{}, OWN]))
def test_a_single_member_becomes_the_request_of_its_message(message: Message, own: dict[str, str]) -> None:
    member = batch_member(message, 4096, system_properties=own)
    assert member is not None
    alone = encode_one(message, ids(1)[0], compression=None, system_properties=own)
    assert joined([member]) == alone
    assert not can_be_one_record(joined([member, member]))
    assert can_be_one_record(joined([member, member], single_tag=True))


@pytest.mark.parametrize(
    "message",
    [
        Message("T", bytes(4096)),
        Message("T", b"x", delay_level=1),
        Message("T", b"x", delay=timedelta(seconds=1)),
        Message("T", b"x", deliver_at=datetime.now(UTC)),
        Message("%RETRY%g", b"x"),
        Message("T", b"x", properties={"n": "v" * 8_000}),
    ],
)
def test_what_travels_alone(message: Message) -> None:
    assert batch_member(message, 4096) is None
    assert batch_member(message, 4096, system_properties=OWN) is None
    assert batch_member(Message("%RETR", bytes(4095), properties={"n": "v" * 7_900}), 4096) is not None


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b""),
        Message("T", b"x", keys=" "),
        Message("T", b"x", tags="\x01"),
        Message("T", b"x", tags="\ud800"),
        Message("T", b"x", sharding_key="\ud800"),
        Message("T", b"x", properties={"n": ""}),
        Message("T", b"x", properties={"UNIQ_KEY": "v"}),
    ],
)
def test_a_broken_rule_is_named_when_the_message_is_sent(message: Message) -> None:
    with pytest.raises(InvalidMessage) as alone:
        encode_one(message, ids(1)[0])
    with pytest.raises(InvalidMessage) as together:
        batch_member(message, 4096)
    assert str(together.value) == str(alone.value)
