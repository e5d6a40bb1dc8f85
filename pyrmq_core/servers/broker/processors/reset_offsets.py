"""INVOKE_BROKER_TO_RESET_OFFSET (222): an administrator gives a group new offsets, whether it is online or not.

With useServerSideResetOffset (the default) the broker keeps them: they are committed, and the group's next pull of each
queue is answered PULL_OFFSET_MOVED with the new offset. Otherwise the broker sends them to the members (220), which
have to be online and to have committed offsets. Source: broker/processor/AdminBrokerProcessor.java (resetOffsetInner),
broker/client/net/Broker2Client.java (resetOffset), 5.4.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from pyrmq_core.errors import NetworkError
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.queue_tables import dump_queue_row
from pyrmq_core.protocol.requests.broker.consumer_admin import NO_OFFSET, ResetOffset
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker.broker import Answer, Broker
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.processors.long_answers import in_turn

SEND_SECONDS: Final = 5.0
# The searches by time before other tasks run: each reads some pages of a file.
SEARCHES_AT_ONCE: Final = 32


class _Refused(Exception):
    """A queue that cannot be reset."""


def reset_offset(broker: Broker, request: Command, _: Peer) -> Answer:
    header = ResetOffset.from_command(request)
    topic = broker.topics.get(header.topic)
    if topic is None:
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
    if not broker.config.use_server_side_reset_offset:
        return in_turn(broker.long_work, partial(_send_to_members, broker, header, topic))
    if header.group not in broker.groups:
        return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
    if header.queue_id >= MAX_QUEUES_PER_TOPIC:
        return refusal(ResponseCode.INVALID_PARAMETER, f"queueId[{header.queue_id}] is illegal, no topic has it")
    if header.queue_id < 0 and not topic.read_queue_nums:
        return refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
    return in_turn(broker.long_work, partial(_keep, broker, header, topic))


async def _keep(broker: Broker, header: ResetOffset, topic: TopicConfig) -> Command:
    """Looks up all offsets, commits them, and wakes waiting pulls, so that consumers receive the offsets at once."""
    queues = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
    offsets: dict[MessageQueue, int] = {}
    try:
        async for queue_id in InTurns(queues, SEARCHES_AT_ONCE):
            queue = MessageQueue(header.topic, broker.config.broker_name, queue_id)
            offsets[queue] = _offset(broker, header, queue_id)
    except _Refused as refused:
        return refusal(ResponseCode.SYSTEM_ERROR, str(refused))
    with trio.CancelScope(shield=True):  # a reset is complete even if its caller disconnects
        async for queue, offset in InTurns(offsets.items()):
            broker.offsets.reset(header.group, header.topic, queue.queue_id, offset)
            broker.held.wake_group((header.topic, queue.queue_id), header.group)
    return success(body=await _table(offsets))


async def _table(offsets: Mapping[MessageQueue, int]) -> bytes:
    """Returns the new offsets as JSON; made with pauses, since a topic may have 65,535 queues."""
    rows = [dump_queue_row(queue, offset) async for queue, offset in InTurns(offsets.items())]
    return b'{"offsetTable":{' + b",".join(rows) + b"}}"


def _offset(broker: Broker, header: ResetOffset, queue_id: int) -> int:
    if header.queue_id < 0 or header.offset in (None, NO_OFFSET):
        return _offset_by_time(broker, header, queue_id)
    start, end = broker.store.reader.bounds((header.topic, queue_id))
    if not start <= header.offset <= end + 1:
        raise _Refused(f"Target offset {header.offset} not in consume queue range [{start}-{end}]")
    return header.offset


def _offset_by_time(broker: Broker, header: ResetOffset, queue_id: int) -> int:
    key = (header.topic, queue_id)
    if header.timestamp_ms < 0:
        return broker.store.reader.bounds(key)[1]
    return broker.store.reader.search(key, header.timestamp_ms, upper=False)


async def _send_to_members(broker: Broker, header: ResetOffset, topic: TopicConfig) -> Command:
    """Sends the offsets to each member of the group; nothing is committed here."""
    offsets: dict[MessageQueue, int] = {}
    async for queue_id in InTurns(range(topic.write_queue_nums), SEARCHES_AT_ONCE):
        committed = broker.offsets.committed(header.group, header.topic, queue_id)
        if committed is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
        by_time = _offset_by_time(broker, header, queue_id)
        queue = MessageQueue(header.topic, broker.config.broker_name, queue_id)
        offsets[queue] = by_time if header.is_force or by_time < committed else committed
    members = list(broker.clients.members(header.group))
    if not members:
        remark = (
            f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
            f"Timestamp: {header.timestamp_ms}"
        )
        return refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
    body = await _table(offsets)
    request = ResetConsumerOffset(header.topic, header.group, header.timestamp_ms, queue_id=-1).to_command()
    command = replace(request, body=body).oneway()
    for peer in members:
        _send(peer, command)
        await trio.lowlevel.checkpoint()
    return success(body=body)


def _send(peer: Peer, command: Command) -> None:
    """Posts the reset, unless the client does not read or its connection is closed."""
    if not peer.connection.is_full:
        with contextlib.suppress(NetworkError):
            peer.connection.post(command, timeout=SEND_SECONDS, done=_sent)


def _sent(_: object) -> None:
    """Ignores the outcome, as RocketMQ does: the administrator looks at the group's progress."""
