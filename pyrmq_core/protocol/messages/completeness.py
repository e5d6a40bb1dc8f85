"""Proves that an answer has every message it was asked for: queue offsets are dense, so each offset has its message.

A broker passes over entries whose log file it has just deleted, and over entries of a damaged queue, and says so only
where an answer has nothing else (MESSAGE_WAS_REMOVING in DefaultMessageStore.getMessage, 5.4.0). Where a filter was
asked for there is no such proof: that each answer goes forward, and none beyond the queue's end, is all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyrmq_core.errors import DataLost, RecordError
from pyrmq_core.model import MessageQueue, OffsetRange


def check_whole(queue: MessageQueue, offsets: Sequence[int], asked: OffsetRange, *, allow_gaps: bool = False) -> None:
    """Raises `DataLost` where `offsets`, those answered for `asked` without a filter, leave some out, and `RecordError`
    where they are too many or out of order, as no broker's queue can have them."""
    expected = len(asked)
    if len(offsets) > expected or any(one >= next_one for one, next_one in pairwise(offsets)):
        raise RecordError(
            f"{queue.broker_name} answered {len(offsets)} messages for the {expected} offsets {asked.start} to "
            f"{asked.end} of {queue}, some of them twice or out of order; the broker's queue is damaged"
        )
    if len(offsets) == expected or allow_gaps:
        return
    there = set(offsets)
    first = next(offset for offset in range(asked.start, asked.end) if offset not in there)
    raise DataLost(
        f"{expected - len(offsets)} of the offsets {asked.start} to {asked.end} of {queue} have no message any more, "
        f"{first} is the first: they expired while they were read, the topic keeps the last message of each key alone, "
        "or the broker's queue is damaged; allow_gaps=True (Spark: failOnDataLoss=false) goes on with what is left",
        queue=queue,
        start=asked.start,
        end=asked.end,
        min_offset=asked.end,
        max_offset=asked.end,
    )
