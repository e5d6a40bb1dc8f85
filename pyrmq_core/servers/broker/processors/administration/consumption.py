"""The consumption of groups: topics (343), subscription (345), times (303), lowest offsets (308), all offsets (317), a
copy of offsets (314), and the topics that a group may not read (353).

Source: broker/processor/AdminBrokerProcessor.java (5.4.0). Unlike RocketMQ's, 308 removes no offsets of the groups that
it leaves out, 314 without a topic copies those of all topics and knows the group that gets them, and 353 allows one
topic again, not all of the group's.
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
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.messages.queue_tables import queue_members
from pyrmq_core.protocol.requests.broker.group_admin import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    QueryConsumeTimeSpan,
    QueryCorrectionOffset,
    UpdateGroupForbidden,
)
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.in_turns import BoundedWork, take_all
from pyrmq_core.servers.broker.processors.long_answers import answer_in_turns, in_turn, separated
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, refused_by_disk
from pyrmq_core.servers.broker.processors.statistics import group_row, row_of_queue
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable

MAX_LONG: Final = 2**63 - 1


@dataclass(slots=True)
class _Lag:
    """The number of messages that groups have not consumed, and how many of these are pulled already."""

    consumed: int = 0
    pulled: int = 0


def topics_of_group(offsets: GroupOffsets, address: str, request: Command) -> Command:
    topics = offsets.topics_of(request.ext.get("group", ""))
    return success(body=dumps({"brokerAddr": address, "topicList": topics}))


def subscription_of_group(clients: ClientTable, request: Command) -> Command:
    group, topic = request.ext.get("group", ""), request.ext.get("topic", "")
    members: dict[str, Any] = {"group": group, "topic": topic}
    if (subscription := clients.subscription(group, topic)) is not None:
        members["subscriptionData"] = subscription.to_members()
    return success(body=dumps(members))


def time_spans(broker: Broker, request: Command, _: Peer) -> Answer:
    """Returns the store times in ms of each queue's first, last and last consumed message, and the group's delay."""
    header = QueryConsumeTimeSpan.from_command(request)
    topic = broker.topics.get(header.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
    return answer_in_turns(broker.long_work, _time_spans(broker, header, topic.write_queue_nums))


def _time_spans(broker: Broker, header: QueryConsumeTimeSpan, queues: int) -> Iterator[bytes]:
    yield b'{"consumeTimeSpanSet":['
    yield from separated(dumps(_time_span(broker, header, queue_id)) for queue_id in range(queues))
    yield b"]}"


def _time_span(broker: Broker, header: QueryConsumeTimeSpan, queue_id: int) -> dict[str, Any]:
    store, key = broker.store, (header.topic, queue_id)
    start, end = store.reader.bounds(key)

    def time_of(offset: int) -> int:
        return store.reader.store_time(key, offset) or -1

    committed = broker.offsets.committed(header.group, header.topic, queue_id)
    consumed_to = start if committed is None else committed
    first = time_of(start)
    return {
        "consumeTimeStamp": time_of(consumed_to - 1) if committed else first,
        "delayTime": broker.now_ms() - time_of(consumed_to) if consumed_to < end else 0,
        "maxTimeStamp": time_of(end - 1),
        "messageQueue": queue_members(MessageQueue(header.topic, broker.config.broker_name, queue_id)),
        "minTimeStamp": first,
    }


def correction_offsets(long_work: BoundedWork, offsets: GroupOffsets, reader: StoreReader, request: Command) -> Answer:
    """Returns the lowest committed offset of any group in each queue, or the largest number where it is beyond the
    compared group's offset."""
    header = QueryCorrectionOffset.from_command(request)
    return answer_in_turns(long_work, _correction_offsets(offsets, reader, header))


def _correction_offsets(offsets: GroupOffsets, reader: StoreReader, header: QueryCorrectionOffset) -> Iterator[bytes]:
    left_out = {name for name in (header.filter_groups or "").split(",") if name}
    lowest: dict[int, int] = {}
    for group in offsets.groups_of(header.topic):
        if group in left_out:
            continue
        for queue_id, offset in offsets.of_group(group, header.topic).items():
            if offset >= reader.bounds((header.topic, queue_id))[0]:
                lowest[queue_id] = min(offset, lowest.get(queue_id, MAX_LONG))
            yield b""
    for queue_id, offset in offsets.of_group(header.compare_group, header.topic).items():
        if lowest.get(queue_id, 0) > offset:
            lowest[queue_id] = MAX_LONG
    yield b'{"correctionOffsets":{'
    yield from separated(b'"%d":%d' % row for row in lowest.items())
    yield b"}}"


def clone_offsets(broker: Broker, request: Command, _: Peer) -> Answer:
    header = CloneGroupOffset.from_command(request)
    if broker.groups.find(header.dest_group, broker.now_ms()) is None:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.dest_group} not exist!")
    return in_turn(broker.long_work, partial(_clone_offsets, broker, header))


async def _clone_offsets(broker: Broker, header: CloneGroupOffset) -> Command:
    with trio.CancelScope(shield=True):  # a copy is complete even if its caller disconnects
        await take_all(_cloning(broker, header))
    return success()


def _cloning(broker: Broker, header: CloneGroupOffset) -> Iterator[None]:
    """Copies the offsets of one group to another group, one offset a step."""
    names = [header.topic] if header.topic else broker.offsets.topics_of(header.src_group)
    for topic in names:
        if topic in broker.topics and (header.offline or _is_read(broker.clients, header.src_group, topic)):
            for queue_id, offset in broker.offsets.of_group(header.src_group, topic).items():
                broker.offsets.commit(header.dest_group, topic, queue_id, offset)
                yield


def _is_read(clients: ClientTable, group: str, topic: str) -> bool:
    """Returns False if the group is online and does not subscribe to the topic."""
    online = clients.consumers.get(group)
    return online is None or not online.subscriptions or topic in online.subscriptions


def broker_consume_stats(broker: Broker, request: Command, _: Peer) -> Answer:
    """Returns each group's offsets, topic by topic, beside the ends of the queues."""
    return answer_in_turns(
        broker.long_work, _consume_stats(broker, is_order=GetBrokerConsumeStats.from_command(request).is_order)
    )


def _consume_stats(broker: Broker, *, is_order: bool) -> Iterator[bytes]:
    lag = _Lag()
    yield b'{"brokerAddr":' + dumps(broker.address) + b',"consumeStatsList":['
    for number, group in enumerate(broker.groups.names()):
        yield (b"," if number else b"") + b"{" + dumps(group) + b":["
        topics = [topic for name in broker.offsets.topics_of(group) if (topic := broker.topics.get(name)) is not None]
        chosen = [
            topic for topic in topics if _is_read(broker.clients, group, topic.topic) and (topic.order or not is_order)
        ]
        for place, topic in enumerate(chosen):
            tps = dumps(broker.figures.get_tps(topic.topic, group))
            yield (b"," if place else b"") + b'{"consumeTps":' + tps + b',"offsetTable":{'
            yield from separated(_counted_rows(broker, group, topic, lag))
            yield b"}}"
        yield b"]}"
    yield b'],"totalDiff":%d,"totalInflightDiff":%d}' % (lag.consumed, lag.pulled)


def _counted_rows(broker: Broker, group: str, topic: TopicConfig, lag: _Lag) -> Iterator[bytes]:
    """Yields a row for each queue, and counts the messages that the group has not consumed."""
    for queue_id in range(topic.write_queue_nums):
        row = group_row(broker, group, topic.topic, queue_id)
        members = row[2]
        lag.consumed += members["brokerOffset"] - members["consumerOffset"]
        lag.pulled += members["pullOffset"] - members["consumerOffset"]
        yield row_of_queue(broker, row)


def group_forbidden(groups: GroupTable, now_ms: int, request: Command) -> Answer:
    """Forbids a group to read a topic, or allows it again; returns the state after the change."""
    header = UpdateGroupForbidden.from_command(request)
    if header.readable is None:
        return _forbidden(groups, header)
    try:
        groups.set_readable(header.group, header.topic, now_ms, is_readable=header.readable)
    except InvalidArgument as error:
        return refusal(ResponseCode.INVALID_PARAMETER, str(error))
    return _when_written(groups, header)


async def _when_written(groups: GroupTable, header: UpdateGroupForbidden) -> Command:
    try:
        with refused_by_disk():
            await groups.file.written()
    except RequestRefused as refused:
        return refusal(refused.code, str(refused))
    return _forbidden(groups, header)


def _forbidden(groups: GroupTable, header: UpdateGroupForbidden) -> Command:
    readable = groups.is_readable(header.group, header.topic)
    return success(body=dumps({"group": header.group, "readable": readable, "topic": header.topic}))
