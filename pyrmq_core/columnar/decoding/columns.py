"""The possible columns of a read: their names, their Arrow types, and the attributes of a message that they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import SYSTEM_NAMES, MessageExt
from pyrmq_core.protocol.messages.payload import RawPull
from pyrmq_core.protocol.messages.properties import BORN_HOST, DELAY, LITE_TOPIC, TIMER_DELIVER_MS, TIMER_OUT_MS

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
STRING_MAP: Final = pa.map_(pa.string(), pa.string())

# The largest time whose microseconds fit into Arrow's 64 bits.
MAX_MS: Final = (2**63 - 1) // 1000
MAX_INT: Final = 2**31 - 1
# The properties with a message's delivery time: as set by its producer, or as rounded by a broker. The first property
# that a message has is used.
DELIVER_AT_NAMES: Final = (TIMER_DELIVER_MS, TIMER_OUT_MS)

Value = Callable[[MessageExt], object]


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A possible column of a read: its Arrow type, the function that returns its value, and whether it may be null."""

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
    "properties": SourceColumn(STRING_MAP, lambda message: list(message.user_properties.items())),
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
    "systemProperties": SourceColumn(
        STRING_MAP, lambda message: [pair for pair in message.properties.items() if pair[0] in SYSTEM_NAMES]
    ),
    "allProperties": SourceColumn(STRING_MAP, lambda message: list(message.properties.items())),
    "deliverAt": SourceColumn(TIMESTAMP, lambda message: _deliver_at_ms(message.properties), nullable=True),
    "delayLevel": SourceColumn(
        pa.int32(), lambda message: whole_number(message.properties.get(DELAY), MAX_INT), nullable=True
    ),
    "liteTopic": SourceColumn(pa.string(), lambda message: message.properties.get(LITE_TOPIC), nullable=True),
    "producerHost": SourceColumn(pa.string(), lambda message: message.properties.get(BORN_HOST), nullable=True),
}
# The columns of a read that names no columns.
DEFAULT_COLUMNS: Final = tuple(SOURCE_COLUMNS)[:12]


def schema_of(columns: Sequence[str] | pa.Schema | None = None) -> pa.Schema:
    """Returns the schema of the named columns, or of the default ones for None.

    A `pa.Schema` is returned unchanged: its types may differ from the default ones. Raises `InvalidArgument` for an
    unknown name.
    """
    if isinstance(columns, pa.Schema):
        for name in columns.names:
            source_column(name)
        return columns
    names = DEFAULT_COLUMNS if columns is None else tuple(columns)
    return pa.schema([pa.field(name, source_column(name).type, source_column(name).nullable) for name in names])


def whole_number(text: str | None, most: int) -> int | None:
    """Parses a property's text of decimal digits, from 0 to `most`. Returns None for any other text."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    return number if (number := int(text)) <= most else None


def _deliver_at_ms(properties: Mapping[str, str]) -> int | None:
    texts = (properties[name] for name in DELIVER_AT_NAMES if name in properties)
    return whole_number(next(texts, None), MAX_MS)


def source_column(name: str) -> SourceColumn:
    column = SOURCE_COLUMNS.get(name)
    if column is None:
        raise InvalidArgument(f"messages have no column {name}; there are {', '.join(SOURCE_COLUMNS)}")
    return column


class DecodedBatch(NamedTuple):
    """A decoded batch of messages, and `rest`: the pulls with the messages after it. The last batch has no `rest`."""

    batch: pa.RecordBatch
    rest: tuple[RawPull, ...] = ()
