"""Pulls read record by record: a record that cannot be read costs itself, and skipped bodies stay packed."""

from __future__ import annotations

import zlib

import pytest

from pyrmq_core.errors import BodyDamaged, BodyTooLarge, DataLost, RecordError
from pyrmq_core.model import EVERYTHING, MessageExt, MessageQueue, OffsetRange, PullStatus
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.readable import UnreadableRecord, has_compressed, iterate_readable
from pyrmq_core.protocol.messages.record import encode_record

QUEUE = MessageQueue("T", "broker-a", 0)
PLAIN, ZLIB, NO_ZLIB, BOMB, DAMAGED, CUT = range(6)
LIMIT = 10_000


def record(offset: int, kind: int = PLAIN) -> bytes:
    text = b"body %d" % offset
    bodies = {ZLIB: zlib.compress(text), NO_ZLIB: b"no zlib", BOMB: zlib.compress(b"x" * (LIMIT + 1))}
    packed = encode_record(
        topic="T",
        queue_id=0,
        queue_offset=offset,
        commit_log_offset=offset * 1000,
        body=bodies.get(kind, text),
        properties=f"KEYS\x01k{offset}\x02",
        born_timestamp_ms=1,
        born_host="10.0.0.5:50000",
        store_timestamp_ms=2,
        store_host="10.0.0.6:10911",
        sys_flag=1 if kind in bodies else 0,
    )
    if kind == DAMAGED:
        return packed.replace(b"body", b"BODY")
    return packed[:4] + b"none" + packed[8:] if kind == CUT else packed


def pull_of(*kinds: int, end: int | None = None) -> RawPull:
    records = b"".join(record(offset, kind) for offset, kind in enumerate(kinds))
    end = len(kinds) if end is None else end
    return RawPull(QUEUE, 0, end, 0, end, PullStatus.FOUND, records, is_unfiltered=True)


def test_each_bad_record_costs_itself_and_shows_its_head() -> None:
    pull = pull_of(PLAIN, NO_ZLIB, ZLIB, BOMB, PLAIN, DAMAGED, ZLIB)
    items = list(iterate_readable(pull, EVERYTHING, BodyRules(max_body_bytes=LIMIT), allow_gaps=False))
    assert [item.body for item in items if isinstance(item, MessageExt)] == [b"body %d" % n for n in (0, 2, 4, 6)]
    faults = [item for item in items if isinstance(item, UnreadableRecord)]
    assert [type(fault.error) for fault in faults] == [RecordError, BodyTooLarge, BodyDamaged]
    assert [fault.message and (fault.message.queue_offset, fault.message.keys) for fault in faults] == [
        (1, "k1"),
        (3, "k3"),
        (5, "k5"),
    ]
    assert faults[0].message is not None
    assert faults[0].message.body == b"no zlib"


def test_a_damaged_head_ends_the_answer_at_its_offset() -> None:
    pull = pull_of(PLAIN, ZLIB, CUT, PLAIN)
    *items, last = iterate_readable(pull, EVERYTHING)
    assert [item.body for item in items if isinstance(item, MessageExt)] == [b"body 0", b"body 1"]
    assert isinstance(last, UnreadableRecord)
    assert (last.offset, last.message) == (2, None)
    assert str(last.error).endswith(f"; the offsets 2 to {pull.next_offset - 1} of {pull.queue} are not read")


def test_only_wanted_offsets_are_unpacked() -> None:
    pull = pull_of(NO_ZLIB, PLAIN, ZLIB, BOMB, PLAIN)
    items = list(iterate_readable(pull, OffsetRange(0, 5), BodyRules(max_body_bytes=LIMIT), offsets={2, 4}))
    assert [item.body for item in items if isinstance(item, MessageExt)] == [b"body 2", b"body 4"]
    assert len(items) == 2


def test_bodies_are_unpacked_when_they_are_reached() -> None:
    items = iterate_readable(pull_of(ZLIB, BOMB), EVERYTHING, BodyRules(max_body_bytes=LIMIT))
    first = next(items)
    assert isinstance(first, MessageExt)
    assert isinstance(next(items), UnreadableRecord)


def test_gaps_are_an_error_at_the_end_unless_they_are_allowed() -> None:
    pull = pull_of(PLAIN, ZLIB, end=3)
    assert len(list(iterate_readable(pull, EVERYTHING))) == 2
    with pytest.raises(DataLost, match="2 is the first"):
        list(iterate_readable(pull, EVERYTHING, allow_gaps=False))


def test_which_pulls_have_packed_bodies() -> None:
    assert not has_compressed(pull_of(PLAIN, PLAIN).records)
    assert has_compressed(pull_of(PLAIN, ZLIB).records)
    assert has_compressed(b"\0\0\0\1")
