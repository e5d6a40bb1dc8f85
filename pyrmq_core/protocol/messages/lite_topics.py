"""The queues of lite topics: a broker of 5.5 has one for each lite topic, beside the queues of the parent topic.

    %LMQ%$orders$session-42     the name by which requests address queue 0 of lite topic session-42 in topic orders

A record is stored once, with its offset in a queue of the parent topic. Two of its properties name the queues of lite
topics that also contain it, and its offset in each. In 5.5.0, a pull from a lite topic's queue without messages creates
that queue, and the queue may contain delayed or rolled back messages. Sources:
common/lite/LiteUtil.java, store/LmqDispatch.java (5.5.0).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pyrmq_core.errors import InvalidArgument, RecordError
from pyrmq_core.protocol.messages.names import LMQ_PREFIX, owner_topic
from pyrmq_core.protocol.messages.properties import (
    LITE_TOPIC_NAME,
    LITE_TOPIC_RULE,
    decode_java_utf8,
    decode_properties,
)
from pyrmq_core.protocol.messages.record import QUEUE_OFFSET_POSITION, RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.shown_values import shown

QUEUES: Final = "INNER_MULTI_DISPATCH"
OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"
OFFSETS_INSIDE: Final = OFFSETS.encode()
MAX_DIGITS: Final = 18
LONG: Final = struct.Struct(">q")


def lite_queue_name(topic: str, lite_topic: str) -> str:
    if not LITE_TOPIC_NAME.fullmatch(lite_topic):
        raise InvalidArgument(f"lite_topic={shown(lite_topic)}: {LITE_TOPIC_RULE}")
    return f"{LMQ_PREFIX}{topic}${lite_topic}"


def with_lite_offsets(records: bytes | memoryview, queue_name: str) -> bytes:
    """Returns records of a pull from a lite topic's queue, with their offsets in that queue instead of the parent's.

    A record that does not name the queue stays unchanged. So do a damaged record and all records after it, since
    decoding the result reports the damage.
    """
    changed, position = bytearray(records), 0
    while position < len(records):
        try:
            raw = unpack_record(records, position)
        except RecordError:
            break
        offset = _places(raw).get(queue_name)
        if offset is not None:
            LONG.pack_into(changed, position + QUEUE_OFFSET_POSITION, offset)
        position += raw.store_size
    return bytes(changed)


def lite_places(record: RawRecord) -> Mapping[str, int]:
    """Returns a record's offset in the queue of each lite topic that contains it, by the name of that queue.

    Queues of other topics are left out: a copy in a retry topic, or a half message, still names queues of its original
    topic. A batch record has no such queues, since its properties come from its sender.
    """
    if OFFSETS_INSIDE not in record.properties or record.sys_flag & BATCH_RECORD == BATCH_RECORD:
        return {}
    topic = decode_java_utf8(record.topic)
    return {name: at for name, at in _places(record).items() if _is_lite_queue_of(topic, name)}


def _is_lite_queue_of(topic: str, name: str) -> bool:
    lite_topic = name.removeprefix(f"{LMQ_PREFIX}{topic}$")
    return owner_topic(name) == topic and lite_topic != name and LITE_TOPIC_NAME.fullmatch(lite_topic) is not None


def _places(record: RawRecord) -> dict[str, int]:
    properties = decode_properties(decode_java_utf8(record.properties))
    pairs = zip(properties.get(QUEUES, "").split(","), properties.get(OFFSETS, "").split(","), strict=False)
    return {name: int(at) for name, at in pairs if at.isascii() and at.isdigit() and len(at) <= MAX_DIGITS}
