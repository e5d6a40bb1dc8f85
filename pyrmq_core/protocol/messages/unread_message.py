"""`UnreadMessage`: a `MessageExt` whose record is parsed on the first use of a field other than topic, queue, offset
and body.

Most handlers read only a message's body and a property or two, while parsing the rest of the records is a third or more
of the time of decoding a pull. In `UnreadMessage` the other fields of `MessageExt` are therefore Python properties.
Reading one of them parses the record, sets all fields, and makes the object a `MessageExt`.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.protocol.framing.fast_dataclass import late_field, partial_maker_of
from pyrmq_core.protocol.messages.properties import UNIQ_KEY, decode_java_utf8, decode_properties
from pyrmq_core.protocol.messages.record import (
    CRC_MASK,
    FIXED_V4,
    INT,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    RawRecord,
    unpack_host,
)
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, COMPRESSED, HOSTS_V6

COMMIT_LOG_OFFSET: Final = struct.Struct(">q")
RECONSUME_TIMES_POSITION: Final = 72
# The fields needed to read a record: size, magic, CRC, queue offset, sysFlag, size of the body.
DECIDING: Final = struct.Struct(">iii8xq8xi44xi")
NOT_PLAIN: Final = HOSTS_V6 | BATCH_RECORD | COMPRESSED

_set: Final = object.__setattr__
_SLOTS: Final[dict[str, Any]] = {name: MessageExt.__dict__[name] for name in MessageExt.__slots__}
_read_slot: Final = _SLOTS["store_host"].__get__
# The fields that are set at once. Until the others are parsed, the slots of the last two have their undecoded bytes.
EAGER: Final = ("topic", "broker_name", "queue_id", "queue_offset", "body", "properties", "store_host")


def unread_message(
    queue: MessageQueue, topic: str, raw: RawRecord, offset: int, body: bytes, properties: bytes, flag: int
) -> MessageExt:
    """Returns a message with these fields. The other fields of its record `raw` are parsed on first use.

    `properties` and `flag` are separate arguments, since each message in a batch record has its own.
    """
    return _make_unread(topic, queue.broker_name, queue.queue_id, offset, body, properties, (raw, flag))


def add_plain_messages(
    messages: list[Any], records: bytes, position: int, queue: MessageQueue, start: int, stop: int, *, crc: bool
) -> int:
    """Reads records from byte `position` on, and appends messages with offsets from `start` to before `stop`.

    Returns the position after the last record that was read. It stops before a record that only `unpack_record` can
    read: one that is compressed, a batch or damaged, or has IPv6 hosts or a topic of more than 127 bytes. With `crc` it
    also stops before a body with a wrong CRC.
    """
    broker_name, queue_id, available = queue.broker_name, queue.queue_id, len(records)
    topic_bytes, topic = b"", ""
    while position + MIN_RECORD_BYTES <= available:
        size, magic, body_crc, offset, sys_flag, body_bytes = DECIDING.unpack_from(records, position)
        body_start, end = position + DECIDING.size, position + size
        body_end = body_start + body_bytes
        if magic != MAGIC_V1 or sys_flag & NOT_PLAIN or body_bytes < 0 or body_end + 3 > end or end > available:
            break
        topic_start = body_end + 1
        topic_end = topic_start + records[body_end]
        properties_start = topic_end + 2
        if properties_start > end or records[body_end] > 127 or records[topic_end] > 127:
            break
        if properties_start + (records[topic_end] << 8 | records[topic_end + 1]) != end:
            break
        if start <= offset < stop:
            body = records[body_start:body_end]
            if crc and body and zlib.crc32(body) & CRC_MASK != body_crc:
                break
            if len(topic_bytes) != topic_end - topic_start or not records.startswith(topic_bytes, topic_start):
                topic_bytes = records[topic_start:topic_end]
                topic = decode_java_utf8(topic_bytes)
            properties, fixed = records[properties_start:end], records[position:body_start]
            messages.append(_make_unread(topic, broker_name, queue_id, offset, body, properties, fixed))
        position = end
    return position


def read_message(
    queue: MessageQueue, topic: str, raw: RawRecord, offset: int, body: bytes, properties: bytes, flag: int
) -> MessageExt:
    """Returns a message with every field parsed. `unread_message` is the fast form."""
    message = unread_message(queue, topic, raw, offset, body, properties, flag)
    _read(message)
    return message


def reconsume_times_of(message: MessageExt) -> int:
    """Returns `message.reconsume_times` without parsing the other fields of an `UnreadMessage`."""
    record = _read_slot(message)
    times: int = (
        INT.unpack_from(record, RECONSUME_TIMES_POSITION)[0] if type(record) is bytes else message.reconsume_times
    )
    return times


def _read(message: MessageExt) -> None:
    # Reads each slot once, since two threads may read the same message at once.
    record, packed = _SLOTS["store_host"].__get__(message), _SLOTS["properties"].__get__(message)
    if type(record) is not str:
        if type(record) is bytes:
            raw = RawRecord._make((*FIXED_V4.unpack(record), b"", b"", b""))
            flag = raw.flag
        else:
            raw, flag = record
        properties = packed if type(packed) is dict else decode_properties(decode_java_utf8(packed))
        offset_id = (raw.store_host + COMMIT_LOG_OFFSET.pack(raw.commit_log_offset)).hex().upper()
        late = {
            "properties": properties,
            "flag": flag,
            "sys_flag": raw.sys_flag,
            "born_timestamp_ms": raw.born_timestamp_ms,
            "born_host": unpack_host(raw.born_host),
            "store_timestamp_ms": raw.store_timestamp_ms,
            "commit_log_offset": raw.commit_log_offset,
            "store_size": raw.store_size,
            "body_crc": raw.body_crc,
            "reconsume_times": raw.reconsume_times,
            "prepared_transaction_offset": raw.prepared_transaction_offset,
            "msg_id": properties.get(UNIQ_KEY, offset_id),
            "offset_msg_id": offset_id,
            "store_host": unpack_host(raw.store_host),
        }
        for name, value in late.items():
            _SLOTS[name].__set__(message, value)
    _set(message, "__class__", MessageExt)


class UnreadMessage(MessageExt):
    """A message whose record is not parsed yet. Comparing, copying or pickling parses it."""

    __slots__ = ()

    properties = late_field(_SLOTS["properties"], _read)
    flag = late_field(_SLOTS["flag"], _read)
    sys_flag = late_field(_SLOTS["sys_flag"], _read)
    born_timestamp_ms = late_field(_SLOTS["born_timestamp_ms"], _read)
    born_host = late_field(_SLOTS["born_host"], _read)
    store_timestamp_ms = late_field(_SLOTS["store_timestamp_ms"], _read)
    store_host = late_field(_SLOTS["store_host"], _read)
    commit_log_offset = late_field(_SLOTS["commit_log_offset"], _read)
    store_size = late_field(_SLOTS["store_size"], _read)
    body_crc = late_field(_SLOTS["body_crc"], _read)
    reconsume_times = late_field(_SLOTS["reconsume_times"], _read)
    prepared_transaction_offset = late_field(_SLOTS["prepared_transaction_offset"], _read)
    msg_id = late_field(_SLOTS["msg_id"], _read)
    offset_msg_id = late_field(_SLOTS["offset_msg_id"], _read)

    def __eq__(self, other: object) -> bool:
        _read(self)
        return self == other

    def __repr__(self) -> str:
        _read(self)
        return repr(self)

    def __hash__(self) -> int:
        _read(self)
        return hash(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _read(self)
        return self.__reduce_ex__(protocol)


# A fast constructor (`fast_dataclass`), called for every message that is read.
_make_unread: Final = partial_maker_of(MessageExt, UnreadMessage, EAGER)
