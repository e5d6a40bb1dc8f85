"""Pulls to record batches: only the columns asked for are built.

Times of Arrow and Spark are microseconds, RocketMQ's are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pyrmq_core.errors import InvalidArgument, RecordError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, MessageExt, OffsetRange
from pyrmq_core.protocol.payload import RawPull, decode
from pyrmq_core.protocol.properties import java_text

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
STRING_MAP: Final = pa.map_(pa.string(), pa.string())
MAX_MS: Final = (2**63 - 1) // 1000
ALL_TAGS: Final = TagFilter()

Value = Callable[[MessageExt], object]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column a read can give: its Arrow type, where in a message it comes from, and whether it may be null."""

    type: pa.DataType
    value: Value
    nullable: bool = False


SOURCE_COLUMNS: Final[Mapping[str, SourceColumn]] = {
    "topic": SourceColumn(pa.string(), lambda message: message.topic),
    "brokerName": SourceColumn(pa.string(), lambda message: message.broker_name),
    "queueId": SourceColumn(pa.int32(), lambda message: message.queue_id),
    "queueOffset": SourceColumn(pa.int64(), lambda message: message.queue_offset),
    "msgId": SourceColumn(pa.string(), lambda message: message.msg_id),
    "tags": SourceColumn(pa.string(), lambda message: message.tags, nullable=True),
    "keys": SourceColumn(pa.string(), lambda message: message.keys, nullable=True),
    "body": SourceColumn(pa.binary(), lambda message: message.body),
    "properties": SourceColumn(STRING_MAP, lambda message: list(message.properties.items())),
    "bornTimestamp": SourceColumn(TIMESTAMP, lambda message: message.born_timestamp_ms),
    "storeTimestamp": SourceColumn(TIMESTAMP, lambda message: message.store_timestamp_ms),
    "reconsumeTimes": SourceColumn(pa.int32(), lambda message: message.reconsume_times),
    "offsetMsgId": SourceColumn(pa.string(), lambda message: message.offset_msg_id),
    "bornHost": SourceColumn(pa.string(), lambda message: message.born_host),
    "storeHost": SourceColumn(pa.string(), lambda message: message.store_host),
    "sysFlag": SourceColumn(pa.int32(), lambda message: message.sys_flag),
    "flag": SourceColumn(pa.int32(), lambda message: message.flag),
    "bodyCrc": SourceColumn(pa.int32(), lambda message: message.body_crc),
    "storeSize": SourceColumn(pa.int32(), lambda message: message.store_size),
    "commitLogOffset": SourceColumn(pa.int64(), lambda message: message.commit_log_offset),
    "preparedTransactionOffset": SourceColumn(pa.int64(), lambda message: message.prepared_transaction_offset),
    "shardingKey": SourceColumn(pa.string(), lambda message: message.sharding_key, nullable=True),
}
# Given unless others are asked for.
DEFAULT_COLUMNS: Final = tuple(SOURCE_COLUMNS)[:12]


def decode_records(
    pulls: Iterable[RawPull],
    columns: pa.Schema,
    within: OffsetRange = EVERYTHING,
    *,
    tags: TagFilter = ALL_TAGS,
    keep_undecodable: bool = False,
) -> pa.RecordBatch:
    """The messages of `pulls` that lie in `within` and have one of `tags`, as a batch of exactly `columns`.

    A broker compares hashes of tags: here their text decides. `body` may be asked for as string, read as Java reads
    text. `RecordError` names queue and offset of what cannot be read, `InvalidArgument` a column there is not.
    """
    messages = [
        message
        for pull in pulls
        for message in decode(pull, within, keep_undecodable=keep_undecodable)
        if tags.matches(message.tags)
    ]
    return pa.RecordBatch.from_arrays([_array(field, messages) for field in columns], schema=columns)


def _array(field: pa.Field, messages: Sequence[MessageExt]) -> pa.Array:
    column = SOURCE_COLUMNS.get(field.name)
    if column is None:
        raise InvalidArgument(f"messages have no column {field.name}; there are {', '.join(SOURCE_COLUMNS)}")
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
