"""Cuts the offsets to read into the ranges of tasks; no offset is dropped or read twice. Pure.

The arithmetic is that of Spark's Kafka source (KafkaOffsetRangeCalculator.scala, 4.0): a range is at most
`max_records` long, and when there are still fewer ranges than `min_partitions`, the large ones are cut in proportion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pyrmq_core import MessageQueue, OffsetRange


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of one queue from `start` up to `end`, without it, that one task reads."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)


class RangePartition(InputPartition):
    """The range that one task reads, and all that is planned for it: Spark pickles the reader before it plans."""

    def __init__(self, queue_range: QueueRange) -> None:
        super().__init__(queue_range)
        self.queue_range = queue_range


def plan(
    ranges: Mapping[MessageQueue, OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueueRange]:
    """Returns the tasks' ranges by queue and offset; a queue with nothing to read has none. Limits are at least 1."""
    whole = [QueueRange(queue, wanted.start, wanted.end) for queue, wanted in sorted(ranges.items(), key=_queue)]
    pieces = [piece for piece in whole if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in cut(piece, -(-piece.size // max_records))]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _cut_large_ones(pieces, min_partitions)
    return pieces


def cut(piece: QueueRange, parts: int) -> list[QueueRange]:
    """Returns up to `parts` ranges, one behind another; each takes an equal share, rounded down, of the rest."""
    ranges, start = [], piece.start
    for left in range(parts, 0, -1):
        end = start + (piece.end - start) // left
        if end > start:
            ranges.append(QueueRange(piece.queue, start, end))
        start = end
    return ranges


def _cut_large_ones(pieces: Sequence[QueueRange], min_partitions: int) -> list[QueueRange]:
    """Returns the ranges with those cut whose share of the partitions is more than one; these share the rest."""
    total = sum(piece.size for piece in pieces)
    small = {piece for piece in pieces if _share(piece.size, total, min_partitions) == 1}
    budget = min_partitions - len(small)
    large_total = sum(piece.size for piece in pieces if piece not in small)
    return [
        part
        for piece in pieces
        for part in ([piece] if piece in small else cut(piece, _share(piece.size, large_total, budget)))
    ]


def _share(size: int, total: int, partitions: int) -> int:
    """Returns the share of `partitions`, rounded to the nearest, half up (`Math.round`), and at least 1."""
    return max(1, (2 * size * partitions + total) // (2 * total))


def _queue(item: tuple[MessageQueue, OffsetRange]) -> MessageQueue:
    return item[0]
