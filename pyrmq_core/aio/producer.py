"""The asyncio `Producer` and its `SendWindow`. The caller's thread encodes messages, the library's loop sends them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast
from weakref import WeakSet

from pyrmq_core.aio.client import Client, OwnerFace
from pyrmq_core.aio.face import LoopContext, asyncio_form, asyncio_form_of_context
from pyrmq_core.aio.loop_returns import LoopReturns, here, on_library_loop
from pyrmq_core.aio.user_calls import UserCall
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.producer.bulk.pending_sends import Pending, PendingSend
from pyrmq_core.client.producer.bulk.send_window import RefusedMessage, WriteSummary
from pyrmq_core.client.producer.bulk.send_window import SendWindow as TrioSendWindow
from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailure, UnseenFailures
from pyrmq_core.client.producer.producer import Draft, Select
from pyrmq_core.client.producer.producer import Producer as TrioProducer
from pyrmq_core.client.producer.producer_settings import ProducerSettings
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.producer.transactions import (
    ExecuteLocalTransaction,
    TransactionListener,
    decided_by,
    local_failure,
)
from pyrmq_core.errors import RocketMQError
from pyrmq_core.loop_thread.portal import HeldContext, portal
from pyrmq_core.model import (
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    SendResult,
    TransactionSendResult,
)
from pyrmq_core.network import ON_LOOP
from pyrmq_core.protocol.messages.payload import Payload


class SendFutures:
    """The futures of one producer's background sends, with a count of failures that the program has not read."""

    def __init__(self, group: str) -> None:
        self.failures = UnseenFailures(group)
        self.failed: WeakSet[SendFuture] = WeakSet()

    def new(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        return SendFuture(self, loop)

    def report(self) -> None:
        """Logs, when the producer is closed, how many failures of its background sends the program has not read."""
        for future in self.failed:
            future.note_look()
        self.failures.report()


class SendFuture(asyncio.Future[Any]):
    """The future of a background send. A failure is logged if the program drops the future without reading it."""

    __slots__ = ("_futures", "_unseen")

    def __init__(self, futures: SendFutures, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._futures = futures
        self._unseen: UnseenFailure | None = None

    def failed(self, error: RocketMQError) -> None:
        self._unseen = self._futures.failures.failed(error)
        self._futures.failed.add(self)

    def note_look(self) -> None:
        """Reports this send's failure as read if asyncio has recorded that the program read the exception."""
        if self._unseen is not None and not self._log_traceback:
            self._unseen.look()

    def __del__(self) -> None:
        self.note_look()
        super().__del__()


R = TypeVar("R")

# A task that sends in a loop without waiting yields to other tasks after this many calls.
CALLS_BETWEEN_TURNS: Final = 64


class SendWindow(LoopContext[TrioSendWindow]):
    """The asyncio form of `pyrmq_core.SendWindow`, which sends many payloads and limits how many are sent at once.

    A payload is one or more encoded messages. `put` passes it to the library's loop without waiting for that loop.
    """

    _USE = "a window is used in its block: async with producer.open_window() as window"

    @property
    def summary(self) -> WriteSummary:
        """The number of acknowledged messages so far, by queue and status."""
        return self._entered().summary

    async def put(self, payload: Payload, to: Target) -> None:
        """Waits until the window has room for the payload, then sends it in the background.

        Raises the first failure of any earlier payload. A cancelled call sends nothing.
        """
        window = self._entered()
        while not window.enter_nowait(payload):
            await on_library_loop(window.wait_for_room, payload)
        if window.hand_over(payload, to):
            portal().soon(window.start_more)

    async def drain(self) -> WriteSummary:
        """Waits until every payload is acknowledged. If some failed, raises the first failure at the end."""
        return await on_library_loop(self._entered().drain)

    def take_refused(self) -> list[RefusedMessage]:
        """Removes and returns the messages that brokers refused since the last call, if `keep_refused` is set.

        The other messages of their batches are stored.
        """
        return self._entered().take_refused()


class Producer(OwnerFace[TrioProducer]):
    """The asyncio form of `pyrmq_core.Producer`. `client` is an asyncio `Client`.

    After a cancelled send it is unknown whether the message is stored. The method of `transaction_listener` may be a
    coroutine function, which runs on the asyncio loop that opened the producer.
    """

    @parameters_of(ProducerSettings[Client])
    def __init__(self, settings: ProducerSettings[Client]) -> None:
        self.group = settings.group
        self._batches = bool(settings.batching)
        self._sent = 0
        self._futures = SendFutures(settings.group)
        self._listener: _ListenerOnLoop | None = None
        listener = settings.transaction_listener
        if listener is not None and inspect.iscoroutinefunction(listener.check_local_transaction):
            self._listener = _ListenerOnLoop(listener)
            settings = replace(settings, transaction_listener=self._listener)
        super().__init__(TrioProducer, settings)

    def _closing_seconds(self, held: HeldContext[TrioProducer]) -> float:
        parts = held.value._parts if held.is_open else None
        return 0.0 if parts is None else parts.longest_seconds(portal().now())

    def _opens_here(self) -> None:
        if self._listener is not None:
            self._listener.runs_here()

    def _opened_now(self, held: HeldContext[TrioProducer]) -> None:
        parts = held.value._parts
        if parts is not None:
            held.on_crash(parts.in_flight.fail)

    async def close(self) -> None:
        """Closes the producer, after waiting for its open sends. A second call does nothing."""
        try:
            await super().close()
        finally:
            self._futures.report()

    async def send(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
    ) -> SendResult:
        """Sends a message, and returns when it is stored. Raises the errors of `pyrmq_core.Producer.send`.

        `select` is not a coroutine function, and must not wait, since it is called on the library's own loop. If the
        task is cancelled before the request is written to the connection, nothing is sent. After that, the message may
        be stored.
        """
        producer = await self._async()
        if select is not None or self._batches:
            return await on_library_loop(partial(producer.send, message, timeout=timeout, queue=queue, select=select))
        draft, loop = producer._draft(message, timeout, queue), portal()
        future, pending = _pair(here())
        try:
            if not loop.run_if_idle(draft.start_waited_for, pending, loop.access_here):
                loop.soon(_start, future, draft, pending, ended=pending.set_error)
            return await future
        except asyncio.CancelledError:
            draft.give_up(pending, loop.soon)
            raise

    async def send_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        wait: bool = True,
    ) -> asyncio.Future[SendResult]:
        """Starts a send in the background, and returns the future of its result.

        While `max_in_flight` messages or `max_in_flight_bytes` are being sent, the call waits, or raises `WindowFull`
        with `wait=False`. Cancelling the future does not cancel the send.
        """
        producer = await self._async()
        if select is not None:
            return await self._begun_send(
                partial(producer.send_soon, message, timeout=timeout, queue=queue, select=select, wait=wait)
            )
        draft = producer._draft(message, timeout, queue)
        future, pending = _pair(here(), self._futures)
        await self._enter(draft, pending, wait=wait)
        portal().soon(draft.begin_soon, pending, ended=pending.set_error)
        return future

    async def send_batch_soon(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        wait: bool = True,
    ) -> asyncio.Future[Sequence[SendResult]]:
        """Starts a `send_batch` in the background, and returns the future of one result for each message."""
        producer = await self._async()
        return await self._begun_send(
            partial(producer.send_batch_soon, messages, timeout=timeout, queue=queue, wait=wait)
        )

    async def send_in_transaction(
        self,
        message: Message,
        execute_local_transaction: ExecuteLocalTransaction,
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Calls `begin_transaction`, then the given function, and `end_transaction` with the state that it returned.

        A coroutine function runs in this task, any other function in a worker thread of asyncio. If it raises an
        exception, the state is UNKNOW, and the result's `error` is the exception. If the task is cancelled, the broker
        later asks the producer's `transaction_listener` for the state.
        """
        transaction = await self.begin_transaction(message, timeout=timeout)
        if not transaction.is_safe:
            return await self.end_transaction(transaction, LocalTransactionState.ROLLBACK_MESSAGE)
        state, error = await decided_by(asyncio.to_thread, execute_local_transaction, message, transaction.result)
        return replace(await self.end_transaction(transaction, state, reason=local_failure(error)), error=error)

    begin_transaction = asyncio_form(TrioProducer.begin_transaction)
    end_transaction = asyncio_form(TrioProducer.end_transaction)
    is_batch_topic = asyncio_form(TrioProducer.is_batch_topic)
    message_queues = asyncio_form(TrioProducer.message_queues)
    open_window = asyncio_form_of_context(TrioProducer.open_window, SendWindow)
    publish_info = asyncio_form(TrioProducer.publish_info)
    recall = asyncio_form(TrioProducer.recall)
    reply = asyncio_form(TrioProducer.reply)
    request = asyncio_form(TrioProducer.request)
    send_arrow = asyncio_form(TrioProducer.send_arrow)
    send_batch = asyncio_form(TrioProducer.send_batch)
    send_oneway = asyncio_form(TrioProducer.send_oneway)
    sending_topic = asyncio_form(TrioProducer.sending_topic)

    async def _begun_send(self, send: Callable[[], Any]) -> asyncio.Future[R]:
        returns = here()
        future: asyncio.Future[R] = self._futures.new(returns.loop)

        def ended(pending: Pending[R]) -> None:
            pending.error  # noqa: B018 - the future reports the failure from now on
            returns.soon(_settle, future, pending)

        async def begin() -> None:
            (await send()).add_done_callback(ended)

        await on_library_loop(begin)
        return future

    async def _enter(self, draft: Draft, pending: PendingSend, *, wait: bool) -> None:
        in_flight, size = draft.parts.in_flight, draft.body_bytes
        try:
            if not in_flight.enter_nowait(pending, size):
                await on_library_loop(partial(in_flight.enter, wait=wait), pending, size)
            self._sent += 1
            if not self._sent % CALLS_BETWEEN_TURNS:
                await asyncio.sleep(0)
        except BaseException:  # the task is cancelled, or there is no room
            draft.give_up(pending, portal().soon)
            raise


class _ListenerOnLoop:
    def __init__(self, listener: TransactionListener) -> None:
        self._listener = listener
        self._call: Callable[[], UserCall[LocalTransactionState]] | None = None

    def runs_here(self) -> None:
        returns, context = here(), copy_context()
        self._call = lambda: UserCall(returns, portal(), context.copy())

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        assert self._call is not None, "brokers call it only once it is open"
        checked = self._listener.check_local_transaction
        return await self._call().call(cast(Callable[..., Awaitable[LocalTransactionState]], checked), message)


def _start(future: asyncio.Future[SendResult], draft: Draft, pending: PendingSend) -> None:
    if not future.cancelled():
        draft.start_waited_for(pending, ON_LOOP)


def _pair(returns: LoopReturns, futures: SendFutures | None = None) -> tuple[asyncio.Future[SendResult], PendingSend]:
    pending = PendingSend()
    future: asyncio.Future[SendResult] = returns.loop.create_future() if futures is None else futures.new(returns.loop)
    pending.add_done_callback(partial(returns.soon, _settle, future))
    return future, pending


def _settle(future: asyncio.Future[R], pending: Pending[R]) -> None:
    if future.done():
        return
    if pending.error is not None:
        if isinstance(future, SendFuture):
            future.failed(pending.error)
        future.set_exception(pending.error)
    else:
        future.set_result(pending.result)
