"""Decides whether the answer to a pull of a range can be used, is worth a retry, or shows lost messages. Pure.

The broker sets the status of an answer in store/DefaultMessageStore.java (getMessage), 5.4.0. After a reset of the
group's offset, its PullMessageProcessor.java (broker/processor) answers OFFSET_RESET to one pull of any kind.
"""

from __future__ import annotations

from pyrmq_core.errors import DataLost, RecordError
from pyrmq_core.model import PullStatus
from pyrmq_core.protocol.messages.payload import RawPull


def may_pass(pull: RawPull, end: int) -> bool:
    """Returns whether the same pull may get a usable answer a moment later. `end` is the end of the range that is read.

    The answer may be usable later in these cases:

        message just acknowledged    it may not be readable yet
        slave that lags              code 20 (PULL_RETRY_IMMEDIATELY), same offset, where its master answers 19 or 21
        reset of the group's offset  OFFSET_ILLEGAL in one answer, even if the broker keeps the requested offset
        4.9 broker during writes     messages beyond the queue's maximum offset in the same answer
    """
    if pull.status is PullStatus.OFFSET_ILLEGAL:
        return pull.min_offset <= pull.start <= pull.max_offset
    lags = pull.status is PullStatus.NO_MATCHED_MSG and pull.next_offset == pull.start
    return lags or pull.status is PullStatus.NO_NEW_MSG or _is_beyond(pull, end)


def fault_of(pull: RawPull, end: int, *, filtered: bool) -> DataLost | RecordError | None:
    """Returns the error of a pull whose answer is not valid for the offsets from its start to `end`, else None.

    With `filtered`, offsets may lack a message, since the broker skips messages that the filter rejects.
    """
    start, forward = pull.start, pull.next_offset > pull.start
    if _is_beyond(pull, end):
        return _beyond_its_end(pull)
    if pull.status is PullStatus.FOUND or (filtered and pull.status is PullStatus.NO_MATCHED_MSG):
        if forward:
            return None
        if pull.status is PullStatus.FOUND:
            return no_progress(pull)
    if not pull.min_offset <= start < pull.max_offset:
        return _lost(pull, end, "messages expired, or the topic was deleted and made again")
    if forward:  # in Java MESSAGE_WAS_REMOVING or OFFSET_FOUND_NULL
        return _lost(pull, min(pull.next_offset, end), "the files that held these messages are removed")
    return no_progress(pull)


def no_progress(pull: RawPull) -> RecordError:
    """Returns the error for an answer whose next offset is not after its start, which would be pulled for ever."""
    return RecordError(
        f"{pull.queue.broker_name} answered a pull of {pull.queue} at {pull.start} with next offset "
        f"{pull.next_offset}, which does not go forward; the broker's queue is damaged"
    )


def _is_beyond(pull: RawPull, range_end: int) -> bool:
    """Returns whether an answer's offsets before `range_end` go beyond the queue's maximum offset in that answer."""
    return pull.status is not PullStatus.OFFSET_ILLEGAL and min(pull.next_offset, range_end) > pull.max_offset


def _beyond_its_end(pull: RawPull) -> RecordError:
    return RecordError(
        f"{pull.queue.broker_name} answered a pull of {pull.queue} at {pull.start} with next offset "
        f"{pull.next_offset}, and that the queue ends at {pull.max_offset}; the broker's queue is damaged"
    )


def _lost(pull: RawPull, end: int, why: str) -> DataLost:
    return DataLost(
        f"offsets {pull.start} to {end} of {pull.queue} were asked for, but the broker keeps {pull.min_offset} to "
        f"{pull.max_offset}: {why}",
        queue=pull.queue,
        start=pull.start,
        end=end,
        min_offset=pull.min_offset,
        max_offset=pull.max_offset,
    )
