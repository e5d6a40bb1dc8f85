"""A copy of a log gets the queues of its master, however the log reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.message_store import MessageStore
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import SMALL, Sent

NOW_MS = 1_700_000_000_000


def master_and_copy(segment_bytes: int = 1 << 14) -> tuple[MessageStore, MessageStore]:
    master, copy = (MessageStore(MemoryFiles(), replace(SMALL, segment_bytes=segment_bytes)) for _ in range(2))
    master.open(1)
    copy.open(1, is_copy=True)
    return master, copy


def test_the_queue_of_a_topic_that_was_made_again_begins_anew() -> None:
    master, copy = master_and_copy()
    many = replace(Sent("T", 0, (b"x",)).append(), pieces=[piece(0, b"x", b"")] * 24)
    master.put(many, NOW_MS)
    master.delete_topic("T")
    master.put(many, NOW_MS)
    copy.copy(0, master.reader.log_part(0, master.end))
    while copy.replay():
        pass
    assert copy.reader.bounds(("T", 0)) == (0, 24)
    assert copy.reader.entry(("T", 0), 0) == master.reader.entry(("T", 0), 0)


def test_a_replay_reads_no_further_than_the_log_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it a segment has zeros, which would be read for each message that arrives alone."""
    master, copy = master_and_copy(1 << 21)
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
    master, copy = master_and_copy()
    for now_ms, (topic, queue_id, count, tags, body_bytes) in enumerate(sent, NOW_MS):
        pieces = [piece(0, b"%d" % number + b"b" * body_bytes, tags) for number in range(count)]
        master.put(replace(Sent(topic, queue_id, (b"x",)).append(), pieces=pieces), now_ms)
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
    assert sum([end - start for start, end in map(master.reader.bounds, master.queues.by_key)]) == sum(
        [count for _, _, count, _, _ in sent]
    )
