"""The settings of push and lite pull consumers, which are parameters of the trio, blocking and asyncio classes.

Names, defaults and bounds are those of client/consumer/DefaultMQPushConsumer.java and DefaultLitePullConsumer.java and
of DefaultMQPushConsumerImpl.checkConfig, 5.4.0. Times are in seconds and sizes in bytes. A lite pull polls 32 messages
by default, as many as a broker returns at once, while Java polls 10.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pyrmq_core.client.arguments import instance_of, seconds_of, tuple_of, whole_number
from pyrmq_core.client.client_settings import AnyClient
from pyrmq_core.client.consumer.consume.hooks import ConsumeMessageHook, ConsumerHooks
from pyrmq_core.client.consumer.consume.process_queue import FlowLimits
from pyrmq_core.client.consumer.group.subscriptions import TRACE_TOPIC
from pyrmq_core.client.consumer.rebalance.strategies import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
    check_strategy,
)
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import ConsumeFromWhere, MessageModel, MessageQueue
from pyrmq_core.protocol.messages.names import check_topic

MIB: Final = 1024 * 1024
DEFAULT_MAX_RECONSUME_TIMES: Final = 16
# Java's setter ignores a smaller interval. Here it raises an error.
LEAST_AUTO_COMMIT_SECONDS: Final = 1.0

QueueListener = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]


@dataclass(frozen=True, kw_only=True)
class MemberSettings(ConsumerSettings[AnyClient]):
    """The parameters of a consumer that shares a topic's queues with the members of its group."""

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    consume_timestamp: datetime | None = None
    allocate_message_queue_strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    pull_batch_size: int = 32
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100 * MIB
    local_offset_store_dir: str | os.PathLike[str] | None = None
    trace: bool | str = False
    hooks: Sequence[ConsumeMessageHook] = ()
    message_queue_listener: QueueListener | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("message_model", self.message_model, MessageModel, "a MessageModel")
        instance_of("consume_from_where", self.consume_from_where, ConsumeFromWhere, "a ConsumeFromWhere")
        when = self.consume_timestamp
        if when is not None and getattr(when, "tzinfo", None) is None:
            raise InvalidArgument(f"consume_timestamp={when!r} has no time zone; write datetime(..., tzinfo=UTC)")
        check_strategy(self.allocate_message_queue_strategy)
        _within("pull_batch_size", self.pull_batch_size, 1, 1024)
        _within("pull_threshold_for_queue", self.pull_threshold_for_queue, 1, 65_535)
        _within("pull_threshold_size_for_queue", self.pull_threshold_size_for_queue, 1, 1024 * MIB)
        object.__setattr__(self, "hooks", tuple_of("hooks", self.hooks, "hooks"))
        ConsumerHooks(self.hooks)  # raises for wrong hooks
        if self.message_queue_listener is not None and not callable(self.message_queue_listener):
            raise InvalidArgument(
                f"message_queue_listener={self.message_queue_listener!r}: it is a function of a topic, all its queues "
                "and this consumer's"
            )
        if self.trace_topic is not None:
            check_topic(self.trace_topic)

    @property
    def trace_topic(self) -> str | None:
        return TRACE_TOPIC if self.trace is True else (self.trace or None)


@dataclass(frozen=True, kw_only=True)
class PushSettings(MemberSettings[AnyClient]):
    """The parameters of a push consumer. `AnyClient` is the trio, blocking or asyncio `Client`."""

    consume_threads: int = 20
    consume_message_batch_max_size: int = 1
    consume_timeout: float = 900.0
    consume_concurrently_max_span: int = 2000
    pull_interval: float = 0.0
    pull_threshold_for_topic: int | None = None
    pull_threshold_size_for_topic: int | None = None
    max_reconsume_times: int | None = None
    suspend_current_queue_time: float = 1.0
    persist_consumer_offset_interval: float = 5.0
    stop_timeout: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _within("consume_threads", self.consume_threads, 1, 1000)
        _within("consume_message_batch_max_size", self.consume_message_batch_max_size, 1, 1024)
        _within("consume_concurrently_max_span", self.consume_concurrently_max_span, 1, 65_535)
        if self.pull_threshold_for_topic is not None:
            _within("pull_threshold_for_topic", self.pull_threshold_for_topic, 1, 6_553_500)
        if self.pull_threshold_size_for_topic is not None:
            _within("pull_threshold_size_for_topic", self.pull_threshold_size_for_topic, 1, 102_400 * MIB)
        if self.max_reconsume_times is not None:
            whole_number("max_reconsume_times", self.max_reconsume_times, 0)
        for name in (
            "consume_timeout",
            "suspend_current_queue_time",
            "persist_consumer_offset_interval",
            "stop_timeout",
        ):
            seconds_of(name, getattr(self, name))
        _check_interval(self.pull_interval)

    @property
    def max_tries(self) -> int:
        return DEFAULT_MAX_RECONSUME_TIMES if self.max_reconsume_times is None else self.max_reconsume_times

    def limits(self, own_queues: int, *, orderly: bool) -> FlowLimits:
        span = None if orderly else self.consume_concurrently_max_span
        messages, size = self.pull_threshold_for_queue, self.pull_threshold_size_for_queue
        share = max(1, own_queues)
        if self.pull_threshold_for_topic is not None:
            messages = max(1, self.pull_threshold_for_topic // share)
        if self.pull_threshold_size_for_topic is not None:
            size = max(1, self.pull_threshold_size_for_topic // share)
        return FlowLimits(messages, size, span)


def _within(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and not least <= value <= most:
        raise InvalidArgument(f"{name}={value}: Out of range [{least}, {most}]")
    whole_number(name, value, least, most)


def _check_interval(value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 65.535 or math.isnan(value):
        raise InvalidArgument(f"pull_interval={value!r}: Out of range [0, 65.535] seconds")


@dataclass(frozen=True, kw_only=True)
class LitePullSettings(MemberSettings[AnyClient]):
    """The parameters of a lite pull consumer. `AnyClient` is the trio, blocking or asyncio `Client`."""

    auto_commit: bool = True
    auto_commit_interval: float = 5.0
    pull_threshold_for_all: int = 10_000
    consume_max_span: int = 2000
    topic_metadata_check_interval: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("auto_commit", self.auto_commit, bool, "True or False")
        if seconds_of("auto_commit_interval", self.auto_commit_interval) < LEAST_AUTO_COMMIT_SECONDS:
            raise InvalidArgument(f"auto_commit_interval={self.auto_commit_interval:g}: it is 1 second or more")
        whole_number("pull_threshold_for_all", self.pull_threshold_for_all, 1)
        whole_number("consume_max_span", self.consume_max_span, 1, 65_535)
        seconds_of("topic_metadata_check_interval", self.topic_metadata_check_interval)

    @property
    def limits(self) -> FlowLimits:
        return FlowLimits(self.pull_threshold_for_queue, self.pull_threshold_size_for_queue, self.consume_max_span)
