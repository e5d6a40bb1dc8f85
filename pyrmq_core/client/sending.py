"""The one road of everything that is sent: `Sender` chooses queues, calls brokers, retries, and says what became of it.

A `Payload` goes in, a `Receipt` comes out, or a `SendFailed` with its outcome and the story of its attempts.
Source: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl), 5.3.3.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import trio

from pyrmq_core.client.client import Client
from pyrmq_core.client.communication_mode import CommunicationMode
from pyrmq_core.client.fault_latency import FaultLatency, judged
from pyrmq_core.client.hooks import ProducerHooks, SendContext
from pyrmq_core.client.retrying import attempt_seconds, is_retried, outcome_of, send_failed
from pyrmq_core.client.routing import TopicPublishInfo
from pyrmq_core.client.send_settings import SendSettings
from pyrmq_core.client.story import SendStory
from pyrmq_core.client.targets import AnyQueue, KeyedQueue, Target, ThisQueue
from pyrmq_core.client.timers import check_timers
from pyrmq_core.errors import (
    Attempt,
    BrokerNotFound,
    InvalidArgument,
    LocalError,
    Outcome,
    ProtocolError,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.model import MessageQueue, SendResult, SendStatus
from pyrmq_core.protocol.command import Command
from pyrmq_core.protocol.conversation import response_error
from pyrmq_core.protocol.message_type import has_timer, is_reply
from pyrmq_core.protocol.names import REPLY_TOPIC_SUFFIX, is_retry_topic
from pyrmq_core.protocol.namespaces import with_namespace, without_namespace
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.properties import (
    MAX_RECONSUME_TIMES,
    RECONSUME_TIME,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.requests.send_message import MessageStored, SendMessage

STATUS_OF_CODE: Final = {status.value: status for status in SendStatus}
WAIT_FOR_BROKER_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Receipt:
    """A payload is stored: where, since which queue offset, and how.

    `attempts` are the failed tries before; with one that says *perhaps stored* there may be a second copy.
    """

    queue: MessageQueue
    count: int
    status: SendStatus
    attempts: tuple[Attempt, ...]
    answer: Command
    unique_ids: tuple[str, ...] | None

    @property
    def queue_offset(self) -> int:
        return self._stored().queue_offset

    @property
    def perhaps_repeated(self) -> bool:
        return any(attempt.outcome is not Outcome.NOT_STORED for attempt in self.attempts)

    @property
    def trace_on(self) -> bool:
        """Whether the broker wants the message traced."""
        return self._stored().trace_on != "false"

    def results(self) -> list[SendResult]:
        """One result a message, in their order; parsed only now, since a bulk write never asks."""
        stored = self._stored()
        offset_ids = stored.msg_ids.split(",")
        if len(offset_ids) != self.count:  # one record of a 5.x batch topic: all its messages share its id
            offset_ids = offset_ids[:1] * self.count
        return [
            SendResult(
                status=self.status,
                msg_id=unique_id,
                offset_msg_id=offset_id,
                message_queue=self.queue,
                queue_offset=stored.queue_offset + index,
                transaction_id=stored.transaction_id,
                region_id=stored.region_id,
                recall_handle=stored.recall_handle,
            )
            for index, (unique_id, offset_id) in enumerate(zip(self.unique_ids or offset_ids, offset_ids, strict=True))
        ]

    def _stored(self) -> MessageStored:
        try:
            return MessageStored.from_command(self.answer)
        except ProtocolError as error:
            raise SendFailed(
                f"{self.queue.broker_name} acknowledged a send to {self.queue}, but not where it is stored: {error}; "
                "sending again may store a second copy",
                outcome=Outcome.PERHAPS_STORED,
                attempts=self.attempts,
            ) from error


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
        self.settings = settings
        self._hooks = hooks or None
        self._faults = faults
        self._tenant_infos: dict[str, tuple[TopicPublishInfo, TopicPublishInfo]] = {}

    async def publish_info(self, topic: str, *, timeout: float) -> TopicPublishInfo:
        """The queues the topic may be written to now; asks NameServers only when they are not known."""
        info = await self._client.routes.publish_info(
            self._on_wire(topic),
            create_topic_key=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            timeout=timeout,
        )
        return info if self.settings.namespace is None else self._tenant_info(topic, info)

    async def is_batch_topic(self, topic: str, *, timeout: float) -> bool:
        """Whether brokers keep its batches whole (5.x): then a request should hold messages of one tag."""
        info = await self.publish_info(topic, timeout=timeout)
        return await self._client.batch_topics.any_batch_topic(self._on_wire(topic), info, timeout=timeout)

    async def send(
        self, payload: Payload, to: Target, *, timeout: float, mode: CommunicationMode = CommunicationMode.SYNC
    ) -> Receipt:
        """Returns when a broker acknowledged it. `timeout` counts the whole send: routes, tries, waits between them.

        Raises `SendFailed`; `NoRoute` and `NoNameServer` when there is nowhere to send to (nothing was sent then).
        A cancelled caller learns nothing about storage. `mode` decides what is tried again.
        """
        story: SendStory[Receipt] = SendStory(payload, to, timeout, self._tries_allowed(mode), mode)
        while True:
            try:
                queue = await self._choose(story)
            except RocketMQError as error:
                return self._end(error, story)
            receipt = await self._try(queue, story)
            if receipt is not None:
                return receipt
            await self._before_next_try(story)

    async def send_oneway(self, payload: Payload, to: Target, *, timeout: float) -> None:
        """Returns when the request is written; whether a broker stored it nobody tells. One try; raises as `send`."""
        story: SendStory[Receipt] = SendStory(payload, to, timeout, 1, CommunicationMode.ONEWAY)
        queue = await self._choose(story)
        await self._try(queue, story)

    async def _choose(self, story: SendStory[Receipt]) -> MessageQueue:
        topic = story.payload.topic
        match story.to:
            case ThisQueue(queue):
                if queue.topic != topic:
                    raise InvalidArgument(f"queue {queue} belongs to another topic than the message's, {topic}")
                wanted = replace(queue, topic=self._on_wire(topic))
                await self._client.master_address(wanted, timeout=story.seconds_left())
                return queue
            case KeyedQueue(sharding_key, queues):
                info = await self.publish_info(topic, timeout=story.seconds_left())
                given = TopicPublishInfo(topic, queues, counter_start=0) if queues else info
                return given.queue_of_key(sharding_key)
            case AnyQueue(first):
                info = await self.publish_info(topic, timeout=story.seconds_left())
                if first is not None and not story.attempts and first in info.queues:
                    return first
                if self._faults is not None:
                    return self._faults.select(info, story.last_broker_name, trio.current_time())
                return info.select_one_message_queue(story.last_broker_name)

    async def _try(self, queue: MessageQueue, story: SendStory[Receipt]) -> Receipt | None:
        """One call; None when another try has to follow, and after a one-way request."""
        began = trio.current_time()
        address, context, failure = "", None, None
        receipt: Receipt | None = None
        try:
            address = self._master(queue)
            if has_timer(story.payload.properties):
                await check_timers(self._client.heartbeats, queue, address, timeout=story.seconds_left())
            if self._hooks is not None:
                allowed = self._context(queue, address, story)
                self._hooks.check_forbidden(allowed)
                context = allowed
                self._hooks.before(context)
            receipt = await self._call(queue, address, story)
        except RocketMQError as error:
            failure = error
        except trio.Cancelled:
            self._learn(queue, story, None, trio.current_time() - began)
            raise
        seconds = trio.current_time() - began
        self._learn(queue, story, failure, seconds)
        if context is not None and self._hooks is not None:
            self._hooks.after(_ended(context, receipt, failure, seconds))
        if failure is not None:
            return self._failed(queue, address, story, failure, seconds)
        if receipt is None or not self._wants_another_broker(receipt, story):
            return receipt
        story.stored = receipt
        story.note(queue, address, seconds, Outcome.STORED, f"stored, but {receipt.status.name}")
        return None if story.tries_left > 0 and story.seconds_left() > 0 else receipt

    async def _call(self, queue: MessageQueue, address: str, story: SendStory[Receipt]) -> Receipt | None:
        payload = story.payload
        if payload.one_tag:
            payload = await self._client.batch_topics.as_kept(story, self._on_wire(payload.topic), queue)
        request = self._request(payload, queue)
        if story.mode is CommunicationMode.ONEWAY:
            await self._client.send_oneway(address, request, timeout=story.seconds_left())
            return None
        tries_left = 1 if isinstance(story.to, ThisQueue) else story.tries_left
        seconds = attempt_seconds(story.seconds_left(), self.settings.timeout_per_attempt, tries_left)
        answer = await self._client.call(address, request, timeout=seconds)
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise response_error(answer, request.code, f"{queue.broker_name} ({address})", f"queue {queue}")
        return Receipt(
            queue=_answered_queue(queue, answer),
            count=story.payload.count,
            status=status,
            attempts=tuple(story.attempts),
            answer=answer,
            unique_ids=story.payload.unique_ids,
        )

    def _failed(
        self, queue: MessageQueue, address: str, story: SendStory[Receipt], error: RocketMQError, seconds: float
    ) -> Receipt | None:
        """None when another try has to follow; else the end of the send."""
        if isinstance(error, LocalError) and not story.attempts:
            raise error
        story.note(queue, address, seconds, outcome_of(error), str(error))
        again = story.mode is not CommunicationMode.ONEWAY and is_retried(
            error, story.to, len(story.attempts), story.tries_allowed, story.mode
        )
        return None if again and story.seconds_left() > 0 else self._end(error, story)

    def _wants_another_broker(self, receipt: Receipt, story: SendStory[Receipt]) -> bool:
        return (
            receipt.status is not SendStatus.SEND_OK
            and self.settings.retry_another_broker_when_not_store_ok
            and isinstance(story.to, AnyQueue)
        )

    def _end(self, error: RocketMQError, story: SendStory[Receipt]) -> Receipt:
        """The end of a send whose last try failed: what an earlier try stored, or the error with the whole story."""
        if story.stored is not None:
            return story.stored
        if not story.attempts:
            raise error
        seconds = trio.current_time() - story.started
        raise send_failed(story.payload.topic, story.attempts, seconds, story.payload.count) from error

    def _tries_allowed(self, mode: CommunicationMode) -> int:
        asynchronous = mode is CommunicationMode.ASYNC
        settings = self.settings
        return 1 + (
            settings.retry_times_when_send_async_failed if asynchronous else settings.retry_times_when_send_failed
        )

    async def _before_next_try(self, story: SendStory[Receipt]) -> None:
        """A failure may mean that the route is old; a key's queue is waited for."""
        with trio.move_on_after(min(1.0, story.seconds_left())):
            with suppress(RocketMQError):  # the route that is known may still serve
                await self._client.routes.refresh(self._on_wire(story.payload.topic))
        if isinstance(story.to, KeyedQueue):
            await trio.sleep(min(WAIT_FOR_BROKER_SECONDS, story.seconds_left()))

    def _learn(
        self, queue: MessageQueue, story: SendStory[Receipt], failure: RocketMQError | None, seconds: float
    ) -> None:
        """Fault latency learns from every try that chose its queue freely."""
        if self._faults is not None and isinstance(story.to, AnyQueue):
            isolation, reachable = judged(failure, story.mode, detector=self.settings.start_detector_enable)
            self._faults.update(
                queue.broker_name, seconds, isolation=isolation, reachable=reachable, now=trio.current_time()
            )

    def _context(self, queue: MessageQueue, address: str, story: SendStory[Receipt]) -> SendContext:
        namespace = self.settings.namespace
        return SendContext(
            producer_group=without_namespace(self.settings.producer_group, namespace),
            namespace=namespace,
            topic=story.payload.topic,
            queue=queue,
            broker_address=address,
            mode=story.mode,
            payload=story.payload,
        )

    def _master(self, queue: MessageQueue) -> str:
        broker = self._client.routes.broker(queue.broker_name)
        if broker.master is None:
            raise BrokerNotFound(
                f"broker {queue.broker_name} has no master now, only slaves, and slaves take no writes",
                broker_name=queue.broker_name,
            )
        return broker.master

    def _request(self, payload: Payload, queue: MessageQueue) -> Command:
        properties, reconsume_times, max_reconsume_times = payload.properties, 0, None
        if is_retry_topic(payload.topic):
            properties, reconsume_times, max_reconsume_times = _retry_fields(properties)
        request = SendMessage(
            producer_group=self.settings.producer_group,
            topic=self._on_wire(payload.topic),
            default_topic=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=payload.sys_flag,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            flag=payload.flag,
            properties=properties,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
            batch=payload.batch,
            broker_name=queue.broker_name,
            body=payload.body,
        )
        return request.to_reply_command() if is_reply(properties) else request.to_command()

    def _on_wire(self, topic: str) -> str:
        namespace = self.settings.namespace
        if namespace is None or topic.endswith(REPLY_TOPIC_SUFFIX):  # replies go by the cluster's own topic
            return topic
        return with_namespace(topic, namespace)

    def _tenant_info(self, topic: str, info: TopicPublishInfo) -> TopicPublishInfo:
        """The same queues under the tenant's name of the topic, with a counter that lasts as long as they do."""
        known = self._tenant_infos.get(topic)
        if known is None or known[0] is not info:
            queues = [replace(queue, topic=topic) for queue in info.queues]
            mine = TopicPublishInfo(
                topic,
                queues,
                counter_start=info.next_number(),
                order_topic=info.order_topic,
                borrowed=info.borrowed,
            )
            known = self._tenant_infos[topic] = (info, mine)
        return known[1]


def _answered_queue(queue: MessageQueue, answer: Command) -> MessageQueue:
    """The queue the broker names: it chooses itself when a negative queue id asks it to."""
    if queue.queue_id >= 0:
        return queue
    try:
        return MessageQueue(queue.topic, queue.broker_name, int(answer.ext["queueId"]))
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"{queue.broker_name} acknowledged a send without naming the queue: {error!r}") from error


def _retry_fields(properties: str) -> tuple[str, int, int | None]:
    """A retry topic's counts travel in the header and not as properties (sendKernelImpl)."""
    named = decode_properties(properties)
    times, most = named.pop(RECONSUME_TIME, "0"), named.pop(MAX_RECONSUME_TIMES, None)
    return encode_properties(named), int(times), None if most is None else int(most)


def _ended(context: SendContext, receipt: Receipt | None, error: RocketMQError | None, seconds: float) -> SendContext:
    """What hooks are told after a try; an acknowledgement that does not say where is told as the error it will be."""
    if receipt is None:
        return replace(context, error=error, seconds=seconds)
    try:
        return replace(context, results=tuple(receipt.results()), trace_on=receipt.trace_on, seconds=seconds)
    except SendFailed as unreadable:
        return replace(context, error=unreadable, seconds=seconds)
