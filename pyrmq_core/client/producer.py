"""`Producer`: sends messages of one producer group (client/producer/DefaultMQProducer.java)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Final, Self

import trio

from pyrmq_core.client.client import CLOSE_SECONDS, Client
from pyrmq_core.client.ids import unique_ids
from pyrmq_core.client.pending import InFlight, PendingSend, check_bounds
from pyrmq_core.client.routing import TopicPublishInfo
from pyrmq_core.client.send_settings import SendSettings
from pyrmq_core.client.sending import Sender
from pyrmq_core.client.service_state import Life, ServiceState
from pyrmq_core.client.targets import AnyQueue, KeyedQueue, Target, ThisQueue
from pyrmq_core.client.window import SendWindow, open_send_window
from pyrmq_core.errors import BatchFailed, InvalidArgument, InvalidState, Outcome, RocketMQError, SendFailed
from pyrmq_core.model import Message, MessageQueue, SendResult
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.compression import CompressionType
from pyrmq_core.protocol.names import check_group
from pyrmq_core.protocol.payload import Payload, encode_one, split_batch

Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]

# Requests near 1 MiB keep a broker busiest; larger ones gain nothing.
BATCH_BYTES: Final = 1024 * 1024


class Producer:
    """Sends messages.

    `async with Producer("orders", nameserver="127.0.0.1:9876") as producer:` opens a client of its own; with `client=`
    it shares one. Times are seconds; a send's `timeout` counts routes, tries and waits. `timeout_per_attempt` caps one
    try; without it the time left is shared among the tries that are left, so that a silent broker cannot eat it all.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        nameserver: str | Sequence[str] | None = None,
        instance_name: str | None = None,
        send_timeout: float = 3.0,
        timeout_per_attempt: float | None = None,
        retry_times_when_send_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        compress_body_over_bytes: int = 4096,
        compression: str = "zlib",
        max_message_bytes: int = 4 * 1024 * 1024,
        default_topic_queue_nums: int = 4,
        create_topic_key: str = "TBW102",
        max_in_flight: int = 10_000,
        max_in_flight_bytes: int = 100 * 1024 * 1024,
    ) -> None:
        check_group(group)
        if client is not None and (nameserver is not None or instance_name is not None):
            raise InvalidArgument("a shared client has its own nameserver and instance_name; give either it or them")
        self.group = group
        self._shared = client
        self._own = Client(nameserver=nameserver, instance_name=instance_name) if client is None else None
        self._send_timeout = _positive("send_timeout", send_timeout)
        self._compress_over_bytes = compress_body_over_bytes
        self._compression = _compression(compression)
        self._max_message_bytes = max_message_bytes
        self._in_flight_bounds = check_bounds(max_in_flight, max_in_flight_bytes)
        self._settings = SendSettings(
            producer_group=group,
            retry_times_when_send_failed=retry_times_when_send_failed,
            timeout_per_attempt=timeout_per_attempt,
            retry_another_broker_when_not_store_ok=retry_another_broker_when_not_store_ok,
            create_topic_key=create_topic_key,
            default_topic_queue_nums=default_topic_queue_nums,
        )
        self._life = Life("producer", group)
        self._stack = AsyncExitStack()
        self._sender: Sender | None = None
        self._in_flight: InFlight | None = None

    @property
    def state(self) -> ServiceState:
        return self._life.state

    async def __aenter__(self) -> Self:
        self._life.starting()
        async with AsyncExitStack() as stack:
            client = self._shared
            if client is None:
                assert self._own is not None
                client = await stack.enter_async_context(self._own)
            try:
                client.register_producer(self.group)
            except InvalidState:
                self._life.not_begun()
                raise
            nursery = await stack.enter_async_context(open_owned_nursery())
            self._sender = Sender(client, self._settings)
            self._in_flight = InFlight(nursery, *self._in_flight_bounds)
            stack.push_async_exit(self._leave)
            self._stack = stack.pop_all()
        self._life.started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Waits for what `send_soon` has under way, unless the block ended with an error."""
        await self._stack.__aexit__(kind, error, traceback)

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> SendResult:
        """Returns when the message is stored. `queue` or `select(queues, message)` fix its queue: then there is one
        try.

        Raises `InvalidMessage` before anything is sent, `NoRoute` and `NoNameServer` when there is nowhere to send to,
        else `SendFailed`.
        """
        sender, seconds = self._running(), self._seconds(timeout)
        deadline = trio.current_time() + seconds
        payload = self._payload(message)
        to = await self._target(message, queue, select, seconds)
        receipt = await sender.send(payload, to, timeout=deadline - trio.current_time())
        return receipt.results()[0]

    async def send_oneway(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> None:
        """Returns when the message is written to the connection; whether it is stored nobody tells."""
        sender, seconds = self._running(), self._seconds(timeout)
        deadline = trio.current_time() + seconds
        payload = self._payload(message)
        to = await self._target(message, queue, select, seconds)
        await sender.send_oneway(payload, to, timeout=deadline - trio.current_time())

    async def send_soon(self, message: Message, *, timeout: float | None = None) -> PendingSend:
        """Waits only for room (`max_in_flight`, `max_in_flight_bytes`); the result comes by `await pending.wait()`."""
        sender, seconds = self._running(), self._seconds(timeout)
        payload = self._payload(message)
        to = await self._target(message, None, None, seconds)
        assert self._in_flight is not None
        return await self._in_flight.start(sender, payload, to, seconds)

    async def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> list[SendResult]:
        """Messages of one topic, in one queue and in their order; divided below the broker's limit where they are many.

        `timeout` is each part's own. When a part fails the rest is not sent, and `BatchFailed.parts` has each part's
        results or error.
        """
        sender, seconds = self._running(), self._seconds(timeout)
        payloads = list(
            split_batch(
                messages,
                unique_ids(len(messages)),
                max_message_bytes=self._max_message_bytes,
                request_bytes=BATCH_BYTES,
            )
        )
        done: list[list[SendResult] | RocketMQError] = []
        to: Target = AnyQueue() if queue is None else ThisQueue(queue)
        for payload in payloads:
            try:
                receipt = await sender.send(payload, to, timeout=seconds)
                done.append(receipt.results())
            except RocketMQError as error:
                if len(payloads) == 1:
                    raise
                raise _batch_failed(error, done, len(payloads)) from error
            to = to if isinstance(to, ThisQueue) else AnyQueue(receipt.queue)
        return [result for part in done if isinstance(part, list) for result in part]

    def open_window(
        self, *, max_requests: int = 4, max_bytes: int = 16 * 1024 * 1024, timeout: float | None = None
    ) -> AbstractAsyncContextManager[SendWindow]:
        """For bulk writers who encode payloads themselves: many under way, bounded; `timeout` is each payload's own."""
        seconds = self._seconds(timeout)
        return open_send_window(self._running(), max_requests=max_requests, max_bytes=max_bytes, timeout=seconds)

    async def publish_info(self, topic: str, *, timeout: float | None = None) -> TopicPublishInfo:
        """The queues the topic may be written to now, and the counter that walks them; `NoRoute` without any."""
        return await self._running().publish_info(topic, timeout=self._seconds(timeout))

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues the topic may be written to now."""
        return (await self.publish_info(topic)).queues

    def _payload(self, message: Message) -> Payload:
        return encode_one(
            message,
            unique_ids(1)[0],
            compress_over_bytes=self._compress_over_bytes,
            compression=self._compression,
            max_message_bytes=self._max_message_bytes,
        )

    async def _target(
        self, message: Message, queue: MessageQueue | None, select: Select | None, seconds: float
    ) -> Target:
        if queue is not None and select is not None:
            raise InvalidArgument("give queue or select, not both")
        if queue is not None:
            return ThisQueue(queue)
        if select is not None:
            info = await self._running().publish_info(message.topic, timeout=seconds)
            return ThisQueue(select(info.queues, message))
        return KeyedQueue(message.sharding_key) if message.sharding_key is not None else AnyQueue()

    def _seconds(self, timeout: float | None) -> float:
        return self._send_timeout if timeout is None else _positive("timeout", timeout)

    def _running(self) -> Sender:
        if self._sender is None or self._life.state is not ServiceState.RUNNING:
            raise self._life.not_running()
        return self._sender

    async def _leave(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._in_flight is not None:
                await self._in_flight.drain()
        finally:
            self._life.ended()
            if self._shared is not None:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self._shared.unregister_producer(self.group)


def _positive(name: str, seconds: float) -> float:
    if not seconds > 0:
        raise InvalidArgument(f"{name}={seconds:g}: it is a time in seconds, and has to be more than 0")
    return seconds


def _compression(name: str) -> CompressionType | None:
    known = {kind.name.lower(): kind for kind in CompressionType}
    if name != "none" and name not in known:
        raise InvalidArgument(f"compression={name!r}: none, {', '.join(sorted(known))} are possible")
    return known.get(name)


def _batch_failed(error: RocketMQError, done: list[list[SendResult] | RocketMQError], parts: int) -> BatchFailed:
    stored = len(done)
    rest = parts - stored - 1
    outcome = Outcome.PERHAPS_STORED if stored else error.outcome
    unsent: list[RocketMQError] = [
        SendFailed("not sent, because an earlier part of the batch failed", outcome=Outcome.NOT_STORED, attempts=())
        for _ in range(rest)
    ]
    return BatchFailed(
        f"part {stored + 1} of {parts} of the batch failed: {stored} parts stored, this one {error.outcome.value}, "
        f"{rest} not sent (error.parts has each). {error}",
        outcome=outcome,
        attempts=error.attempts,
        parts=[*done, error, *unsent],
    )
