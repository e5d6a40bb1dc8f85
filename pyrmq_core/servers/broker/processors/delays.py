"""The choice of the queue that stores a message: the queue of its delay level, the timers' queue, or its own queue.

A delay level takes precedence over a delivery time. Source: broker/util/HookUtils.java handleScheduleMessage (5.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.properties import DELAY
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.processors.put_message import RequestRefused
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC, BadTimer, drop_times, is_timer, place_timer


class StoredQueue(NamedTuple):
    """The topic and queue in which a message is stored, and the delay of its delay level in ms, or None without one."""

    topic: str
    queue_id: int
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DelayedQueues:
    """The choice of the queue that stores a message."""

    delays: DelayLevels
    timers: Timers

    def queue_of(self, topic: str, queue_id: int, properties: dict[str, str]) -> StoredQueue:
        """Returns the queue to store a message in. For a delayed message, adds its own topic and queue to `properties`.

        Raises `RequestRefused` for a level that is not a number, and for an impossible delivery time.
        """
        level = delay_level(properties)
        if level > 0:
            drop_times(properties)
            level_queue, delay_ms = self.delays.place(topic, queue_id, level, properties)
            return StoredQueue(SCHEDULE_TOPIC, level_queue, delay_ms)
        if not is_timer(properties):
            return StoredQueue(topic, queue_id)
        if not self.timers.enabled:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        settings = self.timers.settings
        try:
            waits = place_timer(properties, topic, queue_id, clock.now_ms(), settings)
        except BadTimer as error:
            remark = (
                "timer message illegal, the delay time should not be bigger than the max delay "
                f"{settings.max_delay_ms}ms; or if set del msg, the delay time should be bigger than the current time"
            )
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, remark) from error
        return StoredQueue(TIMER_TOPIC, 0) if waits else StoredQueue(topic, queue_id)


def delay_level(properties: dict[str, str]) -> int:
    """Returns the number in the property DELAY, or 0 without it. Raises `RequestRefused` if it is not a number."""
    text = properties.get(DELAY)
    if text is None:
        return 0
    try:
        return parse_int(text)
    except ValueError:
        remark = f'java.lang.NumberFormatException: For input string: "{text[:80]}"'
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{remark}; DELAY is a level, a whole number") from None
