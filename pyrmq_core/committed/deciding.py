"""The records of a manifest that count: the first record of each writer's batch, by its offset. Pure.

A committer reads the manifest to its end before it appends, and appends nothing if the batch is decided there. So a
second record of a batch can only lie between the end that its committer saw and its own offset: whether a record counts
is decided by these entries alone, and a reader may begin anywhere.

The numbers of a writer's batches ascend. A record with a lower number than a decided batch is late, and does not count
either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from pyrmq_core.committed.records import (
    CommitRecord,
    Decided,
    DecidedBatches,
    Entry,
    RangesPart,
    StoredRange,
    joined,
)
from pyrmq_core.errors import ManifestError

# Up to this many writers, each record lists the decided batches: the next committer then reads only the last record. Of
# more writers, a record lists them only if this many records before it do not.
FEW_WRITERS: Final = 8
RECORDS_WITHOUT_DECIDED: Final = 32
# A committer must read the manifest again if this many records were added since: its record would not count.
LONGEST_LOOK_BACK: Final = 1000
# The most writers that a record lists; the writer that committed longest ago is forgotten first.
MAX_WRITERS: Final = 1000

Entries: TypeAlias = Mapping[int, Entry]
"""Entries of a manifest by their offsets; messages that are none are left out."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed batch: the offset of its record in the manifest, and all ranges that it consists of."""

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
    decided: DecidedBatches,
    without_decided: int,
) -> CommitRecord | None:
    """Returns the record to append for a batch to a manifest that ends at `seen`; None if the batch is decided.

    `commit` is unique to this attempt.
    """
    last = decided.get(writer)
    if last is not None and last.number >= number:
        return None
    whole = tuple(joined(ranges))
    says_all = len(decided) <= FEW_WRITERS or without_decided >= RECORDS_WITHOUT_DECIDED
    return CommitRecord(
        writer,
        number,
        sum(part.count for part in whole),
        whole,
        seen,
        commit,
        decided=decided if says_all else None,
    )


def needed_from(entries: Entries, start: int, end: int) -> int:
    """Returns the offset from which entries must be read to decide which records in `start` to `end` count."""
    records = ((offset, entries.get(offset)) for offset in range(start, end))
    seen = (
        record.seen
        for offset, record in records
        if isinstance(record, CommitRecord) and offset - record.seen <= LONGEST_LOOK_BACK
    )
    return min(start, min(seen, default=start))


def commits_between(entries: Entries, start: int, end: int) -> list[Commit]:
    """Returns the committed batches whose records lie in `start` to `end`, in the order of their records.

    `entries` are all entries from `needed_from` on. Raises `ManifestError` for a record whose parts are missing.
    """
    return [
        Commit(offset, record.writer, record.number, record.rows, _all_ranges(entries, offset, record))
        for offset in range(start, end)
        if isinstance(record := entries.get(offset), CommitRecord) and _is_first(entries, offset, record)
    ]


def _is_first(entries: Entries, offset: int, record: CommitRecord) -> bool:
    if offset - record.seen > LONGEST_LOOK_BACK:
        return False
    between = (entries.get(earlier) for earlier in range(record.seen, offset))
    return not any(
        isinstance(earlier, CommitRecord) and earlier.writer == record.writer and earlier.number >= record.number
        for earlier in between
    )


def _all_ranges(entries: Entries, offset: int, record: CommitRecord) -> tuple[StoredRange, ...]:
    if not record.parts:
        return record.ranges
    before = (entries.get(earlier) for earlier in range(record.seen, offset))
    parts = [part for part in before if isinstance(part, RangesPart) and part.commit == record.commit]
    if len(parts) != record.parts:
        raise ManifestError(
            f"the record at offset {offset} of the manifest has {record.parts} parts before it, and {len(parts)} are "
            "there: its broker lost messages"
        )
    return (*(stored for part in parts for stored in part.ranges), *record.ranges)


def decided_at(entries: Entries, start: int, end: int) -> tuple[DecidedBatches, int] | None:
    """Returns the decided batches at `end`, and how many records follow their last list.

    None if the last list lies in earlier entries.

    `entries` are the entries from `start` on. If `start` is 0 they need no list.
    """
    for offset in range(end - 1, start - 1, -1):
        record = entries.get(offset)
        if isinstance(record, CommitRecord) and record.decided is not None and record.seen >= start:
            return _with_records(entries, record.seen, end, record.decided), end - 1 - offset
    return None if start else (_with_records(entries, 0, end, {}), end)


def known_from(entries: Entries, start: int, end: int) -> tuple[DecidedBatches, int]:
    """Returns the same for a manifest whose entries before `start` have expired, with their decisions."""
    return _with_records(entries, start, end, {}), end - start


def _with_records(entries: Entries, start: int, end: int, decided: DecidedBatches) -> DecidedBatches:
    batches = dict(decided)
    for offset in range(start, end):
        record = entries.get(offset)
        if isinstance(record, CommitRecord):
            last = batches.get(record.writer)
            if last is None or record.number > last.number:
                batches.pop(record.writer, None)  # the writer moves to the end
                batches[record.writer] = Decided(record.number, record.rows)
    return dict(islice(batches.items(), max(0, len(batches) - MAX_WRITERS), None))
