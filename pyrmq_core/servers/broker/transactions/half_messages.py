"""Encodes the records of a transaction: half messages, committed and repeated messages, and lists of decided ones.

Sources: broker/transaction/queue/TransactionalMessageBridge.java, TransactionalMessageServiceImpl.java,
DefaultTransactionalMessageCheckListener.java, broker/processor/EndTransactionProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import RecordError
from pyrmq_core.protocol.java.integers import parse_int, parse_long
from pyrmq_core.protocol.messages.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from pyrmq_core.protocol.messages.properties import (
    CHECK_IMMUNITY_TIME,
    MAX_STORED_PROPERTIES_BYTES,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRAN_MSG,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import TRANSACTION_COMMIT, TRANSACTION_MASK
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece

# The only queue of the two topics of transactions.
QUEUE: Final = 0
HALF_QUEUE: Final = (HALF_TOPIC, QUEUE)
OP_QUEUE: Final = (OP_HALF_TOPIC, QUEUE)
ENDED_TAG: Final = "d"
SEPARATOR: Final = ","
# Properties that only brokers may set. From a producer they would mark a new message as a copy, or as checked.
BROKERS_NAMES: Final = (TRANSACTION_CHECK_TIMES, TRAN_PREPARED_QUEUE_OFFSET)
# The most bytes that checks add to the properties: the number of checks, and the first queue offset.
ADDED_BY_CHECKS: Final = 96


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A stored half message and its properties."""

    record: RawRecord
    properties: Mapping[str, str]

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def producer_group(self) -> str:
        return self.properties.get(PGROUP, "")

    @property
    def unique_id(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    @property
    def real_topic(self) -> str:
        return self.properties[REAL_TOPIC]

    @property
    def real_queue_id(self) -> int:
        return parse_int(self.properties[REAL_QID])

    @property
    def checks(self) -> int | None:
        """The number of checks so far, -1 if the property is not a number, or None before the first check."""
        text = self.properties.get(TRANSACTION_CHECK_TIMES)
        return None if text is None else _number(text)

    @property
    def immunity(self) -> str | None:
        """The producer's setting of the age in seconds at which the first check is due, as text."""
        return self.properties.get(CHECK_IMMUNITY_TIME)

    @property
    def first_offset(self) -> int:
        """The queue offset at which this half message, or the original of this copy, was stored, or -1 if unknown."""
        text = self.properties.get(TRAN_PREPARED_QUEUE_OFFSET)
        return self.queue_offset if text is None else _number(text)


def is_prepared(properties: Mapping[str, str]) -> bool:
    return properties.get(TRAN_MSG, "").lower() == "true"


def half_properties(topic: str, queue_id: int, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of a half message for a producer's message to this topic and queue."""
    own = {name: text for name, text in properties.items() if name not in BROKERS_NAMES}
    added = {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    if unique_id := properties.get(UNIQ_KEY):
        added[TRANSACTION_ID] = unique_id
    return {**own, **added}


def half_message(raw: bytes | None, *, topics: Container[str] = (HALF_TOPIC,)) -> HalfMessage | None:
    """Decodes a half message. Returns None if the bytes `raw` are not a half message in queue 0 of one of `topics`.

    A half message must have properties with the topic and queue to which a commit delivers it.
    """
    if raw is None:
        return None
    try:
        record = unpack_record(raw, 0)
    except RecordError:
        return None
    if decode_java_utf8(record.topic) not in topics or record.queue_id != QUEUE:
        return None
    half = HalfMessage(record, decode_properties(decode_java_utf8(record.properties)))
    return half if _has_place(half) else None


def committed(half: HalfMessage) -> Append:
    properties = {name: text for name, text in half.properties.items() if name not in (REAL_TOPIC, REAL_QID)}
    sys_flag = half.record.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT
    return _append(half, half.real_topic, half.real_queue_id, properties, sys_flag, half.record.commit_log_offset)


def checked_again(half: HalfMessage, checks: int) -> Append | None:
    return _again(half, {**half.properties, TRANSACTION_CHECK_TIMES: str(checks)})


def postponed(half: HalfMessage) -> Append | None:
    """Returns a copy of a half message to store again, with the same number of checks.

    Returns None if its properties would be too long.
    """
    return _again(half, {TRAN_PREPARED_QUEUE_OFFSET: str(half.queue_offset), **half.properties})


def resumed(half: HalfMessage) -> Append | None:
    """Returns a copy of a half message to store again, with its number of checks set to 0.

    Returns None if its properties would be too long.
    """
    properties = {**half.properties, TRANSACTION_CHECK_TIMES: "0"}
    properties.pop(TRAN_PREPARED_QUEUE_OFFSET, None)
    return _again(half, properties)


def discarded(half: HalfMessage) -> Append:
    return _append(half, CHECK_MAX_TIME_TOPIC, QUEUE, half.properties, half.record.sys_flag)


def ended_records(offsets: Iterable[int], now_ms: int, host: bytes) -> Append:
    """Returns an append with a record for each decided half message, whose body is the message's queue offset: `12`.

    This is the format of 4.9. A broker of 5.x can read it, but writes several offsets into a record, which 4.9 cannot
    read.
    """
    properties = encode_properties({WAIT: "true", TAGS: ENDED_TAG}).encode()
    pieces = [piece(0, str(offset).encode(), properties) for offset in offsets]
    return Append(OP_HALF_TOPIC, QUEUE, pieces, now_ms, host, host)


def ended_offsets(raw: bytes | None) -> list[int]:
    """Returns the queue offsets in a record of decided half messages: `12`, or `12,13,` of a 5.x broker."""
    if raw is None:
        return []
    try:
        record = unpack_record(raw, 0)
    except RecordError:
        return []
    if decode_properties(decode_java_utf8(record.properties)).get(TAGS) != ENDED_TAG:
        return []
    numbers = [_number(text) for text in decode_java_utf8(record.body).split(SEPARATOR) if text]
    return [number for number in numbers if number >= 0]


def _again(half: HalfMessage, properties: Mapping[str, str]) -> Append | None:
    fits = len(_encoded(properties)) <= MAX_STORED_PROPERTIES_BYTES
    return _append(half, HALF_TOPIC, QUEUE, properties, half.record.sys_flag) if fits else None


def _append(
    half: HalfMessage, topic: str, queue_id: int, properties: Mapping[str, str], sys_flag: int, prepared: int = 0
) -> Append:
    record = half.record
    return Append(
        topic=topic,
        queue_id=queue_id,
        pieces=[piece(record.flag, record.body, _encoded(properties))],
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        sys_flag=sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=prepared,
    )


def _encoded(properties: Mapping[str, str]) -> bytes:
    return encode_properties(properties).encode("utf-8", "replace")


def _has_place(half: HalfMessage) -> bool:
    try:
        return bool(half.real_topic) and half.real_queue_id >= 0
    except (KeyError, ValueError):
        return False


def _number(text: str) -> int:
    try:
        return parse_long(text)
    except ValueError:
        return -1
