"""`Replay`: reads the log and fills the queues with the entries of its records.

Recovery uses it after a stop, and a slave for the bytes that its master sends. Source: store/DefaultMessageStore.java,
ReputMessageService (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.messages.lite_topics import lite_places
from pyrmq_core.protocol.messages.properties import INNER_NUM, decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import MIN_RECORD_BYTES, RawRecord, body_crc
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, TRANSACTION_MASK
from pyrmq_core.servers.broker.store.appending import entry_of_record
from pyrmq_core.servers.broker.store.batch_queue import BatchConsumeQueue, BatchEntry
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.formats import ENTRY
from pyrmq_core.servers.broker.store.reading import AnyConsumeQueue, QueueKey
from pyrmq_core.servers.broker.store.scan.log_scan import Hole, LogEnd, scan

ENTRIES_AT_ONCE: Final = 4096
# Records of prepared and rolled-back transactions have no queue entry (MessageSysFlag.java).
WITHOUT_ENTRY: Final = (0x4, 0xC)

EntryOf = Callable[[RawRecord], bytes]
# Returns the queue of a key, which it creates if it is missing. The flag decides the format if the topic is unknown:
# with True it is a batch queue.
QueueOf = Callable[[QueueKey, bool], AnyConsumeQueue]


class MissingEntries(Exception):
    """Raised if a queue lacks entries from before the replay's start, so that the whole log must be read."""


class UnknownTopic(Exception):
    """Raised for a topic with unknown settings, which decide whether its queues are batch queues."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


class Replay:
    """A reader of the commit log that adds an entry to the right consume queue for each record.

    `queue_of` returns the queue of a topic and queue id, and `entry_of` the entry of a record. `on_written` is called
    after entries were written. The log was synced up to the offset `trusted`: an unreadable record before it is damage
    and is added to `holes`, and one after it is the end of the log. `has_lite` returns True for the name of a lite
    topic's queue in which records get an entry, too.
    """

    def __init__(
        self,
        log: CommitLog,
        queue_of: QueueOf,
        entry_of: EntryOf,
        *,
        trusted: int = 0,
        has_lite: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._log = log
        self._queue_of = queue_of
        self._entry_of = entry_of
        self._trusted = trusted
        self._has_lite = has_lite
        self._unwritten: dict[AnyConsumeQueue, tuple[QueueKey, bytearray]] = {}
        self._unwritten_entries = 0
        self.on_written: Callable[[QueueKey, AnyConsumeQueue, bytes], None] = lambda key, queue, entries: None
        self.records = 0
        self.lite_entries = 0
        self.is_cut_short = False
        self.end = LogEnd(log.start)
        self.unknown_topic: str | None = None
        self.last_store_ms = 0
        self.holes: list[tuple[int, int]] = []
        self.bad_bodies: list[int] = []
        self.gaps = 0

    def run(self, start: int, *, whole: bool, most: int | None = None) -> None:
        """Reads from `start` to the log's end, or at most `most` records. Then `end` has the offset where it stopped.

        If the `whole` log is read, fillers replace missing entries. Otherwise raises `MissingEntries` if a queue lacks
        entries of records before `start`. Stops before a record whose topic is unknown, and sets `unknown_topic`.
        """
        count = 0
        for part in scan(self._log, start, self._trusted):
            if isinstance(part, LogEnd):
                self.end = part
                continue
            if isinstance(part, Hole):
                self.holes.append((part.start, part.end))
                continue
            count += 1
            waits = self._take_record(part, whole=whole)
            if waits is not None:
                self.end = waits
                break
            if count == most:
                self.end, self.is_cut_short = LogEnd(part.commit_log_offset + part.store_size), True
                break
        self._write_all()

    def _take_record(self, record: RawRecord, *, whole: bool) -> LogEnd | None:
        self.records += 1
        self.last_store_ms = record.store_timestamp_ms
        if record.commit_log_offset < self._trusted and body_crc(record.body) != record.body_crc:
            self.bad_bodies.append(record.commit_log_offset)
        try:
            self._take(record, whole=whole)
        except (UnsafePath, _DamagedRecord):
            self.holes.append((record.commit_log_offset, record.commit_log_offset + record.store_size))
        except UnknownTopic as unknown:
            self.unknown_topic = unknown.topic
            return LogEnd(record.commit_log_offset)
        return None

    def _following(self, key: QueueKey, queue: AnyConsumeQueue, queue_offset: int) -> bytearray | None:
        if isinstance(queue, BatchConsumeQueue):
            return None
        _, unwritten = self._unwritten.setdefault(queue, (key, bytearray()))
        return unwritten if queue_offset == queue.end + len(unwritten) // ENTRY.size else None

    def _note_unwritten(self, count: int) -> None:
        self._unwritten_entries += count
        if self._unwritten_entries >= ENTRIES_AT_ONCE:
            self._write_all()

    def _take(self, record: RawRecord, *, whole: bool) -> None:
        if record.sys_flag & TRANSACTION_MASK in WITHOUT_ENTRY:
            return
        if record.queue_offset < 0:
            raise _DamagedRecord
        is_batch = record.sys_flag & BATCH_RECORD == BATCH_RECORD
        key = (decode_java_utf8(record.topic), record.queue_id)
        queue = self._queue_of(key, is_batch)
        if isinstance(queue, BatchConsumeQueue):
            entry = batch_entry_of(record, self._entry_of(record))
        elif is_batch:  # the topic was deleted and created again, and is no batch topic now
            return
        else:
            entry = self._entry_of(record)
        if isinstance(queue, BatchConsumeQueue):
            self._place(key, queue, record, record.queue_offset, entry, whole=whole)
        else:
            self._append(key, queue, record, record.queue_offset, entry, whole=whole)
        for name, index in lite_places(record).items():
            if self._has_lite(name):
                lite_key = (name, 0)
                queue, entry = self._queue_of(lite_key, False), entry_of_record(record)
                self._append(lite_key, queue, record, index, entry, whole=whole)
                self.lite_entries += 1

    def _append(
        self, key: QueueKey, queue: AnyConsumeQueue, record: RawRecord, index: int, entry: bytes, *, whole: bool
    ) -> None:
        if whole and index * MIN_RECORD_BYTES > record.commit_log_offset:
            raise _DamagedRecord
        unwritten = self._following(key, queue, index)
        if unwritten is not None:
            unwritten += entry
            self._note_unwritten(1)
        else:
            self._write_all()
            self._place(key, queue, record, index, entry, whole=whole)

    def _place(
        self, key: QueueKey, queue: AnyConsumeQueue, record: RawRecord, index: int, entry: bytes, *, whole: bool
    ) -> None:
        if record.commit_log_offset < self._trusted and not _is_placed(queue, index, entry):
            raise _DamagedRecord
        if whole and (queue.end or not self._log.start):  # else the missing entries are of removed segments
            self.gaps += max(0, index - queue.end)
        if _refill(queue, index, entry, whole):
            self.on_written(key, queue, entry)

    def _write_all(self) -> None:
        for queue, (key, entries) in self._unwritten.items():
            if entries:
                joined = bytes(entries)
                queue.append(queue.end, joined)
                self.on_written(key, queue, joined)
        self._unwritten.clear()
        self._unwritten_entries = 0


class _DamagedRecord(Exception):
    """Raised for a record with an impossible queue offset or INNER_NUM, which no CRC covers."""


def _is_placed(queue: AnyConsumeQueue, index: int, entry: bytes) -> bool:
    return not 0 < index < queue.end or queue.holds(index, entry)


def batch_entry_of(record: RawRecord, entry: bytes) -> bytes:
    """Converts a record's 20-byte entry to the entry of a batch queue.

    Raises `_DamagedRecord` for a batch with an impossible number of messages.
    """
    count = 1
    if record.sys_flag & BATCH_RECORD == BATCH_RECORD:
        text = decode_properties(decode_java_utf8(record.properties)).get(INNER_NUM, "")
        count = int(text) if len(text) < 10 and text.isascii() and text.isdigit() else 0
        if not 0 < count <= MAX_RECORD_MESSAGES:
            raise _DamagedRecord
    log_offset, size, code = ENTRY.unpack(entry)
    return BatchEntry(log_offset, size, code, record.store_timestamp_ms, record.queue_offset, count).pack()


def _refill(queue: AnyConsumeQueue, index: int, entry: bytes, whole: bool) -> bool:
    """Writes an entry at a queue offset. Returns False if the queue has the same entry there already."""
    if index < queue.end:
        if queue.holds(index, entry):
            return False
        queue.cut(index)  # the topic was deleted and created again: the entry at this offset is the old topic's
    elif index > queue.end and not whole:
        raise MissingEntries
    queue.append(index, entry)
    return True
