"""Settings (26), and offsets of topics (202) and groups (208).

The answers to requests 202 and 208 have message queues as object keys, as fastjson writes them. That is not strict
JSON, but Java's tools read nothing else. Source: broker/processor/AdminBrokerProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.properties_text import format_java_properties
from pyrmq_core.protocol.messages.queue_tables import dump_number_row
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, separated
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig

# A queue and its figures: topic, queue id, numbers by the names of their JSON members.
Row: TypeAlias = tuple[str, int, dict[str, int]]


def broker_config(config: BrokerConfig, settings_version: DataVersion) -> Command:
    version = settings_version.to_json().decode()
    return success({"version": version}, format_java_properties(config.to_properties()).encode())


def topic_stats(broker: Broker, request: Command, _: Peer) -> Answer:
    name = request.ext.get("topic", "")
    topic = broker.topics.get(name)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    rows = (_topic_row(broker, name, queue_id) for queue_id in range(queues))
    return answer_in_turns(broker.long_work, _offset_table(broker, rows, {"topicPutTps": broker.figures.put_tps(name)}))


def consume_stats(broker: Broker, request: Command, _: Peer) -> Answer:
    """Returns for each queue the offset that a group committed, beside the queue's end.

    If the request lists no topics, the answer leaves out topics to which an online group does not subscribe.
    """
    group, listed = request.ext.get("consumerGroup", ""), request.ext.get("topicList") or ""
    names = [topic for topic in listed.split(";") if topic]
    if not names:
        names = [request.ext["topic"]] if request.ext.get("topic") else broker.offsets.topics_of(group)
        online = broker.clients.consumers.get(group)
        if online is not None and online.subscriptions:
            names = [topic for topic in names if topic in online.subscriptions]
    topics = [topic for name in dict.fromkeys(names) if (topic := broker.topics.get(name)) is not None]
    rows = (
        group_row(broker, group, topic.topic, queue_id) for topic in topics for queue_id in range(topic.read_queue_nums)
    )
    tps = sum(broker.figures.get_tps(topic.topic, group) for topic in topics)
    return answer_in_turns(broker.long_work, _offset_table(broker, rows, {"consumeTps": tps}))


def _topic_row(broker: Broker, name: str, queue_id: int) -> Row:
    start, end = broker.store.reader.bounds((name, queue_id))
    stored = broker.store.reader.store_time((name, queue_id), end - 1) or 0
    return name, queue_id, {"lastUpdateTimestamp": stored, "maxOffset": end, "minOffset": start}


def group_row(broker: Broker, group: str, name: str, queue_id: int) -> Row:
    """Returns the offset that a group committed in a queue, with the time of its last message, and the queue's end."""
    key = (name, queue_id)
    committed = broker.offsets.committed(group, name, queue_id) or 0
    row = {
        "brokerOffset": broker.store.reader.bounds(key)[1],
        "consumerOffset": committed,
        "lastTimestamp": broker.store.reader.store_time(key, committed - 1) or 0,
        "pullOffset": max(committed, broker.offsets.pulled(group, name, queue_id) or 0),
    }
    return name, queue_id, row


def _offset_table(broker: Broker, rows: Iterator[Row], others: dict[str, Any]) -> Iterator[bytes]:
    """Yields the body of the answer to request 202 or 208: the table of queues, and the other members."""
    yield b'{"offsetTable":{'
    yield from separated(row_of_queue(broker, row) for row in rows)
    yield b"}," + dumps(others)[1:]


def row_of_queue(broker: Broker, row: Row) -> bytes:
    """Returns a row as `{"brokerName":..,"queueId":..,"topic":..}:{...}`."""
    topic, queue_id, members = row
    return dump_number_row(topic, broker.config.broker_name, queue_id, members)
