"""`Producer`: sends messages of one producer group (client/producer/DefaultMQProducer.java)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import trio

from pyrmq_core.client.arguments import chosen_by, seconds_of
from pyrmq_core.client.client import Client
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.producer.batch_member import BatchMember, message_of
from pyrmq_core.client.producer.bulk.pending_sends import PendingBatch, PendingSend
from pyrmq_core.client.producer.bulk.send_arrow import send_rows
from pyrmq_core.client.producer.bulk.send_window import SendWindow, WriteSummary, open_send_window
from pyrmq_core.client.producer.bulk.split_batches import send_list
from pyrmq_core.client.producer.message_encoder import MessageEncoder
from pyrmq_core.client.producer.producer_settings import ProducerSettings
from pyrmq_core.client.producer.request_reply import reply_properties
from pyrmq_core.client.producer.running_producer import RunningProducer, open_parts
from pyrmq_core.client.producer.send.send_options import (
    ANY_QUEUE,
    AnyQueue,
    CommunicationMode,
    Target,
    ThisQueue,
    target_of,
)
from pyrmq_core.client.producer.transactions import (
    ExecuteLocalTransaction,
    Transaction,
    decided,
    local_failure,
)
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.client.session_owner import SessionOwner
from pyrmq_core.errors import InvalidArgument, InvalidState
from pyrmq_core.model import (
    NO_PROPERTIES,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    SendResult,
    TransactionSendResult,
)
from pyrmq_core.network import LoopAccess
from pyrmq_core.protocol.messages.namespaces import with_namespace
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import CORRELATION_ID
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage

Select = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer(SessionOwner[ProducerSettings[Any]]):
    """A producer, which sends the messages of one producer group.

    `async with Producer("orders", nameserver="127.0.0.1:9876") as producer:` opens a client of its own, and with
    `client=` it shares one. Times are in seconds. A send's `timeout` covers route queries, all tries and the pauses
    between them, and the wait for each answer. `timeout_per_attempt` ends that wait earlier, but only if another broker
    can then be tried. With `batching`, messages in quick succession share requests. `trace` (True, or a topic) reports
    each message to the trace topic. `hooks` are functions, not async, that are called around each try. `namespace` is
    the prefix of topics and the group at brokers.
    """

    _KIND = "producer"

    @parameters_of(ProducerSettings[Client])
    def __init__(self, settings: ProducerSettings[Client]) -> None:
        self._begin(settings, settings.shared_client(Client, "pyrmq_core.Client"))

    def _configure(self) -> None:
        settings = self._settings
        self.group = settings.group
        self._encoding = MessageEncoder.of(
            settings.compress_body_over_bytes,
            settings.compression,
            settings.max_message_bytes,
            settings.namespace,
            settings.hooks,
            0 if settings.batches is None else settings.batches.max_bytes,
        )
        self._parts: RunningProducer | None = None

    async def _opens(self, stack: AsyncExitStack) -> None:
        self._parts = await stack.enter_async_context(open_parts(self._session, self._settings))

    async def _closes(self, *, has_failed: bool) -> None:
        try:
            if self._parts is not None and not has_failed:
                await self._parts.drain()
        finally:
            self._parts = None

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> SendResult:
        """Sends a message, and returns its queue, offset and id when it is stored.

        `timeout` is for the send with all retries, in seconds (`send_timeout` by default). If `queue` or
        `select(queues, message)` chooses the queue, there is only one try. Raises `InvalidMessage` before anything is
        sent, and `NoRoute` or `NoNameServer` if no broker is found. Any other failure raises `SendFailed`: its
        `outcome` is *not stored*, *perhaps stored* or *stored*, and its `attempts` describe each try.
        """
        parts, seconds = self._open(), self._seconds(timeout)
        message = self._encoding.created(message)
        payload = self._encoding.content(message, timeout)
        to = target_of(message, queue)
        if select is not None:
            to, seconds = await self._selected(message, queue, select, seconds)
        if isinstance(payload, tuple):
            pending = PendingSend()
            await parts.in_flight.enter(pending, len(payload[0].body))
            parts.begin(payload, to, seconds, pending)
            return await pending.wait()
        receipt = await parts.sender.send(payload, to, timeout=seconds)
        return receipt.result()

    async def send_oneway(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> None:
        """Sends a message, and returns when it is written to the connection. No broker reports whether it is stored."""
        parts, seconds = self._open(), self._seconds(timeout)
        message = self._encoding.created(message)
        payload = self._encoding.one(message)
        to = target_of(message, queue)
        if select is not None:
            to, seconds = await self._selected(message, queue, select, seconds)
        await parts.sender.send_oneway(payload, to, timeout=seconds)

    async def send_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        wait: bool = True,
    ) -> PendingSend:
        """Starts a send when there is room (`max_in_flight`, `max_in_flight_bytes`). Returns the pending send.

        `await pending.wait()` returns its result. With `wait=False` the call raises `WindowFull` if there is no room.
        A broker's refusal is final, as in Java's async send, and network failures are retried. With a `sharding_key` or
        `lite_topic` a temporary refusal is also retried, which may store a second copy.
        """
        # The steps of a send without arguments are inlined, since each call would cost a hundredth of a batched send.
        parts = self._parts or self._open()
        seconds = self._settings.send_timeout if timeout is None else self._seconds(timeout)
        if self._encoding.hooks:
            message = self._encoding.created(message)
        payload = self._encoding.content(message, timeout)
        is_plain = queue is None and message.sharding_key is None and message.lite_topic is None
        to = ANY_QUEUE if is_plain else target_of(message, queue)
        if select is not None:
            to, seconds = await self._selected(message, queue, select, seconds)
        pending, size = PendingSend(parts.unseen), len((payload[0] if isinstance(payload, tuple) else payload).body)
        if not parts.in_flight.enter_nowait(pending, size, True):
            await parts.in_flight.enter(pending, size, wait=wait)
        parts.begin(payload, to, seconds, pending)
        return pending

    async def send_batch(
        self, messages: Sequence[Message], *, timeout: float | None = None, queue: MessageQueue | None = None
    ) -> Sequence[SendResult]:
        """Sends messages of one topic to one queue, in their order, in several requests if one would be too large.

        Without `queue`, messages with sharding keys go to the queues of their keys. Then only messages of the same key,
        or without a key, keep their order. A batch topic gets requests of one tag each, so only messages of one tag
        keep their order. `timeout` is for each request. When a request fails the rest is not sent, and
        `BatchFailed.parts` has the results or error of each request.
        """
        sender, seconds = self._open().sender, self._seconds(timeout)
        batch = self._encoding.checked(self._created(messages))
        return await send_list(sender, self._encoding, batch, queue, timeout=seconds)

    async def send_batch_soon(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        wait: bool = True,
    ) -> PendingBatch:
        """Starts a `send_batch` in the background. Waits only for room, where the list counts as one message.

        `await pending.wait()` returns one result for each message, or raises the errors of `send_batch`. With
        `wait=False` the call raises `WindowFull` if there is no room. Refusals are handled as in `send_soon`.
        """
        parts, seconds = self._open(), self._seconds(timeout)
        pending, batch = PendingBatch(parts.unseen), self._encoding.checked(self._created(messages))
        await parts.in_flight.enter(pending, sum([len(message.body) for message in batch.messages]), wait=wait)
        parts.batches.start(pending, self._encoding, batch, queue, seconds)
        return pending

    async def send_arrow(
        self, rows: Any, *, topic: str | None = None, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> WriteSummary:
        """Sends each row of a `pyarrow.RecordBatch` or `Table` as a message (extra `arrow`), encoded by columns.

        The columns are body, topic (unless it is an argument), tags, keys, shardingKey, properties and flag. Requests
        of up to 4,000 rows go to the topic's queues in turn, several at once. Only rows of one sharding key, or all
        rows with `queue`, keep their order. `timeout` is for each request. Raises `InvalidMessage` with the row and
        column, before anything is sent, and `BatchFailed` when a request fails after others were stored.
        """
        sender, seconds = self._open().sender, self._seconds(timeout)
        return await send_rows(sender, rows, topic, queue=queue, encoding=self._encoding, timeout=seconds)

    async def request(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> MessageExt:
        """Sends the message and waits for a consumer's `reply` to it. `timeout` covers both.

        Raises the errors of `send`, and `RequestTimeout` when the message is stored and no reply came in time.
        """
        parts, seconds = self._open(), self._seconds(timeout)
        properties = parts.requests.properties(seconds)
        message = self._encoding.created(message)
        payload = self._encoding.one(message, properties)
        to = target_of(message, queue)
        if select is not None:
            to, seconds = await self._selected(message, queue, select, seconds)
        return await parts.requests.ask(payload, properties[CORRELATION_ID], to, timeout=seconds)

    async def reply(
        self,
        request: MessageExt,
        body: bytes,
        *,
        properties: Mapping[str, str] = NO_PROPERTIES,
        timeout: float | None = None,
    ) -> SendResult:
        """Answers a message that `Producer.request` sent. Raises `InvalidArgument` for any other message.

        Returns when a broker has pushed the reply to the requesting client. A client that is not connected never gets
        it.
        """
        topic, own = reply_properties(request)
        message = self._encoding.created(Message(topic, body, properties=properties))
        payload = self._encoding.one(message, own)
        receipt = await self._open().sender.send(payload, AnyQueue(), timeout=self._seconds(timeout))
        return receipt.result()

    async def recall(self, topic: str, recall_handle: str, *, timeout: float | None = None) -> str:
        """Recalls a delayed message before it is delivered (brokers of 5.3 and later, `recallMessageEnable`).

        `recall_handle` is `SendResult.recall_handle`. Returns the message's id. Raises `ResponseError` when the broker
        refuses, or is too old.
        """
        parts, seconds = self._open(), self._seconds(timeout)
        handle = RecallHandle.decode(recall_handle)
        settings = self._settings
        wrapped = with_namespace(topic, settings.namespace)
        request = RecallMessage(settings.producer_group, wrapped, recall_handle, handle.broker_name)
        at = MessageQueue(wrapped, handle.broker_name, 0)
        answer = await parts.client.ask_broker(at, request.to_command(), timeout=seconds)
        msg_id = MessageRecalled.from_command(answer).msg_id
        if parts.tracer is not None:
            parts.tracer.recall(self.group, topic, msg_id)
        return msg_id

    async def begin_transaction(self, message: Message, *, timeout: float | None = None) -> Transaction:
        """Stores the message where consumers do not see it, until `end_transaction` commits it.

        Needs a `transaction_listener`, which brokers query if no END_TRANSACTION arrives. Raises the errors of
        `send`.
        """
        parts, seconds = self._open(), self._seconds(timeout)
        message = self._encoding.created(message)
        payload = self._encoding.one(message, parts.transactions.properties(message))
        to = target_of(message, None)
        return await parts.transactions.begin(message, payload, to, timeout=seconds)

    async def end_transaction(
        self, transaction: Transaction, state: LocalTransactionState, *, reason: str = ""
    ) -> TransactionSendResult:
        """Requests that the broker deliver or drop the message. With UNKNOW the broker queries the listener later.

        A message that is not stored safely (`status` is not SEND_OK) is rolled back whatever `state` says, as in Java.
        """
        ended_as = await self._open().transactions.end(transaction, state, reason)
        return TransactionSendResult(transaction.result, ended_as)

    async def send_in_transaction(
        self,
        message: Message,
        execute_local_transaction: ExecuteLocalTransaction,
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Calls `begin_transaction`, then your function, then `end_transaction` with the state that it returned.

        `execute_local_transaction(message, result)` may be async. Otherwise it runs in a worker thread. If it raises an
        exception, the state is UNKNOW, and the result's `error` is the exception.
        """
        transaction = await self.begin_transaction(message, timeout=timeout)
        if not transaction.is_safe:
            return await self.end_transaction(transaction, LocalTransactionState.ROLLBACK_MESSAGE)
        state, error = await decided(execute_local_transaction, message, transaction.result)
        return replace(await self.end_transaction(transaction, state, reason=local_failure(error)), error=error)

    def open_window(
        self,
        *,
        max_requests: int = 4,
        max_bytes: int = 16 * 1024 * 1024,
        timeout: float | None = None,
        keep_refused: bool = False,
        list_ranges: bool = False,
    ) -> AbstractAsyncContextManager[SendWindow]:
        """Returns a `SendWindow` for a `with` block, which sends many encoded payloads at once.

        `timeout` is for each payload. The other parameters are those of `open_send_window`.
        """
        sender, seconds = self._open().sender, self._seconds(timeout)
        return open_send_window(
            sender,
            max_requests=max_requests,
            max_bytes=max_bytes,
            timeout=seconds,
            keep_refused=keep_refused,
            list_ranges=list_ranges,
        )

    async def publish_info(self, topic: str, *, timeout: float | None = None) -> TopicPublishInfo:
        """Returns the queues to which the topic may be written now, with a round-robin counter. Raises `NoRoute`."""
        return await self._open().sender.publish_info(topic, timeout=self._seconds(timeout))

    async def is_batch_topic(self, topic: str, *, timeout: float | None = None) -> bool:
        """Returns whether brokers store the topic's batches as one record (5.x). Then a request should have one tag."""
        return await self._open().sender.is_batch_topic(topic, timeout=self._seconds(timeout))

    async def sending_topic(self, topic: str, *, timeout: float | None = None) -> tuple[TopicPublishInfo, bool]:
        """Returns the results of `publish_info` and `is_batch_topic`. Each of these two queries may take `timeout`."""
        sender, seconds = self._open().sender, self._seconds(timeout)
        info = await sender.publish_info(topic, timeout=seconds)
        return info, await sender.is_batch_topic(topic, timeout=seconds)

    async def message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Returns the queues to which the topic may be written now. Raises `NoRoute` for an unknown topic."""
        return (await self.publish_info(topic)).queues

    async def _selected(
        self, message: Message, queue: MessageQueue | None, select: Select, seconds: float
    ) -> tuple[Target, float]:
        if queue is not None:
            raise InvalidArgument("give queue or select, not both")
        deadline = trio.current_time() + seconds
        info = await self._open().sender.publish_info(message.topic, timeout=seconds)
        if not info.queues:
            info.select_one_message_queue()  # raises NoRoute with the reason
        return ThisQueue(chosen_by(select, info.queues, message)), deadline - trio.current_time()

    def _draft(self, message: Message, timeout: float | None, queue: MessageQueue | None) -> Draft:
        """Checks and encodes a message for the blocking and asyncio classes, in any thread and without waiting."""
        began, parts = time.monotonic(), self._open()
        if self._encoding.hooks:
            message = self._encoding.created(message)
        payload = self._encoding.content(message, timeout)
        return Draft(parts, payload, target_of(message, queue), self._seconds(timeout), began)

    def _created(self, messages: Sequence[Message]) -> Sequence[Message]:
        return [self._encoding.created(message) for message in messages] if self._encoding.hooks else messages

    def _seconds(self, timeout: float | None) -> float:
        return self._settings.send_timeout if timeout is None else seconds_of("timeout", timeout)

    def _open(self) -> RunningProducer:
        if self._parts is None:
            raise self._life.not_running()
        return self._parts


class Draft(NamedTuple):
    """A message that the blocking or asyncio `Producer` has checked and encoded in the caller's thread, to be sent.

    `to` is its target. The library's loop sends it, or, while the loop is idle, the caller's thread. `timeout` is in
    seconds from the time `began`, by `time.monotonic`.
    """

    parts: RunningProducer
    payload: Payload | BatchMember
    to: Target
    timeout: float
    began: float

    @property
    def body_bytes(self) -> int:
        return len(message_of(self.payload).body)

    def seconds_left(self) -> float:
        return max(0.0, self.timeout - (time.monotonic() - self.began))

    def start_waited_for(self, pending: PendingSend, loop: LoopAccess) -> bool:
        """Starts a send for which a caller waits. Returns False if `loop` cannot start it from this thread now."""
        timeout, payload = self.timeout if loop.writes_here else self.seconds_left(), self.payload
        assert isinstance(payload, Payload), "with automatic batching the trio face sends"
        return self.parts.in_flight.start(payload, self.to, timeout, (pending,), CommunicationMode.SYNC, loop)

    def begin_soon(self, pending: PendingSend) -> None:
        """Starts a send that reports its end to `pending`, without waiting. It must be called on the loop."""
        self.parts.begin(self.payload, self.to, self.seconds_left(), pending)

    def give_up(self, pending: PendingSend, soon: Callable[..., object]) -> None:
        """Abandons a send whose caller was interrupted. `soon` schedules that on the loop, after the send's start."""
        with suppress(InvalidState):
            soon(self.parts.in_flight.give_up, pending, message_of(self.payload).topic)
