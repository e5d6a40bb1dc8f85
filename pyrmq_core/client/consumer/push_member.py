"""`PushMember`: a push consumer as brokers' requests reach it: new members, resets, questions about its state.

Sources: client/impl/ClientRemotingProcessor.java, client/impl/consumer/DefaultMQPushConsumerImpl.java
(consumerRunningInfo), client/impl/factory/MQClientInstance.java (resetOffset), 5.4.0.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue, AssignedQueues
from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts, queue_info
from pyrmq_core.client.consumer.consume.handler_calls import HandlerCalls, Outcome
from pyrmq_core.client.consumer.consume.queue_locks import QueueLocks
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import PASSIVELY, Membership
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.rebalance.rebalancer import Rebalancer
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult, ConsumeDirectlyResult
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)

CLIENT_VERSION: Final = "V5_4_0"


class PushMember:
    """The answers of one running push consumer to requests of brokers. `move` begins to consume from other offsets."""

    def __init__(
        self,
        settings: PushSettings[Any],
        membership: Membership,
        rebalancer: Rebalancer,
        assigned: AssignedQueues,
        locks: QueueLocks | None,
        calls: HandlerCalls,
        counts: ConsumeCounts,
        move: Callable[[Mapping[MessageQueue, int]], None],
        nameservers: Callable[[], str],
        *,
        orderly: bool,
    ) -> None:
        self._settings = settings
        self._membership = membership
        self._rebalancer = rebalancer
        self._assigned = assigned
        self._locks = locks
        self._calls = calls
        self._counts = counts
        self._move = move
        self._nameservers = nameservers
        self._orderly = orderly
        self._began_ms = time.time_ns() // 1_000_000

    def consumer_ids_changed(self) -> None:
        self._rebalancer.wake()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        own = {
            queue: offset
            for queue, offset in offsets.items()
            if queue.topic == topic and offset >= 0 and queue in self._assigned
        }
        if own:
            self._move(own)

    def consumer_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {entry.queue: entry.process_queue.offset_to_commit for entry in self._assigned.of_topic(topic)}

    def running_info(self, *, jstack: bool) -> ConsumerRunningInfo:
        """Returns the settings, subscriptions, queues and rates in Java's shape, and the stacks if they are wanted."""
        return ConsumerRunningInfo(
            properties=self._properties(),
            subscriptions=tuple(subscription.data() for subscription in self._membership.subscriptions.values()),
            queues={entry.queue: self._info(entry) for entry in self._assigned},
            statuses=self._counts.statuses(trio.current_time()),
            jstack=_stacks() if jstack else None,
        )

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Calls the handler with the message and returns its outcome. No offset is committed."""
        began = time.monotonic()
        receiver = Receiver(TagFilter(), self._settings.namespace)
        outcome = await self._calls.call([receiver.as_sent(message)])
        return ConsumeDirectlyResult(
            order=self._orderly,
            consume_result=_result(outcome),
            remark=None if outcome.reason is None else f"{type(outcome.reason).__name__}: {outcome.reason}",
            spent_time_ms=round((time.monotonic() - began) * 1000),
        )

    def _info(self, assigned: AssignedQueue) -> ProcessQueueInfo:
        return queue_info(assigned, locked=self._locks is not None and self._locks.is_held(assigned.queue))

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            PROP_NAMESERVER_ADDR: self._nameservers(),
            PROP_CONSUME_TYPE: PASSIVELY,
            PROP_CLIENT_VERSION: CLIENT_VERSION,
            PROP_CONSUME_ORDERLY: str(self._orderly).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(settings.consume_threads),
            PROP_CONSUMER_START_TIMESTAMP: str(self._began_ms),
            "consumerGroup": settings.group,
            "messageModel": settings.message_model.value,
            "consumeFromWhere": settings.consume_from_where.value,
            "consumeThreadMin": str(settings.consume_threads),
            "consumeThreadMax": str(settings.consume_threads),
            "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
            "consumeConcurrentlyMaxSpan": str(settings.consume_concurrently_max_span),
            "pullBatchSize": str(settings.pull_batch_size),
            "pullThresholdForQueue": str(settings.pull_threshold_for_queue),
            "maxReconsumeTimes": str(-1 if settings.max_reconsume_times is None else settings.max_reconsume_times),
            "allocateMessageQueueStrategy": settings.allocate_message_queue_strategy.name,
        }


def _result(outcome: Outcome) -> CMResult:
    if outcome.reason is None:
        return CMResult.SUCCESS
    if outcome.later is not None or outcome.suspend is not None:
        return CMResult.LATER
    return CMResult.THROW_EXCEPTION


def _stacks() -> str:
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {ident}\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)
