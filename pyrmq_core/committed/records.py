"""Commit records: the ranges of acknowledged messages in one batch of a writer, as values and as bytes.

The manifest of a topic is another topic with one queue. A batch is committed by one message in it, whose body is JSON:

    {"writer": "q1", "number": 7, "rows": 150, "seen": 41, "commit": "5f0c...", "parts": 0,
     "ranges": {"orders": {"broker-a": {"0": [[1200, 150, "first id", "last id"]]}}},
     "decided": [["q1", 6, 90]], "decidedAt": [[40, 1777766400000]]}

`seen` is the end of the manifest when the committer read it. `decided`, if present, lists the batches committed before
it. `decidedAt` has the offset and the store time of each of their records, or -1 and 0 if they are unknown. `"named":
false` says that the writer commits once. Ranges that do not fit into one message are in messages before it, as parts.
All these messages have the property `MANIFEST_VERSION`. Other and unreadable messages are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from pyrmq_core.errors import ManifestError
from pyrmq_core.model import Message, MessageExt, MessageQueue

MANIFEST_VERSION: Final = "manifestVersion"
VERSION: Final = "1"
# The most ranges in one message. A range takes some 100 bytes, and a broker accepts messages of 4 MiB.
RANGES_A_MESSAGE: Final = 10_000
# The longest decompressed body of a manifest's message. Writers make shorter bodies.
MAX_ENTRY_BYTES: Final = 8 * 1024 * 1024
MAX_LONG: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoredRange:
    """A range of `count` consecutive messages of one write in a queue, starting at offset `start`."""

    queue: MessageQueue
    start: int
    count: int
    first_id: str
    last_id: str

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class Decided:
    """A writer's latest committed batch: its number and rows, and the offset and store time of its record, if known.

    `is_named` is False for a writer that commits only once.
    """

    number: int
    rows: int
    offset: int = -1
    stored_ms: int = 0
    is_named: bool = True


CommittedBatches: TypeAlias = Mapping[str, Decided]
"""The latest committed batch of each writer. The writer that committed last is at the end."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The record that commits batch `number` of `writer`, whose `rows` rows are the messages in `ranges`.

    The committer had read the manifest up to the offset `seen`, and found no record of this batch. `decided`, if not
    None, lists the batches committed before `seen`. If a batch has too many ranges for one message, `parts` earlier
    messages with the same `commit` have the first ranges. `is_named` is False for a writer that commits only once.
    `stored_ms` is the time at which the broker stored the record.
    """

    writer: str
    number: int
    rows: int
    ranges: tuple[StoredRange, ...]
    seen: int
    commit: str
    parts: int = 0
    decided: CommittedBatches | None = None
    is_named: bool = True
    stored_ms: int = field(default=0, compare=False)

    @property
    def is_contradictory(self) -> bool:
        """True if the ranges do not have `rows` rows, so that the record is void. False while `parts` is not 0."""
        return not self.parts and sum(part.count for part in self.ranges) != self.rows


@dataclass(frozen=True, slots=True)
class RangesPart:
    commit: str
    ranges: tuple[StoredRange, ...]


Entry: TypeAlias = CommitRecord | RangesPart


@dataclass(frozen=True, slots=True)
class NoEntry:
    """A message of a manifest that is neither a commit record nor a part of a record, and the reason."""

    reason: str


def joined(ranges: Iterable[StoredRange]) -> list[StoredRange]:
    """Returns the ranges sorted by queue and offset. Ranges without a gap between them are joined."""
    joined_ranges: list[StoredRange] = []
    for part in sorted(ranges, key=lambda part: (part.queue, part.start)):
        last = joined_ranges[-1] if joined_ranges else None
        if last is not None and last.queue == part.queue and last.end == part.start:
            joined_ranges[-1] = replace(last, count=last.count + part.count, last_id=part.last_id)
        else:
            joined_ranges.append(part)
    return joined_ranges


def commit_messages(record: CommitRecord, manifest: str) -> Iterator[Message]:
    """Yields the messages of the record, to be sent in order. Only the last message commits the batch."""
    for body in _bodies(record):
        yield Message(manifest, body, properties={MANIFEST_VERSION: VERSION})


def _bodies(record: CommitRecord) -> Iterator[bytes]:
    ranges, parts = record.ranges, 0
    while len(ranges) > RANGES_A_MESSAGE:
        yield _json({"commit": record.commit, "ranges": _tree(ranges[:RANGES_A_MESSAGE])})
        ranges, parts = ranges[RANGES_A_MESSAGE:], parts + 1
    body: dict[str, Any] = {
        "writer": record.writer,
        "number": record.number,
        "rows": record.rows,
        "seen": record.seen,
        "commit": record.commit,
        "parts": parts,
        "ranges": _tree(ranges),
    }
    if not record.is_named:
        body["named"] = False
    if record.decided is not None:
        body["decided"] = [[writer, last.number, last.rows] for writer, last in record.decided.items()]
        body["decidedAt"] = [[last.offset, last.stored_ms] for last in record.decided.values()]
    yield _json(body)


def entry_of(message: MessageExt) -> Entry | NoEntry:
    """Returns the commit record, or the part of a record, in the body of a manifest's message.

    Returns `NoEntry`, with the reason, for any other or unreadable message. Raises `ManifestError` for a record of a
    newer version, since it may commit a batch.
    """
    version = message.properties.get(MANIFEST_VERSION)
    if version is None:
        return NoEntry(f"it lacks the property {MANIFEST_VERSION}")
    if re.fullmatch("[1-9][0-9]{0,8}", version) and int(version) > int(VERSION):
        raise ManifestError(
            f"offset {message.queue_offset} of manifest {message.topic} is of version {version}, and this release of "
            f"pyrmq reads version {VERSION}: update it"
        )
    if version != VERSION:
        return NoEntry(f"its {MANIFEST_VERSION} is {version[:20]!a}")
    if len(message.body) > MAX_ENTRY_BYTES:
        return NoEntry(f"it has {len(message.body)} bytes")
    try:
        return _entry(json.loads(message.body), message.store_timestamp_ms)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return NoEntry(f"{type(error).__name__} {str(error)[:100]!a}")


def _entry(data: Any, stored_ms: int) -> Entry:
    ranges = tuple(_ranges(data["ranges"]))
    if "writer" not in data:
        return RangesPart(_text(data["commit"]), ranges)
    return CommitRecord(
        writer=_text(data["writer"]),
        number=_count(data["number"]),
        rows=_count(data["rows"]),
        ranges=ranges,
        seen=_count(data["seen"]),
        commit=_text(data["commit"]),
        parts=_count(data["parts"]),
        decided=None if data.get("decided") is None else _committed_batches(data["decided"], data.get("decidedAt")),
        is_named=data.get("named") is not False,
        stored_ms=stored_ms,
    )


def _committed_batches(batches: Sequence[Any], records: Sequence[Any] | None) -> CommittedBatches:
    records = [(-1, 0)] * len(batches) if records is None else records
    return {
        _text(writer): Decided(_count(number), _count(rows), _count(offset + 1) - 1, _count(stored_ms))
        for (writer, number, rows), (offset, stored_ms) in zip(batches, records, strict=True)
    }


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _tree(ranges: Sequence[StoredRange]) -> dict[str, dict[str, dict[str, list[list[Any]]]]]:
    tree: dict[str, dict[str, dict[str, list[list[Any]]]]] = {}
    for part in ranges:
        queues = tree.setdefault(part.queue.topic, {}).setdefault(part.queue.broker_name, {})
        queues.setdefault(str(part.queue.queue_id), []).append([part.start, part.count, part.first_id, part.last_id])
    return tree


def _ranges(tree: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[StoredRange]:
    for topic, brokers in tree.items():
        for broker_name, queues in brokers.items():
            for queue_id, ranges in queues.items():
                queue = MessageQueue(topic, broker_name, int(queue_id))
                for start, count, first_id, last_id in ranges:
                    yield StoredRange(queue, _count(start), _count(count), _text(first_id), _text(last_id))


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_LONG:
        raise ValueError(f"{value!r} is no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    value.encode()  # raises for half of a surrogate pair
    return value
