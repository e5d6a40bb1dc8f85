"""INVOKE_BROKER_TO_RESET_OFFSET (222): an administrator sets new offsets of a group, whether it is online or not.

With useServerSideResetOffset (the default) the broker commits them, and answers the group's next pull of each queue
with PULL_OFFSET_MOVED and the new offset. Otherwise the broker sends them to the members (220), which must be online
and have committed offsets. Source: broker/processor/AdminBrokerProcessor.java (resetOffsetInner),
broker/client/net/Broker2Client.java (resetOffset), 5.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.queue_tables import dump_queue_row
from pyrmq_core.protocol.requests.broker.consumer_admin import NO_OFFSET, ResetOffset
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.group_notices import post_notice
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.in_turns import BoundedWork, InTurns
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.long_answers import in_turn
from pyrmq_core.servers.broker.processors.name_rules import checked, group_fault, topic_fault
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

SEND_SECONDS: Final = 5.0
# How many searches by time are done before other tasks run. Each reads some pages of a file.
SEARCHES_AT_ONCE: Final = 32


class _Refused(Exception):
    pass


@dataclass(frozen=True, slots=True)
class ResetRequests:
    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    reader: StoreReader
    clients: ClientTable
    held: HeldPulls
    long_work: BoundedWork

    def handlers(self) -> Handlers:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: checked(self.reset_offset, topic=topic_fault, group=group_fault),
        }

    def reset_offset(self, request: Command, _: Peer) -> Answer:
        header = ResetOffset.from_command(request)
        topic = self.topics.get(header.topic)
        if topic is None:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if not self.settings.config.use_server_side_reset_offset:
            return in_turn(self.long_work, partial(self._send_to_members, header, topic))
        if header.group not in self.groups:
            return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if header.queue_id >= MAX_QUEUES_PER_TOPIC:
            return refusal(ResponseCode.INVALID_PARAMETER, f"queueId[{header.queue_id}] is illegal, no topic has it")
        if header.queue_id < 0 and not topic.read_queue_nums:
            return refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        return in_turn(self.long_work, partial(self._keep, header, topic))

    async def _keep(self, header: ResetOffset, topic: TopicConfig) -> Command:
        queues = [header.queue_id] if header.queue_id >= 0 else range(topic.read_queue_nums)
        offsets: dict[MessageQueue, int] = {}
        try:
            async for queue_id in InTurns(queues, SEARCHES_AT_ONCE):
                queue = MessageQueue(header.topic, self.settings.config.broker_name, queue_id)
                offsets[queue] = self._offset(header, queue_id)
        except _Refused as refused:
            return refusal(ResponseCode.SYSTEM_ERROR, str(refused))
        with trio.CancelScope(shield=True):  # the reset is finished even if its caller disconnects
            async for queue, offset in InTurns(offsets.items()):
                self.offsets.reset(header.group, header.topic, queue.queue_id, offset)
                self.held.wake_group((header.topic, queue.queue_id), header.group)
        return success(body=await _table(offsets))

    def _offset(self, header: ResetOffset, queue_id: int) -> int:
        if header.queue_id < 0 or header.offset in (None, NO_OFFSET):
            return self._offset_by_time(header, queue_id)
        start, end = self.reader.bounds((header.topic, queue_id))
        if not start <= header.offset <= end + 1:
            raise _Refused(f"Target offset {header.offset} not in consume queue range [{start}-{end}]")
        return header.offset

    def _offset_by_time(self, header: ResetOffset, queue_id: int) -> int:
        key = (header.topic, queue_id)
        if header.timestamp_ms < 0:
            return self.reader.bounds(key)[1]
        return self.reader.search(key, header.timestamp_ms, upper=False)

    async def _send_to_members(self, header: ResetOffset, topic: TopicConfig) -> Command:
        offsets: dict[MessageQueue, int] = {}
        async for queue_id in InTurns(range(topic.write_queue_nums), SEARCHES_AT_ONCE):
            committed = self.offsets.committed(header.group, header.topic, queue_id)
            if committed is None:
                return refusal(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist")
            by_time = self._offset_by_time(header, queue_id)
            queue = MessageQueue(header.topic, self.settings.config.broker_name, queue_id)
            offsets[queue] = by_time if header.is_force or by_time < committed else committed
        members = list(self.clients.members(header.group))
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
            post_notice(peer, command, SEND_SECONDS)
            await trio.lowlevel.checkpoint()
        return success(body=body)


async def _table(offsets: Mapping[MessageQueue, int]) -> bytes:
    rows = [dump_queue_row(queue, offset) async for queue, offset in InTurns(offsets.items())]
    return b'{"offsetTable":{' + b",".join(rows) + b"}}"
