"""`PushMember`: a push consumer's answers to requests from brokers, such as resets of offsets.

Sources: client/impl/ClientRemotingProcessor.java, client/impl/consumer/DefaultMQPushConsumerImpl.java
(consumerRunningInfo), client/impl/factory/MQClientInstance.java (resetOffset), 5.4.0.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from pyrmq_core.client.consumer.consume.handler_calls import HandlerCalls, Outcome
from pyrmq_core.client.consumer.consume.queue_locks import QueueLocks
from pyrmq_core.client.consumer.consume.received import Receiver
from pyrmq_core.client.consumer.group.membership import PASSIVELY
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.running_member import MemberAnswers, RunningMember
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.protocol.requests.client.consume_message_directly import CMResult, ConsumeDirectlyResult
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
)

CLIENT_VERSION: Final = "V5_4_0"


class PushMember(MemberAnswers):
    """The answers of one running push consumer to brokers' requests, such as direct consumption of a message (309)."""

    def __init__(
        self,
        running: RunningMember,
        settings: PushSettings[Any],
        locks: QueueLocks | None,
        calls: HandlerCalls,
        nameservers: Callable[[], str],
        *,
        orderly: bool,
    ) -> None:
        super().__init__(running, settings)
        self._settings = settings
        self._locks = locks
        self._calls = calls
        self._nameservers = nameservers
        self._orderly = orderly

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Calls the handler with the message and returns the result. No offset is committed."""
        began = time.monotonic()
        receiver = Receiver(TagFilter(), self._settings.namespace)
        outcome = await self._calls.call([receiver.as_sent(message)])
        return ConsumeDirectlyResult(
            order=self._orderly,
            consume_result=_result(outcome),
            remark=None if outcome.reason is None else f"{type(outcome.reason).__name__}: {outcome.reason}",
            spent_time_ms=round((time.monotonic() - began) * 1000),
        )

    def _is_locked(self, queue: MessageQueue) -> bool:
        return self._locks is not None and self._locks.is_held(queue)

    def _properties(self) -> dict[str, str]:
        settings = self._settings
        return {
            PROP_NAMESERVER_ADDR: self._nameservers(),
            PROP_CONSUME_TYPE: PASSIVELY,
            PROP_CLIENT_VERSION: CLIENT_VERSION,
            PROP_CONSUME_ORDERLY: str(self._orderly).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(settings.consume_threads),
            "consumeThreadMin": str(settings.consume_threads),
            "consumeThreadMax": str(settings.consume_threads),
            "consumeMessageBatchMaxSize": str(settings.consume_message_batch_max_size),
            "consumeConcurrentlyMaxSpan": str(settings.consume_concurrently_max_span),
            "maxReconsumeTimes": str(-1 if settings.max_reconsume_times is None else settings.max_reconsume_times),
        }

    def _stacks(self) -> str:
        parts = []
        for ident, frame in sys._current_frames().items():
            parts.append(f"thread {ident}\n" + "".join(traceback.format_stack(frame)))
        return "\n".join(parts)


def _result(outcome: Outcome) -> CMResult:
    if outcome.reason is None:
        return CMResult.SUCCESS
    if outcome.later is not None or outcome.suspend is not None:
        return CMResult.LATER
    return CMResult.THROW_EXCEPTION
