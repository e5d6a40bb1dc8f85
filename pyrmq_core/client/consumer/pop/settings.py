"""The settings of a `PopConsumer`, for the trio, blocking and asyncio classes, and the delays after failures.

Delays are those of client/impl/consumer/DefaultMQPushConsumerImpl.java (popDelayLevel), 5.4.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyrmq_core.client.arguments import instance_of, seconds_of, whole_number
from pyrmq_core.client.client_settings import AnyClient
from pyrmq_core.client.consumer.consume.handler_exceptions import ConsumeLater, NotHandled
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import ConsumeFromWhere
from pyrmq_core.protocol.messages.properties import LITE_TOPIC_NAME, LITE_TOPIC_RULE
from pyrmq_core.protocol.requests.pop.lite import FIRST, LAST, LiteStart
from pyrmq_core.protocol.requests.pop.pop_message import InitMode
from pyrmq_core.protocol.shown_values import shown

# The longest time that a proxy of RocketMQ lets a message be invisible. Brokers have no limit.
MOST_INVISIBLE_SECONDS: Final = 12 * 3600.0
# Seconds until a message comes again, by the number of its failed tries.
RETRY_SECONDS: Final = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
# In an ordered pop the complete queue waits for its failed message, so the delay is short.
ORDERED_RETRY_SECONDS: Final = 1.0
# The delays of levels 1 to 18 (messageDelayLevel of MessageStoreConfig.java), for handlers that raise `ConsumeLater`.
LEVEL_SECONDS: Final = (1, 5, *RETRY_SECONDS)


@dataclass(frozen=True, kw_only=True)
class PopSettings(ConsumerSettings[AnyClient]):
    """The parameters of a pop consumer. `AnyClient` is the trio, blocking or asyncio `Client`.

    A message that came again `max_reconsume_times` times moves to the group's dead-letter topic. During its handler
    call a message stays invisible for up to `consume_timeout` seconds. After `stop`, running handlers have
    `stop_timeout` seconds to finish.
    """

    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.FIRST_OFFSET
    max_reconsume_times: int = 16
    consume_timeout: float = MOST_INVISIBLE_SECONDS
    stop_timeout: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        where = instance_of("consume_from_where", self.consume_from_where, ConsumeFromWhere, "a ConsumeFromWhere")
        if where is ConsumeFromWhere.TIMESTAMP:
            raise InvalidArgument(
                "consume_from_where=TIMESTAMP: a group that pops starts at FIRST_OFFSET or LAST_OFFSET"
            )
        whole_number("max_reconsume_times", self.max_reconsume_times, 0)
        seconds_of("consume_timeout", self.consume_timeout)
        seconds_of("stop_timeout", self.stop_timeout)

    @property
    def init_mode(self) -> InitMode:
        return InitMode.MIN if self.consume_from_where is ConsumeFromWhere.FIRST_OFFSET else InitMode.MAX


def lite_names(lite_topics: str | Iterable[str]) -> tuple[str, ...]:
    """Returns the names of lite topics, each once. Raises `InvalidArgument` for an invalid name or for no name."""
    try:
        names = (lite_topics,) if isinstance(lite_topics, str) else tuple(dict.fromkeys(lite_topics))
    except TypeError:  # the argument is no iterable, or has unhashable items
        names = ()
    wrong = [name for name in names if not _is_lite_name(name)]
    if wrong or not names:
        raise InvalidArgument(f"lite_topics={shown(wrong[0] if wrong else lite_topics)}: {LITE_TOPIC_RULE}")
    return names


def _is_lite_name(name: object) -> bool:
    return isinstance(name, str) and LITE_TOPIC_NAME.fullmatch(name) is not None


def lite_start(start: object) -> LiteStart | None:
    """Returns where a subscription to a lite topic begins. A number is an offset, and None keeps the group's offset."""
    if start is None:
        return None
    if start is ConsumeFromWhere.FIRST_OFFSET:
        return FIRST
    if start is ConsumeFromWhere.LAST_OFFSET:
        return LAST
    return LiteStart("OFFSET", whole_number("start", start, 0))


def check_wait(name: str, seconds: object) -> float:
    return 0.0 if seconds == 0 and not isinstance(seconds, bool) else seconds_of(name, seconds)


def invisible_ms(name: str, seconds: object) -> int:
    """Returns an invisible time in milliseconds, at least 1. Raises `InvalidArgument` beyond 12 hours."""
    milliseconds = round(seconds_of(name, seconds) * 1000)
    if milliseconds > MOST_INVISIBLE_SECONDS * 1000:
        raise InvalidArgument(f"{name}={seconds}: {MOST_INVISIBLE_SECONDS:g} seconds at most")
    return max(1, milliseconds)


def delay_of(error: BaseException | None, tries: int, most_tries: int, *, ordered: bool) -> float | None:
    """Returns the seconds until a failed message comes again, or None if it moves to the dead-letter topic.

    `error` is the exception of its handler, `tries` the number of earlier deliveries, and `most_tries` their limit.
    `ordered` is for an ordered pop. A message that no handler got, for example after a cancellation, comes again at
    once.
    """
    if isinstance(error, NotHandled) or (error is not None and not isinstance(error, Exception)):
        return 0.0
    level = error.delay_level if isinstance(error, ConsumeLater) else 0
    if level < 0 or tries >= most_tries:
        return None
    if level > 0:
        return float(LEVEL_SECONDS[level - 1])
    return ORDERED_RETRY_SECONDS if ordered else float(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
