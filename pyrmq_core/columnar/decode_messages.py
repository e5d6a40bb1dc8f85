"""The plain path of reading: pulls to a record batch, one message after another.

Taken where few messages are, and for whatever the columns cannot make sense of: it says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from pyrmq_core.columnar.columns import TIMESTAMP, source_column
from pyrmq_core.errors import RecordError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, OffsetRange
from pyrmq_core.protocol.payload import RawPull, decode
from pyrmq_core.protocol.properties import java_text

MAX_MS: Final = (2**63 - 1) // 1000


def decode_messages(
    pulls: Sequence[RawPull], columns: pa.Schema, within: OffsetRange, tags: TagFilter, *, keep_undecodable: bool
) -> pa.RecordBatch:
    """What `decode_records` gives."""
    messages = [
        message
        for pull in pulls
        for message in decode(pull, _own(pull, within), keep_undecodable=keep_undecodable)
        if tags.matches(message.tags)
    ]
    return pa.RecordBatch.from_arrays([_array(field, messages) for field in columns], schema=columns)


def _own(pull: RawPull, within: OffsetRange) -> OffsetRange:
    """A pull answers with whole batch records; what lies outside its own range belongs to another pull."""
    return OffsetRange(max(pull.start, within.start), min(pull.next_offset, within.end))


def _array(field: pa.Field, messages: Sequence[MessageExt]) -> pa.Array:
    column = source_column(field.name)
    if column.type == TIMESTAMP:
        return _times(field, column.value, messages)
    if field.name == "body" and field.type == pa.string():
        return pa.array([java_text(message.body) for message in messages], field.type)
    return pa.array([column.value(message) for message in messages], field.type)


def _times(field: pa.Field, value: Callable[[MessageExt], Any], messages: Sequence[MessageExt]) -> pa.Array:
    times = [value(message) for message in messages]
    for message, time_ms in zip(messages, times, strict=True):
        if not -MAX_MS <= time_ms <= MAX_MS:
            raise RecordError(
                f"{message.topic}/{message.broker_name}/{message.queue_id}: the message at offset "
                f"{message.queue_offset} has {field.name} {time_ms} ms, which no timestamp holds; do not ask for that "
                "column"
            )
    return pa.array([time_ms * 1000 for time_ms in times], pa.int64()).cast(field.type)
