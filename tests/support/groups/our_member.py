"""A push consumer of ours in the test's own process, as a member whose calls are recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import trio

from pyrmq_core import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
    ConsumeFromWhere,
    MessageExt,
    MessageQueue,
    PushConsumer,
)
from tests.support.groups.records import Record

HANDLER_SECONDS = 0.005


class OurMember:
    """A `PushConsumer` in this process."""

    def __init__(self, name: str, topic: str, take: Callable[[Record], None]) -> None:
        self.name = name
        self._topic = topic
        self._take = take
        self._consumer: PushConsumer | None = None
        self._ended = trio.Event()

    @property
    def client_id(self) -> str:
        return "" if self._consumer is None else self._consumer._session.client_id

    @property
    def owned(self) -> frozenset[MessageQueue]:
        queues = () if self._consumer is None else self._consumer.assigned_queues
        return frozenset(queue for queue in queues if queue.topic == self._topic)

    async def run(
        self,
        nameserver: str,
        group: str,
        *,
        orderly: bool,
        strategy: AllocateMessageQueueStrategy | None = None,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        try:
            async with PushConsumer(
                group,
                nameserver=nameserver,
                instance_name=self.name,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                allocate_message_queue_strategy=strategy or AllocateMessageQueueAveragely(),
            ) as consumer:
                self._consumer = consumer
                await consumer.subscribe(self._topic)
                task_status.started()
                await consumer.run(self._handle, orderly=orderly)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        assert self._consumer is not None
        await self._consumer.stop()
        await self._ended.wait()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            began = time.time()
            await trio.sleep(HANDLER_SECONDS)
            assert message.queue is not None
            self._take(Record(self.name, message.queue, message.queue_offset, message.msg_id, began, time.time()))
