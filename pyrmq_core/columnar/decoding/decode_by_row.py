"""Decodes the answers of pull requests to record batches, one message after another.

This is faster for few messages. It also serves for input that cannot be decoded by columns: it reads the input, or
raises an error with its fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pyrmq_core.columnar.decoding.columns import MAX_MS, TIMESTAMP, DecodedBatch, source_column
from pyrmq_core.columnar.decoding.decompression import PART_BYTES
from pyrmq_core.errors import RecordError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.payload import RawPull, iterate_messages
from pyrmq_core.protocol.messages.properties import decode_java_utf8


def decode_messages(
    pulls: Sequence[RawPull],
    columns: pa.Schema,
    within: OffsetRange,
    tags: TagFilter,
    rules: BodyRules,
    *,
    allow_gaps: bool = False,
) -> Iterator[DecodedBatch]:
    messages: list[MessageExt] = []
    part_bytes = 0
    for number, pull in enumerate(pulls):
        for message in iterate_messages(pull, pull.own(within), rules, allow_gaps=allow_gaps):
            if not tags.matches(message.tags):
                continue
            # The topic is counted, too, since in a batch record it may be much longer than the bodies of its messages.
            message_bytes = len(message.body) + len(message.topic) + len(message.broker_name)
            if messages and part_bytes + message_bytes > PART_BYTES:
                rest = replace(pull, start=message.queue_offset), *pulls[number + 1 :]
                yield DecodedBatch(batch_of(messages, columns), rest)
                messages, part_bytes = [], 0
            messages.append(message)
            part_bytes += message_bytes
    yield DecodedBatch(batch_of(messages, columns))


def batch_of(messages: Sequence[MessageExt], columns: pa.Schema) -> pa.RecordBatch:
    """Returns the messages as a batch. Raises `RecordError` for a time beyond the range of Arrow's timestamps."""
    return pa.RecordBatch.from_arrays([_array(field, messages) for field in columns], schema=columns)


def _array(field: pa.Field, messages: Sequence[MessageExt]) -> pa.Array:
    column = source_column(field.name)
    if column.type == TIMESTAMP:
        return _times(field, column.value, messages)
    if field.name == "body" and field.type == pa.string():
        return pa.array([decode_java_utf8(message.body) for message in messages], field.type)
    return pa.array([column.value(message) for message in messages], field.type)


def _times(field: pa.Field, value: Callable[[MessageExt], Any], messages: Sequence[MessageExt]) -> pa.Array:
    times = [value(message) for message in messages]
    for message, time_ms in zip(messages, times, strict=True):
        if time_ms is not None and not -MAX_MS <= time_ms <= MAX_MS:
            raise RecordError(
                f"{message.topic}/{message.broker_name}/{message.queue_id}: the message at offset "
                f"{message.queue_offset} has {field.name} {time_ms} ms, which no timestamp holds; do not ask for that "
                "column"
            )
    array = pa.array([None if time_ms is None else time_ms * 1000 for time_ms in times], TIMESTAMP)
    return array.cast(field.type)
