"""`MessageStore`: the broker's messages, appended to one log and found again by topic, queue and offset.

Everything here blocks and is called by one thread; only functions that `unsynced`, `unsynced_queues`, `checks` and
`delete_topic` return may run in another. Times are arguments. A message is stored when it is in the log, and readable
when its queue entry is written: at once, or, with `readable_when_flushed` (SYNC_FLUSH), when it is synced.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from pyrmq_core.broker.store.appending import Append, appended_bytes, build, entry_of_record
from pyrmq_core.broker.store.batch_queue import BatchConsumeQueue, BatchEntry, plain_entries
from pyrmq_core.broker.store.commit_log import CommitLog
from pyrmq_core.broker.store.consume_queue import ConsumeQueue
from pyrmq_core.broker.store.files import Files
from pyrmq_core.broker.store.formats import CHECKPOINT_BYTES, Checkpoint, Entry
from pyrmq_core.broker.store.layout import (
    ABORT_NAME,
    BATCH_QUEUES_FOLDER,
    CHECKPOINT_NAME,
    QUEUES_FOLDER,
    StoreSettings,
)
from pyrmq_core.broker.store.log_scan import record_at, scan
from pyrmq_core.broker.store.paths import check_name, queue_number, queue_place
from pyrmq_core.broker.store.reading import (
    AnyConsumeQueue,
    GetLimits,
    GetResult,
    check_record,
    entry_error,
    read_messages,
)
from pyrmq_core.broker.store.recovery import EntryOf, QueueKey, Recovery, recover, slots_of
from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import HEAD, SYS_FLAG_POSITION, RawRecord
from pyrmq_core.protocol.messages.sysflag import BORN_HOST_V6

# The most that INNER_NUM and INNER_BASE add to a batch record.
INNER_BYTES: Final = 64


class DoesNotFit(StoreError):
    """Messages of one append that are larger than a segment."""


class AppendResult(NamedTuple):
    """The place of an append: its records in the log, its first queue offset, and the log's end behind it."""

    positions: list[int]
    queue_offset: int
    end: int


class Mark(NamedTuple):
    """An offset of the log, with the number of queue entries and of topics' deletions before it."""

    end: int
    entries: int
    deletions: int


class _Waiting(NamedTuple):
    """Entries of stored messages that are not readable yet."""

    key: QueueKey
    queue: AnyConsumeQueue
    queue_offset: int
    entries: bytes
    end: int


class MessageStore:
    """The log, the queues and the checkpoint; `open` recovers them after a crash.

    After a failed sync the system may have dropped written bytes, and no later sync repairs that. Then `failure` has
    the reason, nothing more is stored, and the caller abandons the store, so that the next opening checks the log.

    `on_failure` is called with the reason, `on_readable` with each queue that gets messages, `on_stored` when there is
    something to flush. `is_batch_topic` returns True for a topic of batch queues, None for an unknown one.
    """

    def __init__(self, files: Files, settings: StoreSettings, entry_of: EntryOf | None = None) -> None:
        self.files = files
        self.settings = settings
        self.on_readable: Callable[[QueueKey, bytes], None] = lambda key, entries: None
        self.on_stored: Callable[[], None] = lambda: None
        self.on_failure: Callable[[str], None] = lambda reason: None
        self.is_batch_topic: Callable[[str], bool | None] = lambda topic: None
        self._entry_of = entry_of or entry_of_record
        self._log = CommitLog(files, settings.log_folder.rstrip("/"), settings.segment_bytes)
        self._queues: dict[QueueKey, AnyConsumeQueue] = {}
        self._waiting: deque[_Waiting] = deque()
        self._checkpoint = Checkpoint()
        self._last_store_ms = 0
        self._entries = 0  # of all queues, including those not written yet
        self._deletions = 0
        self._handed_out: deque[Mark] = deque()  # of `unsynced` calls that `synced` has not confirmed, ascending
        self.synced_mark = Mark(0, 0, 0)
        self.failure = ""

    def open(self, process_id: int) -> Recovery:
        """Locks the directory, recovers, and marks the store as in use; raises `StoreError` if that fails."""
        files = self.files
        files.add_folder(self.settings.log_folder.rstrip("/"))
        files.lock()
        clean = files.size(ABORT_NAME) is None
        self._checkpoint = Checkpoint.decode(files.load(CHECKPOINT_NAME))
        self._log.open()
        self._open_queues(QUEUES_FOLDER, are_batch=False)
        self._open_queues(BATCH_QUEUES_FOLDER, are_batch=True)
        recovery = recover(
            files, self._log, self._queues, self._queue_of, self._entry_of, self._checkpoint, clean=clean
        )
        if files.size(CHECKPOINT_NAME) != CHECKPOINT_BYTES:
            files.remove(CHECKPOINT_NAME)
            self._checkpoint = replace(self._checkpoint, safe_offset=None)
        files.save(ABORT_NAME, str(process_id).encode(), keep_previous=False)
        self._last_store_ms = self._checkpoint.log_time_ms
        self._entries = self._count_entries()
        self.flush()
        return recovery

    @property
    def end(self) -> int:
        """The physical offset at which the next record begins."""
        return self._log.end

    @property
    def start(self) -> int:
        """The physical offset of the oldest byte that is kept."""
        return self._log.start

    @property
    def flushed(self) -> int:
        """The physical offset up to which the log is synced."""
        return self._log.flushed

    def put(self, append: Append, now_ms: int) -> AppendResult:
        """Stores messages; raises `DoesNotFit` for more than a segment holds, `StoreError` if the disk fails."""
        if self.failure:
            raise StoreError(self.failure)
        size = appended_bytes(append) + (INNER_BYTES if append.inner_num else 0)
        if not self._log.fits(size):
            raise DoesNotFit(f"{size} bytes do not fit into one segment of the commit log (mappedFileSizeCommitLog)")
        if self._waiting and not self.settings.readable_when_flushed:
            self.dispatch(self._log.end)
            if self._waiting:
                raise StoreError("the consume queues cannot be written; is the disk full?")
        key = (append.topic, append.queue_id)
        queue = self._queue_of(key, bool(append.inner_num))
        index, batch_topic = queue.next_offset, isinstance(queue, BatchConsumeQueue)
        if append.inner_num:
            append = append.based(index)
            size = appended_bytes(append)
        # A store time of 0 looks like a page that was never written (log_scan.py), to RocketMQ as well.
        built = build(append, self._log.place(size), index, now_ms or 1, batch_topic=batch_topic)
        end = self._log.append(built.records)
        queue.next_offset = index + (append.inner_num or len(built.positions))
        self._last_store_ms = now_ms
        self._entries += len(built.positions)
        self._waiting.append(_Waiting(key, queue, index, built.entries, end))
        if not self.settings.readable_when_flushed:
            self.dispatch(end)
        self.on_stored()
        return AppendResult(built.positions, index, end)

    def dispatch(self, end: int) -> None:
        """Makes messages stored before `end` readable; those that a full disk refuses are left for the next call."""
        waiting = self._waiting
        while waiting and waiting[0].end <= end:
            stored = waiting[0]
            try:
                stored.queue.append(stored.queue_offset, stored.entries)
            except StoreError:
                return
            waiting.popleft()
            batch_topic = isinstance(stored.queue, BatchConsumeQueue)
            self.on_readable(stored.key, plain_entries(stored.entries) if batch_topic else stored.entries)

    def get(self, key: QueueKey, offset: int, limits: GetLimits, tags_codes: Container[int] | None = None) -> GetResult:
        """Returns the answer to a pull at `offset`."""
        return read_messages(self._log, self._queues.get(key), key, offset, limits, tags_codes)

    def bounds(self, key: QueueKey) -> tuple[int, int]:
        """Returns the lowest offset that is kept and the one after the last readable; zeros for an unknown queue."""
        queue = self._queues.get(key)
        return (0, 0) if queue is None else (queue.start, queue.end)

    def queues_of(self, topic: str) -> list[int]:
        """Returns the ids of a topic's queues that hold or held messages."""
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def store_time(self, key: QueueKey, offset: int) -> int | None:
        """Returns the store time in ms of the message at a queue offset; None if there is none.

        Raises `StoreError` if the entry names another record.
        """
        queue = self._queues.get(key)
        if queue is None or not queue.start <= offset < queue.end:
            return None
        entry = queue.entry(offset)
        if entry.is_filler or 0 <= entry.physical_offset < self._log.start:
            return None
        index = entry.base if isinstance(entry, BatchEntry) else offset
        try:
            head = check_record(self._log, entry.physical_offset, entry.size, key, index)
        except StoreError as error:
            raise entry_error(key, index, str(error)) from error
        at = 68 if int.from_bytes(head[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4]) & BORN_HOST_V6 else 56
        return int.from_bytes(head[at : at + 8], signed=True)

    def entry(self, key: QueueKey, offset: int) -> Entry | BatchEntry:
        """Returns the queue entry at a readable offset; raises `StoreError` if there is none."""
        queue = self._queues.get(key)
        if queue is None or not queue.start <= offset < queue.end:
            raise StoreError(f"queue {key[1]} of {key[0]} has no entry {offset}")
        return queue.entry(offset)

    def search(self, key: QueueKey, timestamp_ms: int, *, upper: bool) -> int:
        """Returns the offset of the first message stored at or after a time; with `upper`, of the last up to it."""
        low, high = start, end = self.bounds(key)
        while low < high:
            middle = (low + high) // 2
            stored = self.store_time(key, middle)
            if stored is None or stored < timestamp_ms or (upper and stored == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return max(start, min(low - 1, end)) if upper else low

    def earliest_ms(self) -> int:
        """Returns the store time in ms of the oldest message that is kept; -1 if there is none."""
        first = next(scan(self._log, self._log.start))
        return first.store_timestamp_ms if isinstance(first, RawRecord) else -1

    def record(self, offset: int) -> bytes | None:
        """Returns the record at a physical offset; None if none begins there."""
        try:
            (size, _) = HEAD.unpack(self._log.read(offset, HEAD.size))
            found = record_at(self._log, offset, size) if offset < self._log.end and size > 0 else None
            return None if found is None else self._log.read(offset, size)
        except StoreError:
            return None

    def delete_topic(self, topic: str) -> list[Callable[[], None]]:
        """Deletes a topic's queues, so that a new topic of that name begins at 0.

        Returns functions that free their space, to be called in another thread. All other queues and the log are
        flushed first, and the mark behind the topic's records is synced before anything is removed: recovery begins
        there, and does not bring the records back.
        """
        check_name(topic)
        if self.failure:
            raise StoreError(self.failure)
        self.flush(leaving=topic)
        self._waiting = deque([stored for stored in self._waiting if stored.key[0] != topic])
        if self._waiting:
            raise StoreError(f"topic {topic} is not deleted: the consume queues cannot be written; is the disk full?")
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]
        self._deletions += 1
        self._entries = self._count_entries()
        self._handed_out.clear()
        self.synced_mark = Mark(self._log.flushed, self._entries, self._deletions)
        with self._failing():
            self.mark_safe(self.synced_mark)
            self.files.open(CHECKPOINT_NAME, CHECKPOINT_BYTES).sync()
            return [self.files.set_aside(f"{folder}/{topic}") for folder in (QUEUES_FOLDER, BATCH_QUEUES_FOLDER)]

    def unsynced(self) -> tuple[int, list[Callable[[], None]]]:
        """Returns the log's end, and functions for another thread that sync everything before it."""
        end, syncs = self._log.unsynced()
        self._handed_out.append(Mark(end, self._entries, self._deletions))
        return end, syncs

    def synced(self, end: int) -> None:
        """Notes that the functions of `unsynced` have returned."""
        self._log.flushed = max(self._log.flushed, end)
        while self._handed_out and self._handed_out[0].end <= end:
            self.synced_mark = self._handed_out.popleft()
        if self.settings.readable_when_flushed:
            self.dispatch(end)

    def unsynced_queues(self) -> list[Callable[[], None]]:
        """Returns functions for another thread that sync all entries written so far."""
        return [sync for queue in self._queues.values() for sync in queue.unsynced()]

    def synced_queues(self) -> None:
        """Notes that the functions of `unsynced_queues` have returned."""
        for queue in self._queues.values():
            queue.synced()

    def checks(self) -> list[Callable[[], None]]:
        """Returns functions for another thread that check that the log's files are still at their paths."""
        return self._log.checks()

    def mark_safe(self, mark: Mark) -> None:
        """Writes to the checkpoint that log and queues are synced up to a former `synced_mark`: recovery begins there.

        A mark is ignored after a failure, if a topic was deleted since, or if entries before it are not written.
        """
        behind = self._waiting and self._waiting[0].end <= mark.end
        if behind or self.failure or mark.deletions != self._deletions:
            return
        safe = replace(
            self._checkpoint,
            log_time_ms=self._last_store_ms,
            queue_time_ms=self._last_store_ms,
            confirmed_offset=mark.end,
            safe_offset=mark.end,
            queues=sum([queue.end > 0 for queue in self._queues.values()]),
            entries=mark.entries,
        )
        if safe != self._checkpoint:
            self.files.open(CHECKPOINT_NAME, CHECKPOINT_BYTES).write(0, safe.encode())
            self._checkpoint = safe

    def flush(self, leaving: str | None = None) -> None:
        """Syncs everything in this thread; not the queues of the topic `leaving`, which is being deleted."""
        with self._failing():
            end, syncs = self._log.unsynced()
            for sync in syncs:
                sync()
            self.synced(end)
            mark = self.synced_mark = Mark(end, self._entries, self._deletions)
            queues = [queue for (topic, _), queue in self._queues.items() if topic != leaving]
            for sync in [sync for queue in queues for sync in queue.unsynced()]:
                sync()
            for queue in queues:
                queue.synced()
            if leaving is None:
                self.mark_safe(mark)

    def fail(self, reason: str) -> None:
        """Ends storing, since bytes that had to be synced may be lost, or may not be found again."""
        if not self.failure:
            self.failure = reason
            self.on_failure(reason)

    def close(self) -> None:
        """Stops cleanly: the next opening reads no record again. If it raises `StoreError`, call `abandon`."""
        if self.failure:
            raise StoreError(self.failure)
        self.flush()
        if not self._waiting:
            self.files.remove(ABORT_NAME)
        self.files.close()

    def abandon(self) -> None:
        """Closes the files as a killed process leaves them: nothing is flushed, the next opening recovers."""
        self.files.close()

    def _open_queues(self, folder: str, *, are_batch: bool) -> None:
        for topic in self.files.folders(folder):
            if self.is_batch_topic(topic) is (not are_batch):
                kinds = ("SimpleCQ", "BatchCQ") if are_batch else ("BatchCQ", "SimpleCQ")
                raise StoreError(f"The queue type of topic: {topic} should be {kinds[0]}, but is {kinds[1]}")
            for number in self.files.folders(f"{folder}/{topic}"):
                if (queue_id := queue_number(number)) is not None:
                    self._make_queue((topic, queue_id), is_batch=are_batch).open()

    def _queue_of(self, key: QueueKey, has_batch: bool) -> AnyConsumeQueue:
        queue = self._queues.get(key)
        if queue is None:
            known = self.is_batch_topic(key[0])
            queue = self._make_queue(key, is_batch=has_batch if known is None else known)
        return queue

    def _make_queue(self, key: QueueKey, *, is_batch: bool) -> AnyConsumeQueue:
        files, settings, place = self.files, self.settings, queue_place(*key)
        made: AnyConsumeQueue
        if is_batch:
            made = BatchConsumeQueue(files, f"{BATCH_QUEUES_FOLDER}/{place}", settings.batch_queue_file_bytes)
        else:
            made = ConsumeQueue(files, f"{QUEUES_FOLDER}/{place}", settings.queue_file_bytes)
        self._queues[key] = made
        return made

    def _count_entries(self) -> int:
        return sum([slots_of(queue).end for queue in self._queues.values()])

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self.fail(str(error))
            raise
