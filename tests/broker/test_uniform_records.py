"""Uniform records are replayed by columns: with the same queues as one by one, whatever lies between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.broker.store.appending import build, entry_of_record
from pyrmq_core.broker.store.batch_pieces import Piece, piece
from pyrmq_core.broker.store.commit_log import CommitLog
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.store.scan.log_scan import LogEnd, scan, scan_runs
from pyrmq_core.broker.store.scan.uniform_records import FEWEST, UniformRecords, uniform_records
from pyrmq_core.protocol.messages.record import FIXED_V4, SYS_FLAG_POSITION, RawRecord
from tests.broker.memory_files import MemoryFiles
from tests.broker.stores import SMALL, Sent

OFFSET = 4096
NOW_MS = 1_700_000_000_000
SETTINGS = replace(SMALL, segment_bytes=1 << 14)
RUN = 3 * FEWEST


def pieces(bodies: Sequence[bytes], properties: Sequence[bytes]) -> list[Piece]:
    return [piece(0, *one) for one in zip(bodies, properties, strict=True)]


def records(count: int = RUN, topic: str = "T", tags: bytes = b"TAGS\x01A\x02", body: bytes = b"body") -> bytes:
    append, numbers = Sent(topic, 1, (body,)).append(), range(count)
    made = pieces([b"%b%3d" % (body, one) for one in numbers], [b"K\x01%3d\x02" % one + tags for one in numbers])
    return build(replace(append, pieces=made), OFFSET, 5, NOW_MS).records


def run_of(buffer: bytes) -> UniformRecords | None:
    return uniform_records(buffer, 0, OFFSET, 1000)


def test_a_run_has_the_entries_of_its_records() -> None:
    found = run_of(records())
    assert found is not None
    one_by_one = list(found.records())
    assert (found.count, len(one_by_one), found.queue_offset, found.topic) == (RUN, RUN, 5, b"T")
    assert found.entries() == b"".join(map(entry_of_record, one_by_one))
    assert found.end == OFFSET + len(records())


def test_a_run_ends_where_a_record_is_of_another_kind() -> None:
    other = build(Sent("T", 2, (b"body  0",)).append(), OFFSET, 0, 1).records
    found = run_of(records() + other)
    assert found is not None
    assert found.count == RUN


@pytest.mark.parametrize("at", [0, 5, 9, 14, 25, 33, 38, FIXED_V4.size - 1, FIXED_V4.size + 2])
@pytest.mark.parametrize("number", [0, 1, FEWEST - 1])
def test_one_changed_byte_among_the_first_records_ends_the_run(at: int, number: int) -> None:
    changed = bytearray(records())
    size = len(changed) // RUN
    changed[number * size + at] ^= 0x10
    assert run_of(bytes(changed)) is None


@pytest.mark.parametrize(
    "unusual",
    [
        records(topic="SCHEDULE_TOPIC_XXXX"),
        records(FEWEST - 1),
        records(topic="t" * 200),
        records(tags=b"x" * 5000),
        records(tags=b"\0"),
        records()[:-1][: 10 * 4],
    ],
)
def test_what_is_unusual_is_left_to_the_scan(unusual: bytes) -> None:
    assert run_of(unusual) is None


def test_a_prepared_message_is_no_part_of_a_run() -> None:
    changed = bytearray(records())
    size = len(changed) // RUN
    for number in range(RUN):
        changed[number * size + SYS_FLAG_POSITION + 3] = 4
    assert run_of(bytes(changed)) is None


def test_a_run_of_a_topic_that_was_made_again_begins_its_queue_anew() -> None:
    master, copy = (MessageStore(MemoryFiles(), SETTINGS) for _ in range(2))
    master.open(1)
    copy.open(1, is_copy=True)
    many = replace(Sent("T", 0, (b"x",)).append(), pieces=pieces([b"x"] * RUN, [b""] * RUN))
    master.put(many, NOW_MS)
    master.delete_topic("T")
    master.put(many, NOW_MS)
    copy.copy(0, master.reader.log_part(0, master.end))
    while copy.replay():
        pass
    assert copy.reader.bounds(("T", 0)) == (0, RUN)
    assert copy.reader.entry(("T", 0), 0) == master.reader.entry(("T", 0), 0)


def test_a_replay_reads_no_further_than_the_log_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it a segment has zeros, which would be read for each message that arrives alone."""
    master, copy = (MessageStore(MemoryFiles(), replace(SMALL, segment_bytes=1 << 21)) for _ in range(2))
    master.open(1)
    copy.open(1, is_copy=True)
    read, sizes = CommitLog.read, list[int]()

    def recorded(log: CommitLog, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(log, offset, size)

    for number in range(3):
        master.put(Sent("T", 0, (b"x",)).append(), NOW_MS)
        copy.copy(copy.end, master.reader.log_part(copy.end, master.end))
        monkeypatch.setattr(CommitLog, "read", recorded)
        while copy.replay():
            pass
        monkeypatch.setattr(CommitLog, "read", read)
        assert copy.reader.bounds(("T", 0)) == (0, number + 1)
    assert 0 < max(sizes) < 300


@given(
    st.lists(
        st.tuples(
            st.sampled_from("TU"),
            st.integers(0, 1),
            st.integers(1, 40),
            st.sampled_from((b"", b"TAGS\x01A\x02", b"TAGS\x01B")),
            st.integers(0, 30),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_a_copy_has_the_queues_of_its_master(sent: list[tuple[str, int, int, bytes, int]], parts: int) -> None:
    master, copy = (MessageStore(MemoryFiles(), SETTINGS) for _ in range(2))
    master.open(1)
    copy.open(1, is_copy=True)
    for now_ms, (topic, queue_id, count, tags, body_bytes) in enumerate(sent, NOW_MS):
        append = Sent(topic, queue_id, (b"x",)).append()
        bodies = [b"%3d" % number + b"b" * body_bytes for number in range(count)]
        master.put(replace(append, pieces=pieces(bodies, [tags] * count)), now_ms)
    at = 0
    while at < master.end:
        part = master.reader.log_part(at, max(1, master.end // parts))
        copy.copy(at, part)
        at += len(part)
        while copy.replay():
            pass
    assert copy.readable_end == master.end
    for key in master.queues.by_key:
        start, end = master.reader.bounds(key)
        assert copy.reader.bounds(key) == (start, end)
        assert [copy.reader.entry(key, offset) for offset in range(start, end)] == [
            master.reader.entry(key, offset) for offset in range(start, end)
        ]
    plain = [found for found in scan(master._log, 0) if not isinstance(found, LogEnd)]
    together: list[RawRecord] = []
    for found in scan_runs(master._log, 0):
        if isinstance(found, UniformRecords):
            together += found.records()
        elif isinstance(found, RawRecord):
            together.append(found)
    if max(count for _, _, count, _, _ in sent) > 2 * FEWEST:
        assert any(isinstance(found, UniformRecords) for found in scan_runs(master._log, 0))
    assert together == plain
    assert len(together) == sum([count for _, _, count, _, _ in sent])
