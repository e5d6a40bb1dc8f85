"""The blocking `Producer`, its futures, and its `SendWindow`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pyrmq_core.blocking.client import Client, OwnerFace
from pyrmq_core.blocking.face import OpenContext, blocking_form, blocking_form_of_context
from pyrmq_core.client.parameters import parameters_of
from pyrmq_core.client.producer.bulk.pending_sends import Pending, PendingSend
from pyrmq_core.client.producer.bulk.send_window import RefusedMessage, WriteSummary
from pyrmq_core.client.producer.bulk.send_window import SendWindow as AsyncSendWindow
from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailure, UnseenFailures
from pyrmq_core.client.producer.producer import Draft, Select
from pyrmq_core.client.producer.producer import Producer as AsyncProducer
from pyrmq_core.client.producer.producer_settings import ProducerSettings
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.producer.transactions import decided_here, local_failure
from pyrmq_core.errors import RocketMQError
from pyrmq_core.loop_thread.portal import HeldContext, Portal, portal
from pyrmq_core.model import (
    LocalTransactionState,
    Message,
    MessageQueue,
    SendResult,
    TransactionSendResult,
)
from pyrmq_core.network import ON_LOOP
from pyrmq_core.protocol.messages.payload import Payload

log = logging.getLogger(__name__)

R = TypeVar("R")


class SendWindow(OpenContext[AsyncSendWindow]):
    """The blocking form of `pyrmq_core.SendWindow`, which sends many payloads and limits how many are sent at once.

    A payload is one or more encoded messages. `put` passes it to the library's loop without waiting for that loop.
    """

    @property
    def summary(self) -> WriteSummary:
        """The number of acknowledged messages so far, by queue and status."""
        return self._opened.value.summary

    def put(self, payload: Payload, to: Target) -> None:
        """Waits until the window has room for the payload, then sends it in the background.

        Raises the first failure of any earlier payload.
        """
        window, loop = self._opened.value, portal()
        loop.check_outside()
        try:
            while not window.enter_nowait(payload):
                loop.run(window.wait_for_room, payload)
            if window.hand_over(payload, to):
                loop.soon(window.start_more)
        except RocketMQError:
            raise
        except BaseException:  # an interrupt, such as Ctrl-C
            loop.soon(window.interrupted, payload.topic)
            raise

    def take_refused(self) -> list[RefusedMessage]:
        """Removes and returns the messages that brokers refused since the last call, if `keep_refused` is set.

        The other messages of their batches are stored.
        """
        return self._opened.value.take_refused()

    drain = blocking_form(AsyncSendWindow.drain)


class Producer(OwnerFace[AsyncProducer]):
    """The blocking form of `pyrmq_core.Producer`. `client` is a blocking `Client`. Safe to use from many threads."""

    @parameters_of(ProducerSettings[Client])
    def __init__(self, settings: ProducerSettings[Client]) -> None:
        super().__init__(AsyncProducer, settings)
        self.group = settings.group
        self._batches = bool(settings.batching)

    def _closing_seconds(self, opened: HeldContext[AsyncProducer]) -> float:
        parts = opened.value._parts if opened.is_open else None
        return 0.0 if parts is None else parts.longest_seconds(portal().now())

    def _opened_now(self, opened: HeldContext[AsyncProducer]) -> None:
        parts = opened.value._parts
        if parts is not None:
            opened.on_crash(parts.in_flight.fail)

    def send(
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
        if select is not None or self._batches:
            return self._run(lambda producer: producer.send(message, timeout=timeout, queue=queue, select=select))
        ended = threading.Lock()
        ended.acquire()
        pending = PendingSend()
        pending.add_done_callback(lambda _: ended.release())
        loop, draft = self._drafted(message, timeout, queue)
        try:
            if not loop.run_if_idle(draft.start_waited_for, pending, loop.access_here):
                loop.soon(draft.start_waited_for, pending, ON_LOOP, ended=pending.set_error)
            ended.acquire()
        except BaseException:  # an interrupt, such as Ctrl-C: no caller waits for the result any more
            draft.give_up(pending, loop.soon)
            raise
        return pending.result

    def send_soon(
        self,
        message: Message,
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        select: Select | None = None,
        wait: bool = True,
    ) -> Future[SendResult]:
        """Starts a send in the background, and returns the future of its result.

        While `max_in_flight` messages or `max_in_flight_bytes` are being sent, the call waits, or raises `WindowFull`
        with `wait=False`. Network failures are retried, a broker's refusal is not, as in Java's async send. With a
        `sharding_key` or `lite_topic` a temporary refusal is also retried, which may store a second copy.
        """
        future: SendFuture[SendResult] = SendFuture()
        if select is not None:  # the user's function, which chooses the queue, runs on the loop

            async def start(producer: AsyncProducer) -> None:
                begun = await producer.send_soon(message, timeout=timeout, queue=queue, select=select, wait=wait)
                begun.add_done_callback(partial(_settle, future, producer._open().unseen))

            self._run(start)
            return future
        pending = PendingSend()
        loop, draft = self._drafted(message, timeout, queue)
        pending.add_done_callback(partial(_settle, future, draft.parts.unseen))
        in_flight, size = draft.parts.in_flight, draft.body_bytes
        try:
            if not in_flight.enter_nowait(pending, size):
                loop.run(partial(in_flight.enter, wait=wait), pending, size)
            loop.soon(draft.begin_soon, pending, ended=pending.set_error)
        except BaseException:  # the caller is interrupted, or there is no room
            draft.give_up(pending, loop.soon)
            raise
        return future

    send_async = send_soon

    def send_batch_soon(
        self,
        messages: Sequence[Message],
        *,
        timeout: float | None = None,
        queue: MessageQueue | None = None,
        wait: bool = True,
    ) -> Future[Sequence[SendResult]]:
        """Starts a `send_batch` in the background, and returns the future of one result for each message.

        The future raises the errors of `send_batch`. The call waits, or raises `WindowFull`, as `send_soon` does. The
        list counts as one message for the limit `max_in_flight`. A broker's refusal is retried in the same cases as in
        `send_soon`.
        """
        future: SendFuture[Sequence[SendResult]] = SendFuture()

        async def start(producer: AsyncProducer) -> None:
            begun = await producer.send_batch_soon(messages, timeout=timeout, queue=queue, wait=wait)
            begun.add_done_callback(partial(_settle, future, producer._open().unseen))

        self._run(start)
        return future

    def send_in_transaction(
        self,
        message: Message,
        execute_local_transaction: Callable[[Message, SendResult], LocalTransactionState],
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Calls `begin_transaction`, the given function in this thread, and `end_transaction` with its returned state.

        If the function raises an exception, the state is UNKNOW, and the result's `error` is the exception.
        """
        transaction = self.begin_transaction(message, timeout=timeout)
        if not transaction.is_safe:
            return self.end_transaction(transaction, LocalTransactionState.ROLLBACK_MESSAGE)
        state, error = decided_here(execute_local_transaction, message, transaction.result)
        return replace(self.end_transaction(transaction, state, reason=local_failure(error)), error=error)

    begin_transaction = blocking_form(AsyncProducer.begin_transaction)
    end_transaction = blocking_form(AsyncProducer.end_transaction)
    is_batch_topic = blocking_form(AsyncProducer.is_batch_topic)
    message_queues = blocking_form(AsyncProducer.message_queues)
    open_window = blocking_form_of_context(AsyncProducer.open_window, SendWindow)
    publish_info = blocking_form(AsyncProducer.publish_info)
    recall = blocking_form(AsyncProducer.recall)
    reply = blocking_form(AsyncProducer.reply)
    request = blocking_form(AsyncProducer.request)
    send_arrow = blocking_form(AsyncProducer.send_arrow)
    send_batch = blocking_form(AsyncProducer.send_batch)
    send_oneway = blocking_form(AsyncProducer.send_oneway)
    sending_topic = blocking_form(AsyncProducer.sending_topic)

    def _drafted(self, message: Message, timeout: float | None, queue: MessageQueue | None) -> tuple[Portal, Draft]:
        producer, loop = self._async(), portal()
        loop.check_outside()
        return loop, producer._draft(message, timeout, queue)


class SendFuture(Future[R]):
    """The future of a background send. A failure that the program never reads is logged."""

    def __init__(self) -> None:
        super().__init__()
        self._unseen: UnseenFailure | None = None
        self._is_awaited = False

    def result(self, timeout: float | None = None) -> R:
        self._is_awaited = True
        try:
            return super().result(timeout)
        finally:
            self._look()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._is_awaited = True
        try:
            return super().exception(timeout)
        finally:
            self._look()

    def fail(self, error: RocketMQError, failures: UnseenFailures) -> None:
        if not self._is_awaited:
            self._unseen = failures.failed(error)
        self.set_exception(error)

    def _look(self) -> None:
        self._is_awaited = False
        if self._unseen is not None:
            self._unseen.look()


def _settle(future: SendFuture[R], failures: UnseenFailures, pending: Pending[R]) -> None:
    try:
        error = pending.error
        if not future.set_running_or_notify_cancel():
            return
        if error is not None:
            future.fail(error, failures)
        else:
            future.set_result(pending.result)
    except BaseException:
        log.exception("a callback of a future raised")
