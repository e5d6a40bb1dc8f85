"""`PopRequests`: sends the pops, acknowledgements and other pop requests of a consumer group to brokers.

Topics and the group include the namespace. Acknowledgement requests to one broker follow one another. Each one carries
all acknowledgements that arrived during the one before. A broker older than 5.1.3 knows no shared requests, so it gets
one request for each acknowledgement.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.pop.popped import (
    Popped,
    lite_pulls_of,
    pulls_of,
    readable_part,
    with_lite_receipts,
    with_receipts,
)
from pyrmq_core.client.consumer.pop.settings import PopSettings
from pyrmq_core.client.consumer.pull.puller import Filter
from pyrmq_core.client.routing.publish_info import not_readable, subscribe_queues
from pyrmq_core.client.unpacking import in_thread, unpacked_messages
from pyrmq_core.errors import InvalidArgument, InvalidState, NoRoute, RecordError, ResponseError, RocketMQError
from pyrmq_core.model import EVERYTHING, MessageExt, MessageQueue
from pyrmq_core.network.turns import Turns
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.readable import Readable
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.pop.lite import PopLiteMessage
from pyrmq_core.protocol.requests.pop.notification import AwaitMessage, MessageAwaited
from pyrmq_core.protocol.requests.pop.pop_message import ANY_QUEUE, POP_ANSWERS, PopAnswer, PopMessage
from pyrmq_core.protocol.requests.pop.receipt import Receipt
from pyrmq_core.protocol.requests.pop.settle import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisibleTime,
    InvisibleTimeChanged,
    ack_entries,
)
from pyrmq_core.protocol.routes.route import TopicRouteData

RULES: Final = BodyRules()
# The acknowledgements that fit into the largest body that pyrmq's broker reads, with bits for 16,000 messages each.
MOST_ACKS: Final = 256
DEAD_LETTER: Final = -1
# All consumers of a loop decode popped messages in turn, so that answers to acknowledgements are read in between.
TURNS: Final = trio.lowlevel.RunVar[Turns]("turns of pops")


@dataclass(frozen=True, slots=True)
class PopOptions:
    """The options of one receive. With `order` the messages of a queue come in their order.

    With `lite_client`, a client id, the receive returns messages of the lite topics of `topic` to which this id
    subscribes.
    """

    topic: str
    max_messages: int
    invisible_ms: int
    filter: Filter
    order: bool = False
    lite_client: str | None = None


@dataclass(eq=False, slots=True)
class _Ack:
    topic: str
    receipts: Sequence[Receipt]
    ended: trio.Event = field(default_factory=trio.Event)
    error: RocketMQError | None = None


class PopRequests:
    """The pop requests of one consumer to brokers.

    Acknowledgements are sent in `nursery`, so that they go on if their caller is cancelled.
    """

    def __init__(self, session: ClientSession, settings: PopSettings[Any], group: str, nursery: trio.Nursery) -> None:
        self._session = session
        self._settings = settings
        self._group = group
        self._nursery = nursery
        self._waiting: defaultdict[str, deque[_Ack]] = defaultdict(deque)
        self._acknowledging: set[str] = set()
        self._open: set[_Ack] = set()
        self._takes_no_batch: set[str] = set()
        self._brokers: dict[str, tuple[TopicRouteData, list[str]]] = {}

    async def brokers(self, topic: str) -> list[str]:
        """Returns the names of the brokers from which the topic may be read.

        Raises `NoRoute` if the topic is unknown or has no queues, and `ResponseError` if no broker permits reading it.
        """
        route = await self._session.routes.route(topic)
        listed_route, names = self._brokers.get(topic, (None, []))
        if listed_route is route:
            return names
        names = list(dict.fromkeys(queue.broker_name for queue in subscribe_queues(topic, route)))
        if not names:
            raise not_readable(topic, route) or NoRoute(f"topic {topic} has no queue to read", topic=topic)
        self._brokers[topic] = route, names
        return names

    async def pop(self, broker_name: str, options: PopOptions, wait: float, attempt_id: str | None) -> list[Popped]:
        """Pops once. Returns an empty list if the broker has no message within `wait` seconds.

        An ordered pop has an `attempt_id`. If its answer is lost, the next pop with the same id gets the messages
        again. Raises `ResponseError`, `NetworkError`, and `RecordError` for records whose end cannot be found.
        """
        queue = MessageQueue(options.topic, broker_name, ANY_QUEUE)
        timeout = self._settings.timeout
        address = await self._session.master_address(queue, timeout=timeout)
        if await self._session.batch_topics.is_batch_topic(options.topic, broker_name, address, timeout=timeout):
            raise InvalidArgument(f"topic {options.topic}: a batch topic gives whole batches; read it by PushConsumer")
        request = self._pop(broker_name, options, round(wait * 1000), attempt_id)
        answer = await self._session.call(address, request.to_command(), timeout=timeout + wait)
        if answer.code not in POP_ANSWERS:
            raise response_error(answer, request.CODE, f"{broker_name} ({address})", f"topic {options.topic}")
        if answer.code != ResponseCode.SUCCESS:
            return []
        await _turns_of_loop().take()
        popped, is_lite = PopAnswer.from_command(answer), options.lite_client is not None
        pulls = list(lite_pulls_of(popped, broker_name) if is_lite else pulls_of(popped, options.topic, broker_name))
        items: list[Sequence[Readable]] = []
        for pull in pulls:
            try:
                items.append((await unpacked_messages(pull, EVERYTHING, RULES, allow_gaps=True))[0])
            except RecordError:  # the readable records are delivered all the same
                items.append(await in_thread(readable_part, pull, RULES))
        if is_lite:
            return with_lite_receipts(popped, pulls, items, broker_name)
        return with_receipts(popped, list(chain.from_iterable(items)), options.topic, broker_name)

    def _pop(
        self, broker_name: str, options: PopOptions, poll_time_ms: int, attempt_id: str | None
    ) -> PopMessage | PopLiteMessage:
        born_time_ms = 0  # the broker then uses its own clock
        if options.lite_client is not None:
            return PopLiteMessage(
                client_id=options.lite_client,
                consumer_group=self._group,
                topic=options.topic,
                max_messages=options.max_messages,
                invisible_ms=options.invisible_ms,
                poll_time_ms=poll_time_ms,
                born_time_ms=born_time_ms,
                attempt_id=attempt_id,
                broker_name=broker_name,
            )
        return PopMessage(
            consumer_group=self._group,
            topic=options.topic,
            queue_id=ANY_QUEUE,
            max_msg_nums=options.max_messages,
            invisible_ms=options.invisible_ms,
            poll_time_ms=poll_time_ms,
            born_time_ms=born_time_ms,
            init_mode=self._settings.init_mode,
            expression_type=options.filter.KIND,
            expression=options.filter.expression,
            order=options.order,
            attempt_id=attempt_id,
            broker_name=broker_name,
        )

    async def has_message(self, broker_name: str, options: PopOptions, wait: float) -> bool:
        """Returns whether the broker has a message within `wait` seconds. Raises `ResponseError` and `NetworkError`."""
        request = AwaitMessage(
            self._group, options.topic, ANY_QUEUE, round(wait * 1000), 0, options.order, None, broker_name
        )
        queue = MessageQueue(options.topic, broker_name, ANY_QUEUE)
        answer = await self._session.ask_broker(queue, request.to_command(), timeout=self._settings.timeout + wait)
        return MessageAwaited.from_command(answer).has_message

    async def ack(self, topic: str, receipts: Sequence[Receipt]) -> None:
        """Acknowledges up to MOST_ACKS messages of one broker. Raises the error of the request."""
        entry, broker_name = _Ack(topic, receipts), receipts[0].broker_name
        self._open.add(entry)
        self._waiting[broker_name].append(entry)
        if broker_name not in self._acknowledging:
            self._acknowledging.add(broker_name)
            self._nursery.start_soon(self._acknowledge, broker_name)
        await entry.ended.wait()
        if entry.error is not None:
            raise entry.error

    async def finish(self) -> None:
        """Waits until brokers have answered all acknowledgements, at most as long as one request may take.

        Calls of `ack` that still have no answer then raise `InvalidState`.
        """
        with trio.move_on_after(self._settings.timeout):
            for ack in list(self._open):
                await ack.ended.wait()
        for ack in list(self._open):
            self._end(ack, InvalidState(f"the consumer of group {self._group} closed before the acknowledgement"))

    def _end(self, ack: _Ack, error: RocketMQError | None) -> None:
        self._open.discard(ack)
        ack.error = error
        ack.ended.set()

    async def change(self, topic: str, receipt: Receipt, milliseconds: int, *, unused: bool = False) -> Receipt:
        """Makes the message visible `milliseconds` from now, and returns its new receipt.

        `unused` is for a message that no worker got. If it is of a lite topic, all messages that the same pop took
        from that topic become visible with it, and no try is counted.
        """
        request = ChangeInvisibleTime(
            consumer_group=self._group,
            topic=receipt.real_topic(topic, self._group),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.queue_offset,
            invisible_ms=milliseconds,
            broker_name=receipt.broker_name,
            lite_topic=receipt.lite_topic,
            suspend=(unused and receipt.lite_topic is not None) or None,
        )
        answer = await self._ask(topic, receipt, request.to_command())
        changed = InvisibleTimeChanged.from_command(answer)
        # The answer has no time if the message is of an ordered pop and was acknowledged before.
        return changed.receipt(receipt) if changed.pop_time_ms else receipt

    async def move_to_dead_letters(self, message: MessageExt, topic: str, receipt: Receipt) -> None:
        """Moves the message to the group's dead-letter topic and acknowledges it. Raises an error of either request."""
        request = ConsumerSendMsgBack(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=DEAD_LETTER,
            origin_msg_id=message.offset_msg_id,
            origin_topic=receipt.real_topic(topic, self._group),
            max_reconsume_times=self._settings.max_reconsume_times,
            broker_name=receipt.broker_name,
        )
        await self._ask(topic, receipt, request.to_command())
        await self.ack(topic, [receipt])

    async def _acknowledge(self, broker_name: str) -> None:
        try:
            while waiting := self._waiting[broker_name]:
                entries = [waiting.popleft()]
                left = MOST_ACKS - len(entries[0].receipts)
                while waiting and (left := left - len(waiting[0].receipts)) >= 0:
                    entries.append(waiting.popleft())
                await self._acknowledge_some(broker_name, entries)
        finally:
            self._acknowledging.discard(broker_name)

    async def _acknowledge_some(self, broker_name: str, entries: Sequence[_Ack]) -> None:
        # Ordered messages are acknowledged one by one, since the answer to a batch does not say if their order was
        # right.
        singles = [ack for ack in entries if ack.receipts[0].is_ordered]
        batch = [ack for ack in entries if not ack.receipts[0].is_ordered]
        if sum([len(ack.receipts) for ack in batch]) > 1 and broker_name not in self._takes_no_batch:
            batch = await self._acknowledge_batch(broker_name, batch)
        singles += batch
        if singles:  # a needless nursery would cost as much as a few messages
            async with trio.open_nursery() as nursery:
                for ack in singles:
                    nursery.start_soon(self._acknowledge_apart, ack)

    async def _acknowledge_batch(self, broker_name: str, batch: list[_Ack]) -> list[_Ack]:
        topics = dict.fromkeys(ack.topic for ack in batch)
        rows = [
            row
            for topic in topics
            for row in ack_entries(
                topic, self._group, [receipt for ack in batch if ack.topic == topic for receipt in ack.receipts]
            )
        ]
        first = batch[0]
        error = await self._error_of(first.topic, first.receipts[0], BatchAckMessage(broker_name, tuple(rows)))
        if isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._takes_no_batch.add(broker_name)
            return batch
        for ack in batch:
            self._end(ack, error)
        return []

    async def _acknowledge_apart(self, ack: _Ack) -> None:
        async with trio.open_nursery() as nursery:
            for receipt in ack.receipts:
                nursery.start_soon(self._acknowledge_one, ack, receipt)
        self._end(ack, ack.error)

    async def _acknowledge_one(self, ack: _Ack, receipt: Receipt) -> None:
        request = AckMessage(
            consumer_group=self._group,
            topic=receipt.real_topic(ack.topic, self._group),
            queue_id=receipt.queue_id,
            extra_info=receipt.encode(),
            offset=receipt.queue_offset,
            broker_name=receipt.broker_name,
            lite_topic=receipt.lite_topic,
        )
        ack.error = await self._error_of(ack.topic, receipt, request) or ack.error

    async def _error_of(
        self, topic: str, receipt: Receipt, request: AckMessage | BatchAckMessage
    ) -> RocketMQError | None:
        try:
            await self._ask(topic, receipt, request.to_command())
        except RocketMQError as error:
            return error
        return None

    async def _ask(self, topic: str, receipt: Receipt, command: Command) -> Command:
        queue = MessageQueue(topic, receipt.broker_name, receipt.queue_id)
        return await self._session.ask_broker(queue, command, timeout=self._settings.timeout)


def _turns_of_loop() -> Turns:
    try:
        return TURNS.get()
    except LookupError:
        TURNS.set(turns := Turns())
        return turns
