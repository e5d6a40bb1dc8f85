"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): checks a message, creates its topic if needed, and stores it.

Source: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java (5.4.0), with their checks in
their order, and their response codes. A message in a transaction is stored as a half message.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.errors import BodyError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.java.integers import parse_int
from pyrmq_core.protocol.messages.batch_topic import MAX_RECORD_MESSAGES
from pyrmq_core.protocol.messages.lite_topics import OFFSETS, QUEUES, lite_queue_name
from pyrmq_core.protocol.messages.message_id import offset_msg_ids
from pyrmq_core.protocol.messages.names import FORBIDDEN_TOPICS, HALF_TOPIC, RETRY_PREFIX, REVIVE_PREFIX, is_retry_topic
from pyrmq_core.protocol.messages.properties import (
    CLUSTER,
    DELAY,
    DLQ_ORIGIN_TOPIC,
    INNER_BASE,
    INNER_NUM,
    LITE_TOPIC,
    LITE_TOPIC_NAME,
    LITE_TOPIC_RULE,
    MAX_STORED_PROPERTIES_BYTES,
    MSG_REGION,
    POP_CK,
    PRIORITY,
    SHARDING_KEY,
    TIMER_OUT_MS,
    TRACE_ON,
    UNIQ_KEY,
    WAIT,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import INT, SHORT, pack_host
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, COMPRESSED, TRANSACTION_MASK, SysFlag
from pyrmq_core.protocol.requests.broker.recall_message import RecallHandle
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.consumer_send_back import SendBackRequests
from pyrmq_core.servers.broker.processors.delays import DelayedQueues, StoredQueue, delay_level
from pyrmq_core.servers.broker.processors.handlers import HELP, Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import topic_fault
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused, make_topic, refused_by_disk
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import INNER_BYTES, LITE_BYTES, Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import Piece, batch_pieces, piece
from pyrmq_core.servers.broker.store.disk.paths import MAX_NAME_BYTES
from pyrmq_core.servers.broker.tables.attributes import MESSAGE_TYPE
from pyrmq_core.servers.broker.tables.topics import WRITE, TopicTable
from pyrmq_core.servers.broker.timers.timer_rules import DELIVERY_BYTES, TIMER_NAMES, TIMER_TOPIC, is_timer
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer
from pyrmq_core.servers.broker.transactions.half_messages import (
    ADDED_BY_CHECKS,
    HALF_QUEUE,
    half_properties,
    is_prepared,
)
from pyrmq_core.servers.broker.transactions.transactions import Transactions

# Topics in which only the broker stores messages. RocketMQ accepts sends to the timers' topic and to the revive log. A
# sent message could end the delivery of timers for good, or make any popped message visible again.
CLOSED_TOPICS: Final = FORBIDDEN_TOPICS | {TIMER_TOPIC}
MULTI_TAGS: Final = int(SysFlag.MULTI_TAGS)
DELAYING: Final = (DELAY, *TIMER_NAMES)
# A message with one of these properties has no priority (common/attribute/TopicMessageType.java,
# parseFromMessageProperty).
BEFORE_PRIORITY: Final = frozenset((*DELAYING, SHARDING_KEY))
DELAYS_INSIDE: Final = [f"{name}\x01".encode() for name in DELAYING]
TOO_MANY_LITE: Final = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]the broker has as many queues of lite topics as it may have:"
# Properties with a batch's offsets and size, which only the broker may set.
SET_BY_BROKER: Final = (INNER_NUM, INNER_BASE, QUEUES, OFFSETS)
# A part of the names of all delay properties. One search for it replaces four, which take 70 us each in 130 KB.
IN_ALL_DELAYS: Final = b"DEL"
# The transaction bits of messages that are stored as they are: none, or those of a committed message.
NO_TRANSACTION: Final = (0, int(SysFlag.TRANSACTION_COMMIT))


@dataclass(frozen=True, slots=True)
class PreparedMessage:
    """A message to be stored, or a batch, which may be stored as one record (`is_one_record`).

    If it `waits`, its send is answered once the message is synced and copied to slaves, as the settings require. The
    answer has `recall_handle`, with which the sender can cancel a timer message.
    """

    append: Append
    queue_id: int
    unique_id: str | None
    waits: bool
    is_one_record: bool = False
    recall_handle: str | None = None


@dataclass(frozen=True, slots=True)
class SendRequests:
    settings: LiveSettings
    identity: Identity
    topics: TopicTable
    announcer: TopicAnnouncer
    writer: MessageWriter
    retries: SendBackRequests
    delays: DelayedQueues
    transactions: Transactions

    def handlers(self) -> Handlers:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: Command, peer: Peer) -> Answer:
        message = SendMessage.from_command(request)
        try:
            self.check_topic(message.topic)
            if message.properties and len(message.properties) > MAX_STORED_PROPERTIES_BYTES:
                raise self.writer.illegal()
            topic = self.topics.get(message.topic)
            if is_retry_topic(message.topic) and not message.batch:
                return self._retry(message, peer, request.version)
            if topic is None or message.topic in self.topics.unsaved:
                return self._create_and_store(message, peer)
            return self._store(message, topic, peer)
        except RequestRefused as refused:
            return self.refused(refused)

    def check_topic(self, topic: str) -> None:
        """Raises `RequestRefused` for an invalid name of a new topic, and for a topic that is closed to sends."""
        config = self.topics.get(topic)
        if config is None and (fault := topic_fault(topic)):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        if topic in CLOSED_TOPICS or topic.startswith(REVIVE_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        if config is not None and config.order and not self.settings.config.broker_permission & WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.config.advertised_ip}] sending message is forbidden",
            )

    async def _retry(self, message: SendMessage, peer: Peer, version: int) -> Command | None:
        group, properties = message.topic.removeprefix(RETRY_PREFIX), decode_properties(message.properties or "")
        try:
            dead_letters = self.retries.divert(message, version, properties)
            if dead_letters is not None:
                if dead_letters.topic not in self.topics:
                    await make_topic(self.announcer, dead_letters)
                text = encode_properties(properties)
                message = replace(message, topic=dead_letters.topic, queue_id=0, properties=text)
        except RequestRefused as refused:
            return self.refused(refused)
        answer = await self._create_and_store(message, peer)
        if dead_letters is not None and answer is not None and "msgId" in answer.ext:  # the message is stored
            self.writer.counts.note_dead(properties[DLQ_ORIGIN_TOPIC], group)
        return answer

    async def _create_and_store(self, message: SendMessage, peer: Peer) -> Command | None:
        try:
            answer = self._store(message, await self.saved_topic(message), peer)
        except RequestRefused as refused:
            return self.refused(refused)
        return answer if answer is None or isinstance(answer, Command) else await answer

    async def saved_topic(self, message: SendMessage) -> TopicConfig:
        """Returns the message's topic, once the topics' file contains it. Creates a missing topic if that is allowed.

        A missing topic is created with the settings of the message's default topic. It is announced to the NameServers
        before the send is answered, so that the sender's next query finds the route. Raises `RequestRefused` if the
        topic cannot be created.
        """
        if message.topic not in self.topics:
            config = self.topics.for_send(message.topic, message.default_topic, message.default_topic_queue_nums)
            if config is None:
                raise _no_topic(message.topic)
            await self.announcer.announce(config)
        with refused_by_disk():
            await self.topics.saved(message.topic)
        async with self.announcer.sends_to_new_topics:  # so that the loop creates the files of one new queue at a time
            pass
        topic = self.topics.get(message.topic)
        if topic is None:  # the topic was deleted meanwhile
            raise _no_topic(message.topic)
        return topic

    def _store(self, message: SendMessage, topic: TopicConfig, peer: Peer) -> Answer:
        queue_id = queue_of_send(message, topic, peer)
        if not message.body:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the body is empty, and an empty message cannot be stored")
        sys_flag = message.sys_flag | (MULTI_TAGS if topic.topic_filter_type == "MULTI_TAG" else 0)
        prepare = self._prepare_batch if message.batch else self._prepare_one
        prepared = prepare(message, queue_id, sys_flag, peer)
        stored = self.writer.put(prepared.append)
        if prepared.append.topic == HALF_TOPIC:
            self.transactions.began(message.topic, stored.queue_offset)
        if prepared.waits and self.writer.has_to_wait:
            return self._answer_when_safe(prepared, stored)
        return self._stored(prepared, stored, ResponseCode.SUCCESS)

    async def _answer_when_safe(self, prepared: PreparedMessage, stored: AppendResult) -> Command:
        try:
            return self._stored(prepared, stored, await self.writer.wait_until_safe(stored.end))
        except RequestRefused as refused:
            return self.refused(refused)

    def _prepare_one(self, message: SendMessage, queue_id: int, sys_flag: int, peer: Peer) -> PreparedMessage:
        """Prepares a message for storing. As in RocketMQ, its properties lose duplicates and their order."""
        properties = decode_properties(message.properties or "")
        is_half = self.is_in_transaction(properties, sys_flag, message.reconsume_times or 0)
        if INNER_NUM in properties or sys_flag & BATCH_RECORD:
            raise self.writer.illegal()
        properties.pop(POP_CK, None)
        if PRIORITY in properties:
            queue_id = self._queue_of_priority(message.topic, queue_id, properties)
        config, unique_id = self.settings.config, properties.get(UNIQ_KEY) or self.identity.unique_id(clock.now_ms())
        properties[UNIQ_KEY] = unique_id
        properties[MSG_REGION] = config.region_id
        properties[TRACE_ON] = self.trace_text()
        properties[CLUSTER] = config.broker_cluster_name
        if is_half:
            properties, place = half_properties(message.topic, queue_id, properties), StoredQueue(*HALF_QUEUE)
            sys_flag &= ~TRANSACTION_MASK
        else:
            place = self.delays.queue_of(message.topic, queue_id, properties)
        lite_queue = self._lite_queue(message.topic, place.topic, properties) if LITE_TOPIC in properties else ""
        encoded = encode_properties(properties).encode("utf-8", "replace")
        room = {HALF_TOPIC: ADDED_BY_CHECKS, TIMER_TOPIC: DELIVERY_BYTES}.get(
            place.topic, LITE_BYTES if lite_queue else 0
        )
        if len(message.body) > config.max_message_size or len(encoded) + room > MAX_STORED_PROPERTIES_BYTES:
            raise self.writer.illegal()
        append = Append(
            topic=place.topic,
            queue_id=place.queue_id,
            pieces=[piece(message.flag, message.body, encoded)],
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=pack_host(peer.address),
            store_host=self.identity.store_host,
            sys_flag=sys_flag,
            reconsume_times=message.reconsume_times or 0,
            delay_ms=place.delay_ms,
            lite_queue=lite_queue,
        )
        handle = None
        if place.topic == TIMER_TOPIC and not is_retry_topic(message.topic):
            out_ms = int(properties[TIMER_OUT_MS]) + 1  # as in Java: a recall rounds it down again
            handle = RecallHandle(message.topic, config.broker_name, out_ms, unique_id).encode()
        waits = properties.get(WAIT) != "false"
        return PreparedMessage(append, queue_id, unique_id, waits, recall_handle=handle)

    def _lite_queue(self, topic: str, stored_in: str, properties: dict[str, str]) -> str:
        """Returns the name of the queue for the message's lite topic, or "" if its topic has no lite topics.

        Raises `RequestRefused` for an invalid name, for too many queues, and for a delayed or half message.
        `stored_in` is the topic that stores the message.
        """
        config, topic_config = self.settings.config, self.topics.get(topic)
        if not config.keeps_lite_queues or topic_config is None or topic_config.attributes.get(MESSAGE_TYPE) != "LITE":
            return ""
        if not LITE_TOPIC_NAME.fullmatch(properties[LITE_TOPIC]):
            raise self.writer.illegal(f"{LITE_TOPIC_RULE}.")
        if stored_in != topic:
            raise self.writer.illegal("A message of a lite topic has no delay, and is in no transaction.")
        queue, queues = lite_queue_name(topic, properties[LITE_TOPIC]), self.writer.store.queues
        if len(queue) > MAX_NAME_BYTES:
            raise self.writer.illegal(f"Its parent's name is too long: {queue[:64]}... is no name of a queue.")
        most = config.max_lmq_consume_queue_num
        if queues.lite_queues >= most and (queue, 0) not in queues.by_key:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{TOO_MANY_LITE} maxLmqConsumeQueueNum is {most}.")
        for name in (QUEUES, OFFSETS):
            properties.pop(name, None)
        return queue

    def _queue_of_priority(self, topic: str, queue_id: int, properties: dict[str, str]) -> int:
        """Returns the queue for the message's priority, or `queue_id` if the priority is invalid.

        If the message is ordered, delayed or in a transaction, its priority is removed from `properties`.
        """
        try:
            priority = parse_int(properties[PRIORITY])
        except ValueError:
            return queue_id
        if priority < 0:
            return queue_id
        if is_prepared(properties) or not BEFORE_PRIORITY.isdisjoint(properties):
            del properties[PRIORITY]
            return queue_id
        config = self.topics.get(topic)
        return max(0, min(priority, config.write_queue_nums - 1)) if config is not None else queue_id

    def _prepare_batch(self, message: SendMessage, queue_id: int, sys_flag: int, peer: Peer) -> PreparedMessage:
        """Prepares a batch. The header's properties describe the batch, and its messages have their own."""
        properties = decode_properties(message.properties or "")
        if is_retry_topic(message.topic):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {message.topic}"
            )
        if sys_flag & TRANSACTION_MASK or is_prepared(properties) or _is_delayed(properties):
            raise self.writer.illegal()
        whole = bool(self.topics.is_batch_topic(message.topic) and properties.get(UNIQ_KEY))
        if sys_flag & BATCH_RECORD and not whole:
            raise self.writer.illegal()
        if len(message.body) > self.settings.config.max_message_size:
            raise (
                self.writer.illegal()
                if whole
                else RequestRefused(ResponseCode.SYSTEM_ERROR, "message body size exceeded")
            )
        body, inner_num = bytes(message.body), 0
        try:
            pieces: Sequence[Piece] = batch_pieces(body)
        except BodyError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        self._refuse_delays_inside(body, pieces)
        if whole:
            inner_num = len(pieces)
            pieces = [self._batch_as_one_record(message, sys_flag, properties, inner_num)]
            sys_flag |= BATCH_RECORD
        append = Append(
            topic=message.topic,
            queue_id=queue_id,
            pieces=pieces,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host=pack_host(peer.address),
            store_host=self.identity.store_host,
            sys_flag=sys_flag,
            reconsume_times=message.reconsume_times or 0,
            inner_num=inner_num,
        )
        return PreparedMessage(append, queue_id, properties.get(UNIQ_KEY), properties.get(WAIT) != "false", whole)

    def _batch_as_one_record(
        self, message: SendMessage, sys_flag: int, properties: dict[str, str], inner_num: int
    ) -> Piece:
        if sys_flag & COMPRESSED:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "a batch whose messages are compressed cannot be kept as one record"
            )
        if inner_num > MAX_RECORD_MESSAGES:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f'java.lang.NumberFormatException: Value out of range. Value:"{inner_num}" Radix:10; a batch topic '
                f"takes {MAX_RECORD_MESSAGES} messages a batch",
            )
        own = {name: value for name, value in properties.items() if name not in SET_BY_BROKER}
        own |= {MSG_REGION: self.settings.config.region_id, TRACE_ON: self.trace_text()}
        own[CLUSTER] = self.settings.config.broker_cluster_name
        encoded = encode_properties(own).encode("utf-8", "replace")
        if len(encoded) > MAX_STORED_PROPERTIES_BYTES - INNER_BYTES:
            raise self.writer.illegal()
        return piece(message.flag, message.body, encoded)

    def is_in_transaction(self, properties: dict[str, str], sys_flag: int, reconsume_times: int) -> bool:
        """Returns True for a half message. Raises `RequestRefused` if this broker cannot keep it.

        A delayed retry with the transaction property is not a half message. Clients before 4.6.1 send such retries.
        """
        if is_prepared(properties) and not (reconsume_times > 0 and delay_level(properties) > 0):
            if self.settings.config.reject_transaction_message:
                ip = self.settings.config.advertised_ip
                remark = f"the broker[{ip}] sending transaction message is forbidden"
                raise RequestRefused(ResponseCode.NO_PERMISSION, remark)
            if _is_delayed(properties):
                raise self.writer.illegal("A message in a transaction cannot be delayed.")
            return True
        if sys_flag & TRANSACTION_MASK not in NO_TRANSACTION:
            raise self.writer.illegal("Its sysFlag is of a transaction, and its properties lack TRAN_MSG.")
        return False

    def _refuse_delays_inside(self, body: bytes, pieces: Sequence[Piece]) -> None:
        """Raises `RequestRefused` for a batch with a delayed message, which RocketMQ would store without its delay."""
        if IN_ALL_DELAYS not in body or not any(name in body for name in DELAYS_INSIDE):
            return
        for member in pieces:
            if _is_delayed(decode_properties(decode_java_utf8(member.properties[SHORT.size :]))):
                raise self.writer.illegal("A message of a batch cannot be delayed; send it by itself.")

    def trace_text(self) -> str:
        return "true" if self.settings.config.trace_on else "false"

    def _stored(self, prepared: PreparedMessage, stored: AppendResult, code: ResponseCode) -> Command:
        ip, port = self.identity.store_host[:-4], INT.unpack(self.identity.store_host[-4:])[0]
        answer = MessageStored(
            msg_ids=offset_msg_ids(ip, port, stored.positions),
            queue_id=prepared.queue_id,
            queue_offset=stored.queue_offset,
            transaction_id=prepared.unique_id,
            region_id=self.settings.config.region_id,
            trace_on=self.trace_text(),
            batch_uniq_id=prepared.unique_id if prepared.is_one_record else None,
            recall_handle=prepared.recall_handle,
        ).to_command()
        return answer if code == ResponseCode.SUCCESS else Command(code, answer.ext)

    def refused(self, refused: RequestRefused) -> Command:
        ext = {MSG_REGION: self.settings.config.region_id, TRACE_ON: self.trace_text()}
        return refusal(refused.code, str(refused), {} if refused.code == ResponseCode.SYSTEM_ERROR else ext)


def _is_delayed(properties: dict[str, str]) -> bool:
    return delay_level(properties) > 0 or is_timer(properties)


def _no_topic(topic: str) -> RequestRefused:
    return RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!\n{HELP}")


def queue_of_send(message: SendMessage, topic: TopicConfig, peer: Peer) -> int:
    """Returns the queue that the sender chose, or a random one. Raises `RequestRefused` if the topic lacks it."""
    if message.queue_id < 0:
        if topic.write_queue_nums <= 0:
            remark = f"java.lang.ArithmeticException: / by zero; topic[{topic.topic}] has no write queue"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        return random.randrange(topic.write_queue_nums)
    if message.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{message.queue_id}] is illegal, {topic_text(topic)} Producer: /{peer.address}",
        )
    return message.queue_id


def topic_text(topic: TopicConfig) -> str:
    """Formats a topic like Java's TopicConfig.toString."""
    perm = "".join(
        letter if topic.perm & bit else "-"
        for letter, bit in (("R", Permission.READ), ("W", Permission.WRITE), ("X", Permission.INHERIT))
    )
    return (
        f"TopicConfig [topicName={topic.topic}, readQueueNums={topic.read_queue_nums}, "
        f"writeQueueNums={topic.write_queue_nums}, perm={perm}, topicFilterType={topic.topic_filter_type}, "
        f"topicSysFlag={topic.topic_sys_flag}, order={str(topic.order).lower()}, attributes={dict(topic.attributes)}]"
    )
