"""The delivered copy of a timer message, and the search for copies that an earlier run delivered.

A copy has the properties of its message, and also TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS. It has the same topic, queue,
UNIQ_KEY, delivery time, born time and body CRC as the message. With these a start finds in the commit log which
messages were delivered before a kill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyrmq_core.protocol.java.integers import parse_int, parse_long
from pyrmq_core.protocol.messages.properties import (
    MAX_STORED_PROPERTIES_BYTES,
    REAL_QID,
    REAL_TOPIC,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import RawRecord
from pyrmq_core.servers.broker.store.appending import SEPARATOR, Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.timers.timer_rules import (
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_QUEUE,
    TIMER_ROLL_TIMES,
)

# The identity of a copy: topic, queue, UNIQ_KEY, TIMER_OUT_MS, TIMER_ROLL_TIMES, born time and the body's CRC.
CopyKey: TypeAlias = tuple[str, int, str, str, str, int, int]
MARK: Final = TIMER_DEQUEUE_MS.encode()
# Long.MAX_VALUE: the enqueue time of a message that was due before it entered the timer log.
NEVER_ENQUEUED: Final = 2**63 - 1


class NoTimer(Exception):
    """Raised for a record in rmq_sys_wheel_timer without a timer message's properties. The text is the reason."""


@dataclass(frozen=True, slots=True)
class TimerMessage:
    """A message of rmq_sys_wheel_timer: its record and properties, its slot's time, and its real topic and queue."""

    record: RawRecord
    properties: dict[str, str]
    out_ms: int
    topic: str
    queue_id: int

    @property
    def unique_id(self) -> str:
        return self.properties.get(UNIQ_KEY, "")


def read_message(record: RawRecord) -> TimerMessage:
    """Decodes the timer message in a record. Raises `NoTimer` if its properties lack the topic, queue or time."""
    try:
        properties = decode_properties(decode_java_utf8(record.properties))
        out_ms, queue_id = parse_long(properties[TIMER_OUT_MS]), parse_int(properties[REAL_QID])
        return TimerMessage(record, properties, out_ms, properties[REAL_TOPIC], queue_id)
    except ValueError as error:
        raise NoTimer(str(error)) from error
    except KeyError as error:
        raise NoTimer(f"it has no property {error}") from error


def copy_of(message: TimerMessage, enqueue_ms: int, now_ms: int, *, rolls: bool) -> Append:
    """Returns the copy of a timer message to store when its slot is due, with the message's real topic and queue.

    With `rolls` the copy's topic is rmq_sys_wheel_timer, where it waits for a later slot. Unless they get too long, its
    properties include `now_ms` and `enqueue_ms`, the time at which the message entered the timer log.
    """
    record, added = message.record, {TIMER_ENQUEUE_MS: str(enqueue_ms)}
    if rolls:
        added[TIMER_ROLL_TIMES] = str(_rolled_times(message.properties) + 1)
    added[TIMER_DEQUEUE_MS] = str(now_ms)
    topic, queue_id = TIMER_QUEUE if rolls else (message.topic, message.queue_id)
    encoded = _with(message, added)
    if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
        encoded = record.properties
    return Append(
        topic=topic,
        queue_id=queue_id,
        pieces=[piece(record.flag, record.body, encoded)],
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_host=record.store_host,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
    )


def key_of_copy(message: TimerMessage, *, rolls: bool) -> CopyKey:
    if not rolls:
        return _key(message.topic, message.queue_id, message.properties, message.record)
    rolled = message.properties | {TIMER_ROLL_TIMES: str(_rolled_times(message.properties) + 1)}
    return _key(*TIMER_QUEUE, rolled, message.record)


class DeliveredCopies:
    """The copies of timer messages that the broker delivered before its restart, so that none is delivered twice.

    `start` is the log offset at which the search began, or None if no copies are left.
    """

    def __init__(self) -> None:
        self.start: int | None = None
        self._keys: Counter[CopyKey] = Counter()
        self._until = (0, 0)

    def find(self, records: Iterable[RawRecord], start: int, queue_offset: int, time_ms: int) -> None:
        """Collects the delivered copies among `records`, which begin at the log offset `start`.

        Their messages are in rmq_sys_wheel_timer before `queue_offset` and were due by `time_ms`. Once the delivery has
        passed both limits, `forget` drops the copies.
        """
        for record in records:
            if MARK in record.properties:
                time_ms = max(time_ms, record.store_timestamp_ms)  # the clock may have been set back since
                properties = decode_properties(decode_java_utf8(record.properties))
                self._keys[_key(decode_java_utf8(record.topic), record.queue_id, properties, record)] += 1
        self.start = start if self._keys else None
        self._until = (queue_offset, time_ms)

    def take(self, key: CopyKey) -> bool:
        """Removes one delivered copy with this key. Returns False if there is none."""
        if not self._keys[key]:
            return False
        self._keys[key] -= 1
        return True

    def forget(self, queue_offset: int, oldest_ms: int) -> None:
        """Drops all copies if no message that is still to be delivered can have one.

        `queue_offset` is the offset of the next message to read, `oldest_ms` the time of the earliest waiting slot.
        Both must have passed the limits that were passed to `find`.
        """
        if self.start is not None and queue_offset >= self._until[0] and oldest_ms > self._until[1]:
            self._keys.clear()
            self.start = None


def _with(message: TimerMessage, added: dict[str, str]) -> bytes:
    if added.keys() & message.properties.keys():
        return encode_properties(message.properties | added).encode("utf-8", "replace")
    present = message.record.properties
    separator = b"" if present.endswith(SEPARATOR) else SEPARATOR
    return b"".join((present, separator, encode_properties(added).encode()))


def _key(topic: str, queue_id: int, properties: dict[str, str], record: RawRecord) -> CopyKey:
    texts = (properties.get(UNIQ_KEY, ""), properties.get(TIMER_OUT_MS, ""), properties.get(TIMER_ROLL_TIMES, ""))
    return (topic, queue_id, *texts, record.born_timestamp_ms, record.body_crc)


def _rolled_times(properties: dict[str, str]) -> int:
    text = properties.get(TIMER_ROLL_TIMES, "0")
    return int(text) if len(text) < 10 and text.isascii() and text.isdigit() else 0
