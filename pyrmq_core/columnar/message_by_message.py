"""The plain path, both ways: pulls to a record batch and rows to payloads, one message after another.

Taken where few messages are, and for whatever the columns cannot make sense of: it says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from pyrmq_core.columnar.columns import TIMESTAMP, source_column
from pyrmq_core.columnar.cutting import BatchLimit, runs_of
from pyrmq_core.columnar.joining import Part
from pyrmq_core.columnar.outgoing import OutgoingRows
from pyrmq_core.columnar.unique_ids import id_texts
from pyrmq_core.errors import RecordError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import NO_PROPERTIES, Message, MessageExt, OffsetRange
from pyrmq_core.protocol.payload import Payload, RawPull, decode, encode_one, split_batch
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


def encode_messages(
    rows: OutgoingRows, topic: str, ids: Sequence[Part], limit: BatchLimit, *, alone: bool, waits: bool
) -> Iterator[Payload]:
    """What `encode_batches` gives."""
    messages, unique_ids = _messages(rows, topic, waits=waits), id_texts(ids, len(rows))
    for run in runs_of(rows.body.sizes, limit, alone=alone):
        compression = limit.compression if run.compressed else None
        some, their_ids = messages[run.start : run.end], unique_ids[run.start : run.end]
        if run.alone:
            for message, unique_id in zip(some, their_ids, strict=True):
                yield encode_one(
                    message,
                    unique_id,
                    compression=compression,
                    compress_over_bytes=0,
                    max_message_bytes=limit.max_message_bytes,
                )
        else:
            yield from split_batch(
                some,
                their_ids,
                compression=compression,
                max_message_bytes=limit.max_message_bytes,
                request_bytes=limit.bytes,
                request_messages=limit.messages,
            )


def _messages(rows: OutgoingRows, topic: str, *, waits: bool) -> list[Message]:
    texts = [_texts(rows, name) for name in ("tags", "keys", "shardingKey")]
    flags = [0] * len(rows) if rows.flag is None else rows.flag.fill_null(0).to_pylist()
    pairs = [None] * len(rows) if rows.properties is None else rows.properties.array.to_pylist()
    return [
        Message(
            topic, body, tags, keys, sharding_key, dict(own) if own else NO_PROPERTIES, flag, wait_store_msg_ok=waits
        )
        for body, tags, keys, sharding_key, own, flag in zip(
            rows.body.array.to_pylist(), *texts, pairs, flags, strict=True
        )
    ]


def _texts(rows: OutgoingRows, name: str) -> list[str | None]:
    if name not in rows.texts:
        return [None] * len(rows)
    return [text.decode() if text else None for text in rows.texts[name].array.to_pylist()]
