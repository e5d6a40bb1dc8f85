"""`RangesDecoding`: decodes the pull results of one task to record batches, several small ranges together.

Decoding costs some hundred microseconds even for few rows, so the results of several ranges are decoded as one if
possible. If that fails, each range is decoded separately, up to its own error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Final

from pyrmq_core import (
    DataLost,
    OffsetRange,
    RawPull,
    RocketMQError,
    line_logger,
)
from pyrmq_spark.read.range_planner import QueueRange

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_core.columnar import DecodedBatch

log = line_logger(__name__)

# No limit of offsets is needed, since each pull covers only its part of a range.
EVERY_OFFSET: Final = OffsetRange(0, 2**63 - 1)

# Decodes pulls within a range of offsets. The last argument says whether offsets without a message are skipped.
Decode = Callable[[Sequence[RawPull], OffsetRange, bool], "Iterator[DecodedBatch]"]


@dataclass(frozen=True, slots=True)
class Reached:
    """A task's progress by one batch: how many ranges it passed, and the next offset in the one after them."""

    whole_ranges: int
    offset: int


class RangesDecoding:
    """The decoder of one task, which receives the results of its pulls in the order of the ranges."""

    def __init__(self, ranges: Sequence[QueueRange], decode: Decode, *, fail_on_data_loss: bool) -> None:
        self._left = deque(ranges)
        self._decode = decode
        self._fail_on_data_loss = fail_on_data_loss

    def decoded(self, pulls: list[RawPull]) -> Iterator[tuple[Reached, pa.RecordBatch]]:
        """Yields the record batches of some pull results, each with the position of the task after it.

        No batch has rows of several topics.
        """
        for _, of_topic in groupby(pulls, key=lambda pull: pull.queue.topic):
            same_topic = list(of_topic)
            parts = self._by_range(same_topic)
            together = self._together(same_topic) if len(parts) > 1 else None
            if together is not None:
                yield from self._with_place(together, same_topic)
                continue
            for part in parts:
                yield from self._with_place(self._of_range(part), part)

    def _by_range(self, pulls: list[RawPull]) -> list[list[RawPull]]:
        ranges, parts = iter(self._left), list[list[RawPull]]()
        current = None
        for pull in pulls:
            if current is None or not _has(current, pull):
                current = next(queue_range for queue_range in ranges if _has(queue_range, pull))
                parts.append([])
            parts[-1].append(pull)
        return parts

    def _together(self, pulls: list[RawPull]) -> Iterator[DecodedBatch] | None:
        batches = self._decode(pulls, EVERY_OFFSET, False)
        try:
            return chain((next(batches),), batches)
        except RocketMQError:
            return None

    def _of_range(self, pulls: list[RawPull]) -> Iterator[DecodedBatch]:
        within = next(queue_range for queue_range in self._left if _has(queue_range, pulls[0])).offsets
        batches = self._decode(pulls, within, False)
        try:
            head = next(batches)
        except DataLost as lost:  # offsets without a message are found before any batch is made
            if self._fail_on_data_loss:
                raise
            log.warning("%s", lost)
            batches = self._decode(pulls, within, True)
            head = next(batches)
        return chain((head,), batches)

    def _with_place(
        self, batches: Iterator[DecodedBatch], pulls: list[RawPull]
    ) -> Iterator[tuple[Reached, pa.RecordBatch]]:
        for batch, following in batches:
            passed = self._pass_to(following[0] if following else pulls[-1])
            offset = following[0].start if following else pulls[-1].next_offset
            if offset >= self._left[0].end:
                self._left.popleft()
            yield Reached(passed, offset), batch

    def _pass_to(self, pull: RawPull) -> int:
        passed = 0
        while not _has(self._left[0], pull):
            self._left.popleft()
            passed += 1
        return passed


def _has(queue_range: QueueRange, pull: RawPull) -> bool:
    return pull.queue == queue_range.queue and pull.start < queue_range.end
