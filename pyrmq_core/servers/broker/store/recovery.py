"""Recovery after a clean stop or a crash: finds the end of the log, and makes the queues agree with it.

The log is read from an offset up to which log and queues are known to be synced. The first unreadable record after that
offset is taken for the end of the log. The queue entries of the records after that offset are removed and added again.
If a queue lacks earlier entries, all queues are rebuilt: the log is then read from its beginning. An unreadable record
before the synced offset is damage, and is skipped. The log's bytes after its end are copied to a file (damage.py) and
then become zeros.

RocketMQ (store/CommitLog.java recoverAbnormally, store/ConsumeQueue.java recover, 5.4.0) starts at the beginning of a
segment, and does not clear bytes after the end. It can open this broker's store, and this broker can open RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.protocol.messages.lite_topics import lite_places
from pyrmq_core.protocol.messages.names import is_lite_queue
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.batch_queue import BatchConsumeQueue, BatchEntry
from pyrmq_core.servers.broker.store.checkpoint import Checkpoint
from pyrmq_core.servers.broker.store.commit_log import CommitLog
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.formats import Entry
from pyrmq_core.servers.broker.store.queue_table import QueueTable, Slots, first_slot, follow_log, slots_of
from pyrmq_core.servers.broker.store.reading import AnyConsumeQueue, QueueKey
from pyrmq_core.servers.broker.store.replay import ENTRIES_AT_ONCE, EntryOf, MissingEntries, Replay
from pyrmq_core.servers.broker.store.scan.damage import DamageCopy, keep_aside, record_offsets
from pyrmq_core.servers.broker.store.scan.log_scan import LogEnd, record_at, scan

MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Recovery:
    """The result of a recovery. `reason` says why the log ends at `end`, and is empty for its normal end.

    `kept` is the copy of the bytes that were cut. `holes` are ranges of the log without a readable record, `bad_bodies`
    the offsets of records whose body contradicts its CRC. `gaps` counts queue offsets without a message,
    `missing_bytes` the bytes that had been synced and are lost. `start` is the offset of the log's first byte,
    `removed_end` the offset up to which this broker removed old messages. `has_mark` is False if this broker's own
    checkpoint file is missing, damaged or outdated.
    """

    clean: bool
    read_from: int
    end: int
    records: int
    reason: str
    dropped_entries: int
    kept: DamageCopy | None = None
    holes: Sequence[tuple[int, int]] = ()
    bad_bodies: Sequence[int] = ()
    gaps: int = 0
    missing_bytes: int = 0
    is_rebuilt: bool = False
    start: int = 0
    has_mark: bool = True
    missing_segments: Sequence[int] = ()
    removed_end: int = 0

    def __str__(self) -> str:
        before = "it was closed in order" if self.clean else "it was not closed in order"
        return f"{before}; {self.records} records were read again, the log goes from {self.start} to {self.end}"

    def warnings(self) -> list[str]:
        lines = [f"the commit log has no segment {offset}" for offset in self.missing_segments]
        if self.start > self.removed_end:
            lines.append(f"the commit log begins at {self.start}: messages before are gone")
        if not self.has_mark and self.end:
            lines.append("the checkpoint is another broker's, missing or damaged: lost queue entries may go unnoticed")
        lines += [f"no record can be read between {start} and {end} of the commit log" for start, end in self.holes]
        if self.bad_bodies:
            places = ", ".join(map(str, self.bad_bodies[:MAX_NAMED]))
            lines.append(
                f"{len(self.bad_bodies)} messages have bodies that their CRC contradicts, the first at {places}"
            )
        if self.gaps:
            lines.append(f"{self.gaps} messages of the queues are not in the commit log: readers pass over them")
        if self.kept is not None:
            lines.append(
                f"the commit log ends at {self.end} ({self.reason or 'zeros'}): {self.kept.size} bytes behind it, with "
                f"at least {self.kept.records} messages, are not served; a copy is {self.kept.path}"
            )
        if self.dropped_entries:
            lines.append(f"{self.dropped_entries} queue entries named messages that the commit log does not have")
        if self.missing_bytes:
            lines.append(f"{self.missing_bytes} bytes of the commit log are missing that were on the medium")
        if self.is_rebuilt:
            lines.append("the consume queues lacked entries and were built anew from the commit log")
        return lines


def recover(
    files: Files,
    log: CommitLog,
    table: QueueTable,
    entry_of: EntryOf,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    is_copy: bool = False,
) -> Recovery:
    """Finds the end of an opened log, truncates log and queues there, and adds the queue entries that are missing.

    A slave's log (`is_copy`) may end within a record.
    """
    queues = table.by_key
    start = choose_start(log, checkpoint, len(queues), clean=clean)
    safe = checkpoint.safe_offset if checkpoint.safe_offset is not None else log.start
    unwritten = max(start, safe)
    reread = Replay(log, table.make, entry_of, trusted=min(safe, log.end), has_lite=table.has_lite)
    dropped = later_entries = 0
    lacks = not all(slots_of(queue).is_complete(from_first=log.start == 0) for queue in queues.values())
    if not lacks:
        later_entries = sum([_entries_from(slots_of(queue), start) for queue in queues.values()])
        dropped = sum([_cut_queue(queue, key, log, start) for key, queue in queues.items()])
        lacks = start == safe and sum([slots_of(queue).end for queue in queues.values()]) < checkpoint.entries
    if not lacks:
        try:
            reread.run(start, whole=start == log.start)
        except MissingEntries:
            lacks = True
    if lacks:
        start = log.start
        for queue in queues.values():
            queue.remove()
        reread = Replay(log, table.make, entry_of, trusted=min(safe, log.end), has_lite=table.has_lite)
        reread.run(start, whole=True)
    is_cut_record = is_copy and _has_one_record(log, reread.end.offset)
    kept = None if is_cut_record else keep_aside(files, log, reread.end.offset)
    log.cut(reread.end.offset)
    if not clean:
        log.write_again(min(unwritten, log.end))
    log.flushed = min(start, log.end)
    return Recovery(
        clean=clean,
        read_from=start,
        end=log.end,
        records=reread.records,
        reason=reread.end.reason,
        dropped_entries=dropped + max(0, later_entries - reread.records - reread.lite_entries),
        kept=kept,
        holes=reread.holes,
        bad_bodies=reread.bad_bodies,
        gaps=reread.gaps,
        missing_bytes=max(0, safe - log.end),
        is_rebuilt=lacks,
        start=log.start,
        has_mark=checkpoint.safe_offset is not None,
        missing_segments=log.missing,
        removed_end=checkpoint.log_start,
    )


def _has_one_record(log: CommitLog, start: int) -> bool:
    return sum([len(record_offsets(data, offset)) for offset, data in log.pieces(start)]) <= 1


def choose_start(log: CommitLog, checkpoint: Checkpoint, queues: int, *, clean: bool) -> int:
    """Returns the latest log offset from which recovery may read: the checkpoint's `safe_offset`, or a segment's start.

    If the store has fewer `queues` than the checkpoint counts, the result is the log's start, since all queues must be
    rebuilt.
    """
    safe = checkpoint.safe_offset
    if queues < checkpoint.queues or (safe is None and not queues):
        return log.start
    if safe is not None and log.start <= safe <= log.end:
        first = next(scan(log, safe))
        if not isinstance(first, LogEnd) or not first.reason:
            return safe
    segments = log.segment_offsets
    if clean:
        return segments[-1] if segments else 0
    chosen = log.start
    for offset in segments:  # oldest first: a clock that was set back makes a later segment look old
        first = next(scan(log, offset))
        if not isinstance(first, RawRecord) or first.store_timestamp_ms > checkpoint.safe_time_ms:
            break
        chosen = offset
    return chosen


def _cut_queue(queue: AnyConsumeQueue, key: QueueKey, log: CommitLog, start: int) -> int:
    """Removes the entries of records from the log offset `start` on, which the replay of the log adds again.

    Also removes the last entries before them if the log lacks their records, as after a power cut, and returns their
    number.
    """
    slots = slots_of(queue)
    before_start = first_slot(slots, slots.start, lambda entry: not entry.is_valid or entry.physical_offset >= start)
    end = before_start
    while end > slots.start and not _agrees(slots.entry(end - 1), key, end - 1, log):
        end -= 1
    if end < slots.end:
        slots.cut(end)
    if isinstance(queue, BatchConsumeQueue):
        queue.settle()
    follow_log(queue, log.start)
    return before_start - end


def _entries_from(slots: Slots, start: int) -> int:
    number = first = first_slot(slots, slots.start, lambda entry: not entry.is_valid or entry.physical_offset >= start)
    while number < slots.end:
        entries: Sequence[Entry | BatchEntry] = slots.some(number, min(ENTRIES_AT_ONCE, slots.end - number))
        valid = next((at for at, entry in enumerate(entries) if not entry.is_valid), len(entries))
        number += valid
        if valid < len(entries):
            break
    return number - first


def _agrees(entry: Entry | BatchEntry, key: QueueKey, number: int, log: CommitLog) -> bool:
    if entry.is_filler or entry.physical_offset < log.start:
        return True
    index = entry.base if isinstance(entry, BatchEntry) else number
    record = record_at(log, entry.physical_offset, entry.size, any_body=True)
    if is_lite_queue(key[0]):
        return record is not None and lite_places(record).get(key[0]) == index
    return record is not None and (decode_java_utf8(record.topic), record.queue_id, record.queue_offset) == (
        *key,
        index,
    )
