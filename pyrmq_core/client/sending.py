"""The one road of everything that is sent: `Sender` chooses queues, calls brokers, retries, and says what became of it.

A `Payload` goes in, a `Receipt` comes out, or a `SendFailed` with its outcome and the story of its attempts.
Source: client/impl/producer/DefaultMQProducerImpl.java (sendDefaultImpl, sendKernelImpl), 5.3.3.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import trio

from pyrmq_core.client.client import Client
from pyrmq_core.client.retrying import (
    attempt_seconds,
    is_retried,
    outcome_of,
    send_failed,
)
from pyrmq_core.client.routing import TopicPublishInfo
from pyrmq_core.client.targets import AnyQueue, KeyedQueue, Target, ThisQueue
from pyrmq_core.errors import (
    Attempt,
    BrokerNotFound,
    InvalidArgument,
    Outcome,
    ProtocolError,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.model import MessageQueue, SendResult, SendStatus
from pyrmq_core.protocol.command import Command
from pyrmq_core.protocol.conversation import response_error
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.requests.send_message import MessageStored, SendMessage

STATUS_OF_CODE = {status.value: status for status in SendStatus}
WAIT_FOR_BROKER_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class SendSettings:
    """How a producer sends; RocketMQ's names and defaults, seconds for times."""

    producer_group: str
    retry_times_when_send_failed: int = 2
    timeout_per_attempt: float | None = None
    retry_another_broker_when_not_store_ok: bool = False
    create_topic_key: str = "TBW102"
    default_topic_queue_nums: int = 4


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
    """Sends payloads for one producer group over a client's connections; many sends may be under way at once."""

    def __init__(self, client: Client, settings: SendSettings) -> None:
        self._client = client
        self.settings = settings

    async def publish_info(self, topic: str, *, timeout: float) -> TopicPublishInfo:
        """The queues the topic may be written to now; asks NameServers only when they are not known."""
        return await self._client.routes.publish_info(
            topic,
            create_topic_key=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            timeout=timeout,
        )

    async def send(self, payload: Payload, to: Target, *, timeout: float) -> Receipt:
        """Returns when a broker acknowledged it. `timeout` counts the whole send: routes, tries, waits between them.

        Raises `SendFailed`; `NoRoute` and `NoNameServer` when there is nowhere to send to (nothing was sent then).
        A cancelled caller learns nothing about storage.
        """
        story = _Story(payload, to, started=trio.current_time(), timeout=timeout)
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
        story = _Story(payload, to, started=trio.current_time(), timeout=timeout)
        queue = await self._choose(story)
        began = trio.current_time()
        address = ""
        try:
            address = self._master(queue)
            await self._client.send_oneway(address, self._request(payload, queue), timeout=story.seconds_left())
        except RocketMQError as error:
            story.note(queue, address, trio.current_time() - began, outcome_of(error), str(error))
            self._end(error, story)

    async def _choose(self, story: _Story) -> MessageQueue:
        topic = story.payload.topic
        match story.to:
            case ThisQueue(queue):
                if queue.topic != topic:
                    raise InvalidArgument(f"queue {queue} belongs to another topic than the message's, {topic}")
                await self._client.master_address(queue, timeout=story.seconds_left())
                return queue
            case KeyedQueue(sharding_key, queues) if queues:
                return TopicPublishInfo(topic, queues, counter_start=0).queue_of_key(sharding_key)
            case KeyedQueue(sharding_key):
                info = await self.publish_info(topic, timeout=story.seconds_left())
                return info.queue_of_key(sharding_key)
            case AnyQueue(first):
                info = await self.publish_info(topic, timeout=story.seconds_left())
                if first is not None and not story.attempts and first in info.queues:
                    return first
                return info.select_one_message_queue(story.last_broker_name)

    async def _try(self, queue: MessageQueue, story: _Story) -> Receipt | None:
        """One call; None when another try has to follow."""
        began = trio.current_time()
        tries_left = 1 if isinstance(story.to, ThisQueue) else self._tries_allowed - len(story.attempts)
        seconds = attempt_seconds(story.seconds_left(), self.settings.timeout_per_attempt, tries_left)
        address = ""
        try:
            address = self._master(queue)
            request = self._request(story.payload, queue)
            answer = await self._client.call(address, request, timeout=seconds)
            receipt = self._receipt(queue, address, request, answer, story)
        except RocketMQError as error:
            story.note(queue, address, trio.current_time() - began, outcome_of(error), str(error))
            if is_retried(error, story.to, len(story.attempts), self._tries_allowed) and story.seconds_left() > 0:
                return None
            return self._end(error, story)
        if not self._wants_another_broker(receipt, story):
            return receipt
        story.stored = receipt
        reason = f"stored, but {receipt.status.name}"
        story.note(queue, address, trio.current_time() - began, Outcome.STORED, reason)
        return None if self._tries_allowed > len(story.attempts) and story.seconds_left() > 0 else receipt

    def _receipt(self, queue: MessageQueue, address: str, request: Command, answer: Command, story: _Story) -> Receipt:
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

    def _wants_another_broker(self, receipt: Receipt, story: _Story) -> bool:
        return (
            receipt.status is not SendStatus.SEND_OK
            and self.settings.retry_another_broker_when_not_store_ok
            and isinstance(story.to, AnyQueue)
        )

    def _end(self, error: RocketMQError, story: _Story) -> Receipt:
        """The end of a send whose last try failed: what an earlier try stored, or the error with the whole story."""
        if story.stored is not None:
            return story.stored
        if not story.attempts:
            raise error
        seconds = trio.current_time() - story.started
        raise send_failed(story.payload.topic, story.attempts, seconds, story.payload.count) from error

    @property
    def _tries_allowed(self) -> int:
        return self.settings.retry_times_when_send_failed + 1

    async def _before_next_try(self, story: _Story) -> None:
        """A failure may mean that the route is old; a key's queue is waited for."""
        with trio.move_on_after(min(1.0, story.seconds_left())):
            with suppress(RocketMQError):  # the route that is known may still serve
                await self._client.routes.refresh(story.payload.topic)
        if isinstance(story.to, KeyedQueue):
            await trio.sleep(min(WAIT_FOR_BROKER_SECONDS, max(0.0, story.seconds_left())))

    def _master(self, queue: MessageQueue) -> str:
        broker = self._client.routes.broker(queue.broker_name)
        if broker.master is None:
            raise BrokerNotFound(
                f"broker {queue.broker_name} has no master now, only slaves, and slaves take no writes",
                broker_name=queue.broker_name,
            )
        return broker.master

    def _request(self, payload: Payload, queue: MessageQueue) -> Command:
        return SendMessage(
            producer_group=self.settings.producer_group,
            topic=payload.topic,
            default_topic=self.settings.create_topic_key,
            default_topic_queue_nums=self.settings.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=payload.sys_flag,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            flag=payload.flag,
            properties=payload.properties,
            batch=payload.batch,
            broker_name=queue.broker_name,
            body=payload.body,
        ).to_command()


@dataclass(slots=True)
class _Story:
    """What happened to one send so far."""

    payload: Payload
    to: Target
    started: float
    timeout: float
    attempts: list[Attempt]
    stored: Receipt | None

    def __init__(self, payload: Payload, to: Target, *, started: float, timeout: float) -> None:
        self.payload, self.to, self.started, self.timeout = payload, to, started, timeout
        self.attempts = []
        self.stored = None

    @property
    def last_broker_name(self) -> str | None:
        return self.attempts[-1].broker_name if self.attempts else None

    def seconds_left(self) -> float:
        return max(0.0, self.started + self.timeout - trio.current_time())

    def note(self, queue: MessageQueue, address: str, seconds: float, outcome: Outcome, reason: str) -> None:
        self.attempts.append(Attempt(queue.broker_name, address, seconds, outcome, reason))


def _answered_queue(queue: MessageQueue, answer: Command) -> MessageQueue:
    """The queue the broker names: it chooses itself when a negative queue id asks it to."""
    if queue.queue_id >= 0:
        return queue
    try:
        return MessageQueue(queue.topic, queue.broker_name, int(answer.ext["queueId"]))
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"{queue.broker_name} acknowledged a send without naming the queue: {error!r}") from error
