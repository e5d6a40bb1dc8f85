"""What the broker tells of itself: runtime figures (28), settings (26), offsets of topics (202) and groups (208).

202 and 208 have message queues as object keys, written as fastjson writes them; no strict JSON, and Java's tools read
nothing else. Source: broker/processor/AdminBrokerProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyrmq_core.broker.state import Broker
from pyrmq_core.network import Peer
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.command import VERSION, Command, refusal, success
from pyrmq_core.protocol.java_json import dumps
from pyrmq_core.protocol.java_properties import format_java_properties

VERSION_NAME: Final = "V5_3_3"


def runtime_info(broker: Broker, _request: Command, _: Peer) -> Command:
    """All values are text; figures that this broker does not measure are left out, which tools print as 0."""
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


def topic_stats(broker: Broker, request: Command, _: Peer) -> Command:
    name = request.ext.get("topic", "")
    topic = broker.topics.get(name)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
    rows = []
    for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
        start, end = broker.store.bounds((name, queue_id))
        stored = broker.store.store_time((name, queue_id), end - 1) or 0
        rows.append((name, queue_id, {"lastUpdateTimestamp": stored, "maxOffset": end, "minOffset": start}))
    return success(body=_object_keys(broker, rows, "offsetTable", {"topicPutTps": 0.0}))


def consume_stats(broker: Broker, request: Command, _: Peer) -> Command:
    """What a group committed of each queue, beside how far the queue goes."""
    group, listed = request.ext.get("consumerGroup", ""), request.ext.get("topicList") or ""
    topics = [topic for topic in listed.split(";") if topic]
    if not topics:
        topics = [request.ext["topic"]] if request.ext.get("topic") else broker.offsets.topics_of(group)
    rows = [row for topic in topics for row in _group_rows(broker, group, topic)]
    return success(body=_object_keys(broker, rows, "offsetTable", {"consumeTps": 0.0}))


def _group_rows(broker: Broker, group: str, name: str) -> Iterable[tuple[str, int, dict[str, Any]]]:
    topic = broker.topics.get(name)
    for queue_id in range(0 if topic is None else topic.read_queue_nums):
        key = (name, queue_id)
        committed = broker.offsets.committed(group, name, queue_id) or 0
        row = {
            "brokerOffset": broker.store.bounds(key)[1],
            "consumerOffset": committed,
            "lastTimestamp": broker.store.store_time(key, committed - 1) or 0,
            "pullOffset": max(committed, broker.offsets.pulled(group, name, queue_id) or 0),
        }
        yield name, queue_id, row


def _object_keys(
    broker: Broker, rows: Iterable[tuple[str, int, dict[str, Any]]], name: str, others: dict[str, Any]
) -> bytes:
    """`{"name":{{"brokerName":..,"queueId":..,"topic":..}:{...},...},...}`."""
    table = b",".join(
        dumps({"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic}) + b":" + dumps(row)
        for topic, queue_id, row in rows
    )
    return b'{"' + name.encode() + b'":{' + table + b"}," + dumps(others)[1:]
