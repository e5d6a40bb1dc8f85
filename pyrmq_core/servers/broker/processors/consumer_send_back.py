"""Messages that consumers could not handle: CONSUMER_SEND_MSG_BACK (36) stores them for another try.

Such a message goes to the retry topic `%RETRY%group`, with a delay that grows with the number of tries. After the last
try, or when the consumer requests it, it goes to the dead-letter topic `%DLQ%group`. The same choice is made for
retries that consumers send as new messages. A record that contains a whole batch is refused, since only the consumer
knows which message failed, and can send that one itself. Source: broker/processor/SendMessageProcessor.java
(handleRetryAndDLQ), AbstractSendMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.integers import MAX_INT
from pyrmq_core.protocol.messages.message_id import offset_msg_id
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from pyrmq_core.protocol.messages.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    MAX_STORED_PROPERTIES_BYTES,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    WAIT,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import INT, RawRecord, unpack_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.queue_locks import QueueLocks
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.processors.handlers import HELP, Handlers
from pyrmq_core.servers.broker.processors.name_rules import topic_fault
from pyrmq_core.servers.broker.processors.put_message import MessageWriter, RequestRefused, make_topic, refused_by_disk
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ_WRITE, WRITE, TopicTable
from pyrmq_core.servers.broker.timers.timer_rules import drop_times
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer

# The first version (V3_4_9) whose clients send maxReconsumeTimes (common/MQVersion.java).
SAYS_MAX_TRIES_VERSION: Final = 121
FIRST_RETRY_LEVEL: Final = 3
DLQ_QUEUES: Final = 1

GroupConfig = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SendBackRequests:
    """The handler of messages that consumers send back for another try.

    It also checks the retries that consumers send to a retry topic as new messages.
    """

    settings: LiveSettings
    identity: Identity
    groups: GroupTable
    topics: TopicTable
    locks: QueueLocks
    reader: StoreReader
    delays: DelayLevels
    announcer: TopicAnnouncer
    writer: MessageWriter
    counts: Counts

    def handlers(self) -> Handlers:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    async def send_back(self, request: Command, _: Peer) -> Command:
        back = ConsumerSendMsgBack.from_command(request)
        group = self.groups.find(back.group, clock.now_ms())
        if group is None:
            return refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {back.group} {HELP}"
            )
        if not self.settings.config.broker_permission & WRITE:
            remark = f"the broker[{self.settings.config.advertised_ip}] sending message is forbidden"
            return refusal(ResponseCode.NO_PERMISSION, remark)
        if group["retryQueueNums"] <= 0:
            return success()
        retry_topic, retry_queues = RETRY_PREFIX + back.group, int(group["retryQueueNums"])
        try:
            # As in RocketMQ, the retry topic is created even if the message is missing: tools find the group by it.
            await self._ensure_topic(retry_topic, retry_queues)
            topic = self.topics.get(retry_topic)
            if topic is not None and not topic.perm & WRITE:
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden"
                )
            raw = self.reader.record(back.offset)
            if raw is None:
                return refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {back.offset}")
            record = unpack_record(raw, 0)
            tries = _most_tries(group, back.max_reconsume_times, request.version)
            is_dead = back.delay_level < 0 or record.reconsume_times >= tries
            if is_dead:
                stored = await self._store_again(record, DLQ_PREFIX + back.group, DLQ_QUEUES, 0)
            else:
                level = back.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
                stored = await self._store_again(record, retry_topic, retry_queues, level)
            # RocketMQ does not wait, so a message that was sent back can be lost with its master. A time-out is
            # ignored, since the message is stored, and after a refusal the consumer would send a copy.
            await self.writer.wait_until_safe(stored.end)
            properties = decode_properties(decode_java_utf8(record.properties))
            origin = properties.get(RETRY_TOPIC) or decode_java_utf8(record.topic)
            self.counts.figures.note_send_back(origin, back.group)
            if is_dead:
                self.counts.note_dead(origin, back.group)
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        return success()

    def divert(self, message: SendMessage, version: int, properties: dict[str, str]) -> TopicConfig | None:
        """Returns the dead-letter topic for a message sent to a retry topic, or None if another try is allowed.

        No try is allowed beyond the limit of tries, or while the group locks queues to consume in order. Senders of
        `version` 3.4.9 or later set the limit, for others it is the group's. For a dead letter, this removes the delay
        from `properties`, and adds the original topic and message id. Raises `RequestRefused` for an unknown group.
        """
        name = message.topic.removeprefix(RETRY_PREFIX)
        group = self.groups.find(name, clock.now_ms())
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {HELP}"
            )
        tries = _most_tries(group, message.max_reconsume_times, version)
        if (message.reconsume_times or 0) <= tries and not self.locks.is_locked(name, clock.running_ms()):
            return None
        properties.pop(DELAY, None)
        properties[DLQ_ORIGIN_TOPIC] = properties.get(RETRY_TOPIC, message.topic)
        if origin := properties.get(ORIGIN_MESSAGE_ID):
            properties[DLQ_ORIGIN_MESSAGE_ID] = origin
        return TopicConfig(DLQ_PREFIX + name, DLQ_QUEUES, DLQ_QUEUES, READ_WRITE)

    async def _ensure_topic(self, topic: str, queues: int) -> None:
        if fault := topic_fault(topic):
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
        if topic not in self.topics:
            await make_topic(self.announcer, TopicConfig(topic, queues, queues, READ_WRITE))

    async def _store_again(self, record: RawRecord, topic: str, queues: int, level: int) -> AppendResult:
        """Stores the message in a topic of `queues` queues, and counts one more try. A `level` above 0 delays it."""
        await self._ensure_topic(topic, queues)
        with refused_by_disk():
            await self.topics.saved(topic)
        if record.sys_flag & BATCH_RECORD:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"MESSAGE_ILLEGAL\n{record.commit_log_offset} is a batch that is one record"
            )
        ip, (port,) = record.store_host[:-4], INT.unpack(record.store_host[-4:])
        properties = decode_properties(decode_java_utf8(record.properties))
        properties.setdefault(RETRY_TOPIC, decode_java_utf8(record.topic))
        properties.setdefault(ORIGIN_MESSAGE_ID, offset_msg_id(ip, port, record.commit_log_offset))
        properties[WAIT] = "false"
        properties[DELAY] = "0"
        target, delay_ms = (topic, random.randrange(queues)), None
        if level > 0:
            drop_times(properties)
            level_queue, delay_ms = self.delays.place(*target, level, properties)
            target = (SCHEDULE_TOPIC, level_queue)
        encoded = encode_properties(properties).encode("utf-8", "replace")
        if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
            raise self.writer.illegal(f"with what a retry adds, the properties have {len(encoded)} bytes")
        return self.writer.put(
            Append(
                topic=target[0],
                queue_id=target[1],
                pieces=[piece(record.flag, record.body, encoded)],
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                store_host=self.identity.store_host,
                sys_flag=record.sys_flag,
                reconsume_times=min(record.reconsume_times + 1, MAX_INT),
                delay_ms=delay_ms,
            ),
        )


def _most_tries(group: GroupConfig, said: int | None, version: int) -> int:
    return said if said is not None and version >= SAYS_MAX_TRIES_VERSION else int(group["retryMaxTimes"])
