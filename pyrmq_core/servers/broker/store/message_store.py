"""`MessageStore`: the broker's messages, appended to one log and read by topic, queue and offset.

All methods block and are called in one thread. Only the functions that they return may run in other threads.

A message is stored when it is in the log, and readable when its queue entry is written. This happens at once, or after
the sync of the message if `readable_when_flushed` (SYNC_FLUSH) is set.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from pyrmq_core.errors import StoreError
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.appending import Append, AppendResult, Dispatched, DoesNotFit, entry_of_record
from pyrmq_core.servers.broker.store.checkpoint import CheckpointFiles
from pyrmq_core.servers.broker.store.commit_log import CommitLog, OldSegment
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath, check_name
from pyrmq_core.servers.broker.store.formats import IndexMark, Mark
from pyrmq_core.servers.broker.store.layout import ABORT_NAME, QUEUE_FOLDERS, StoreSettings
from pyrmq_core.servers.broker.store.log_copy import LogCopy
from pyrmq_core.servers.broker.store.queue_table import AppendGroup, QueueTable, Waiting, write_entries
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store.recovery import Recovery, recover
from pyrmq_core.servers.broker.store.replay import EntryOf
from pyrmq_core.servers.broker.store.scan.log_scan import Hole, LogEnd, scan
from pyrmq_core.servers.broker.store.store_reader import StoreReader


class StoreListener:
    """The callbacks for a store's events, in the order of the log. A subclass overrides those that it needs."""

    def readable(self, key: QueueKey, entries: bytes) -> None:
        """Is called with a queue that received messages, and their queue entries."""

    def dispatched(self, messages: Dispatched) -> None:
        """Is called with messages that became readable."""

    def replayed(self) -> None:
        """Is called in place of `dispatched` in a slave's store, when copied messages became readable."""

    def stored(self) -> None:
        """Is called when the log received bytes that must be synced."""

    def segment_begun(self) -> None:
        """Is called when the log has begun a new segment."""

    def failed(self, reason: str) -> None:
        """Is called with the reason when the store stops storing messages."""


class MessageStore:
    """A broker's store: commit log, consume queues and checkpoint. `reader` reads stored messages.

    `open` recovers after a crash. After a failed sync written bytes may be lost. Then `failure` has the reason, all
    further messages are refused, and the caller must call `abandon`, so that the next start checks the log. Messages
    are also refused while `refusal` has a reason, which retention sets when the disk is too full.
    """

    def __init__(
        self,
        files: Files,
        settings: StoreSettings,
        entry_of: EntryOf | None = None,
        is_batch_topic: Callable[[str], bool | None] = lambda topic: None,
    ) -> None:
        self.files = files
        self.settings = settings
        self.listener = StoreListener()
        self._entry_of = entry_of or entry_of_record
        self._log = log = CommitLog(files, settings.log_folder.rstrip("/"), settings.segment_bytes)
        log.on_new_segment = lambda: self.listener.segment_begun()
        self.queues = QueueTable(files, settings, log, is_batch_topic)
        self.reader = StoreReader(log, self.queues)
        self._waiting: deque[Waiting] = deque()
        self._checkpoint = CheckpointFiles(files)
        self._last_store_ms = 0
        self._entries = 0  # the entries of all queues, including unwritten ones
        self._deletions = 0
        self._copy: LogCopy | None = None
        self._synced_queues = 0  # the number of queues with entries at the last sync
        self._handed_out: deque[Mark] = deque()  # marks of `unsynced` calls that `synced` has not confirmed
        self.synced_mark = Mark(0, 0, 0)
        self.failure = ""
        self.refusal = ""

    def open(self, process_id: int, *, is_copy: bool = False, listener: StoreListener | None = None) -> Recovery:
        """Locks the directory, recovers, and marks the store as used by `process_id`. May raise `StoreError`.

        With `is_copy`, for a slave's store, the log is filled by `copy`, and `put` is not allowed.
        """
        files = self.files
        files.add_folder(self.settings.log_folder.rstrip("/"))
        files.lock()
        clean = files.size(ABORT_NAME) is None
        checkpoint = self._checkpoint.load()
        self._log.open()
        self.queues.open()
        recovery = recover(files, self._log, self.queues, self._entry_of, checkpoint, clean=clean, is_copy=is_copy)
        self._checkpoint.remove_wrong()
        try:
            files.save(ABORT_NAME, str(process_id).encode(), keep_previous=False)
        except StoreError:  # the disk is full, but messages can still be read
            files.open(ABORT_NAME, 0)
        self._last_store_ms = checkpoint.log_time_ms
        self._entries = self.queues.count_entries()
        if is_copy:
            self._copy = LogCopy(self._log, self.queues, self._entry_of)
        self.flush()
        self.listener = self.listener if listener is None else listener
        return recovery

    @property
    def end(self) -> int:
        return self._log.end

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def readable_end(self) -> int:
        """The physical offset up to which a slave has replayed its log. On a master it equals `end`."""
        return self._log.end if self._copy is None else self._copy.end

    @property
    def log_bytes(self) -> int:
        return self._log.full_bytes

    @property
    def flushed(self) -> int:
        return self._log.flushed

    def put(self, append: Append, now_ms: int) -> AppendResult:
        """Stores one append. Raises `DoesNotFit` if its messages exceed a segment, `StoreError` if the disk fails."""
        self._check_ready()
        group = AppendGroup(self._log, self.queues)
        result = group.add(append, now_ms)
        assert result is not None, "the first append of a group has a segment"
        self._write(group, now_ms)
        return result

    def put_all(self, appends: Sequence[Append], now_ms: int) -> list[AppendResult | StoreError]:
        """Stores appends of any queues in their order, with one write to each log segment and one to each queue.

        Returns for each append its offsets, or the error for which it is not stored. `DoesNotFit` and `UnsafePath`
        concern only that append. Any other `StoreError` is a failure of the disk, with which all later appends fail.
        """
        results: list[AppendResult | StoreError] = []
        while len(results) < len(appends):
            try:
                results += self._put_first(appends[len(results) :], now_ms)
            except StoreError as error:
                results += [error] * (len(appends) - len(results))
        return results

    def _put_first(self, appends: Sequence[Append], now_ms: int) -> list[AppendResult | StoreError]:
        """Stores as many appends as fit into one segment, at least one. If it raises `StoreError`, none is stored."""
        self._check_ready()
        results: list[AppendResult | StoreError] = []
        group = AppendGroup(self._log, self.queues)
        for append in appends:
            try:
                result = group.add(append, now_ms)
            except (DoesNotFit, UnsafePath) as error:
                results.append(error)
                continue
            except StoreError:
                if group.waiting:
                    break
                raise
            if result is None:
                break
            results.append(result)
        if group.waiting:
            self._write(group, now_ms)
        return results

    def _check_ready(self) -> None:
        self.check_copying()
        if self._waiting and not self.settings.readable_when_flushed:
            self.dispatch(self._log.end)
            if self._waiting:
                raise StoreError("the consume queues cannot be written; is the disk full?")

    def _write(self, group: AppendGroup, now_ms: int) -> None:
        end = group.write()
        self._last_store_ms = now_ms
        self._entries += group.entries
        self._waiting += group.waiting
        if not self.settings.readable_when_flushed:
            self.dispatch(end)
        self.listener.stored()

    def dispatch(self, end: int) -> None:
        """Makes messages stored before `end` readable. If the disk is full, the next call continues."""
        dispatched, written = write_entries(self._waiting, end)
        for key, entries in written:
            self.listener.readable(key, entries)
        for messages in dispatched:
            self.listener.dispatched(messages)

    def copy(self, offset: int, data: bytes) -> None:
        """Appends bytes of the master's log, all of one segment, to this log. `replay` makes them readable.

        They may begin and end within a record. Raises `StoreError`, with nothing changed, if they do not continue the
        log or the disk fails.
        """
        self.check_copying()
        self._log.copy(offset, data)
        self.listener.stored()

    def check_copying(self) -> None:
        if self.failure or self.refusal:
            raise StoreError(self.failure or self.refusal)

    def drop_incomplete(self) -> None:
        """Removes an incomplete last record from a slave's log, if all others are replayed. Raises `StoreError`."""
        copy = self._copy
        if copy is not None and copy.has_all and copy.end != self._log.end:
            self._log.cut(copy.end)

    def replay(self) -> bool:
        """Makes copied messages of a slave readable. Returns True if more may follow. Raises `StoreError`."""
        assert self._copy is not None, "a slave's store replays"
        before = self.readable_end
        has_more, written = self._copy.replay()
        self._last_store_ms = max(self._last_store_ms, self._copy.last_store_ms)
        for key, entries in written:
            self.listener.readable(key, entries)
        if self.readable_end != before:
            self.listener.replayed()
        return has_more

    @property
    def unknown_topic(self) -> str | None:
        """The topic whose settings a slave must fetch before it can replay the next record, or None."""
        return None if self._copy is None else self._copy.unknown_topic

    def take_damage(self) -> list[tuple[int, int]]:
        """Returns the damaged ranges, from start to end offset, found in a slave's log since the last call."""
        assert self._copy is not None, "a slave's store replays"
        holes, self._copy.holes = self._copy.holes, []
        return holes

    def records(self, start: int) -> Iterator[RawRecord | Hole | LogEnd]:
        """Yields the records of the log from an offset on, unreadable ranges as `Hole`, and the log's end."""
        return scan(self._log, start, self.readable_end)

    @property
    def indexed(self) -> IndexMark:
        return IndexMark(self._checkpoint.value.index_file, self._checkpoint.value.index_time_ms)

    def mark_indexed(self, mark: IndexMark, *, synced: bool = False) -> None:
        """Writes to the checkpoint how far the key index is synced. With `synced` the checkpoint is synced, too."""
        marked = replace(self._checkpoint.value, index_file=mark.file, index_time_ms=mark.store_ms)
        self._checkpoint.write(marked)
        if synced:
            self._save_mark()
            self._checkpoint.sync_published()

    def delete_topic(self, topic: str) -> list[Callable[[], None]]:
        """Deletes a topic's queues and those of its lite topics, so that a new topic of that name begins at offset 0.

        Returns functions that free the disk space, to be run in another thread. Raises `StoreError`, with nothing
        deleted, if the checkpoint cannot be written.
        """
        check_name(topic)
        keys = self.queues.keys_of(topic)
        names = {topic, *(name for name, _ in keys)}
        return self.delete_queues(keys, [f"{kind}/{name}" for name in names for kind in QUEUE_FOLDERS])

    def delete_queues(self, keys: Collection[QueueKey], folders: Iterable[str]) -> list[Callable[[], None]]:
        """Deletes queues and their folders, so that new queues with these names begin at offset 0.

        First all other data is synced. Then the checkpoint makes recovery begin after the records of the deleted
        queues, so that it does not restore them. Returns functions that free the disk space, to be run in another
        thread. Raises `StoreError`, with nothing deleted, if the checkpoint cannot be written. After a failed sync
        nothing more is stored.
        """
        if self.failure:
            raise StoreError(self.failure)
        self.flush(leaving=keys)
        if any(stored.key not in keys for stored in self._waiting):
            raise StoreError("nothing is deleted: the consume queues cannot be written; is the disk full?")
        waiting, self._waiting = self._waiting, deque()
        gone = self.queues.take(keys)
        try:
            self._mark_deletion()
        except StoreError:
            self._waiting = waiting
            self.queues.put_back(gone)
            self._entries = self.queues.count_entries()
            self.synced_mark = self._mark()
            raise
        with self._failing():
            self._checkpoint.sync_published()
            return [self.files.set_aside(*folders)]

    def _mark_deletion(self) -> None:
        self._deletions += 1
        self._entries = self.queues.count_entries()
        self._synced_queues = self.queues.count_used()
        self._handed_out.clear()
        self.synced_mark = Mark(min(self._log.flushed, self.readable_end), self._entries, self._deletions)
        self.mark_safe(self.synced_mark)
        self._save_mark()

    def oldest_segment(self) -> OldSegment | None:
        """Returns the oldest segment of the log, or None if it must stay: it is the last, or recovery would read it."""
        oldest, safe = self._log.oldest, self._checkpoint.value.safe_offset
        if oldest is None or self.failure or safe is None or oldest.next_start > safe:
            return None
        return oldest

    def remove_oldest_segment(self) -> list[Callable[[], None]]:
        """Makes the messages of the oldest segment unreadable, and moves the start of their queues.

        Returns two functions for another thread: the first syncs the log's new start, the second deletes the segment.
        Raises `StoreError`, with nothing changed, if the checkpoint cannot be written.
        """
        oldest = self.oldest_segment()
        if oldest is None:
            raise StoreError("no segment of the commit log may be removed")
        self._checkpoint.write(replace(self._checkpoint.value, log_start=oldest.next_start))
        return [self._checkpoint.sync_own, self._log.retire_oldest()]

    def unsynced(self) -> tuple[int, list[Callable[[], None]]]:
        """Returns the log's end, and functions that sync up to it, in any thread. The caller then calls `synced`."""
        end, syncs = self._log.unsynced()
        self._handed_out.append(self._mark())
        return end, syncs

    def synced(self, end: int) -> None:
        self._log.synced(end)
        while self._handed_out and self._handed_out[0].end <= end:
            self.synced_mark = self._handed_out.popleft()
        if self.settings.readable_when_flushed:
            self.dispatch(end)

    def unsynced_queues(self) -> list[Callable[[], None]]:
        """Returns functions that sync all queue entries written so far, to be run in another thread.

        The caller then calls `synced_queues` and `mark_safe`.
        """
        self._synced_queues = self.queues.count_used()
        return [sync for queue in self.queues.by_key.values() for sync in queue.unsynced()]

    def synced_queues(self) -> None:
        for queue in self.queues.by_key.values():
            queue.synced()

    def checks(self) -> list[Callable[[], None]]:
        return self._log.checks()

    def mark_safe(self, mark: Mark) -> None:
        """Writes to the checkpoint that log and queues are synced up to `mark`, from which recovery then begins.

        `mark` is the value that `synced_mark` had before the queues were synced. It is ignored after a failure, if
        queues were deleted since, or if queue entries before it are not written yet.
        """
        behind = self._waiting and self._waiting[0].end <= mark.end
        if behind or self.failure or mark.deletions != self._deletions:
            return
        # RocketMQ 5.5.0 does not start with a checkpoint that has a time but no offset (enableAcceleratedRecovery).
        time_ms = self._last_store_ms if mark.end else 0
        safe = replace(
            self._checkpoint.value,
            log_time_ms=time_ms,
            queue_time_ms=time_ms,
            confirmed_offset=mark.end,
            safe_offset=mark.end,
            queues=self._synced_queues,
            entries=mark.entries,
            log_start=self._log.start,
        )
        self._checkpoint.write(safe)

    def unsynced_mark(self) -> list[Callable[[], None]]:
        """Returns functions that sync the checkpoint, to be run in another thread before `publish_mark` is called."""
        return self._checkpoint.unsynced()

    def publish_mark(self) -> None:
        self._checkpoint.publish()

    def flush(self, leaving: Collection[QueueKey] | None = None) -> None:
        """Syncs everything in this thread, except the queues `leaving`, which are being deleted.

        Raises `StoreError`. After a failed sync nothing more is stored. If the disk is full, the checkpoint is written
        later.
        """
        with self._failing():
            end, syncs = self._log.unsynced()
            for sync in syncs:
                sync()
            self.synced(end)
            mark = self.synced_mark = self._mark()
            queues = [queue for key, queue in self.queues.by_key.items() if leaving is None or key not in leaving]
            self._synced_queues = self.queues.count_used()
            for sync in [sync for queue in queues for sync in queue.unsynced()]:
                sync()
            for queue in queues:
                queue.synced()
        if leaving is None:
            self.mark_safe(mark)
            self._save_mark()

    def _save_mark(self) -> None:
        with self._failing():
            for sync in self._checkpoint.unsynced():
                sync()
        self._checkpoint.publish()

    def _mark(self) -> Mark:
        # A slave's mark must not include copied records that have no queue entries yet.
        entries = self._entries if self._copy is None else self.queues.count_entries()
        return Mark(self.readable_end, entries, self._deletions)

    def fail(self, reason: str) -> None:
        """Refuses all further messages for `reason`, since stored bytes may be lost."""
        if not self.failure:
            self.failure = reason
            self.listener.failed(reason)

    def close(self) -> None:
        """Flushes and closes, so that the next opening need not recover. If it raises `StoreError`, call `abandon`."""
        if self.failure:
            raise StoreError(self.failure)
        self.drop_incomplete()  # the slave fetches the record again
        self.flush()
        if not self._waiting:
            self.files.remove(ABORT_NAME)
        self.files.close()

    def abandon(self) -> None:
        """Closes the files without a flush, as if the process was killed. The next opening recovers."""
        self.files.close()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            self.fail(str(error))
            raise
