"""`TimeSlices`: divides the ranges of many queues by store time, the newest part first, or the oldest.

A slice has about a given number of messages of all queues together. Messages of one millisecond are never divided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyrmq_core.client.consumer.pull_consumer import PullConsumer
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue, OffsetRange
from pyrmq_core.tools.search.ranges import Ranges, offsets_that_answer

FIRST_SLICE_MS: Final = 60_000
# The number of messages in the first slice, so small that the first match is shown soon.
FIRST_MESSAGES: Final = 4
MOST_MESSAGES: Final = 65_536
# After a slice of fewer bytes than LIGHT_BYTES the next one is longer, and after more than HEAVY_BYTES it is shorter.
LIGHT_BYTES: Final = 16 * 1024 * 1024
HEAVY_BYTES: Final = 64 * 1024 * 1024
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MS: Final = 10**14


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets to search next, by queue. The messages of all later slices were stored before `rest_bound`.

    If the search begins with the oldest, the messages of all later slices were stored at or after `rest_bound`. In the
    last slice `rest_bound` is None.
    """

    ranges: Ranges
    rest_bound: datetime | None


class TimeSlices:
    """The division of the `ranges` of many queues into slices by store time.

    All messages were stored before `bound`, or with `oldest_first` at or after it. `failures` has the errors of brokers
    that did not answer.
    """

    def __init__(self, consumer: PullConsumer, ranges: Ranges, bound: datetime, *, oldest_first: bool) -> None:
        self.failures: dict[str, RocketMQError] = {}
        self._consumer = consumer
        self._left = dict(ranges)
        self._bound_ms = (bound - EPOCH) // timedelta(milliseconds=1)
        self._slice_ms = FIRST_SLICE_MS
        self._messages = FIRST_MESSAGES
        self._oldest_first = oldest_first

    def drop(self, queue: MessageQueue) -> None:
        self._left.pop(queue, None)

    def adapt(self, slice_bytes: int) -> None:
        """Makes the next slices longer or shorter. `slice_bytes` is the decompressed size of the last one."""
        if slice_bytes < LIGHT_BYTES:
            self._messages = min(MOST_MESSAGES, 4 * self._messages)
        elif slice_bytes > HEAVY_BYTES:
            self._messages = max(1, self._messages // 2)

    async def next(self) -> Slice | None:
        while self._left:
            if _count(self._left) <= self._messages:
                ranges, self._left = self._left, {}
                return Slice(sorted(ranges.items()), None)
            bound_ms = self._bound_ms + (self._slice_ms if self._oldest_first else -self._slice_ms)
            cuts = await self._cuts(bound_ms)
            before = {queue: OffsetRange(self._left[queue].start, cut) for queue, cut in cuts.items()}
            behind = {queue: OffsetRange(cut, self._left[queue].end) for queue, cut in cuts.items()}
            part, remaining = (before, behind) if self._oldest_first else (behind, before)
            count = _count(part)
            if count > self._messages and self._slice_ms > 1:
                self._slice_ms = max(1, min(self._slice_ms // 2, self._slice_ms * self._messages // count))
                continue
            self._left = {queue: offsets for queue, offsets in remaining.items() if len(offsets)}
            self._bound_ms = bound_ms
            if count <= self._messages // 2:
                self._slice_ms *= 2
            if count:
                bound = EPOCH + timedelta(milliseconds=bound_ms) if self._left else None
                return Slice(sorted((queue, offsets) for queue, offsets in part.items() if len(offsets)), bound)
        return None

    async def _cuts(self, bound_ms: int) -> dict[MessageQueue, int]:
        if not 0 < bound_ms < MAX_MS:
            return {queue: left.start if bound_ms <= 0 else left.end for queue, left in self._left.items()}
        offsets, failures = await offsets_that_answer(self._consumer, self._left, bound_ms)
        self.failures |= failures
        lefts = {queue: self._left[queue] for queue in offsets}
        self._left = dict(sorted(lefts.items()))
        return {queue: min(max(offsets[queue], left.start), left.end) for queue, left in self._left.items()}


def _count(ranges: Mapping[MessageQueue, OffsetRange]) -> int:
    return sum(len(offsets) for offsets in ranges.values())
