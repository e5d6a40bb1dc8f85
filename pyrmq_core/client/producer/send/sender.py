"""The one road of everything that is sent: `Sender` calls brokers, retries, and says what became of it.

A `Payload` goes in, a `Receipt` comes out, or a `SendFailed` with its outcome and the story of its attempts. The first
try of `post` costs no task; what has to be waited for before it, and every further try, is `go_on`'s.
Source: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl), 5.3.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from pyrmq_core.client.client import Client
from pyrmq_core.client.producer.communication_mode import CommunicationMode
from pyrmq_core.client.producer.send.fault_latency import FaultLatency
from pyrmq_core.client.producer.send.hooks import ProducerHooks, SendContext
from pyrmq_core.client.producer.send.queue_selection import QueueSelector, answered_queue
from pyrmq_core.client.producer.send.receipt import Receipt, make_receipt
from pyrmq_core.client.producer.send.retry_policy import (
    attempt_seconds,
    is_retried,
    no_such_queue,
    outcome_of,
    refuses_queue,
    send_failed,
)
from pyrmq_core.client.producer.send.send_errors import unexpected
from pyrmq_core.client.producer.send.send_state import SendState
from pyrmq_core.client.producer.send.targets import AnyQueue, Target, ThisQueue, waits_for_broker
from pyrmq_core.client.producer.settings import SendSettings
from pyrmq_core.client.remoting.broker_versions import require_timer_messages
from pyrmq_core.client.routing.publish_info import TopicPublishInfo
from pyrmq_core.errors import LocalError, Outcome, RocketMQError
from pyrmq_core.model import MessageQueue, SendStatus
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import Request, RequestForm, as_command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.batch_topic import can_be_one_record
from pyrmq_core.protocol.messages.message_type import has_timer, is_reply
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.requests.broker.send_message import SendMessage

GO_AWAY: Final = ResponseCode.GO_AWAY.value
SEND_OK: Final = SendStatus.SEND_OK
STATUS_OF_CODE: Final = {status.value: status for status in SendStatus}
WAIT_FOR_BROKER_SECONDS: Final = 0.5
# One form a queue and kind of message; beyond so many, all are made anew.
FORMS_KEPT: Final = 4096


class Sender:
    """Sends payloads for one producer group over a client's connections; many sends may be under way at once.

    Topics and queues that come in or go out are without the namespace of `settings`; on the wire they carry it.
    """

    def __init__(
        self,
        client: Client,
        settings: SendSettings,
        *,
        hooks: ProducerHooks | None = None,
        faults: FaultLatency | None = None,
    ) -> None:
        self._client = client
        self._caller = client.caller
        self._routes = client.routes
        self.settings = settings
        self._hooks = hooks or None
        self.posts_aside = self._hooks is None and client.posts_aside
        self._choice = QueueSelector(client, settings, faults)
        self._forms: dict[tuple[str, str, int, int, int, bool], RequestForm] = {}

    async def publish_info(self, topic: str, *, timeout: float) -> TopicPublishInfo:
        """The queues the topic may be written to now; asks NameServers only when they are not known."""
        return await self._choice.publish_info(topic, timeout=timeout)

    async def is_batch_topic(self, topic: str, *, timeout: float) -> bool:
        """Whether brokers keep its batches whole (5.x): then a request should hold messages of one tag."""
        info = await self.publish_info(topic, timeout=timeout)
        return await self._client.batch_topics.any_batch_topic(self._choice.on_wire(topic), info, timeout=timeout)

    async def send(
        self, payload: Payload, to: Target, *, timeout: float, mode: CommunicationMode = CommunicationMode.SYNC
    ) -> Receipt:
        """Returns when a broker acknowledged it. `timeout` counts the whole send: routes, tries, waits between them.

        Raises `SendFailed`; `NoRoute` and `NoNameServer` when there is nowhere to send to (nothing was sent then).
        A cancelled caller learns nothing about storage. `mode` decides what is tried again.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        story = self.story(payload, to, timeout, mode)
        if (request := self._ready(story)) is None:
            return await self.go_on(story)
        answer: Command | RocketMQError | None
        seconds = self._attempt_seconds(story, timeout)
        try:
            call = self._caller.begin(story.address, request, story.started + seconds, seconds)
            answer = None if call is None else await call.wait()
        except RocketMQError as error:
            answer = error
        except trio.Cancelled:
            self._choice.learn(story, None)
            raise
        return self._end_of_first(story, answer) or await self.go_on(story)

    async def send_oneway(self, payload: Payload, to: Target, *, timeout: float) -> None:
        """Returns when the request is written; whether a broker stored it nobody tells. One try; raises as `send`."""
        story = self.story(payload, to, timeout, CommunicationMode.ONEWAY)
        story.queue = await self._choice.choose(story)
        await self._try(story, story.queue)

    def story(
        self, payload: Payload, to: Target, timeout: float, mode: CommunicationMode, now: float | None = None
    ) -> SendState[Receipt]:
        """A send that begins now; the time is handed in where trio cannot be asked for it."""
        return SendState(payload, to, timeout, self.settings.tries_allowed(mode), mode, now)

    def post(
        self,
        story: SendState[Receipt],
        ended: Callable[[Receipt | RocketMQError | None], None],
        *,
        aside: bool = False,
    ) -> Callable[[], None] | None:
        """The first try of a send that nobody waits for, when nothing has to be waited for before it; else None.

        `ended` is told the receipt, the error, or None: then `go_on` has to follow. What is given back ends the
        interest in the answer. It is `aside` in another thread, while the loop waits for I/O.
        """
        if (request := self._ready(story)) is None:
            return None

        def told(answer: Command | RocketMQError) -> None:
            end: Receipt | RocketMQError | None
            try:
                end = self._end_of_first(story, answer)
            except RocketMQError as error:
                end = error
            except Exception as error:  # else it would be the connection's, and end its other calls
                end = unexpected(story.payload.topic, error)
            ended(end)

        timeout = self._attempt_seconds(story, story.timeout)
        deadline = story.started + timeout
        if aside:
            return self._caller.post_aside(story.address, request, deadline, timeout, told)
        try:
            return self._caller.post(story.address, request, deadline, timeout, told)
        except RocketMQError as error:  # it did not leave
            told(error)
            return lambda: None

    def _ready(self, story: SendState[Receipt]) -> Request | None:
        """The request of a first try for `story.queue` at `story.address`; None when something has to be waited for."""
        payload = story.payload
        if self._hooks is not None or has_timer(payload.properties):
            return None
        story.queue = queue = self._choice.choose_nowait(story)
        if queue is None or (address := self._routes.known_master(queue.broker_name)) is None:
            return None
        story.address = address
        if payload.batch and can_be_one_record(payload):
            topic = self._choice.on_wire(payload.topic)
            whole = self._client.batch_topics.keeps_whole_nowait(topic, queue.broker_name)
            if whole is None:
                return None
            if whole:
                payload = story.as_one_record()
        request = self._request(payload, queue)
        story.code = request.code
        return request

    def _end_of_first(self, story: SendState[Receipt], answer: Command | RocketMQError | None) -> Receipt | None:
        """As `_judge`; None also when nothing was sent, and after GO_AWAY, which counts for no try."""
        if story.queue is None or answer is None or (isinstance(answer, Command) and answer.code == GO_AWAY):
            return None
        return self._judge(story, story.queue, answer)

    async def go_on(self, story: SendState[Receipt]) -> Receipt:
        """Tries until a send's end, after what was tried already."""
        while True:
            if story.attempts:
                await self._before_next_try(story)
            if story.refused is not None and isinstance(story.to, ThisQueue):
                return self._end(story.refused[1], story)
            try:  # a queue that was chosen and not tried keeps its turn
                story.queue = queue = story.queue or await self._choice.choose(story)
            except RocketMQError as error:
                return self._end(error, story)
            receipt = await self._try(story, queue)
            if receipt is not None:
                return receipt

    async def _try(self, story: SendState[Receipt], queue: MessageQueue) -> Receipt | None:
        """One call; None when another try has to follow, and after a one-way request."""
        story.began, story.address = trio.current_time(), ""
        context: SendContext | None = None
        answer: Command | RocketMQError | None = None
        try:
            story.address = self._choice.master(queue.broker_name)
            if has_timer(story.payload.properties):
                await require_timer_messages(
                    self._client.heartbeats, queue, story.address, timeout=story.seconds_left()
                )
            if self._hooks is not None:
                allowed = self._context(queue, story)
                self._hooks.check_forbidden(allowed)
                context = allowed
                self._hooks.before(context)
            answer = await self._call(story, queue)
        except RocketMQError as error:
            answer = error
        except trio.Cancelled:
            self._choice.learn(story, None)
            raise
        return self._judge(story, queue, answer, context)

    async def _call(self, story: SendState[Receipt], queue: MessageQueue) -> Command | None:
        payload = story.payload
        if can_be_one_record(payload):
            topic = self._choice.on_wire(payload.topic)
            # Half of the time is left for the send itself when the broker does not answer the question.
            timeout = story.seconds_left() / 2
            if await self._client.batch_topics.keeps_whole(topic, queue.broker_name, timeout=timeout):
                payload = story.as_one_record()
        request, seconds_left = as_command(self._request(payload, queue)), story.seconds_left()
        story.code = request.code
        if story.mode is CommunicationMode.ONEWAY:
            await self._client.send_oneway(story.address, request, timeout=seconds_left)
            return None
        return await self._client.call(story.address, request, timeout=self._attempt_seconds(story, seconds_left))

    def _attempt_seconds(self, story: SendState[Receipt], seconds_left: float) -> float:
        tries_left = 1 if isinstance(story.to, ThisQueue) and not story.to.wait else story.tries_left
        return attempt_seconds(seconds_left, self.settings.timeout_per_attempt, tries_left)

    def _judge(
        self,
        story: SendState[Receipt],
        queue: MessageQueue,
        answer: Command | RocketMQError | None,
        context: SendContext | None = None,
    ) -> Receipt | None:
        """What a try came to: its receipt, None when another try has to follow, or raises the send's end."""
        receipt, failure = None, None
        if isinstance(answer, Command):
            try:
                receipt = _receipt(story, queue, answer)
            except RocketMQError as error:
                failure = error
        else:
            failure = answer
        if self._choice.learns:
            self._choice.learn(story, failure)
        if context is not None and self._hooks is not None:
            self._hooks.after(context.ended(receipt, failure, trio.current_time() - story.began))
        if failure is not None:
            return self._failed(queue, story, failure)
        if receipt is None or receipt.status is SEND_OK or not self._wants_another_broker(story):
            return receipt
        story.stored = receipt
        seconds = trio.current_time() - story.began
        story.note(queue, story.address, seconds, Outcome.STORED, f"stored, but {receipt.status.name}")
        return None if story.tries_left > 0 and story.seconds_left() > 0 else receipt

    def _failed(self, queue: MessageQueue, story: SendState[Receipt], error: RocketMQError) -> Receipt | None:
        """None when another try has to follow; else the end of the send."""
        if isinstance(error, LocalError) and not story.attempts:
            raise error
        story.note(queue, story.address, trio.current_time() - story.began, outcome_of(error), str(error))
        if refuses_queue(error):
            story.note_refused_queue(queue, error)
            if isinstance(story.to, ThisQueue):  # the error tells which queues there are now: asked for in `go_on`
                return None
        again = story.mode is not CommunicationMode.ONEWAY and is_retried(
            error, story.to, story.tries_allowed - story.tries_left, story.tries_allowed, story.mode
        )
        return None if again and story.seconds_left() > 0 else self._end(error, story)

    def _wants_another_broker(self, story: SendState[Receipt]) -> bool:
        return self.settings.retry_another_broker_when_not_store_ok and isinstance(story.to, AnyQueue)

    def _end(self, error: RocketMQError, story: SendState[Receipt]) -> Receipt:
        """The end of a send whose last try failed: what an earlier try stored, or the error with the whole story."""
        if story.stored is not None:
            return story.stored
        if not story.attempts:
            raise error
        topic, seconds = story.payload.topic, trio.current_time() - story.started
        failed = send_failed(topic, story.attempts, seconds, story.payload.count)
        if refuses_queue(error) and isinstance(story.to, ThisQueue):
            raise no_such_queue(story.to.queue, self._choice.known_queues(topic), failed) from error
        raise failed from error

    async def _before_next_try(self, story: SendState[Receipt]) -> None:
        """A failure may mean that the route is old; a broker that alone may have the message is waited for."""
        topic, tried, story.queue = story.payload.topic, story.queue, None
        with trio.move_on_after(min(1.0, story.seconds_left())):
            with suppress(RocketMQError):  # the route that is known may still serve
                await self._client.routes.refresh(self._choice.on_wire(topic))
        if story.refused is None or story.refused[0] != tried:
            waits = waits_for_broker(story.to)
        else:  # NameServers that still name the queue have not heard of the change yet
            waits = not isinstance(story.to, ThisQueue) and tried in self._choice.known_queues(topic)
        if waits:
            await trio.sleep(min(WAIT_FOR_BROKER_SECONDS, story.seconds_left()))

    def _context(self, queue: MessageQueue, story: SendState[Receipt]) -> SendContext:
        namespace = self.settings.namespace
        return SendContext(
            producer_group=without_namespace(self.settings.producer_group, namespace),
            namespace=namespace,
            topic=story.payload.topic,
            queue=queue,
            broker_address=story.address,
            mode=story.mode,
            payload=story.payload,
        )

    def _request(self, payload: Payload, queue: MessageQueue) -> Request:
        born_ms = time.time_ns() // 1_000_000
        topic, properties = payload.topic, payload.properties
        if is_retry_topic(topic) or is_reply(properties):
            return self._whole_request(payload, queue, born_ms).to_special_command()
        kind = (topic, queue.broker_name, queue.queue_id, payload.sys_flag, payload.flag, payload.batch)
        if (form := self._forms.get(kind)) is None:
            if len(self._forms) >= FORMS_KEPT:
                self._forms.clear()
            form = self._forms[kind] = self._whole_request(payload, queue, born_ms).to_form()
        return form.request((born_ms,), properties, payload.body)

    def _whole_request(self, payload: Payload, queue: MessageQueue, born_timestamp_ms: int) -> SendMessage:
        return SendMessage(
            producer_group=self.settings.producer_group,
            topic=self._choice.on_wire(payload.topic),
            default_topic=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=payload.sys_flag,
            born_timestamp_ms=born_timestamp_ms,
            flag=payload.flag,
            properties=payload.properties,
            unit_mode=self.settings.unit_mode,
            batch=payload.batch,
            broker_name=queue.broker_name,
            body=payload.body,
        )


def _receipt(story: SendState[Receipt], queue: MessageQueue, answer: Command) -> Receipt:
    """What the broker acknowledged; `ResponseError` for a refusal."""
    status = STATUS_OF_CODE.get(answer.code)
    if status is None:
        raise response_error(answer, story.code, f"{queue.broker_name} ({story.address})", f"queue {queue}")
    payload = story.payload
    if queue.queue_id < 0:
        queue = answered_queue(queue, answer)
    return make_receipt(queue, payload.count, status, story.attempts, answer, payload.unique_ids)
