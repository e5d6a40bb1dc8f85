"""Requests for the broker's settings (26), and for the offsets of topics (202) and of groups (208).

The answers to requests 202 and 208 have message queues as object keys, as fastjson writes them. That is not strict
JSON, but Java's tools read nothing else. Source: broker/processor/AdminBrokerProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.properties_text import format_java_properties
from pyrmq_core.protocol.messages.queue_tables import dump_number_row
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, separated
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, if_any, listed, topic_fault
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.topics import TopicTable

# A row for a queue: topic, queue id, and numbers by the names of their JSON members.
Row: TypeAlias = tuple[str, int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class QueueRows:
    """The rows of JSON tables whose keys are queues, such as a group's offset in each queue."""

    broker_name: str
    offsets: GroupOffsets
    reader: StoreReader

    def group_row(self, group: str, name: str, queue_id: int) -> Row:
        """Returns the row of a group's offset in a queue of the topic `name`.

        It has the committed offset, the store time in ms of the message before it, the queue's end, and the offset
        after the last pull. Unknown values are 0.
        """
        key = (name, queue_id)
        committed = self.offsets.committed(group, name, queue_id) or 0
        row = {
            "brokerOffset": self.reader.bounds(key)[1],
            "consumerOffset": committed,
            "lastTimestamp": self.reader.store_time(key, committed - 1) or 0,
            "pullOffset": max(committed, self.offsets.pulled(group, name, queue_id) or 0),
        }
        return name, queue_id, row

    def encoded(self, row: Row) -> bytes:
        """Encodes a row as `{"brokerName":..,"queueId":..,"topic":..}:{...}`."""
        topic, queue_id, members = row
        return dump_number_row(topic, self.broker_name, queue_id, members)


@dataclass(frozen=True, slots=True)
class StatisticsRequests:
    """The handlers of requests for the broker's settings, and for the offsets of topics and groups."""

    settings: LiveSettings
    topics: TopicTable
    offsets: GroupOffsets
    clients: ClientTable
    figures: BrokerFigures
    rows: QueueRows
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_BROKER_CONFIG: self.broker_config,
            RequestCode.GET_TOPIC_STATS_INFO: checked(self.topic_stats, topic=topic_fault),
            RequestCode.GET_CONSUME_STATS: checked(
                self.consume_stats, consumerGroup=group_fault, topic=if_any(topic_fault), topicList=listed(topic_fault)
            ),
        }

    def broker_config(self, _request: Command, _: Peer) -> Command:
        version = self.settings.version.to_json().decode()
        return success({"version": version}, format_java_properties(self.settings.config.to_properties()).encode())

    def topic_stats(self, request: Command, _: Peer) -> Answer:
        name = request.ext.get("topic", "")
        topic = self.topics.get(name)
        if topic is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        rows = (self._topic_row(name, queue_id) for queue_id in range(queues))
        return answer_in_turns(self.long_work, self._offset_table(rows, {"topicPutTps": self.figures.put_tps(name)}))

    def consume_stats(self, request: Command, _: Peer) -> Answer:
        """Returns for each queue the offset that a group committed, and the queue's end.

        If the request has no `topicList`, topics to which the online group does not subscribe are left out.
        """
        group, listed = request.ext.get("consumerGroup", ""), request.ext.get("topicList") or ""
        names = [topic for topic in listed.split(";") if topic]
        if not names:
            names = [request.ext["topic"]] if request.ext.get("topic") else self.offsets.topics_of(group)
            online = self.clients.consumers.get(group)
            if online is not None and online.subscriptions:
                names = [topic for topic in names if topic in online.subscriptions]
        topics = [topic for name in dict.fromkeys(names) if (topic := self.topics.get(name)) is not None]
        rows = (
            self.rows.group_row(group, topic.topic, queue_id)
            for topic in topics
            for queue_id in range(topic.read_queue_nums)
        )
        tps = sum(self.figures.get_tps(topic.topic, group) for topic in topics)
        return answer_in_turns(self.long_work, self._offset_table(rows, {"consumeTps": tps}))

    def _topic_row(self, name: str, queue_id: int) -> Row:
        start, end = self.rows.reader.bounds((name, queue_id))
        stored = self.rows.reader.store_time((name, queue_id), end - 1) or 0
        return name, queue_id, {"lastUpdateTimestamp": stored, "maxOffset": end, "minOffset": start}

    def _offset_table(self, rows: Iterator[Row], others: dict[str, Any]) -> Iterator[bytes]:
        yield b'{"offsetTable":{'
        yield from separated(self.rows.encoded(row) for row in rows)
        yield b"}," + dumps(others)[1:]
