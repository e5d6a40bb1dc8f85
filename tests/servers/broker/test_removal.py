"""The removal of old segments from a store: minimum offsets follow, the rest stays as it was, over every end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import GetStatus
from pyrmq_core.servers.embedded.forgetful_files import ForgetfulFiles
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.stores import ALL, NOW_MS, SMALL, Sent, put, read

PLAIN = [("A", 0), ("A", 1), ("B", 0)]
WHOLE = ("W", 0)
KEYS = [*PLAIN, WHOLE]


def opened(files: Files) -> MessageStore:
    store = MessageStore(files, SMALL)
    store.queues.is_batch_topic = lambda topic: topic == "W"
    store.open(1)
    return store


def put_whole(store: MessageStore, bodies: list[bytes]) -> None:
    """Puts a batch that is one record."""
    body = encode_batch_body([BatchItem(0, content, b"") for content in bodies])
    plain = Sent("W", 0, (body,)).append()
    fields: dict[str, Any] = {name: getattr(plain, name) for name in Append.__slots__}
    store.put(Append(**{**fields, "sys_flag": 0xC0, "inner_num": len(bodies)}), NOW_MS)


def call(calls: list[Callable[[], None]]) -> None:
    for function in calls:
        function()


def remove_segment(store: MessageStore) -> bool:
    store.flush()
    if store.oldest_segment() is None:
        return False
    call(store.remove_oldest_segment())
    return True


def clean_queues(store: MessageStore) -> None:
    for key in list(store.queues.by_key):
        call(store.queues.retire_files(key))


@dataclass
class Model:
    """All messages ever put, by queue: the log offset of each one's record."""

    places: dict[tuple[str, int], list[int]] = field(default_factory=lambda: {key: [] for key in KEYS})

    def assert_same(self, store: MessageStore) -> None:
        for key, places in self.places.items():
            low = next((number for number, place in enumerate(places) if place >= store.start), len(places))
            assert store.reader.bounds(key) == (low, len(places)), key
            result = store.reader.get(key, low, ALL)
            if low < len(places):
                records = list(iterate_records(result.records, check_crc=True))
                assert [record.commit_log_offset for record in records] == list(dict.fromkeys(places[low:]))
            for below in {0, low - 1} & set(range(low)):
                small = store.reader.get(key, below, ALL)
                assert (small.status, small.next_offset, small.records) == (GetStatus.OFFSET_TOO_SMALL, low, b"")
                assert store.reader.store_time(key, below) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(PLAIN), st.integers(1, 8)),
        st.tuples(st.just(WHOLE), st.integers(1, 12)),
        st.sampled_from(["remove", "clean", "stop", "kill"]),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_left_is_as_it_was(steps: list[Any]) -> None:
    files, model = MemoryFiles(), Model()
    store = opened(files)
    for number, step in enumerate(steps):
        match step:
            case "remove":
                remove_segment(store)
            case "clean":
                clean_queues(store)
            case "stop" | "kill":
                getattr(store, "close" if step == "stop" else "abandon")()
                store = opened(files)
            case (("W", 0), count):
                end = store.end
                put_whole(store, [b"%d" % number] * count)
                place = end if store.reader.record(end) is not None else end - end % 1024 + 1024
                model.places[WHOLE] += [place] * count
            case (key, count):
                model.places[key] += store.put(Sent(key[0], key[1], (b"body",) * count).append(), NOW_MS).positions
    model.assert_same(store)
    store.abandon()
    model.assert_same(opened(files))


def filled(files: Files, *, segments: int = 4) -> MessageStore:
    """Returns a store with some segments of messages; the last ones of A1 and W lie in the first segment."""
    store = opened(files)
    put(store, Sent("A", 1, (b"first",) * 2))
    put_whole(store, [b"1", b"2", b"3"])
    while store.end < segments * SMALL.segment_bytes:
        put(store, Sent("A", 0, (b"more" * 5,)))
    store.flush()
    return store


def test_queue_files_go_with_their_messages_but_never_the_last_one() -> None:
    files = MemoryFiles()
    store = filled(files, segments=8)
    names = files.names("consumequeue/A/0")
    assert len(names) > 4
    while remove_segment(store):
        clean_queues(store)
        start, end = store.reader.bounds(("A", 0))
        assert [record.queue_offset for record in read(store, "A", 0, start)] == list(range(start, end))
    left = files.names("consumequeue/A/0")
    start, end = store.reader.bounds(("A", 0))
    assert 0 < len(left) < 4
    assert int(left[0]) <= 20 * start < int(left[0]) + SMALL.queue_file_bytes
    assert files.names("commitlog") == [f"{store.end - store.end % 1024:020}"]
    assert files.names("consumequeue/A/1") == files.names("batchconsumequeue/W/0") == ["0" * 20]
    assert (store.reader.bounds(("A", 1)), store.reader.bounds(WHOLE)) == ((2, 2), (3, 3))
    assert end > start > 0


def test_a_queue_that_ends_with_its_file_keeps_it() -> None:
    """The next offset is known from the last file alone."""
    files = MemoryFiles()
    store = opened(files)
    put(store, Sent("B", 0, (b"1",) * 5))
    while store.end < 3 * SMALL.segment_bytes:
        put(store, Sent("A", 0, (b"more" * 5,)))
    while remove_segment(store):
        clean_queues(store)
    store.abandon()
    store = opened(files)
    assert files.names("consumequeue/B/0") == ["0" * 20]
    assert store.reader.bounds(("B", 0)) == (5, 5)


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_queues_without_messages_go_on_behind_their_last_one(end: str) -> None:
    files = MemoryFiles()
    store = filled(files)
    while remove_segment(store):
        pass
    getattr(store, end)()
    store = opened(files)
    assert (store.reader.bounds(("A", 1)), store.reader.bounds(WHOLE)) == ((2, 2), (3, 3))
    put_whole(store, [b"4", b"5"])
    put(store, Sent("A", 1, (b"next",)))
    assert (store.reader.bounds(("A", 1)), store.reader.bounds(WHOLE)) == ((2, 3), (3, 5))
    assert [record.queue_offset for record in read(store, "A", 1, 2)] == [2]
    assert store.reader.get(WHOLE, 2, ALL).status is GetStatus.OFFSET_TOO_SMALL
    assert store.reader.get(WHOLE, 2, ALL).next_offset == 3


def test_the_segment_that_is_written_to_never_goes_nor_one_that_recovery_may_read() -> None:
    store = opened(MemoryFiles())
    put(store, Sent("A", 0, (b"1",)))
    store.flush()
    assert store.oldest_segment() is None
    while store.end < 3 * SMALL.segment_bytes:
        put(store, Sent("A", 0, (b"more" * 5,)))
    assert store.oldest_segment() is None, "nothing of it is synced"
    store.flush()
    oldest = store.oldest_segment()
    assert oldest is not None
    assert (oldest.start, oldest.next_start) == (0, 1024)
    store.fail("a sync failed")
    assert store.oldest_segment() is None


def test_any_step_of_a_removal_may_fail() -> None:
    """A removal that stopped at any step leaves a whole store, after a kill and after a power cut."""
    for cut in (False, True):
        for number in range(1, 40):
            memory = MemoryFiles()
            files = ForgetfulFiles(memory)
            store = filled(files, segments=5)
            begun, (_, end) = len(memory.syncs), store.reader.bounds(("A", 0))
            memory.fails_at = begun + number
            try:
                while remove_segment(store):
                    clean_queues(store)
                done = True
            except StoreError:
                done = False
            memory.fails_at = None
            store.abandon()
            if cut:
                files.power_cut()
            store = opened(files)
            low, found_end = store.reader.bounds(("A", 0))
            assert found_end == end
            assert [record.queue_offset for record in read(store, "A", 0, low)] == list(range(low, end))
            assert store.reader.bounds(("A", 1))[1] == 2
            assert store.reader.bounds(WHOLE)[1] == 3
            put(store, Sent("A", 1, (b"next",)))
            assert store.reader.bounds(("A", 1))[1] == 3
            if done:
                break
        assert number > 15


def test_segments_that_a_crash_left_are_served_again() -> None:
    """The file was not removed: its messages are there, as if nothing had been removed."""
    files = MemoryFiles()
    store = filled(files)
    before = read(store, "A", 0)
    store.remove_oldest_segment()
    assert store.reader.bounds(("A", 0))[0] > 0
    store.abandon()
    assert read(opened(files), "A", 0) == before


def test_a_start_reports_segments_that_are_missing_but_not_those_that_were_removed() -> None:
    files = MemoryFiles()
    store = filled(files)
    assert remove_segment(store)
    store.abandon()
    again = MessageStore(files, SMALL)
    recovery = again.open(1)
    assert (recovery.start, recovery.warnings()) == (1024, [])
    again.close()
    files.remove(f"commitlog/{1024:020}")
    recovery = MessageStore(files, SMALL).open(1)
    assert "the commit log begins at 2048: messages before are gone" in recovery.warnings()


def test_a_checkpoint_that_cannot_be_written_keeps_the_segment() -> None:
    files = MemoryFiles()
    store = filled(files)
    files.room = 0
    with pytest.raises(StoreError):
        store.remove_oldest_segment()
    assert store.start == 0


def test_deleted_queues_begin_at_0_and_stay_deleted() -> None:
    files = MemoryFiles()
    store = filled(files)
    while remove_segment(store):
        pass
    gone = [key for key in KEYS if store.queues.is_expired(key)]
    assert gone == [("A", 1), WHOLE]
    call(store.delete_queues(gone, [store.queues.folder(key) for key in gone]))
    before = store.reader.bounds(("A", 0))
    store.abandon()
    store = opened(files)
    assert [store.reader.bounds(key) for key in KEYS] == [before, (0, 0), (0, 0), (0, 0)]
    put_whole(store, [b"1"])
    assert store.reader.bounds(WHOLE) == (0, 1)
