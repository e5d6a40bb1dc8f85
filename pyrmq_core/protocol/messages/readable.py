"""The reading of a pull's records one at a time, so that an unreadable record does not hide the others.

`payload.decode` returns all messages of a pull or raises. `iterate_readable` is for tools that read messages of unknown
senders. It decompresses each body only when its message is next, to save memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.errors import MissingLibrary, RecordError
from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.completeness import check_complete
from pyrmq_core.protocol.messages.payload import RawPull, iterate_messages, messages_passing
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, COMPRESSED
from pyrmq_core.protocol.messages.unread_message import DECIDING, add_plain_messages, unread_message

MIN_RULES: Final = BodyRules()


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record whose messages cannot be read, and the error that says why.

    `message` has the record's fields, and the body as it is stored. It is None if the record's length is unknown, since
    its first bytes are damaged. The records after it are then not read, and `offset` is the first offset that
    was not read.
    """

    error: RecordError | MissingLibrary
    offset: int
    message: MessageExt | None = None


Readable = MessageExt | UnreadableRecord


def iterate_readable(
    pull: RawPull,
    within: OffsetRange,
    rules: BodyRules = MIN_RULES,
    *,
    offsets: Collection[int] | None = None,
    allow_gaps: bool = True,
) -> Iterator[Readable]:
    """Yields the messages of a pull within a range, and an `UnreadableRecord` for each record that cannot be read.

    With `offsets` it yields only the messages at these offsets, and does not decompress the bodies of others. Without
    `allow_gaps`, raises `DataLost` after the last message if an offset has no message. This check is left out for pulls
    with a filter, and with `offsets`.
    """
    records, position, reached = bytes(pull.records), 0, within.start
    present: list[int] = []
    has_unknown = offsets is not None
    while position < len(records):
        messages: list[MessageExt] = []
        position = add_plain_messages(
            messages, records, position, pull.queue, within.start, within.end, crc=rules.verify_crc
        )
        for message in messages_passing(pull, messages):
            if offsets is None or message.queue_offset in offsets:
                yield message
        present += [message.queue_offset for message in messages]
        reached = present[-1] + 1 if messages else reached
        if position >= len(records):
            break
        try:
            raw = unpack_record(records, position)
        except RecordError as error:
            unread = f"the offsets {reached} to {pull.own(within).end - 1} of {pull.queue} are not read"
            yield UnreadableRecord(RecordError(f"{error}; {unread}"), reached)
            has_unknown = True
            break
        record, position = records[position : position + raw.store_size], position + raw.store_size
        is_batch = raw.sys_flag & BATCH_RECORD == BATCH_RECORD
        has_unknown = has_unknown or is_batch
        if not is_batch and not (within.start <= raw.queue_offset < within.end):
            continue
        present.append(raw.queue_offset)
        if not is_batch and offsets is not None and raw.queue_offset not in offsets:
            continue
        try:
            single = replace(pull, records=record, is_unfiltered=False)
            for message in iterate_messages(single, within, rules):
                reached = max(reached, message.queue_offset + 1)
                if offsets is None or message.queue_offset in offsets:
                    yield message
                del message  # frees the body before the next one is unpacked
        except (RecordError, MissingLibrary) as error:
            yield UnreadableRecord(error, raw.queue_offset, _as_stored(pull, raw))
    if pull.is_unfiltered and not allow_gaps and not has_unknown:
        check_complete(pull.queue, present, pull.own(within))


def has_compressed(records: bytes | memoryview) -> bool:
    position = 0
    while position < len(records):
        if position + DECIDING.size > len(records):
            return True
        size, _, _, _, sys_flag, _ = DECIDING.unpack_from(records, position)
        if sys_flag & COMPRESSED or size < DECIDING.size:
            return True
        position += size
    return False


def _as_stored(pull: RawPull, raw: RawRecord) -> MessageExt:
    topic = decode_java_utf8(raw.topic)
    message = unread_message(pull.queue, topic, raw, raw.queue_offset, raw.body, raw.properties, raw.flag)
    return next(messages_passing(replace(pull, passes=None), [message]))
