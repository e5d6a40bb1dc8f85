"""The share of the backlog that a micro-batch takes. Pure.

The arithmetic of `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` is that of Spark's Kafka source
(KafkaMicroBatchStream.scala: rateLimit, delayBatch); a limit on bytes divides in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyrmq_core import MessageQueue

Backlog = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits that options set; the delay is in seconds."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0
    max_bytes: int | None = None

    @property
    def are_set(self) -> bool:
        return any(limit is not None for limit in (self.max_offsets, self.min_offsets, self.max_bytes))


def is_held_back(backlog: Backlog, limits: ReadLimits, since_last: float | None) -> bool:
    """Returns whether a batch has to wait: the backlog is below `min_offsets`, the last batch under `max_delay` ago.

    `since_last` is the time since the last batch in seconds, or None before the first one, which never waits.
    """
    if limits.min_offsets is None or since_last is None or since_last >= limits.max_delay:
        return False
    return sum(backlog.values()) < limits.min_offsets


def admitted(backlog: Backlog, limits: ReadLimits, mean_sizes: Mapping[MessageQueue, float]) -> dict[MessageQueue, int]:
    """Returns how many offsets to take of each queue with a backlog: at least one, so that no queue starves.

    The sum may exceed a limit by these. `mean_sizes` are needed only for a limit on bytes.
    """
    taken = dict(backlog)
    if limits.max_offsets is not None:
        taken = _by_offsets(taken, limits.max_offsets)
    if limits.max_bytes is not None:
        taken = _by_bytes(taken, limits.max_bytes, mean_sizes)
    return taken


def _by_offsets(backlog: Backlog, limit: int) -> dict[MessageQueue, int]:
    """Returns each queue's share of the limit in proportion to its backlog: rounded up if below one, else down."""
    total = sum(backlog.values())
    return {queue: min(size, max(1, limit * size // total)) for queue, size in backlog.items()}


def _by_bytes(backlog: Backlog, limit: int, mean_sizes: Mapping[MessageQueue, float]) -> dict[MessageQueue, int]:
    sizes = {queue: max(1.0, mean_sizes.get(queue, 1.0)) for queue in backlog}
    total = sum(size * sizes[queue] for queue, size in backlog.items())
    if total <= limit:
        return dict(backlog)
    return {queue: min(size, max(1, int(size * limit / total))) for queue, size in backlog.items()}
