"""The delivery time of a timer message: the properties that set it, when it is refused, and how it is rounded.

A time is rounded down to its slot's time, `out_ms`, which is stored in the property TIMER_OUT_MS. A slot has the
messages due after its time, up to and including the next slot's time. Source: broker/util/HookUtils.java (5.4.0),
handleScheduleMessage.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.protocol.java.integers import parse_long
from pyrmq_core.protocol.messages.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TIMER_QUEUE: Final = (TIMER_TOPIC, 0)
TOPIC_BYTES: Final = TIMER_TOPIC.encode()
TIMER_NAMES: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
# The most bytes that a delivery adds to the properties. A send must leave room for them.
DELIVERY_BYTES: Final = 100
# The most slots that a message waits before it is stored again: a week less a minute (TimerMessageStore).
MAX_ROLL_SLOTS: Final = 7 * 24 * 3600 - 60
# The precisions that a broker accepts (MessageStoreConfig.setTimerPrecisionMs).
PRECISIONS_MS: Final = (100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class TimerSettings:
    """The settings of timers. A slot is `precision_ms` long, and no message may be delayed longer than `max_delay_ms`.

    A message due in more than `roll_slots` slots rolls: it waits in an earlier slot, and is then stored again.
    """

    precision_ms: int = 1000
    max_delay_ms: int = 259_200_000
    roll_slots: int = 172_800
    log_file_bytes: int = 104_857_600


class BadTimer(ValueError):
    """Raised for a delivery time that is not a number or too far ahead, or, for a recall, in the past."""


def is_timer(properties: Mapping[str, str]) -> bool:
    return TIMER_OUT_MS not in properties and any(name in properties for name in TIMER_NAMES)


def drop_times(properties: MutableMapping[str, str]) -> None:
    # The delay level of a message replaces its delivery time.
    for name in TIMER_NAMES:
        properties.pop(name, None)


def place_timer(
    properties: MutableMapping[str, str], topic: str, queue_id: int, now_ms: int, settings: TimerSettings
) -> bool:
    """Adds to a message's `properties` the time of its slot, and its real topic and queue.

    Returns False, with nothing added, if the message is due already. `now_ms` is the time of the send, to which a delay
    is added. Raises `BadTimer` for a delivery time that is refused.
    """
    due_ms = delivery_ms(properties, now_ms)
    if due_ms <= now_ms:
        if TIMER_DEL_UNIQKEY in properties:
            raise BadTimer("the message to be taken back is due already")
        return False
    if due_ms - now_ms > settings.max_delay_ms:
        raise BadTimer("the delivery time is too far ahead")
    properties[TIMER_OUT_MS] = str(slot_of(due_ms, settings.precision_ms))
    properties[REAL_TOPIC] = topic
    properties[REAL_QID] = str(queue_id)
    return True


def delivery_ms(properties: Mapping[str, str], now_ms: int) -> int:
    """Returns the delivery time in ms. A delay is added to `now_ms`. Raises `BadTimer` if the text is not a number."""
    try:
        if (seconds := properties.get(TIMER_DELAY_SEC)) is not None:
            return now_ms + parse_long(seconds) * 1000
        if (delay_ms := properties.get(TIMER_DELAY_MS)) is not None:
            return now_ms + parse_long(delay_ms)
        return parse_long(properties.get(TIMER_DELIVER_MS, ""))
    except ValueError as error:
        raise BadTimer("the delivery time is no number") from error


def slot_of(due_ms: int, precision_ms: int) -> int:
    """Returns the time of the timer wheel's slot in which a message due at `due_ms` waits."""
    return (due_ms - 1) // precision_ms * precision_ms


def exact_ms(properties: Mapping[str, str], stored_ms: int, out_ms: int, precision_ms: int) -> int:
    """Returns the exact time in ms at which a stored message is due, within the slot that begins after `out_ms`.

    A delay in the properties is added to `stored_ms`, the time when the message was stored. Without a valid time the
    result is the slot's end.
    """
    try:
        due_ms = delivery_ms(properties, stored_ms)
    except BadTimer:
        return out_ms + precision_ms
    return min(max(due_ms, out_ms + 1), out_ms + precision_ms)


def rolled_slot(out_ms: int, write_ms: int, settings: TimerSettings) -> tuple[int, bool]:
    """Returns the time of the slot in which a message waits next, and True if it is then stored again for a later slot.

    `out_ms` is the time of its final slot, and `write_ms` of the current slot. A message due in `roll_slots` slots or
    more is stored again in between, since retention could otherwise remove it with other old messages.
    """
    window_ms = settings.roll_slots * settings.precision_ms
    beyond_ms = out_ms - write_ms - window_ms
    if beyond_ms < 0:
        return out_ms, False
    if beyond_ms < settings.roll_slots // 3 * settings.precision_ms:
        return write_ms + settings.roll_slots // 2 * settings.precision_ms, True
    return write_ms + window_ms, True
