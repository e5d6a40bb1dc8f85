"""`LitePullMember`: a lite pull consumer as its brokers' requests reach it (codes 40, 220, 221, 307 and 309).

Java's lite pull consumer ignores a reset of offsets (220), while here the queues continue at the new offsets. A message
cannot be consumed directly (309), since there is no listener.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueues
from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts, queue_info
from pyrmq_core.client.consumer.group.membership import ACTIVELY, Membership
from pyrmq_core.client.consumer.member_settings import LitePullSettings
from pyrmq_core.client.consumer.rebalance.rebalancer import Rebalancer
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult, ConsumeDirectlyResult
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
)


class LitePullMember:
    """The answers of one consumer to requests of brokers. `reset` begins to read queues from other offsets."""

    def __init__(
        self,
        settings: LitePullSettings[Any],
        membership: Membership,
        rebalancer: Rebalancer,
        assigned: AssignedQueues,
        counts: ConsumeCounts,
        reset: Callable[[Mapping[MessageQueue, int]], None],
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._rebalancer = rebalancer
        self._assigned = assigned
        self._counts = counts
        self._reset = reset
        self._began_ms = time.time_ns() // 1_000_000

    def consumer_ids_changed(self) -> None:
        self._rebalancer.wake()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._reset({queue: offset for queue, offset in offsets.items() if offset >= 0 and queue in self._assigned})

    def consumer_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {entry.queue: entry.process_queue.offset_to_commit for entry in self._assigned.of_topic(topic)}

    def running_info(self, *, jstack: bool) -> ConsumerRunningInfo:
        """Returns the consumer's subscriptions and queues. There are no handlers' stacks to show."""
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscriptions=tuple(subscription.data() for subscription in self._membership.subscriptions.values()),
            queues={assigned.queue: queue_info(assigned) for assigned in self._assigned},
            statuses=self._counts.statuses(trio.current_time()),
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        remark = "a lite pull consumer has no listener that could consume the message"
        return ConsumeDirectlyResult(consume_result=CMResult.THROW_EXCEPTION, remark=remark)

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            PROP_CONSUME_TYPE: ACTIVELY,
            PROP_CONSUME_ORDERLY: "false",
            PROP_CONSUMER_START_TIMESTAMP: str(self._began_ms),
            "consumerGroup": settings.group,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "autoCommit": str(settings.auto_commit).lower(),
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForAll": str(settings.pull_threshold_for_all),
            "pullThresholdForQueue": str(settings.pull_threshold_for_queue),
            "allocateMessageQueueStrategy": settings.allocate_message_queue_strategy.name,
        }
