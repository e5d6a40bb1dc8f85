"""The check that the answer to a pull has every requested message.

Queue offsets have no gaps, so a missing offset is data loss. A broker leaves out messages whose log file it has just
deleted, or whose queue is damaged. It reports this only if the answer would be empty otherwise (MESSAGE_WAS_REMOVING in
DefaultMessageStore.getMessage, 5.4.0). The answer to a pull with a filter may have gaps, and is not checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyrmq_core.errors import DataLost, RecordError
from pyrmq_core.model import MessageQueue, OffsetRange


def check_complete(
    queue: MessageQueue, offsets: Sequence[int], within: OffsetRange, *, allow_gaps: bool = False
) -> None:
    """Raises `DataLost` if the answer to an unfiltered pull has no message for an offset of the range `within`.

    `offsets` are the offsets of its messages. Raises `RecordError` if they are too many or out of order, which means a
    damaged queue. With `allow_gaps` missing offsets are accepted.
    """
    expected = len(within)
    if len(offsets) == expected and offsets == list(range(within.start, within.end)):
        return
    if len(offsets) > expected or any(earlier >= later for earlier, later in pairwise(offsets)):
        raise RecordError(
            f"{queue.broker_name} answered {len(offsets)} messages for the {expected} offsets {within.start} to "
            f"{within.end} of {queue}, some of them twice or out of order; the broker's queue is damaged"
        )
    if len(offsets) == expected or allow_gaps:
        return
    there = set(offsets)
    first = next(offset for offset in range(within.start, within.end) if offset not in there)
    raise DataLost(
        f"{expected - len(offsets)} of the offsets {within.start} to {within.end} of {queue} have no message any more, "
        f"{first} is the first: they expired while they were read, the topic keeps the last message of each key alone, "
        "or the broker's queue is damaged; allow_gaps=True (Spark: failOnDataLoss=false) goes on with what is left",
        queue=queue,
        start=within.start,
        end=within.end,
        min_offset=within.end,
        max_offset=within.end,
    )
