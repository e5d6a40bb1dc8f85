"""The number of offsets that a micro-batch reads of the backlog. Pure.

`maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` work as in Spark's Kafka source
(KafkaMicroBatchStream.scala: rateLimit, delayBatch). Unlike there, the rest of a limit that rounding leaves is given to
queues, too. A limit on bytes is divided in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyrmq_core import MessageQueue

Backlog = Mapping[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits that options set on one micro-batch: the most and fewest offsets, and the most bytes.

    A batch waits at most `max_delay` seconds for the fewest offsets.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = 900.0
    max_bytes: int | None = None

    @property
    def are_set(self) -> bool:
        return any(limit is not None for limit in (self.max_offsets, self.min_offsets, self.max_bytes))


def is_held_back(backlog: Backlog, limits: ReadLimits, since_last: float | None) -> bool:
    """Returns whether a batch has to wait: the backlog is below `min_offsets`, and less than `max_delay` has passed.

    `since_last` is the time since the last batch in seconds, or None before the first batch, which never waits.
    """
    if limits.min_offsets is None or since_last is None or since_last >= limits.max_delay:
        return False
    return sum(backlog.values()) < limits.min_offsets


def admitted(backlog: Backlog, limits: ReadLimits, mean_sizes: Mapping[MessageQueue, float]) -> dict[MessageQueue, int]:
    """Returns the number of offsets that the next batch reads of each queue with a backlog.

    `backlog` is the number of unread offsets by queue. Each queue gets at least one, so that none starves. Apart from
    that, the sums do not exceed the limits. `mean_sizes`, a message's mean bytes by queue, is only used for a limit on
    bytes.
    """
    admitted_messages = dict(backlog)
    if limits.max_offsets is not None:
        admitted_messages = _by_offsets(admitted_messages, limits.max_offsets)
    if limits.max_bytes is not None:
        admitted_messages = _by_bytes(admitted_messages, limits.max_bytes, mean_sizes)
    return admitted_messages


def _by_offsets(backlog: Backlog, limit: int) -> dict[MessageQueue, int]:
    """Returns each queue's share of the limit in proportion to its backlog, rounded down, but at least 1.

    The remainder gives one more offset to each of the queues that lost most by rounding.
    """
    total = sum(backlog.values())
    if total <= limit:
        return dict(backlog)
    shares = {queue: max(1, limit * size // total) for queue, size in backlog.items()}
    rounded_off = {queue: limit * size % total for queue, size in backlog.items() if limit * size > total}
    left = max(0, limit - sum(shares.values()))
    for queue in sorted(rounded_off, key=lambda queue: (-rounded_off[queue], queue))[:left]:
        shares[queue] += 1
    return shares


def _by_bytes(backlog: Backlog, limit: int, mean_sizes: Mapping[MessageQueue, float]) -> dict[MessageQueue, int]:
    """Returns how many messages each queue gets of a limit in bytes.

    Bytes that are left after an equal share go to queues whose next message fits into them.
    """
    sizes = {queue: max(1.0, mean_sizes.get(queue, 1.0)) for queue in backlog}
    total = sum(size * sizes[queue] for queue, size in backlog.items())
    if total <= limit:
        return dict(backlog)
    exact = {queue: size * limit / total for queue, size in backlog.items()}
    shares = {queue: min(size, max(1, int(exact[queue]))) for queue, size in backlog.items()}
    left = limit - sum(share * sizes[queue] for queue, share in shares.items())
    for queue in sorted(backlog, key=lambda queue: (shares[queue] - exact[queue], queue)):
        if shares[queue] < backlog[queue] and sizes[queue] <= left:
            shares[queue] += 1
            left -= sizes[queue]
    return shares
