"""The readable part of a pull with records that are not: all others, each once, in steps that go forward."""

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.client.consumer.pull.unreadable import readable
from pyrmq_core.model import MessageQueue, PullStatus
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.record import encode_record

QUEUE = MessageQueue("T", "broker-a", 0)
SOUND, DAMAGED_BODY, NO_RECORD, CUT_OFF, OF_ANOTHER_OFFSET = range(5)


def record(offset: int, kind: int) -> bytes:
    packed = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=0 if kind == OF_ANOTHER_OFFSET else offset,
        commit_log_offset=offset * 1000,
        body=b"body %d" % offset,
        properties="",
        born_timestamp_ms=1,
        born_host="10.0.0.5:50000",
        store_timestamp_ms=2,
        store_host="10.0.0.6:10911",
    )
    if kind == DAMAGED_BODY:
        return packed.replace(b"body", b"BODY")
    if kind == NO_RECORD:
        return packed[:4] + b"none" + packed[8:]
    return (1 << 30).to_bytes(4) + packed[4:] if kind == CUT_OFF else packed


@given(st.lists(st.integers(SOUND, CUT_OFF), min_size=1, max_size=12), st.integers(1, 5))
def test_all_others_come_once_and_in_order(kinds: list[int], most: int) -> None:
    start, end, offsets, faults = 0, len(kinds), [], 0
    while start < end:
        following = min(end, start + most)
        records = b"".join(record(offset, kinds[offset]) for offset in range(start, following))
        pull = RawPull(QUEUE, start, following, 0, end, PullStatus.FOUND, records, is_unfiltered=True)
        part = readable(pull, BodyRules())
        assert start < part.next_offset <= following
        offsets += [message.queue_offset for message in part.messages]
        faults += len(part.faults)
        start = part.next_offset
    assert offsets == [offset for offset, kind in enumerate(kinds) if kind == SOUND]
    assert faults == len(kinds) - len(offsets)


def test_a_record_of_another_offset_comes_not_again() -> None:
    records = record(5, SOUND) + record(6, OF_ANOTHER_OFFSET) + record(7, SOUND)
    part = readable(RawPull(QUEUE, 5, 8, 0, 8, PullStatus.FOUND, records), BodyRules())
    assert [message.queue_offset for message in part.messages] == [5, 7]
    assert part.next_offset == 8
