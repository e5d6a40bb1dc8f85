"""Divides the offsets to read into ranges, and the ranges among tasks. No offset is lost or read twice. Pure.

Ranges are cut as in Spark's Kafka source (KafkaOffsetRangeCalculator.scala, 4.0): a range is at most `max_records`
long, and if there are still fewer ranges than `min_partitions`, large ranges are cut in proportion.

Kafka's source has a task for each range. Here small ranges share a task, in their order: running a task in Python takes
Spark about as long as reading 10,000 small messages. The driver does not know the cores of the cluster, so the number
of tasks follows only from the work, unless `min_partitions` requires more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyrmq_core import MessageQueue, OffsetRange


@dataclass(frozen=True, slots=True, order=True)
class QueueRange:
    """The offsets of one queue that one task reads: from `start` to before `end`.

    `ids` are pairs of an offset and the id that the committed message there must have.
    """

    queue: MessageQueue
    start: int
    end: int
    ids: tuple[tuple[int, str], ...] = ()

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)

    def part(self, start: int, end: int) -> QueueRange:
        ids = self.ids and tuple(pair for pair in self.ids if start <= pair[0] < end)
        return QueueRange(self.queue, start, end, ids)


NO_RANGE: Final = QueueRange(MessageQueue("", "", 0), 0, 0)
# The most work of ranges that share a task. The unit is the time to read one message, about 2 us.
TASK_WORK: Final = 10_000
# The fixed work of a range: a request, its answer, and the decoding.
RANGE_WORK: Final = 300
# Reading this many bytes takes as long as one more message.
UNIT_BYTES: Final = 1000
# The assumed size of a message if no topic's size is known.
UNKNOWN_BYTES: Final = 1000.0


class RangePartition(InputPartition):
    """The ranges that one task reads. Spark sends them to the task, which gets no other part of the plan."""

    def __init__(self, *ranges: QueueRange) -> None:
        super().__init__(None)
        self.ranges = ranges


def plan(
    ranges: Mapping[MessageQueue, OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueueRange]:
    """Returns the ranges to read, in the order of queue and offset. Queues with nothing to read are left out.

    A range has at most `max_records` offsets. If there are fewer than `min_partitions` ranges, large ranges are cut.
    None sets no limit.
    """
    return cut_all(whole_ranges(ranges), min_partitions=min_partitions, max_records=max_records)


def whole_ranges(ranges: Mapping[MessageQueue, OffsetRange]) -> list[QueueRange]:
    return [
        QueueRange(queue, wanted.start, wanted.end)
        for queue, wanted in sorted(ranges.items(), key=lambda item: item[0])
    ]


def cut_all(
    whole: Sequence[QueueRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[QueueRange]:
    pieces = [piece for piece in whole if piece.size > 0]
    if max_records is not None:
        pieces = [part for piece in pieces for part in cut(piece, -(-piece.size // max_records))]
    if min_partitions is not None and min_partitions > len(pieces):
        pieces = _cut_large_ones(pieces, min_partitions)
    return pieces


def share_out(
    pieces: Sequence[QueueRange],
    mean_bytes: Mapping[str, float],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[tuple[QueueRange, ...]]:
    """Returns each task's ranges, in the order of `pieces`. Small consecutive ranges share a task.

    A task of several ranges has at most `max_records`. Returns at least `min_partitions` tasks if there are that many
    pieces. `mean_bytes`, the mean size of a message by topic, decides which ranges are small.
    """
    tasks: list[list[QueueRange]] = []
    work = records = 0.0
    unknown = max(mean_bytes.values(), default=UNKNOWN_BYTES)
    for piece in pieces:
        more = RANGE_WORK + piece.size * (1 + mean_bytes.get(piece.queue.topic, unknown) / UNIT_BYTES)
        fits = work + more <= TASK_WORK and (max_records is None or records + piece.size <= max_records)
        if tasks and fits:
            tasks[-1].append(piece)
            work, records = work + more, records + piece.size
        else:
            tasks.append([piece])
            work, records = more, float(piece.size)
    wanted = min(min_partitions or 1, len(pieces))
    while len(tasks) < wanted:
        longest = max(range(len(tasks)), key=lambda number: len(tasks[number]))
        halved = tasks[longest]
        tasks[longest : longest + 1] = [halved[: len(halved) // 2], halved[len(halved) // 2 :]]
    return [tuple(task) for task in tasks]


def may_share(pieces: Sequence[QueueRange], min_partitions: int | None) -> dict[str, QueueRange]:
    """Returns by topic the longest range that may share a task with others.

    The caller queries message sizes only for these topics.
    """
    small = [piece for piece in pieces if RANGE_WORK + piece.size < TASK_WORK]
    if len(small) < 2 or len(pieces) <= (min_partitions or 1):
        return {}
    longest: dict[str, QueueRange] = {}
    for piece in small:
        if piece.size > longest.get(piece.queue.topic, NO_RANGE).size:
            longest[piece.queue.topic] = piece
    return longest


def cut(piece: QueueRange, parts: int) -> list[QueueRange]:
    """Divides a range into up to `parts` adjacent ranges of nearly equal size."""
    ranges, start = [], piece.start
    for left in range(parts, 0, -1):
        end = start + (piece.end - start) // left
        if end > start:
            ranges.append(piece.part(start, end))
        start = end
    return ranges


def _cut_large_ones(pieces: Sequence[QueueRange], min_partitions: int) -> list[QueueRange]:
    # As in Kafka's source, small ranges stay whole.
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
    # Rounded half up (`Math.round`).
    return max(1, (2 * size * partitions + total) // (2 * total))
