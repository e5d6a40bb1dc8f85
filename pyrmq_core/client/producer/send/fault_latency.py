"""Fault latency: makes a producer avoid brokers that answer slowly or fail, for a while.

Pure: the time is a parameter, in seconds. It is off by default, as in Java (`sendLatencyFaultEnable`). Numbers and
rules are those of 5.3.3, and a setting selects those of 4.x. Sources: client/latency/MQFaultStrategy.java,
LatencyFaultToleranceImpl.java.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.producer.send.retry_policy import refuses_queue
from pyrmq_core.client.producer.send.send_options import CommunicationMode
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import NetworkError, ProtocolError, ResponseError, RocketMQError
from pyrmq_core.model import MessageQueue

DETECT_INTERVAL_SECONDS: Final = 2.0

# A function that returns a random whole number from 0 to n - 1 for the argument n.
Draw = Callable[[int], int]


class SelectionRule(enum.Enum):
    """The RocketMQ release, 5.x or 4.x, whose rule a producer follows to avoid slow brokers when it chooses queues.

    Under the rule of 4.x, one fast answer of an avoided broker makes it available again. Under that of 5.x it does not.
    """

    RELEASE_5 = "5.x"
    RELEASE_4 = "4.x"


@dataclass(frozen=True, slots=True)
class FaultLatencySettings:
    """The rules by which a producer avoids slow brokers.

    A broker with a latency of `latency_max[i]` seconds or more is avoided for `not_available_duration[i]` seconds, for
    the highest such i. A failed broker is treated like one with a latency of `isolation_latency` seconds.
    """

    latency_max: tuple[float, ...] = (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0)
    not_available_duration: tuple[float, ...] = (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
    isolation_latency: float = 10.0
    rule: SelectionRule = SelectionRule.RELEASE_5

    @classmethod
    def release_4(cls) -> FaultLatencySettings:
        """Returns the settings of 4.x: brokers are avoided for longer, but only until their first fast answer."""
        return cls(
            latency_max=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
            not_available_duration=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
            isolation_latency=30.0,
            rule=SelectionRule.RELEASE_4,
        )

    def not_available_seconds(self, latency: float) -> float:
        """Returns the seconds for which a broker with this latency is avoided."""
        for limit, duration in zip(reversed(self.latency_max), reversed(self.not_available_duration), strict=True):
            if latency >= limit:
                return duration
        return 0.0


@dataclass(slots=True)
class FaultItem:
    """One broker's record: it is avoided until the time `start`, and probed at `check_at`, both in seconds."""

    name: str
    latency: float
    start: float
    reachable: bool
    check_at: float


class FaultLatency:
    """The records of brokers that a producer avoids. A broker without a record is available and reachable."""

    def __init__(self, settings: FaultLatencySettings, *, draw: Draw) -> None:
        self.settings = settings
        self._draw = draw
        self._items: dict[str, FaultItem] = {}
        self._turn = draw(0x7FFFFFFF)

    def update(self, broker_name: str, latency: float, *, isolation: bool, reachable: bool, now: float) -> None:
        duration = self.settings.not_available_seconds(self.settings.isolation_latency if isolation else latency)
        item = self._items.get(broker_name)
        if item is None:
            self._items[broker_name] = FaultItem(broker_name, latency, now + duration, reachable, now)
            return
        item.latency, item.reachable = latency, reachable
        if self.settings.rule is SelectionRule.RELEASE_4 or (duration > 0 and now + duration > item.start):
            item.start = now + duration

    def is_available(self, broker_name: str, now: float) -> bool:
        item = self._items.get(broker_name)
        return item is None or now >= item.start

    def is_reachable(self, broker_name: str) -> bool:
        item = self._items.get(broker_name)
        return item is None or item.reachable

    def select(self, info: TopicPublishInfo, last_broker_name: str | None, now: float) -> MessageQueue:
        if not info.queues:
            return info.select_one_message_queue()
        match self.settings.rule:
            case SelectionRule.RELEASE_5:
                return self._select_5(info, last_broker_name, now)
            case SelectionRule.RELEASE_4:
                return self._select_4(info, now)

    def pick_one_at_least(self, now: float) -> str | None:
        """Returns a broker to use although all are avoided, or None if there is none.

        By the rule of 5.x it is a random reachable broker. By the rule of 4.x it is one of the better half of the
        brokers, in turn.
        """
        items = self._shuffled()
        if self.settings.rule is SelectionRule.RELEASE_5:
            return next((item.name for item in items if item.reachable), None)
        items.sort(key=lambda item: (now < item.start, item.latency, item.start))
        if not items:
            return None
        half = len(items) // 2
        self._turn += 1
        return items[self._turn % half if half else 0].name

    def due(self, now: float) -> list[str]:
        """Returns the brokers to probe now. Each of them is due again after 2 s."""
        due = [item for item in self._items.values() if item.check_at <= now]
        for item in due:
            item.check_at = now + DETECT_INTERVAL_SECONDS
        return [item.name for item in due]

    def reached(self, broker_name: str) -> None:
        if (item := self._items.get(broker_name)) is not None:
            item.reachable = True

    def remove(self, broker_name: str) -> None:
        self._items.pop(broker_name, None)

    def _select_5(self, info: TopicPublishInfo, last_broker_name: str | None, now: float) -> MessageQueue:
        if last_broker_name is not None:
            info.restart(self._draw(0x7FFFFFFF))
        return (
            info.select(
                lambda queue: queue.broker_name != last_broker_name and self.is_available(queue.broker_name, now)
            )
            or info.select(lambda queue: queue.broker_name != last_broker_name and self.is_reachable(queue.broker_name))
            or info.select_one_message_queue()
        )

    def _select_4(self, info: TopicPublishInfo, now: float) -> MessageQueue:
        available = info.select(lambda queue: self.is_available(queue.broker_name, now))
        if available is not None:
            return available
        least_bad = self.pick_one_at_least(now)
        queues = [queue for queue in info.queues if queue.broker_name == least_bad]
        if queues:
            return queues[info.next_number() % len(queues)]
        if least_bad is not None:
            self.remove(least_bad)
        return info.select_one_message_queue()

    def _shuffled(self) -> list[FaultItem]:
        items = list(self._items.values())
        for last in range(len(items) - 1, 0, -1):
            other = self._draw(last + 1)
            items[last], items[other] = items[other], items[last]
        return items


def judged(error: RocketMQError | None, mode: CommunicationMode, *, detector: bool) -> tuple[bool, bool]:
    """Returns whether to avoid the broker of an ended try for a while, and whether it is recorded as reachable.

    `error` is None for success. In mode ASYNC the broker is always recorded as reachable. In other modes a refusal
    makes it unreachable. With a `detector` that probes brokers, a network failure does, too.
    """
    asynchronous = mode is CommunicationMode.ASYNC
    match error:
        case ResponseError() if refuses_queue(error):  # the route was old, and the broker is healthy
            return False, True
        case ResponseError():
            return True, asynchronous
        case NetworkError() | ProtocolError():
            return True, asynchronous or not detector
        case _:
            return False, True
