"""Commit records: the ranges of acknowledged messages in one batch of a writer, as values and as bytes.

The manifest of a topic is another topic with one queue. A batch is committed by one message in it, whose body is JSON:

    {"writer": "q1", "number": 7, "rows": 150, "seen": 41, "commit": "5f0c...", "parts": 0,
     "ranges": {"orders": {"broker-a": {"0": [[1200, 150, "first id", "last id"]]}}}, "decided": [["q1", 6, 90]]}

`seen` is the end of the manifest when the committer read it; `decided`, if present, has the batches decided there.
Ranges that do not fit into one message precede it, in parts. These messages have the property `MANIFEST_VERSION`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from pyrmq_core.errors import ManifestError
from pyrmq_core.model import Message, MessageExt, MessageQueue

MANIFEST_VERSION: Final = "manifestVersion"
VERSION: Final = "1"
# The most ranges in one message: a range takes some 100 bytes, and a broker accepts messages of 4 MiB.
RANGES_A_MESSAGE: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredRange:
    """`count` consecutive messages of one write in a queue, from offset `start` on, with the first and the last id."""

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
    """The latest batch of a writer that is decided, and its rows."""

    number: int
    rows: int


DecidedBatches: TypeAlias = Mapping[str, Decided]
"""By writer, the one that committed last at the end."""


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The decision that the batch `number` of `writer` consists of the rows in `ranges`.

    The committer read the manifest up to the offset `seen`, and found no such batch there. `decided` may have the
    batches decided there. The ranges of `parts` messages before this one, with the same `commit`, belong to it.
    """

    writer: str
    number: int
    rows: int
    ranges: tuple[StoredRange, ...]
    seen: int
    commit: str
    parts: int = 0
    decided: DecidedBatches | None = None


@dataclass(frozen=True, slots=True)
class RangesPart:
    """A part of the ranges of a later commit record."""

    commit: str
    ranges: tuple[StoredRange, ...]


Entry: TypeAlias = CommitRecord | RangesPart


def joined(ranges: Iterable[StoredRange]) -> list[StoredRange]:
    """Returns the ranges by queue and offset; ranges without a gap between them are joined."""
    whole: list[StoredRange] = []
    for part in sorted(ranges, key=lambda part: (part.queue, part.start)):
        last = whole[-1] if whole else None
        if last is not None and last.queue == part.queue and last.end == part.start:
            whole[-1] = replace(last, count=last.count + part.count, last_id=part.last_id)
        else:
            whole.append(part)
    return whole


def commit_messages(record: CommitRecord, manifest: str) -> Iterator[Message]:
    """Yields the messages that commit the record, to be sent in order; the last message is the decision itself."""
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
    if record.decided is not None:
        body["decided"] = [[writer, last.number, last.rows] for writer, last in record.decided.items()]
    yield _json(body)


def entry_of(message: MessageExt) -> Entry | None:
    """Returns the commit record, or part of its ranges, in a message of a manifest; None for any other message.

    Raises `ManifestError` for an unknown version, and for a body that cannot be read.
    """
    place = f"offset {message.queue_offset} of manifest {message.topic}"
    version = message.properties.get(MANIFEST_VERSION)
    if version is None:
        return None
    if version != VERSION:
        raise ManifestError(f"{place} is of version {version!r}, and this release reads version {VERSION}: update it")
    try:
        data = json.loads(message.body)
        ranges = tuple(_ranges(data["ranges"]))
        if "writer" not in data:
            return RangesPart(_text(data["commit"]), ranges)
        decided = data.get("decided")
        return CommitRecord(
            writer=_text(data["writer"]),
            number=_count(data["number"]),
            rows=_count(data["rows"]),
            ranges=ranges,
            seen=_count(data["seen"]),
            commit=_text(data["commit"]),
            parts=_count(data["parts"]),
            decided=None
            if decided is None
            else {_text(writer): Decided(_count(number), _count(rows)) for writer, number, rows in decided},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ManifestError(f"{place} is no commit record: {type(error).__name__} {error}") from None


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
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
