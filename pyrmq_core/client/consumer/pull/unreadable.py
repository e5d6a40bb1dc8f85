"""Skips records that stay unreadable after several tries, but no readable records around them.

Java's clients silently skip such a record and all later records of the same answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.errors import RecordError
from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.messages.bodies import MAX_DECOMPRESSED_BYTES, BodyRules
from pyrmq_core.protocol.messages.payload import RawPull, messages_of
from pyrmq_core.protocol.messages.record import unpack_record

log = logging.getLogger(__name__)

# The tries to read a record, which take some 6 s with their pauses. A later one may return the right bytes.
TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Readable:
    """The readable messages of a pull, an error for each unreadable record, and the offset of the next pull."""

    messages: list[MessageExt]
    faults: list[RecordError]
    next_offset: int


def readable(pull: RawPull, rules: BodyRules) -> Readable:
    """Returns the messages of a pull in the order of their offsets, without the unreadable records.

    If the end of a record cannot be found, the result ends before it, and the next pull begins there. If that is the
    first record, one offset is skipped. The result also ends before the decompressed bodies exceed 256 MiB.
    """
    own = OffsetRange(pull.start, max(pull.start, pull.next_offset))
    messages: list[MessageExt] = []
    faults: list[RecordError] = []
    records, position, reached, plain_bytes = bytes(pull.records), 0, own.start, 0
    while position < len(records):
        try:
            raw = unpack_record(records, position)
        except RecordError as error:
            if reached > own.start:
                return Readable(messages, faults, reached)
            return Readable(messages, [error], min(own.start + 1, own.end))
        record = replace(pull, records=records[position : position + raw.store_size], is_unfiltered=False)
        position += raw.store_size
        try:
            decoded, _ = messages_of(record, OffsetRange(reached, own.end), rules)
        except RecordError as error:
            faults.append(error)
            reached = max(reached, raw.queue_offset + 1)
            continue
        plain_bytes += sum(len(message.body) for message in decoded)
        if plain_bytes > MAX_DECOMPRESSED_BYTES and messages:
            return Readable(messages, faults, reached)
        messages += decoded
        reached = max(reached, raw.queue_offset + 1, *(message.queue_offset + 1 for message in decoded))
    return Readable(messages, faults, max(reached, own.end))


class UnreadableRecords:
    """A counter of the tries to read a pull's records. After the last try, unreadable records are skipped."""

    def __init__(self) -> None:
        self._start = -1
        self._tries = 0

    def pass_over(self, pull: RawPull, error: RecordError, rules: BodyRules) -> Readable:
        """Raises `error` while tries are left. After the last try, logs a warning and returns the readable messages."""
        if pull.start != self._start:
            self._start, self._tries = pull.start, 0
        self._tries += 1
        if self._tries < TRIES:
            raise error
        part = readable(pull, rules)
        if part.next_offset <= pull.start:
            raise error
        is_whole = part.next_offset >= pull.next_offset  # no record is unreadable, so the error is in the offsets
        for fault in part.faults or [error] * is_whole:
            log.warning(
                "%s: a record could not be read in %d tries and is not consumed; the consumer goes on behind it: %s",
                pull.queue,
                TRIES,
                fault,
            )
        return part
