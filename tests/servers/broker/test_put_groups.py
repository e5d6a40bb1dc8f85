"""Appends that are stored together: the same files and callbacks as one by one, and a full disk halves none."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.servers.broker.store.appending import Append, AppendResult, Dispatched, DoesNotFit
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.formats import file_name
from pyrmq_core.servers.broker.store.layout import StoreSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore, StoreListener
from pyrmq_core.servers.broker.store.reading import QueueKey
from tests.servers.broker.memory_files import MemoryFile, MemoryFiles
from tests.servers.broker.stores import NOW_MS, Sent

# A segment holds a few records, a queue file three entries.
SETTINGS = StoreSettings(segment_bytes=1024, queue_file_bytes=60, batch_queue_file_bytes=46 * 3, keeps_lite_queues=True)
BATCHES = "B"


def whole_batch(count: int, size: int) -> Append:
    append = Sent(BATCHES, 0, (b"x" * size,)).append()
    return replace(append, sys_flag=BATCH_RECORD, inner_num=count)


plain = st.builds(
    lambda key, sizes: Sent(key[0], key[1], tuple(b"y" * size for size in sizes), "TagA").append(),
    st.sampled_from([("A", 0), ("A", 1), ("%RETRY%G", 0), (BATCHES, 0), ("../up", 0), ("A", -1)]),
    st.lists(st.integers(0, 250), min_size=1, max_size=3),
)
batches = st.builds(whole_batch, st.integers(1, 5), st.integers(1, 200))
too_large = st.builds(lambda size: Sent("A", 0, (b"z" * size,)).append(), st.integers(950, 1100))
lite = st.builds(
    lambda queue_id, size, name: replace(
        Sent("A", queue_id, (b"l" * size,), "TagA").append(), lite_queue=f"%LMQ%$A${name}"
    ),
    st.integers(0, 1),
    st.integers(0, 250),
    st.sampled_from(["s", "t"]),
)
appends = st.lists(st.one_of(plain, plain, batches, too_large, lite), min_size=1, max_size=25)
groups = st.lists(appends, min_size=1, max_size=4)


@dataclass
class Calls(StoreListener):
    """The calls of a store: all messages, the entries of each queue, and the numbers of new segments and of stores."""

    messages: list[Dispatched] = field(default_factory=list)
    entries: dict[QueueKey, bytes] = field(default_factory=dict)
    segments: list[int] = field(default_factory=list)
    stores: int = 0
    store: MessageStore | None = None

    def readable(self, key: QueueKey, entries: bytes) -> None:
        self.entries[key] = self.entries.get(key, b"") + entries

    def dispatched(self, messages: Dispatched) -> None:
        self.messages.append(messages)

    def stored(self) -> None:
        self.stores += 1

    def segment_begun(self) -> None:
        assert self.store is not None
        self.segments.append(self.store.end)


def opened(files: MemoryFiles, *, is_sync: bool = False) -> tuple[MessageStore, Calls]:
    store, calls = MessageStore(files, replace(SETTINGS, readable_when_flushed=is_sync)), Calls()
    store.queues.is_batch_topic = lambda topic: topic == BATCHES
    store.listener = calls
    calls.store = store
    store.open(1)
    return store, calls


def put_singly(store: MessageStore, group: Sequence[Append], now_ms: int) -> list[AppendResult | StoreError]:
    results: list[AppendResult | StoreError] = []
    for append in group:
        try:
            results.append(store.put(append, now_ms))
        except StoreError as error:
            results.append(error)
    return results


def texts(results: Sequence[AppendResult | StoreError]) -> list[object]:
    return [(type(result), str(result)) if isinstance(result, StoreError) else result for result in results]


def data(files: MemoryFiles) -> dict[str, bytes]:
    """Returns the files of log and queues."""
    return {path: bytes(content) for path, content in files.contents.items() if "/" in path}


@given(groups, st.booleans())
def test_groups_are_stored_as_one_append_after_the_other(groups: list[list[Append]], is_sync: bool) -> None:
    """Bytes, places, refusals and calls are equal, in queues of either kind, over the ends of segments and files."""
    files, other_files = MemoryFiles(), MemoryFiles()
    (reference, reference_calls), (other, other_calls) = (
        opened(files, is_sync=is_sync),
        opened(other_files, is_sync=is_sync),
    )
    for number, group in enumerate(groups):
        singly = put_singly(reference, group, NOW_MS + number)
        assert texts(other.put_all(group, NOW_MS + number)) == texts(singly)
        assert (reference.end, reference_calls.segments) == (other.end, other_calls.segments)
        assert (other_calls.stores > 0) == (reference_calls.stores > 0)
        if is_sync:
            assert other_calls.messages == []
    for store in (reference, other):
        store.flush()
    assert other_calls.messages == reference_calls.messages
    assert other_calls.entries == reference_calls.entries
    assert other_files.contents == files.contents


@given(appends, st.integers(0, 3000), st.booleans(), st.booleans())
def test_a_full_disk_stores_the_first_appends_of_a_group_and_none_of_the_others(
    group: list[Append], room: int, is_sync: bool, killed: bool
) -> None:
    """The others follow when there is room again: log and queues are the same as on a disk that was never full."""
    files, roomy = MemoryFiles(), MemoryFiles()
    store, calls = opened(files, is_sync=is_sync)
    full, full_calls = opened(roomy, is_sync=is_sync)
    files.room = room
    results = store.put_all(group, NOW_MS)
    failed = [number for number, result in enumerate(results) if is_of_disk(result)]
    first = min(failed, default=len(group))
    stored = [result for result in results[:first] if isinstance(result, AppendResult)]
    assert all(is_of_disk(result) for result in results[first:])
    assert texts(results[:first]) == texts(full.put_all(group, NOW_MS)[:first])
    files.room = None
    if killed:
        store.abandon()
        store, calls = opened(files, is_sync=is_sync)
    records = [record for record in store.records(0) if isinstance(record, RawRecord)]
    assert [record.commit_log_offset for record in records] == [
        place for result in stored for place in result.positions
    ]
    again = store.put_all(group[first:], NOW_MS)
    assert not any(map(is_of_disk, again))
    for each in (store, full):
        each.flush()
        each.dispatch(each.end)  # as the flusher does
    assert data(files) == data(roomy)
    if not killed:
        assert (calls.messages, calls.entries) == (full_calls.messages, full_calls.entries)


def is_of_disk(result: AppendResult | StoreError) -> bool:
    return isinstance(result, StoreError) and not isinstance(result, (DoesNotFit, UnsafePath))


def test_a_queue_that_a_full_disk_refuses_keeps_the_order_of_the_log() -> None:
    """Entries that were written before are neither written nor reported again."""
    files = MemoryFiles()
    store, calls = opened(files)
    group = [Sent(topic, 0, (b"x",)).append() for topic in ("A", BATCHES, "C", BATCHES, "A", "C")]
    store.put_all([Sent("C", 0, (b"before",)).append()] * 3, NOW_MS)  # the next entry makes a file
    before = len(calls.messages)
    files.room = needed(group) + 2 * 20 + 2 * 46 + 5
    assert all(isinstance(result, AppendResult) for result in store.put_all(group, NOW_MS))
    assert [messages.append.topic for messages in calls.messages[before:]] == ["A", BATCHES]
    assert [store.reader.bounds((topic, 0))[1] for topic in ("A", BATCHES, "C")] == [2, 2, 3]
    (result,) = store.put_all(group[:1], NOW_MS)
    assert "consume queues cannot be written" in str(result)
    files.room = None
    store.dispatch(store.end)
    assert [messages.append for messages in calls.messages[before:]] == group
    assert {key: len(entries) for key, entries in calls.entries.items()} == {
        ("A", 0): 2 * 20,
        (BATCHES, 0): 2 * 20,
        ("C", 0): 5 * 20,
    }


def needed(group: Sequence[Append]) -> int:
    """Returns the bytes of a group in the log."""
    store, _ = opened(MemoryFiles())
    store.put_all(group, NOW_MS)
    return store.end


class WritingFiles(MemoryFiles):
    """Files that record the paths of all writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def open(self, path: str, size: int, *, sync_name: bool = True) -> MemoryFile:
        super().open(path, size, sync_name=sync_name)
        return WritingFile(self, path)


class WritingFile(MemoryFile):
    def write(self, position: int, data: bytes) -> None:
        assert isinstance(self.files, WritingFiles)
        self.files.written.append(self.path.rsplit("/", 1)[0])
        super().write(position, data)


def test_a_group_is_one_write_to_the_log_and_one_to_each_queue() -> None:
    files = WritingFiles()
    store = MessageStore(files, StoreSettings(segment_bytes=1 << 16, queue_file_bytes=6000))
    store.open(1)
    group = [Sent("A", number % 3, (b"x" * number,)).append() for number in range(60)]
    files.written.clear()
    store.put_all(group, NOW_MS)
    assert files.written == ["commitlog", *(f"consumequeue/A/{queue_id}" for queue_id in range(3))]
    assert [store.reader.bounds(("A", queue_id)) for queue_id in range(3)] == [(0, 20)] * 3


def test_a_queue_that_cannot_be_read_ends_a_group() -> None:
    """A queue whose oldest messages were removed is read at its next append, to find where it begins."""
    files = MemoryFiles()
    store, _ = opened(files)
    for topic in ("A", "A", "C", "C"):
        store.put(Sent(topic, 0, (b"x" * 500,)).append(), NOW_MS)
    store.flush()
    for step in store.remove_oldest_segment():
        step()
    files.unreadable["consumequeue/A/0/" + file_name(0)] = 0
    group = [Sent(topic, 0, (b"y",)).append() for topic in ("C", "A", "C")]
    results = store.put_all(group, NOW_MS)
    assert [type(result) for result in results] == [AppendResult, StoreError, StoreError]
    files.unreadable.clear()
    assert [type(result) for result in store.put_all(group[1:], NOW_MS)] == [AppendResult] * 2
    assert [store.reader.bounds((topic, 0))[1] for topic in ("A", "C")] == [3, 4]


def test_a_store_that_ended_or_refuses_stores_none_of_a_group() -> None:
    store, calls = opened(MemoryFiles())
    group = [Sent("A", 0, (b"x",)).append(), replace(Sent("A", 0, ()).append(), pieces=[piece(0, b"y", b"")])]
    store.refusal = "the disk is nearly full"
    assert texts(store.put_all(group, NOW_MS)) == [(StoreError, "the disk is nearly full")] * 2
    assert (store.end, calls.stores) == (0, 0)
    store.refusal = ""
    assert store.put_all([], NOW_MS) == []
    assert [type(result) for result in store.put_all(group, NOW_MS)] == [AppendResult] * 2
    assert calls.stores == 1
