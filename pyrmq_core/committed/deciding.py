"""Decides which commit records in a manifest are valid: only the first record of each batch of a writer commits it.

A manifest is the topic in which committed writes record their batches. A committer reads the manifest to its end, and
appends a record unless it has read a record of the same batch. So another record of the batch can only lie between that
end and the offset of the new record. The entries between these two offsets show whether a record is valid, so a reader
may begin anywhere.

The numbers of a writer's batches ascend. A record is void if its writer has committed a batch with a higher number
before, or if its ranges do not have the rows that it states.

A record may list the batches committed before it, so that committers need not read all earlier records. The list is
trusted if the records that it names exist, or have expired.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, TypeAlias, TypeGuard

from pyrmq_core.committed.records import (
    CommitRecord,
    CommittedBatches,
    Decided,
    Entry,
    RangesPart,
    StoredRange,
    joined,
)
from pyrmq_core.errors import ManifestError

# With up to this many writers, each record lists the committed batches, so that the next committer reads only the last
# record. With more writers, a record has a list only if none of this many records before it has a list.
FEW_WRITERS: Final = 8
RECORDS_WITHOUT_DECIDED: Final = 32
# A record is void if more than this many records were added since its committer read the manifest.
LONGEST_LOOK_BACK: Final = 1000
# A list leaves out a writer that has committed nothing for this time. If such a writer repeats its last batch, the
# batch is committed twice.
REMEMBERED_MS: Final = 400 * 24 * 3600 * 1000
# The most bytes of a list: some 15,000 writers. A broker accepts messages of 4 MiB. The writers that committed longest
# ago are left out first.
MOST_LIST_BYTES: Final = 1024 * 1024
# The bytes of a writer in a list, without its name.
BYTES_A_WRITER: Final = 64
# The most ranges of one batch, and of all batches that are read together.
MOST_RANGES: Final = 1_000_000

Entries: TypeAlias = Mapping[int, Entry]
"""Entries of a manifest by their offsets; messages that are none are left out."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed batch: the offset of its record in the manifest, and all its ranges of messages."""

    offset: int
    writer: str
    number: int
    rows: int
    ranges: tuple[StoredRange, ...]


def next_record(
    writer: str,
    number: int,
    ranges: Iterable[StoredRange],
    *,
    commit: str,
    seen: int,
    decided: CommittedBatches,
    without_decided: int,
    named: bool = True,
) -> CommitRecord | None:
    """Returns the record that commits batch `number` of `writer`, for a manifest that ends at offset `seen`.

    `decided` has the batches committed before `seen`. Returns None if it has this batch or a later batch of the writer.
    `without_decided` is the number of entries after the last record with a list of committed batches. `commit` is
    unique to this attempt. `named` is False for a writer that commits only once: later records do not list it. Raises
    `ManifestError` for a batch of more than a million ranges, which no reader accepts.
    """
    last = decided.get(writer)
    if last is not None and last.number >= number:
        return None
    merged = tuple(joined(ranges))
    if len(merged) > MOST_RANGES:
        raise ManifestError(
            f"batch {number} of {writer} has {len(merged)} ranges, and a record at most {MOST_RANGES}: write it in "
            "several batches, or from fewer partitions"
        )
    listed = remembered(decided)
    says_all = len(listed) <= FEW_WRITERS or without_decided >= RECORDS_WITHOUT_DECIDED
    return CommitRecord(
        writer,
        number,
        sum(part.count for part in merged),
        merged,
        seen,
        commit,
        decided=listed if says_all else None,
        is_named=named,
    )


def remembered(decided: CommittedBatches) -> CommittedBatches:
    """Returns the committed batches that a new record lists: the latest ones, up to 1 MiB of them.

    It leaves out writers that commit only once, and writers whose last batch is 400 days older than the newest batch.
    """
    newest = max((last.stored_ms for last in decided.values()), default=0)
    listed, room = dict[str, Decided](), MOST_LIST_BYTES
    for writer, last in reversed(list(decided.items())):
        room -= BYTES_A_WRITER + len(writer.encode())
        if last.is_named and room >= 0 and (not last.stored_ms or newest - last.stored_ms <= REMEMBERED_MS):
            listed[writer] = last
    return dict(reversed(listed.items()))


def needed_from(entries: Entries, start: int, end: int) -> int:
    """Returns the first offset that must be read to decide which records from `start` to before `end` are valid.

    To decide about a record, all entries must be known from the end of the manifest that its committer read. That end
    may lie before `start`. `entries` has at least the entries from `start` to before `end`.
    """
    records = ((offset, entries.get(offset)) for offset in range(start, end))
    unseen = (
        _unseen(record, offset).start
        for offset, record in records
        if isinstance(record, CommitRecord) and offset - record.seen <= LONGEST_LOOK_BACK
    )
    return min(start, min(unseen, default=start))


def commits_between(entries: Entries, start: int, end: int) -> list[Commit]:
    """Returns the committed batches whose records lie from offset `start` to before `end`, in the order of the records.

    `entries` has all entries from the offset that `needed_from` returns. Raises `ManifestError` if parts of a record
    are missing, or if its ranges overlap or do not have the rows that it states.
    """
    return [
        Commit(offset, record.writer, record.number, record.rows, _all_ranges(entries, offset, record))
        for offset in range(start, end)
        if isinstance(record := entries.get(offset), CommitRecord) and _is_first(entries, offset, record)
    ]


def _may_decide(record: Entry | None, offset: int) -> TypeGuard[CommitRecord]:
    return (
        isinstance(record, CommitRecord) and offset - record.seen <= LONGEST_LOOK_BACK and not record.is_contradictory
    )


def _unseen(record: CommitRecord, offset: int) -> range:
    """Returns the offsets before a record's own `offset` whose entries its committer may not have read.

    A record that lies before the end that its committer saw shows that the manifest has lost entries since. Then any
    recent entry may be unread.
    """
    return range(record.seen if record.seen <= offset else max(0, offset - LONGEST_LOOK_BACK), offset)


def _is_first(entries: Entries, offset: int, record: CommitRecord) -> bool:
    if offset - record.seen > LONGEST_LOOK_BACK:
        return False
    between = ((earlier, entries.get(earlier)) for earlier in _unseen(record, offset))
    return not any(
        _may_decide(earlier, at) and earlier.writer == record.writer and earlier.number >= record.number
        for at, earlier in between
    )


def _all_ranges(entries: Entries, offset: int, record: CommitRecord) -> tuple[StoredRange, ...]:
    ranges, where = record.ranges, f"the record at offset {offset} of the manifest"
    if record.parts:
        of_commit = [
            entry
            for earlier in _unseen(record, offset)
            if (entry := entries.get(earlier)) is not None and entry.commit == record.commit
        ]
        parts = [part for part in of_commit if isinstance(part, RangesPart)]
        if len(of_commit) != len(parts):
            raise _contradiction(f"{where} names parts that belong to a record before it", offset)
        if len(parts) != record.parts:
            raise _contradiction(
                f"{where} has {record.parts} parts before it, and {len(parts)} are there: its broker lost messages",
                offset,
            )
        ranges = (*chain.from_iterable(part.ranges for part in parts), *ranges)
    rows = sum(part.count for part in ranges)
    ordered = sorted(ranges, key=lambda part: (part.queue, part.start))
    overlap = any(part.queue == behind.queue and part.end > behind.start for part, behind in pairwise(ordered))
    if rows != record.rows or overlap:
        raise _contradiction(f"{where} states {record.rows} rows, and its ranges are not as many", offset)
    return ranges


def _contradiction(fault: str, offset: int) -> ManifestError:
    return ManifestError(
        f"{fault}. Nothing of its batch is read: find out who may write to the manifest, write the batch again under a "
        f"higher number, and read on behind it (read_committed(topic, start={offset + 1}), in Spark startingOffsets "
        "with that offset of the manifest)"
    )


def committed_at(
    entries: Entries, start: int, end: int, *, disbelieved: Container[int] = ()
) -> tuple[CommittedBatches, int] | None:
    """Returns each writer's latest batch committed before offset `end`, and the number of entries after the last list.

    A list is a record's `decided`, the batches committed before it. `entries` begin at offset `start`. Returns None if
    they have no list and `start` is not 0. Lists of the records at the offsets `disbelieved` are ignored, since they
    name batches without a record.
    """
    for offset in range(end - 1, start - 1, -1):
        record = entries.get(offset)
        if (
            _may_decide(record, offset)
            and record.decided is not None
            and start <= record.seen <= offset
            and offset not in disbelieved
        ):
            return _with_records(entries, record.seen, end, record.decided), end - 1 - offset
    return None if start else (_with_records(entries, 0, end, {}), end)


def without_record(entries: Entries, decided: CommittedBatches) -> CommittedBatches:
    there = {(entry.writer, entry.number) for offset, entry in entries.items() if _may_decide(entry, offset)}
    return {writer: last for writer, last in decided.items() if (writer, last.number) not in there}


def known_from(entries: Entries, start: int, end: int) -> tuple[CommittedBatches, int]:
    """Returns each writer's latest batch committed from offset `start` to before `end`, and `end - start`.

    It is used if all entries before `start` have expired. Batches whose records have expired are missing.
    """
    return _with_records(entries, start, end, {}), end - start


def _with_records(entries: Entries, start: int, end: int, decided: CommittedBatches) -> CommittedBatches:
    batches = dict(decided)
    for offset in range(start, end):
        record = entries.get(offset)
        if _may_decide(record, offset):
            last = batches.get(record.writer)
            if last is None or record.number > last.number:
                batches.pop(record.writer, None)  # moves the writer to the end
                batches[record.writer] = Decided(
                    record.number, record.rows, offset, record.stored_ms, is_named=record.is_named
                )
    return batches
