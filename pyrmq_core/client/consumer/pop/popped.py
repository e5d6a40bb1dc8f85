"""Decodes the answer to a pop into its messages, each with its receipt. Pure.

Source: client/impl/MQClientAPIImpl.java (processPopResponse, 5.4.0, and processPopLiteResponse, 5.5.0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final, NamedTuple

from pyrmq_core.errors import HeaderError, RecordError
from pyrmq_core.model import EVERYTHING, MessageExt, MessageQueue, PullStatus
from pyrmq_core.protocol.java.integers import MAX_LONG
from pyrmq_core.protocol.messages.bodies import MAX_DECOMPRESSED_BYTES, BodyRules
from pyrmq_core.protocol.messages.lite_topics import lite_places, with_lite_offsets
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.properties import POP_CK
from pyrmq_core.protocol.messages.readable import Readable, UnreadableRecord, iterate_readable
from pyrmq_core.protocol.messages.record import MAGIC_V1, MIN_RECORD_BYTES, RawRecord, unpack_record
from pyrmq_core.protocol.requests.pop.lite import read_lite_tries
from pyrmq_core.protocol.requests.pop.pop_message import PopAnswer, read_order_counts, read_start_offsets
from pyrmq_core.protocol.requests.pop.receipt import (
    POPPED_TOPIC,
    Receipt,
    check_spread,
    make_receipt,
    topic_mark,
)

# The first fields of a record, which show its end and its queue: size, magic, queue id.
START: Final = struct.Struct(">ii4xi")


class Popped(NamedTuple):
    """A message with the receipt that acknowledges it. An unreadable message has an `error`, and its body as stored."""

    message: MessageExt
    receipt: Receipt
    error: Exception | None = None


def pulls_of(answer: PopAnswer, topic: str, broker_name: str) -> Iterator[RawPull]:
    """Splits the records in the answer to a pop into one `RawPull` for each sequence of records of the same queue.

    Raises `RecordError` for a record whose end cannot be found.
    """
    records, begin, position, queue_id = memoryview(answer.records), 0, 0, -1
    while position < len(records):
        left = len(records) - position
        size, magic, next_id = START.unpack_from(records, position) if left >= START.size else (0, 0, 0)
        if magic != MAGIC_V1 or not MIN_RECORD_BYTES <= size <= left:
            raw = unpack_record(records, position)
            size, next_id = raw.store_size, raw.queue_id
        if next_id != queue_id and position > begin:
            yield _pull(records[begin:position], topic, broker_name, queue_id)
            begin = position
        queue_id = next_id
        position += size
    if position > begin:
        yield _pull(records[begin:position], topic, broker_name, queue_id)


def readable_part(pull: RawPull, rules: BodyRules) -> list[Readable]:
    """Returns the messages of a pull, and an `UnreadableRecord` for each record that cannot be decoded.

    The result ends before the decompressed bodies exceed 256 MiB. The messages after that stay unacknowledged, so the
    broker delivers them again.
    """
    items: list[Readable] = []
    plain_bytes = 0
    for item in iterate_readable(pull, EVERYTHING, rules):
        plain_bytes += len(item.body) if isinstance(item, MessageExt) else 0
        if plain_bytes > MAX_DECOMPRESSED_BYTES and items:
            break
        items.append(item)
    return items


def with_receipts(answer: PopAnswer, items: Sequence[Readable], topic: str, broker_name: str) -> list[Popped]:
    """Returns each message of an answer with its receipt, and with `topic` as its topic.

    Messages of an ordered pop get the number of earlier tries. Raises `HeaderError` if a message has no receipt.
    """
    starts = read_start_offsets(answer.start_offset_info or "")
    counts = read_order_counts(answer.order_count_info or "")
    # POP_CK is searched in all records at once, since reading a message's properties would parse its record.
    has_receipts, popped = POP_CK.encode() in bytes(answer.records), []
    times = (answer.pop_time_ms, answer.invisible_ms, answer.revive_queue_id)
    queue, mark, start = ("", -1), POPPED_TOPIC, None
    for item in items:
        message, error = (item.message, item.error) if isinstance(item, UnreadableRecord) else (item, None)
        if message is None:
            continue
        text = message.properties.get(POP_CK) if has_receipts else None
        if text is not None:
            receipt = Receipt.decode(text)
        else:
            queue_id, offset = message.queue_id, message.queue_offset
            if queue != (message.topic, queue_id):  # messages of one queue follow one another
                queue, mark = (message.topic, queue_id), topic_mark(message.topic)
                start = starts.get((mark, queue_id))
                if starts and start is None:
                    what = f"a message of queue {queue_id} of {topic} without its receipt"
                    raise HeaderError(f"{broker_name} popped {what}")
            first = offset if start is None else start
            check_spread(first, offset)
            receipt = make_receipt(first, *times, mark, broker_name, queue_id, offset, None)
            tries = counts.get((mark, queue_id, offset), counts.get((mark, queue_id, None), 0)) if counts else 0
            if tries > 0:
                message = replace(message, reconsume_times=tries)
        if message.topic != topic:
            message = replace(message, topic=topic)
        popped.append(Popped(message, receipt, error))
    return popped


def lite_pulls_of(answer: PopAnswer, broker_name: str) -> Iterator[RawPull]:
    """Splits the records in a pop of lite topics into one `RawPull` for each lite topic, with its offsets.

    Raises `RecordError` for a record of no lite topic, or one whose end cannot be found.
    """
    begin = end = 0
    for name, group in groupby(_raw_records(answer.records), key=lambda raw: next(iter(lite_places(raw)), None)):
        end += sum(raw.store_size for raw in group)
        if name is None:
            raise RecordError(f"{broker_name} popped a message that is of no lite topic")
        yield _pull(with_lite_offsets(answer.records[begin:end], name), name, broker_name, 0)
        begin = end


def with_lite_receipts(
    answer: PopAnswer, pulls: Sequence[RawPull], items: Sequence[Sequence[Readable]], broker_name: str
) -> list[Popped]:
    """Returns the messages of each lite topic, with their receipts and the numbers of earlier tries."""
    offsets = [[raw.queue_offset for raw in _raw_records(pull.records)] for pull in pulls]
    popped, times = [], (answer.pop_time_ms, answer.invisible_ms, answer.revive_queue_id)
    tries = read_lite_tries(answer.order_count_info or "", offsets)
    for pull, readable, counts in zip(pulls, items, tries, strict=True):
        lite_topic = pull.queue.topic.rpartition("$")[2]
        for item in readable:
            message, error = (item.message, item.error) if isinstance(item, UnreadableRecord) else (item, None)
            if message is not None:
                at = message.queue_offset
                receipt = Receipt(at, *times, POPPED_TOPIC, broker_name, 0, at, lite_topic)
                popped.append(Popped(replace(message, reconsume_times=counts.get(at, 0)), receipt, error))
    return popped


def _raw_records(records: bytes | memoryview) -> Iterator[RawRecord]:
    position = 0
    while position < len(records):
        raw = unpack_record(records, position)
        yield raw
        position += raw.store_size


def _pull(records: bytes | memoryview, topic: str, broker_name: str, queue_id: int) -> RawPull:
    queue = MessageQueue(topic, broker_name, queue_id)
    return RawPull(queue, 0, MAX_LONG, 0, MAX_LONG, PullStatus.FOUND, records)
