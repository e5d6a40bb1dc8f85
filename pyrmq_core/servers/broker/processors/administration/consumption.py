"""Administrators' requests about the topics, subscriptions and offsets of consumer groups.

They return a group's topics (343) or its subscription (345), the store times of consumed messages (303), the lowest
offsets of groups (308) or the offsets of all groups (317). They copy a group's offsets to another group (314), and
forbid a group to read a topic (353). Source: broker/processor/AdminBrokerProcessor.java (5.4.0).

Three answers differ from RocketMQ's. Request 308 deletes no offsets of the groups in `filterGroups`. Request 314
without a topic copies the offsets of all topics, and is refused for an unknown target group. Request 353 allows one
topic again, not all topics of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.messages.names import owner_topic
from pyrmq_core.protocol.messages.queue_tables import queue_members
from pyrmq_core.protocol.requests.broker.group_admin import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    UpdateGroupForbidden,
)
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork, take_all
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, in_turn, separated
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, if_any, topic_fault
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, refused_by_disk
from pyrmq_core.servers.broker.processors.statistics import QueueRows
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

MAX_LONG: Final = 2**63 - 1


@dataclass(slots=True)
class _Lag:
    consumed: int = 0
    pulled: int = 0


@dataclass(frozen=True, slots=True)
class ConsumptionRequests:
    """The handlers of requests about the subscriptions, offsets and lag of consumer groups."""

    address: str
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    clients: ClientTable
    reader: StoreReader
    figures: BrokerFigures
    rows: QueueRows
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.QUERY_TOPICS_BY_CONSUMER: checked(self.topics_of_group, group=group_fault),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: checked(
                self.subscription_of_group, group=group_fault, topic=topic_fault
            ),
            RequestCode.QUERY_CONSUME_TIME_SPAN: checked(self.time_spans, group=group_fault, topic=topic_fault),
            RequestCode.QUERY_CORRECTION_OFFSET: checked(
                self.correction_offsets, compareGroup=group_fault, topic=topic_fault
            ),
            RequestCode.CLONE_GROUP_OFFSET: checked(
                self.clone_offsets, srcGroup=group_fault, destGroup=group_fault, topic=if_any(topic_fault)
            ),
            RequestCode.GET_BROKER_CONSUME_STATS: self.broker_consume_stats,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: checked(
                self.group_forbidden, group=group_fault, topic=topic_fault
            ),
        }

    def topics_of_group(self, request: Command, _: Peer) -> Command:
        topics = self.offsets.topics_of(request.ext.get("group", ""))
        return success(body=dumps({"brokerAddr": self.address, "topicList": topics}))

    def subscription_of_group(self, request: Command, _: Peer) -> Command:
        group, topic = request.ext.get("group", ""), request.ext.get("topic", "")
        members: dict[str, Any] = {"group": group, "topic": topic}
        if (subscription := self.clients.subscription(group, topic)) is not None:
            members["subscriptionData"] = subscription.to_members()
        return success(body=dumps(members))

    def time_spans(self, request: Command, _: Peer) -> Answer:
        """Returns for each queue the store times in ms of its first, last, and last consumed message.

        It also returns the age in ms of the first message that the group has not consumed, or 0 if there is none.
        """
        header = QueryConsumeTimeSpan.from_command(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        return answer_in_turns(self.long_work, self._time_spans(header, topic.write_queue_nums))

    def _time_spans(self, header: QueryConsumeTimeSpan, queues: int) -> Iterator[bytes]:
        yield b'{"consumeTimeSpanSet":['
        yield from separated(dumps(self._time_span(header, queue_id)) for queue_id in range(queues))
        yield b"]}"

    def _time_span(self, header: QueryConsumeTimeSpan, queue_id: int) -> dict[str, Any]:
        key = (header.topic, queue_id)
        start, end = self.reader.bounds(key)

        def time_of(offset: int) -> int:
            return self.reader.store_time(key, offset) or -1

        committed = self.offsets.committed(header.group, header.topic, queue_id)
        consumed_to = start if committed is None else committed
        first = time_of(start)
        return {
            "consumeTimeStamp": time_of(consumed_to - 1) if committed else first,
            "delayTime": clock.now_ms() - time_of(consumed_to) if consumed_to < end else 0,
            "maxTimeStamp": time_of(end - 1),
            "messageQueue": queue_members(MessageQueue(header.topic, self.rows.broker_name, queue_id)),
            "minTimeStamp": first,
        }

    def correction_offsets(self, request: Command, _: Peer) -> Answer:
        """Returns for each queue the lowest offset that any group has committed, without the groups in `filterGroups`.

        For a queue in which `compareGroup` has committed a lower offset, it returns 2**63 - 1.
        """
        header = QueryCorrectionOffset.from_command(request)
        return answer_in_turns(self.long_work, self._correction_offsets(header))

    def _correction_offsets(self, header: QueryCorrectionOffset) -> Iterator[bytes]:
        left_out = {name for name in (header.filter_groups or "").split(",") if name}
        lowest: dict[int, int] = {}
        for group in self.offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self.offsets.of_group(group, header.topic).items():
                if offset >= self.reader.bounds((header.topic, queue_id))[0]:
                    lowest[queue_id] = min(offset, lowest.get(queue_id, MAX_LONG))
                yield b""
        for queue_id, offset in self.offsets.of_group(header.compare_group, header.topic).items():
            if lowest.get(queue_id, 0) > offset:
                lowest[queue_id] = MAX_LONG
        yield b'{"correctionOffsets":{'
        yield from separated(b'"%d":%d' % row for row in lowest.items())
        yield b"}}"

    def clone_offsets(self, request: Command, _: Peer) -> Answer:
        header = CloneGroupOffset.from_command(request)
        if self.groups.find(header.dest_group, clock.now_ms()) is None:
            return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.dest_group} not exist!")
        return in_turn(self.long_work, partial(self._clone_offsets, header))

    async def _clone_offsets(self, header: CloneGroupOffset) -> Command:
        with trio.CancelScope(shield=True):  # the copy is finished even if its caller disconnects
            await take_all(self._cloning(header))
        return success()

    def _cloning(self, header: CloneGroupOffset) -> Iterator[None]:
        names = [header.topic] if header.topic else self.offsets.topics_of(header.src_group)
        for topic in names:
            parent = owner_topic(topic)
            if parent in self.topics and (header.offline or self._is_read(header.src_group, parent)):
                for queue_id, offset in self.offsets.of_group(header.src_group, topic).items():
                    self.offsets.commit(header.dest_group, topic, queue_id, offset)
                    yield

    def _is_read(self, group: str, topic: str) -> bool:
        online = self.clients.consumers.get(group)
        return online is None or not online.subscriptions or topic in online.subscriptions

    def broker_consume_stats(self, request: Command, _: Peer) -> Answer:
        """Returns the offset of each group in each queue, and the ends of the queues."""
        return answer_in_turns(
            self.long_work, self._consume_stats(is_order=GetBrokerConsumeStats.from_command(request).is_order)
        )

    def _consume_stats(self, *, is_order: bool) -> Iterator[bytes]:
        lag = _Lag()
        yield b'{"brokerAddr":' + dumps(self.address) + b',"consumeStatsList":['
        for number, group in enumerate(self.groups.names()):
            yield (b"," if number else b"") + b"{" + dumps(group) + b":["
            topics = [topic for name in self.offsets.topics_of(group) if (topic := self.topics.get(name)) is not None]
            chosen = [topic for topic in topics if self._is_read(group, topic.topic) and (topic.order or not is_order)]
            for place, topic in enumerate(chosen):
                tps = dumps(self.figures.get_tps(topic.topic, group))
                yield (b"," if place else b"") + b'{"consumeTps":' + tps + b',"offsetTable":{'
                yield from separated(self._counted_rows(group, topic, lag))
                yield b"}}"
            yield b"]}"
        yield b'],"totalDiff":%d,"totalInflightDiff":%d}' % (lag.consumed, lag.pulled)

    def _counted_rows(self, group: str, topic: TopicConfig, lag: _Lag) -> Iterator[bytes]:
        for queue_id in range(topic.write_queue_nums):
            row = self.rows.group_row(group, topic.topic, queue_id)
            members = row[2]
            lag.consumed += members["brokerOffset"] - members["consumerOffset"]
            lag.pulled += members["pullOffset"] - members["consumerOffset"]
            yield self.rows.encoded(row)

    def group_forbidden(self, request: Command, _: Peer) -> Answer:
        """Returns whether a group may read a topic. If the request has `readable`, first allows or forbids that."""
        header = UpdateGroupForbidden.from_command(request)
        if header.readable is None:
            return self._forbidden(header)
        try:
            self.groups.set_readable(header.group, header.topic, clock.now_ms(), is_readable=header.readable)
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        return self._when_written(header)

    async def _when_written(self, header: UpdateGroupForbidden) -> Command:
        try:
            with refused_by_disk():
                await self.groups.file.written()
        except RequestRefused as refused:
            return refusal(refused.code, str(refused))
        return self._forbidden(header)

    def _forbidden(self, header: UpdateGroupForbidden) -> Command:
        readable = self.groups.is_readable(header.group, header.topic)
        return success(body=dumps({"group": header.group, "readable": readable, "topic": header.topic}))
