"""CONSUMER_SEND_MSG_BACK (36), and the choice between retry topic and dead-letter topic for a consumer's retries.

A message that a consumer could not handle goes to `%RETRY%group`, with a delay that grows with the number of tries;
after the last try, or when the consumer wants it, to `%DLQ%group`. A batch that is one record is refused, since only
its consumer knows the message that failed, and sends that by itself. Source: broker/processor/SendMessageProcessor.java
(handleRetryAndDLQ), AbstractSendMessageProcessor.java (5.4.0).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
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
from pyrmq_core.servers.broker.broker import HELP, Broker
from pyrmq_core.servers.broker.processors.name_rules import topic_fault
from pyrmq_core.servers.broker.processors.put_message import (
    RequestRefused,
    make_topic,
    message_illegal,
    put,
    refused_by_disk,
    wait_until_safe,
)
from pyrmq_core.servers.broker.store.appending import Append, AppendResult
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.tables.topics import READ_WRITE, WRITE
from pyrmq_core.servers.broker.timers.timer_rules import drop_times

# The first version (V3_4_9) whose clients send maxReconsumeTimes (common/MQVersion.java).
SAYS_MAX_TRIES_VERSION: Final = 121
FIRST_RETRY_LEVEL: Final = 3
DLQ_QUEUES: Final = 1
MAX_INT: Final = 2**31 - 1

GroupConfig = Mapping[str, Any]


async def send_back(broker: Broker, request: Command, _: Peer) -> Command:
    back = ConsumerSendMsgBack.from_command(request)
    group = broker.groups.find(back.group, broker.now_ms())
    if group is None:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {back.group} {HELP}")
    if not broker.config.broker_permission & WRITE:
        remark = f"the broker[{broker.config.advertised_ip}] sending message is forbidden"
        return refusal(ResponseCode.NO_PERMISSION, remark)
    if group["retryQueueNums"] <= 0:
        return success()
    retry_topic, retry_queues = RETRY_PREFIX + back.group, int(group["retryQueueNums"])
    try:
        # Before the look-up, as Java does: tools find the group by its retry topic.
        await _ensure_topic(broker, retry_topic, retry_queues)
        topic = broker.topics.get(retry_topic)
        if topic is not None and not topic.perm & WRITE:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{retry_topic}] sending message is forbidden")
        raw = broker.store.reader.record(back.offset)
        if raw is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {back.offset}")
        record = unpack_record(raw, 0)
        tries = _most_tries(group, back.max_reconsume_times, request.version)
        is_dead = back.delay_level < 0 or record.reconsume_times >= tries
        if is_dead:
            stored = await _store_again(broker, record, DLQ_PREFIX + back.group, DLQ_QUEUES, 0)
        else:
            level = back.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
            stored = await _store_again(broker, record, retry_topic, retry_queues, level)
        # RocketMQ does not wait: a message that was sent back is lost with its master. A time-out is no failure here:
        # the message is stored, and after a failure the consumer would send a copy.
        await wait_until_safe(broker, stored.end)
        properties = decode_properties(decode_java_utf8(record.properties))
        origin = properties.get(RETRY_TOPIC) or decode_java_utf8(record.topic)
        broker.figures.note_send_back(origin, back.group)
        if is_dead and broker.measures is not None:
            broker.measures.note_dead(origin, back.group)
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return success()


def divert(broker: Broker, message: SendMessage, version: int, properties: dict[str, str]) -> TopicConfig | None:
    """Returns the dead-letter topic if the retry has no tries left or its group consumes in order; else None.

    Changes `properties` of a dead letter in place: they lose their delay, and gain the topic and the id of the original
    message.
    """
    name = message.topic.removeprefix(RETRY_PREFIX)
    group = broker.groups.find(name, broker.now_ms())
    if group is None:
        raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {HELP}")
    tries = _most_tries(group, message.max_reconsume_times, version)
    if (message.reconsume_times or 0) <= tries and not broker.locks.is_locked(name, broker.running_ms()):
        return None
    properties.pop(DELAY, None)
    origin_topic = properties[DLQ_ORIGIN_TOPIC] = properties.get(RETRY_TOPIC, message.topic)
    if broker.measures is not None:
        broker.measures.note_dead(origin_topic, name)
    if origin := properties.get(ORIGIN_MESSAGE_ID):
        properties[DLQ_ORIGIN_MESSAGE_ID] = origin
    return dead_letters(name)


def dead_letters(group: str) -> TopicConfig:
    return TopicConfig(DLQ_PREFIX + group, DLQ_QUEUES, DLQ_QUEUES, READ_WRITE)


def _most_tries(group: GroupConfig, said: int | None, version: int) -> int:
    return said if said is not None and version >= SAYS_MAX_TRIES_VERSION else int(group["retryMaxTimes"])


async def _ensure_topic(broker: Broker, topic: str, queues: int) -> None:
    if fault := topic_fault(topic):
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    if topic not in broker.topics:
        await make_topic(broker, TopicConfig(topic, queues, queues, READ_WRITE))


async def _store_again(broker: Broker, record: RawRecord, topic: str, queues: int, level: int) -> AppendResult:
    """Stores the message in another topic, with one more try counted; delayed if `level` is above 0."""
    await _ensure_topic(broker, topic, queues)
    with refused_by_disk():
        await broker.topics.saved(topic)
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
        level_queue, delay_ms = broker.delays.place(*target, level, properties)
        target = (SCHEDULE_TOPIC, level_queue)
    encoded = encode_properties(properties).encode("utf-8", "replace")
    if len(encoded) > MAX_STORED_PROPERTIES_BYTES:
        raise message_illegal(broker, f"with what a retry adds, the properties have {len(encoded)} bytes")
    return put(
        broker,
        Append(
            topic=target[0],
            queue_id=target[1],
            pieces=[piece(record.flag, record.body, encoded)],
            born_timestamp_ms=record.born_timestamp_ms,
            born_host=record.born_host,
            store_host=broker.store_host,
            sys_flag=record.sys_flag,
            reconsume_times=min(record.reconsume_times + 1, MAX_INT),
            delay_ms=delay_ms,
        ),
    )
