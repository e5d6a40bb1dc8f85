"""The settings of lite pull consumers: names and defaults of client/consumer/DefaultLitePullConsumer.java.

Times are seconds and sizes bytes. Java polls 10 messages by default; 32 are what a broker answers at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pyrmq_core.client.arguments import instance_of, seconds_of, tuple_of, whole_number
from pyrmq_core.client.client_settings import AnyClient
from pyrmq_core.client.consumer.consume.hooks import ConsumeMessageHook, ConsumerHooks
from pyrmq_core.client.consumer.consume.process_queue import FlowLimits
from pyrmq_core.client.consumer.group.subscriptions import TRACE_TOPIC
from pyrmq_core.client.consumer.push_settings import QueueListener
from pyrmq_core.client.consumer.rebalance.averages import AllocateMessageQueueAveragely
from pyrmq_core.client.consumer.rebalance.strategy import AllocateMessageQueueStrategy, check_strategy
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import ConsumeFromWhere, MessageModel
from pyrmq_core.protocol.messages.names import check_topic

MIB: Final = 1024 * 1024
# Java's setter ignores an interval below it; here it is refused.
LEAST_AUTO_COMMIT_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class LitePullSettings(ConsumerSettings[AnyClient]):
    """The parameters of a lite pull consumer; `AnyClient` is the `Client` of its face."""

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    consume_timestamp: datetime | None = None
    allocate_message_queue_strategy: AllocateMessageQueueStrategy = field(default_factory=AllocateMessageQueueAveragely)
    auto_commit: bool = True
    auto_commit_interval: float = 5.0
    pull_batch_size: int = 32
    pull_threshold_for_all: int = 10_000
    pull_threshold_for_queue: int = 1000
    pull_threshold_size_for_queue: int = 100 * MIB
    consume_max_span: int = 2000
    topic_metadata_check_interval: float = 30.0
    local_offset_store_dir: str | os.PathLike[str] | None = None
    trace: bool | str = False
    hooks: Sequence[ConsumeMessageHook] = ()
    message_queue_listener: QueueListener | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        instance_of("message_model", self.message_model, MessageModel, "a MessageModel")
        instance_of("consume_from_where", self.consume_from_where, ConsumeFromWhere, "a ConsumeFromWhere")
        check_strategy(self.allocate_message_queue_strategy)
        instance_of("auto_commit", self.auto_commit, bool, "True or False")
        when = self.consume_timestamp
        if when is not None and getattr(when, "tzinfo", None) is None:
            raise InvalidArgument(f"consume_timestamp={when!r} has no time zone; write datetime(..., tzinfo=UTC)")
        if seconds_of("auto_commit_interval", self.auto_commit_interval) < LEAST_AUTO_COMMIT_SECONDS:
            raise InvalidArgument(f"auto_commit_interval={self.auto_commit_interval:g}: it is 1 second or more")
        whole_number("pull_batch_size", self.pull_batch_size, 1, 1024)
        whole_number("pull_threshold_for_all", self.pull_threshold_for_all, 1)
        whole_number("pull_threshold_for_queue", self.pull_threshold_for_queue, 1, 65_535)
        whole_number("pull_threshold_size_for_queue", self.pull_threshold_size_for_queue, 1, 1024 * MIB)
        whole_number("consume_max_span", self.consume_max_span, 1, 65_535)
        seconds_of("topic_metadata_check_interval", self.topic_metadata_check_interval)
        object.__setattr__(self, "hooks", tuple_of("hooks", self.hooks, "hooks"))
        ConsumerHooks(self.hooks)  # raises for wrong ones
        if self.trace_topic is not None:
            check_topic(self.trace_topic)
        if self.message_queue_listener is not None and not callable(self.message_queue_listener):
            raise InvalidArgument(f"message_queue_listener={self.message_queue_listener!r}: it is a function")

    @property
    def trace_topic(self) -> str | None:
        """The topic of message traces, None if they are off."""
        return TRACE_TOPIC if self.trace is True else (self.trace or None)

    @property
    def limits(self) -> FlowLimits:
        """The most that one queue holds."""
        return FlowLimits(self.pull_threshold_for_queue, self.pull_threshold_size_for_queue, self.consume_max_span)
