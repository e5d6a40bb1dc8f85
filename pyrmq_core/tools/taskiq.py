"""`RocketMQBroker`: a broker for taskiq, whose tasks are messages of a topic that workers receive by pop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from taskiq import AckableMessage, AsyncBroker, BrokerMessage, TaskiqMessage, TaskiqMiddleware

from pyrmq_core.aio import PopConsumer, PopDelivery, Producer
from pyrmq_core.client.consumer.pop.running_pop import is_final
from pyrmq_core.client.consumer.pop.settings import invisible_ms
from pyrmq_core.errors import InvalidMessage, InvalidState, ResponseError, RocketMQError
from pyrmq_core.model import Message
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import PASSING_CODES
from pyrmq_core.protocol.shown_values import shown

T = TypeVar("T")
log = line_logger(__name__)  # escapes control characters: any producer may choose task ids

PAUSE_SECONDS: Final = 1.0


class RocketMQBroker(AsyncBroker):
    """A broker for taskiq: `RocketMQBroker("tasks", nameserver="127.0.0.1:9876")`, with RocketMQ 5.0 or later.

    A worker receives a task only when it can run it. While a task runs, its message stays invisible. A task runs again
    after `invisible` seconds if its worker was killed, or if it ended without the acknowledgement of taskiq's
    `ack_type`. After `max_reconsume_times` such repeats its message becomes a dead letter. A worker that shuts down
    returns its unfinished tasks at once. A task that raised an exception is acknowledged, since taskiq's middlewares
    for retries send it again.

    The label `delay` is in seconds. The label `priority` needs RocketMQ 5.4 or later, and is ignored if there is a
    delay. Further arguments are those of `pyrmq_core.aio.Client`. The topic must exist.
    """

    def __init__(
        self,
        topic: str = "taskiq",
        group: str = "taskiq",
        *,
        invisible: float = 60.0,
        max_reconsume_times: int = 16,
        **client: Any,
    ) -> None:
        super().__init__()
        invisible_ms("invisible", invisible)
        self.topic = topic
        self.invisible = invisible
        self._new_producer = partial(Producer, group, **client)
        self._new_consumer = partial(PopConsumer, group, max_reconsume_times=max_reconsume_times, **client)
        self._new_consumer()  # raises for wrong arguments
        self._producer: Producer | None = None
        self._consumer: PopConsumer | None = None
        self._shut_down = asyncio.Event()
        self._held: set[_HeldTask] = set()
        self.add_middlewares(_EndOfTasks(self._held))

    async def startup(self) -> None:
        self._shut_down.clear()
        if self._producer is None:  # taskiq's receiver calls `startup` again after an error
            self._producer = await self._new_producer().open()
        await super().startup()

    async def shutdown(self) -> None:
        """Returns the unfinished tasks of this worker to the topic, and closes the connections."""
        self._shut_down.set()
        try:
            await super().shutdown()
        finally:
            await asyncio.gather(*(held.give_back() for held in self._held))
            producer, consumer = self._producer, self._consumer
            self._producer = self._consumer = None
            if consumer is not None:
                await consumer.close()
            if producer is not None:
                await producer.close()

    async def kick(self, message: BrokerMessage) -> None:
        """Sends a task. Its id is the key of the message."""
        if self._producer is None:
            raise InvalidState("the broker has not started: await broker.startup() first")
        await self._producer.send(message_of(self.topic, message))

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yields tasks until the shutdown. Retries after an error, or raises it if no retry could succeed."""
        while not self._shut_down.is_set():
            consumer = self._consumer = self._consumer or self._new_consumer()
            try:
                deliveries = await consumer.receive(self.topic, 1, self.invisible)
            except RocketMQError as error:
                if self._shut_down.is_set():
                    break
                if not (ends := is_final(error)):
                    log.warning("receiving tasks from %s failed, and is tried again: %s", self.topic, error)
                await asyncio.sleep(PAUSE_SECONDS)  # also before raising: taskiq's receiver then listens again
                if ends and not self._shut_down.is_set():
                    raise
                continue
            for delivery in deliveries:
                held = _HeldTask(delivery, self.invisible, self._held)
                yield AckableMessage(data=delivery.message.body, ack=held.ack)


def message_of(topic: str, task: BrokerMessage) -> Message:
    """Returns the message of a task. Raises `InvalidMessage` if its label `delay` or `priority` is not a number."""
    labels = task.labels
    delay = _read("delay", labels.get("delay") or 0, lambda value: timedelta(seconds=float(value)), "a number")
    priority = _read(
        "priority", labels.get("priority"), lambda value: None if value is None else int(str(value)), "a whole number"
    )
    return Message(
        topic,
        task.message,
        keys=task.task_id,
        delay=delay if delay > timedelta() else None,
        priority=None if delay > timedelta() else priority,
    )


def _read(label: str, value: Any, read: Callable[[Any], T], kind: str) -> T:
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidMessage(f"label {label} is {shown(value)}; it has to be {kind}") from None


class _HeldTask:
    """A received task, whose message stays invisible until the task ends, is acknowledged or is returned."""

    def __init__(self, delivery: PopDelivery, invisible: float, all_held: set[_HeldTask]) -> None:
        self.task_id = delivery.message.keys
        self.is_running = False
        self._delivery = delivery
        self._extending = delivery._extend_on(invisible)
        self._all = all_held
        all_held.add(self)

    async def ack(self) -> None:
        """Acknowledges the task, and retries after failures.

        If the calling asyncio task is being cancelled, returns the task to the topic instead.
        """
        if (call := asyncio.current_task()) is not None and call.cancelling():
            await self.give_back()
            return
        while True:
            try:
                await self._delivery.ack()
            except RocketMQError as error:
                log.warning("task %s ended, and its acknowledgement failed: %s", self.task_id, error)
                is_refused = isinstance(error, ResponseError) and error.code not in PASSING_CODES
                if is_refused or self._extending.done():
                    break
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                break
        self.end()

    async def give_back(self) -> None:
        """Makes the message visible at once, so that another worker can receive the task."""
        # The exit waits for an extension under way, since its answer has the receipt handle that is valid now.
        await self._delivery.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)
        self.end()

    def end(self, *_: object) -> None:
        self._extending.cancel()
        self._all.discard(self)


class _EndOfTasks(TaskiqMiddleware):
    """A middleware that no longer keeps a message invisible after its task has ended, acknowledged or not."""

    def __init__(self, held: set[_HeldTask]) -> None:
        super().__init__()
        self._held = held

    def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        call = asyncio.current_task()
        for held in self._held:
            if held.task_id == message.task_id and not held.is_running and call is not None:
                held.is_running = True
                call.add_done_callback(held.end)
                break
        return message
