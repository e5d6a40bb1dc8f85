"""Administrators' requests that the broker passes on to connected consumers.

The broker sends GET_CONSUMER_RUNNING_INFO (307) and CONSUME_MESSAGE_DIRECTLY (309) to the client with the requested id,
and returns its answer. For the request for offsets in consumers' memory (223) it sends a request 221 to each member of
the group. Members without a proper answer are left out.
Source: broker/processor/AdminBrokerProcessor.java (callConsumer, consumeMessageDirectly, getConsumerStatus),
broker/client/net/Broker2Client.java (5.4.0).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import trio

from pyrmq_core.errors import InvalidArgument, ProtocolError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.record import batch_base
from pyrmq_core.protocol.requests.broker.consumer_admin import GetStatusOfConsumers
from pyrmq_core.protocol.requests.client.consume_message_directly import ConsumeMessageDirectly
from pyrmq_core.protocol.requests.client.get_consumer_running_info import GetConsumerRunningInfo
from pyrmq_core.protocol.requests.client.get_consumer_status import ConsumerStatus, GetConsumerStatus
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.consumer_calls import ConsumerCalls
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, client_fault, group_fault, if_any, topic_fault
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

log = logging.getLogger(__name__)

CALL_SECONDS: Final = 10.0
STATUS_SECONDS: Final = 5.0
# How many members are called at a time. RocketMQ calls them one after another.
MEMBERS_AT_ONCE: Final = 8
MOST_MEMBERS: Final = 256
# The most bytes of a member's answer to request 221, which has some 80 bytes for each queue. A longer one is not read.
MAX_STATUS_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ConsumerCallRequests:
    """The handlers of an administrator's requests that the broker passes on to connected consumers."""

    settings: LiveSettings
    calls: ConsumerCalls
    clients: ClientTable
    reader: StoreReader
    topics: TopicTable
    groups: GroupTable

    def handlers(self) -> Handlers:
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: checked(
                self.consumer_status, topic=topic_fault, group=group_fault, clientAddr=client_fault
            ),
            RequestCode.GET_CONSUMER_RUNNING_INFO: checked(
                self.running_info, consumerGroup=group_fault, clientId=client_fault
            ),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: checked(
                self.consume_directly, consumerGroup=group_fault, clientId=client_fault, topic=if_any(topic_fault)
            ),
        }

    def running_info(self, request: Command, _: Peer) -> Answer:
        header = GetConsumerRunningInfo.from_command(request)
        return self._pass_on(header.consumer_group, header.client_id, header.to_command())

    def consume_directly(self, request: Command, _: Peer) -> Answer:
        """Sends a stored message to the consumer that the request names, and returns the consumer's answer.

        A record that contains a whole batch is refused.
        """
        header = ConsumeMessageDirectly.from_command(request)
        try:
            place = decode_offset_msg_id(header.msg_id or "").offset
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error))
        record = self.reader.record(place) if place >= 0 else None
        if record is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {place}")
        if batch_base(record) is not None:  # a Java consumer would read a batch record as one message
            return refusal(ResponseCode.SYSTEM_ERROR, f"{place} is a batch that is one record, and no message")
        topic = self.topics.get(header.topic or "")
        group = self.groups.known(header.consumer_group)
        passed = replace(
            header,
            broker_name=self.settings.config.broker_name,
            topic_sys_flag=None if topic is None else topic.topic_sys_flag,
            group_sys_flag=None if group is None else group["groupSysFlag"],
            record=bytes(record),
        )
        return self._pass_on(header.consumer_group, header.client_id, passed.to_command())

    def _pass_on(self, group: str, client_id: str | None, request: Command) -> Answer:
        members = self.clients.members(group)
        peer = next((peer for peer, client in members.items() if client.client_id == client_id), None)
        if peer is None:
            return refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return self.calls.call(peer, request, f"<{group}> <{client_id}>", seconds=CALL_SECONDS)

    def consumer_status(self, request: Command, _: Peer) -> Answer:
        header = GetStatusOfConsumers.from_command(request)
        members = self.clients.members(header.group)
        if not members:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        called = {
            client.client_id: peer
            for peer, client in members.items()
            if not header.client_address or client.client_id == header.client_address
        }
        if len(called) > MOST_MEMBERS:
            remark = (
                f"the group has {len(called)} members; name one of them, {MOST_MEMBERS} at most are called at a time"
            )
            return refusal(ResponseCode.SYSTEM_ERROR, remark)
        return _collect(self.calls, called, GetConsumerStatus(header.topic, header.group))


async def _collect(calls: ConsumerCalls, called: Mapping[str, Peer], header: GetConsumerStatus) -> Command:
    offsets_of: dict[str, Mapping[MessageQueue, int]] = {}
    waiting = iter(called.items())

    async def ask_next() -> None:
        for client_id, peer in waiting:
            offsets = await _offsets_of(calls, client_id, peer, header)
            if offsets is not None:
                offsets_of[client_id] = offsets

    with trio.move_on_after(STATUS_SECONDS):
        async with trio.open_nursery() as nursery:
            for _ in range(min(MEMBERS_AT_ONCE, len(called))):
                nursery.start_soon(ask_next)
    return ConsumerStatus(clients=offsets_of).to_command()


async def _offsets_of(
    calls: ConsumerCalls, client_id: str, peer: Peer, header: GetConsumerStatus
) -> Mapping[MessageQueue, int] | None:
    answer = await calls.call(peer, header.to_command(), client_id, seconds=STATUS_SECONDS)
    if answer.code != ResponseCode.SUCCESS or len(answer.body) > MAX_STATUS_BYTES:
        log.info("consumer %s of group %s answered %d, %s", client_id, header.group, answer.code, answer.remark)
        return None
    try:
        return ConsumerStatus.from_command(answer).offsets
    except ProtocolError as error:
        log.info("consumer %s of group %s answered nonsense: %s", client_id, header.group, error)
        return None
