"""`Sender`, which sends encoded messages to brokers, repeats failed tries, and returns the brokers' acknowledgements.

`send` takes a `Payload` (an encoded message or batch). It returns a `Receipt`, or raises `SendFailed` with the outcome
and all tries. If the route is cached and a connection is open (`_prepare_nowait`), the first try is made without
waiting, and `post` even makes it without a task. All other tries are made by `go_on`. `_judge` decides after each try
whether another one follows. Source: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl),
5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.producer.send.fault_latency import FaultLatency
from pyrmq_core.client.producer.send.hooks import ProducerHooks, SendContext
from pyrmq_core.client.producer.send.queue_selection import QueueSelector
from pyrmq_core.client.producer.send.receipt import Receipt, given_up, make_receipt, unexpected
from pyrmq_core.client.producer.send.retry_policy import (
    MIN_ATTEMPT_SECONDS,
    Next,
    attempt_seconds,
    is_free_try,
    leaving_seconds,
    next_step,
    no_such_queue,
    outcome_of,
    refuses_queue,
    send_failed,
)
from pyrmq_core.client.producer.send.send_options import (
    AnyQueue,
    CommunicationMode,
    SendSettings,
    SendState,
    Target,
    ThisQueue,
    waits_for_broker,
)
from pyrmq_core.client.remoting.heartbeats import require_timer_messages
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import LocalError, Outcome, RocketMQError
from pyrmq_core.model import MessageQueue, SendStatus
from pyrmq_core.network import ON_LOOP, LoopAccess
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import Request, RequestForm, as_command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.batch_topic import can_be_one_record
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import has_timer, is_reply
from pyrmq_core.protocol.requests.broker.send_message import SendMessage

GO_AWAY: Final = ResponseCode.GO_AWAY.value
SEND_OK: Final = SendStatus.SEND_OK
STATUS_OF_CODE: Final = {status.value: status for status in SendStatus}
WAIT_FOR_BROKER_SECONDS: Final = 0.5
# The most cached request forms, one for each queue and kind of message. When there are more, all are dropped.
FORMS_KEPT: Final = 4096


class Sender:
    """The sender of one producer group's payloads over a client's connections. Many sends may run at once.

    Topics and queues in arguments and results are without the namespace of `settings`, and requests contain it.
    """

    def __init__(
        self,
        client: ClientSession,
        settings: SendSettings,
        *,
        hooks: ProducerHooks | None = None,
        faults: FaultLatency | None = None,
    ) -> None:
        self._client = client
        self._remoting = client.caller
        self._routes = client.routes
        self._batch_topics = client.batch_topics
        self.settings = settings
        self._producer_group = settings.producer_group
        self._hooks = hooks or None
        self.writes_from_threads = self._hooks is None and client.caller.writes_from_threads
        self._queues = QueueSelector(client, settings, faults)
        self._forms: dict[tuple[str, str, int, int, int, bool], RequestForm] = {}

    async def publish_info(self, topic: str, *, timeout: float) -> TopicPublishInfo:
        return await self._queues.publish_info(topic, timeout=timeout)

    async def is_batch_topic(self, topic: str, *, timeout: float) -> bool:
        """Returns whether any broker of the topic stores a batch as one record (5.x batch topics).

        All messages of such a batch need the same tag, or none.
        """
        info = await self.publish_info(topic, timeout=timeout)
        return await self._batch_topics.any_batch_topic(self._queues.on_wire(topic), info, timeout=timeout)

    async def send(
        self, payload: Payload, to: Target, *, timeout: float, mode: CommunicationMode = CommunicationMode.SYNC
    ) -> Receipt:
        """Sends a payload, and returns when a broker acknowledged it. `timeout` (seconds) covers all tries and waits.

        Raises `SendFailed`. Before anything is sent, it may raise `NoRoute` or `NoNameServer`. After a cancellation it
        is unknown whether the payload is stored. `mode` decides which failures are retried.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        state = self.state_of(payload, to, timeout, mode)
        if (request := self._prepare_nowait(state)) is None:
            return await self.go_on(state)
        answer: Command | RocketMQError | None
        seconds = self._try_seconds(state, timeout)
        try:
            call = self._remoting.begin(state.address, request, state.started + seconds, seconds)
            answer = None if call is None else await call.wait()
        except RocketMQError as error:
            answer = error
        except trio.Cancelled:
            self._queues.learn(state, None)
            raise
        return self._judge_first(state, answer) or await self.go_on(state)

    async def send_oneway(self, payload: Payload, to: Target, *, timeout: float) -> None:
        """Sends a payload as a one-way request, in one try. Returns when it is written. Raises the errors of `send`."""
        state = self.state_of(payload, to, timeout, CommunicationMode.ONEWAY)
        state.queue = await self._queues.choose(state)
        await self._try(state, state.queue)

    def state_of(
        self, payload: Payload, to: Target, timeout: float, mode: CommunicationMode, now: float | None = None
    ) -> SendState:
        return SendState(payload, to, timeout, self.settings.tries_allowed(mode), mode, now)

    def post(
        self, state: SendState, ended: Callable[[Receipt | RocketMQError | None], None], loop: LoopAccess = ON_LOOP
    ) -> Callable[[], None] | None:
        """Makes the first try of a send without waiting. `ended` receives the result of this try, once.

        The result is the receipt, the error, or None if the caller has to continue with `go_on`. Returns a function
        that abandons the call. Returns None, and sends nothing, if the try has to wait first, for example for the
        topic's route. With `loop.writes_here`, an error before anything is sent is raised.
        """
        if (request := self._prepare_nowait(state)) is None:
            return None

        def answered(answer: Command | RocketMQError) -> None:
            end: Receipt | RocketMQError | None
            try:
                end = self._judge_first(state, answer)
            except RocketMQError as error:
                end = error
            except Exception as error:  # an exception here would end the connection and its other calls
                end = unexpected(state.payload.topic, error)
            ended(end)

        seconds = self._try_seconds(state, state.timeout)
        try:
            return self._remoting.post(state.address, request, state.started + seconds, seconds, answered, loop)
        except RocketMQError as error:  # nothing was sent
            if loop.writes_here:
                raise
            answered(error)
            return lambda: None  # the call has already failed

    async def go_on(self, state: SendState) -> Receipt:
        while True:
            if state.attempts:
                await self._before_next_try(state)
            if state.refused is not None and isinstance(state.to, ThisQueue):
                return self._end(state.refused[1], state)
            try:  # uses a queue that was chosen but not tried
                state.queue = queue = state.queue or await self._queues.choose(state)
            except RocketMQError as error:
                if self._awaits_master(state):
                    await trio.sleep(min(WAIT_FOR_BROKER_SECONDS, state.seconds_left()))
                    continue
                return self._end(error, state)
            receipt = await self._try(state, queue)
            if receipt is not None:
                return receipt

    def _prepare_nowait(self, state: SendState) -> Request | None:
        """Returns the request of a first try, or None if the try has to wait first, for example for the topic's route.

        Sets `state.queue` and `state.address`.
        """
        payload = state.payload
        if self._hooks is not None or (not payload.batch and has_timer(payload.properties)):
            return None
        state.queue = queue = self._queues.choose_nowait(state)
        if queue is None or (address := self._routes.known_master(queue.broker_name)) is None:
            return None
        state.address = address
        if payload.single_tag and can_be_one_record(payload):
            topic = self._queues.on_wire(payload.topic)
            is_one_record = self._batch_topics.keeps_whole_nowait(topic, queue.broker_name)
            if is_one_record is None:
                return None
            if is_one_record:
                payload = state.as_one_record()
        request = self._request(payload, queue)
        state.code = request.code
        return request

    async def _prepare(self, state: SendState, queue: MessageQueue) -> Command:
        payload = state.payload
        if can_be_one_record(payload):
            topic = self._queues.on_wire(payload.topic)
            # Half of the time stays for the send, if the broker does not answer this query.
            timeout = state.seconds_left() / 2
            if await self._batch_topics.keeps_whole(topic, queue.broker_name, timeout=timeout):
                payload = state.as_one_record()
        request = as_command(self._request(payload, queue))
        state.code = request.code
        return request

    async def _try(self, state: SendState, queue: MessageQueue) -> Receipt | None:
        """Makes one try to send to a queue, and returns the receipt.

        Returns None if another try has to follow, or for a one-way request, which has no answer. Raises the error that
        ends the send.
        """
        state.began, state.address = trio.current_time(), ""
        context: SendContext | None = None
        answer: Command | RocketMQError | None = None
        try:
            state.address = self._queues.master(queue.broker_name)
            if self._queues.awaits_lite_check(state.to, queue):
                await self._queues.check_lite(queue, state.address, timeout=self._leaving_seconds(state))
            if has_timer(state.payload.properties):
                timeout = self._leaving_seconds(state)
                await require_timer_messages(self._client.heartbeats, queue, state.address, timeout=timeout)
            if self._hooks is not None:
                allowed = self._context(queue, state)
                self._hooks.check_forbidden(allowed)
                context = allowed
                self._hooks.before(context)
            answer = await self._call(state, await self._prepare(state, queue))
        except RocketMQError as error:
            answer = error
        except trio.Cancelled:
            self._queues.learn(state, None)
            if context is not None:
                self._tell_after(context, state, None, given_up(state.payload.topic))
            raise
        return self._judge(state, queue, answer, context)

    async def _call(self, state: SendState, request: Command) -> Command | None:
        seconds_left = state.seconds_left()
        if state.mode is CommunicationMode.ONEWAY:
            await self._client.send_oneway(state.address, request, timeout=seconds_left)
            return None
        await self._remoting.wait_ready(state.address, request, timeout=self._leaving_seconds(state))
        seconds_left = state.seconds_left()
        return await self._client.call(state.address, request, timeout=self._try_seconds(state, seconds_left))

    def _leaving_seconds(self, state: SendState) -> float:
        return leaving_seconds(state.seconds_left(), state.tries_left, may_move=self._may_move(state))

    def _try_seconds(self, state: SendState, seconds_left: float) -> float:
        cap = self.settings.timeout_per_attempt
        if cap is None:
            return max(seconds_left, MIN_ATTEMPT_SECONDS)
        return attempt_seconds(seconds_left, cap, may_move=self._may_move(state))

    def _may_move(self, state: SendState) -> bool:
        return state.tries_left > 1 and self._queues.has_untried_broker(state)

    def _judge_first(self, state: SendState, answer: Command | RocketMQError | None) -> Receipt | None:
        """Returns the receipt of a first try, or None if `go_on` has to send again. Raises an error that ends the send.

        A first try that sent nothing, or that the broker answered with GO_AWAY, is repeated without being counted.
        """
        if state.queue is None or answer is None or (isinstance(answer, Command) and answer.code == GO_AWAY):
            return None
        return self._judge(state, state.queue, answer)

    def _judge(
        self,
        state: SendState,
        queue: MessageQueue,
        answer: Command | RocketMQError | None,
        context: SendContext | None = None,
    ) -> Receipt | None:
        receipt, failure = None, None
        if isinstance(answer, Command):
            try:
                receipt = _receipt(state, queue, answer)
            except RocketMQError as error:
                failure = error
        else:
            failure = answer
        if self._queues.learns:
            self._queues.learn(state, failure)
        if context is not None:
            self._tell_after(context, state, receipt, failure)
        if failure is not None:
            return self._failed(state, queue, failure)
        may_move = self.settings.retry_another_broker_when_not_store_ok and isinstance(state.to, AnyQueue)
        if receipt is None or receipt.status is SEND_OK or not may_move:
            return receipt
        state.stored = receipt
        state.note(queue, Outcome.STORED, f"stored, but {receipt.status.name}")
        return None if state.tries_left > 0 and state.seconds_left() > 0 else receipt

    def _failed(self, state: SendState, queue: MessageQueue, error: RocketMQError) -> Receipt | None:
        if isinstance(error, LocalError) and not state.attempts:
            raise error
        state.note(queue, outcome_of(error), str(error))
        if refuses_queue(error):
            state.note_refused_queue(queue, error)
        elif is_free_try(error, state.to):
            state.tries_left += 1
        step = next_step(error, state.to, state.mode, state.tries_made, state.tries_allowed, state.seconds_left())
        return self._end(error, state) if step is Next.END else None

    def _end(self, error: RocketMQError, state: SendState) -> Receipt:
        if state.stored is not None:
            return state.stored
        if not state.attempts:
            raise error
        topic, seconds = state.payload.topic, trio.current_time() - state.started
        failed = send_failed(topic, state.attempts, seconds, state.payload.count)
        if refuses_queue(error) and isinstance(state.to, ThisQueue):
            raise no_such_queue(state.to.queue, self._queues.known_queues(topic), failed) from error
        raise failed from error

    async def _before_next_try(self, state: SendState) -> None:
        """Prepares another try after a failed one: queries a NameServer for the topic's route, which may have changed.

        Sleeps up to 0.5 s if the next try can only go to the broker that failed, or if NameServers still list the queue
        that the broker has just refused.
        """
        topic, tried, state.queue = state.payload.topic, state.queue, None
        with trio.move_on_after(min(1.0, state.seconds_left())):
            with suppress(RocketMQError):  # the cached route may still be right
                await self._client.routes.refresh(self._queues.on_wire(topic))
        if state.refused is None or state.refused[0] != tried:
            waits = waits_for_broker(state.to) and not self._queues.has_untried_broker(state)
        else:  # if NameServers still list the refused queue, they do not know of the change yet
            waits = not isinstance(state.to, ThisQueue) and tried in self._queues.known_queues(topic)
        if waits:
            await trio.sleep(min(WAIT_FOR_BROKER_SECONDS, state.seconds_left()))

    def _awaits_master(self, state: SendState) -> bool:
        if isinstance(state.to, ThisQueue) or state.stored is not None or state.seconds_left() < MIN_ATTEMPT_SECONDS:
            return False
        return self._queues.awaits_master(state.payload.topic)

    def _tell_after(
        self, context: SendContext, state: SendState, receipt: Receipt | None, failure: RocketMQError | None
    ) -> None:
        assert self._hooks is not None
        self._hooks.after(context.ended(receipt, failure, trio.current_time() - state.began))

    def _context(self, queue: MessageQueue, state: SendState) -> SendContext:
        namespace = self.settings.namespace
        return SendContext(
            producer_group=without_namespace(self._producer_group, namespace),
            namespace=namespace,
            topic=state.payload.topic,
            queue=queue,
            broker_address=state.address,
            mode=state.mode,
            payload=state.payload,
            attempt=state.tries_made + 1,
        )

    def _request(self, payload: Payload, queue: MessageQueue) -> Request:
        born_ms = time.time_ns() // 1_000_000
        topic, properties = payload.topic, payload.properties
        if not payload.batch and is_reply(properties):
            return self._whole_request(payload, queue, born_ms).to_special_command()
        kind = (topic, queue.broker_name, queue.queue_id, payload.sys_flag, payload.flag, payload.batch)
        if (form := self._forms.get(kind)) is None:
            if is_retry_topic(topic):
                return self._whole_request(payload, queue, born_ms).to_special_command()
            if len(self._forms) >= FORMS_KEPT:
                self._forms.clear()
            form = self._forms[kind] = self._whole_request(payload, queue, born_ms).to_form()
        return form.request((born_ms,), properties, payload.body)

    def _whole_request(self, payload: Payload, queue: MessageQueue, born_timestamp_ms: int) -> SendMessage:
        return SendMessage(
            producer_group=self._producer_group,
            topic=self._queues.on_wire(payload.topic),
            default_topic=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=payload.sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            flag=payload.flag,
            properties=payload.properties,
            unit_mode=self._client.unit_mode,
            batch=payload.batch,
            broker_name=queue.broker_name,
            body=payload.body,
        )


def _receipt(state: SendState, queue: MessageQueue, answer: Command) -> Receipt:
    status = STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise response_error(answer, state.code, f"{queue.broker_name} ({state.address})", f"queue {queue}")
    payload = state.payload
    return make_receipt(queue, payload.count, status, state.attempts, answer, payload.unique_ids)
