"""Statistics and settings: the broker's figures (28), its settings (26), offsets of topics (202) and groups (208).

The answers of 202 and 208 have message queues as object keys, as fastjson writes them. That is not strict JSON, but
Java's tools read nothing else. Source: broker/processor/AdminBrokerProcessor.java (5.4.0).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core.broker.broker import Answer, Broker
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import VERSION, Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.properties_text import format_java_properties

VERSION_NAME: Final = "V5_3_3"
# A queue and its figures: topic, queue id, JSON members.
Row: TypeAlias = tuple[str, int, dict[str, Any]]
ROWS_AT_ONCE: Final = 128
# A frame holds 16 MiB.
MAX_TABLE_BYTES: Final = 15 << 20


def runtime_info(broker: Broker, _request: Command, _: Peer) -> Command:
    """Returns the broker's figures, all as text. A figure that is not measured is 0 or left out; tools print 0."""
    store, now_ms = broker.store, broker.now_ms()
    table = {
        "bootTimestamp": broker.booted_ms,
        "brokerActive": "true",
        "brokerVersion": VERSION,
        "brokerVersionDesc": VERSION_NAME,
        "commitLogMaxOffset": store.end,
        "commitLogMinOffset": store.start,
        "earliestMessageTimeStamp": store.earliest_ms(),
        "getTransferedTps": "0.0 0.0 0.0",  # 4.9's spelling, without which its tools fail
        "getTransferredTps": "0.0 0.0 0.0",
        "pageCacheLockTimeMills": 0,
        "pullThreadPoolQueueSize": broker.held.count,
        "putTps": "0.0 0.0 0.0",
        "remainHowManyDataToFlush": f"{store.end - store.flushed} B",
        "runtime": f"[ {(now_ms - broker.booted_ms) // 1000} seconds ]",
        "sendThreadPoolQueueSize": 0,
    }
    return success(body=dumps({"table": {name: str(value) for name, value in table.items()}}))


def broker_config(broker: Broker, _request: Command, _: Peer) -> Command:
    version = dumps({"counter": 0, "stateVersion": 0, "timestamp": broker.booted_ms}).decode()
    return success({"version": version}, format_java_properties(broker.config.to_properties()).encode())


def topic_stats(broker: Broker, request: Command, _: Peer) -> Answer:
    name = request.ext.get("topic", "")
    topic = broker.topics.get(name)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    queues = max(topic.read_queue_nums, topic.write_queue_nums)
    rows = (_topic_row(broker, name, queue_id) for queue_id in range(queues))
    return _offset_table(broker, rows, queues, {"topicPutTps": 0.0})


def consume_stats(broker: Broker, request: Command, _: Peer) -> Answer:
    """Returns for each queue the offset that a group committed, beside the queue's end."""
    group, listed = request.ext.get("consumerGroup", ""), request.ext.get("topicList") or ""
    names = [topic for topic in listed.split(";") if topic]
    if not names:
        names = [request.ext["topic"]] if request.ext.get("topic") else broker.offsets.topics_of(group)
    topics = [topic for name in dict.fromkeys(names) if (topic := broker.topics.get(name)) is not None]
    rows = (
        _group_row(broker, group, topic.topic, queue_id)
        for topic in topics
        for queue_id in range(topic.read_queue_nums)
    )
    return _offset_table(broker, rows, sum(topic.read_queue_nums for topic in topics), {"consumeTps": 0.0})


def _topic_row(broker: Broker, name: str, queue_id: int) -> Row:
    start, end = broker.store.bounds((name, queue_id))
    stored = broker.store.store_time((name, queue_id), end - 1) or 0
    return name, queue_id, {"lastUpdateTimestamp": stored, "maxOffset": end, "minOffset": start}


def _group_row(broker: Broker, group: str, name: str, queue_id: int) -> Row:
    key = (name, queue_id)
    committed = broker.offsets.committed(group, name, queue_id) or 0
    row = {
        "brokerOffset": broker.store.bounds(key)[1],
        "consumerOffset": committed,
        "lastTimestamp": broker.store.store_time(key, committed - 1) or 0,
        "pullOffset": max(committed, broker.offsets.pulled(group, name, queue_id) or 0),
    }
    return name, queue_id, row


def _offset_table(broker: Broker, rows: Iterator[Row], count: int, others: dict[str, Any]) -> Answer:
    """Returns the answer of 202 or 208; for many queues a coroutine, so that other tasks have their turn."""
    if count <= ROWS_AT_ONCE:
        return _table_answer([_object_key(broker, row) for row in rows], others)
    return _in_turns(broker, rows, others)


async def _in_turns(broker: Broker, rows: Iterator[Row], others: dict[str, Any]) -> Command:
    parts: list[bytes] = []
    size_bytes = 0
    while some := [_object_key(broker, row) for row in itertools.islice(rows, ROWS_AT_ONCE)]:
        parts += some
        size_bytes += sum(map(len, some))
        if size_bytes > MAX_TABLE_BYTES:
            remark = f"the table of more than {len(parts)} queues does not fit into an answer; ask for fewer topics"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        await trio.lowlevel.checkpoint()
    return _table_answer(parts, others)


def _object_key(broker: Broker, row: Row) -> bytes:
    """Returns a row as `{"brokerName":..,"queueId":..,"topic":..}:{...}`."""
    topic, queue_id, members = row
    key = {"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic}
    return dumps(key) + b":" + dumps(members)


def _table_answer(parts: list[bytes], others: dict[str, Any]) -> Command:
    return success(body=b'{"offsetTable":{' + b",".join(parts) + b"}," + dumps(others)[1:])
