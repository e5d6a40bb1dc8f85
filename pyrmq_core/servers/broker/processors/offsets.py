"""Requests for the offsets of queues (29 to 32), and for the offsets that groups committed (14, 15).

Source: broker/processor/AdminBrokerProcessor.java, ConsumerManageProcessor.java (5.4.0). For a topic or queue that does
not exist, 29 to 32 answer as for an empty queue. A request selects the queue of a lite topic by using the queue's name
as the topic, 29 also by the field `liteTopic`. A commit in such a queue is refused if the queue has no messages or ends
before the offset. 5.5.0 accepts any offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.names import LMQ_PREFIX, is_lite_queue, owner_topic
from pyrmq_core.protocol.requests.broker.consumer_offsets import (
    PREVIOUSLY_RESET,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from pyrmq_core.protocol.requests.broker.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    StoreTimeFound,
)
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker.clients.client_table import ClientInfo, ClientTable
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.name_rules import (
    NO_LITE_QUEUES,
    checked,
    group_fault,
    lite_refusal,
    queue_fault,
)
from pyrmq_core.servers.broker.store.store_reader import StoreReader
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable

UPPER: Final = "UPPER"
NOT_FOUND: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NOT_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"


@dataclass(frozen=True, slots=True)
class OffsetRequests:
    """The handlers of requests about the offsets of queues, and the offsets that groups committed in them."""

    reader: StoreReader
    offsets: GroupOffsets
    groups: GroupTable
    topics: TopicTable
    clients: ClientTable
    keeps_lite: bool = False

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_MAX_OFFSET: checked(self.max_offset, topic=queue_fault),
            RequestCode.GET_MIN_OFFSET: checked(self.min_offset, topic=queue_fault),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: checked(self.search_offset, topic=queue_fault),
            RequestCode.GET_EARLIEST_MSG_STORETIME: checked(self.earliest_store_time, topic=queue_fault),
            RequestCode.QUERY_CONSUMER_OFFSET: checked(
                self.query_consumer_offset, consumerGroup=group_fault, topic=queue_fault
            ),
            RequestCode.UPDATE_CONSUMER_OFFSET: checked(
                self.update_consumer_offset, consumerGroup=group_fault, topic=queue_fault
            ),
        }

    def max_offset(self, request: Command, _: Peer) -> Command:
        header = GetMaxOffset.from_command(request)
        return OffsetFound(self.reader.bounds((header.topic, header.queue_id))[1]).to_command()

    def min_offset(self, request: Command, _: Peer) -> Command:
        header = GetMinOffset.from_command(request)
        return OffsetFound(self.reader.bounds((header.topic, header.queue_id))[0]).to_command()

    def search_offset(self, request: Command, _: Peer) -> Command:
        refused = None if self.keeps_lite else lite_refusal(request, NO_LITE_QUEUES)
        if refused is not None:
            return refused
        header = SearchOffset.from_command(request)
        upper = (header.boundary_type or "").upper() == UPPER
        key = (queue_topic(request, header.topic), header.queue_id)
        offset = self.reader.search(key, header.timestamp_ms, upper=upper)
        return OffsetFound(offset).to_command()

    def earliest_store_time(self, request: Command, _: Peer) -> Command:
        header = GetEarliestStoreTime.from_command(request)
        key = (header.topic, header.queue_id)
        stored = self.reader.store_time(key, self.reader.bounds(key)[0])
        return StoreTimeFound(-1 if stored is None else stored).to_command()

    def query_consumer_offset(self, request: Command, _: Peer) -> Command:
        """Returns a group's committed offset in a queue, or a refusal if the group has none.

        For a queue with messages that begins at offset 0, it returns 0 instead of the refusal, unless the request
        forbids that.
        """
        header = QueryConsumerOffset.from_command(request)
        committed = self.offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if committed is not None:
            return OffsetFound(committed).to_command()
        if header.set_zero_if_not_found is False:
            return refusal(ResponseCode.QUERY_NOT_FOUND, NOT_ZERO)
        start, end = self.reader.bounds((header.topic, header.queue_id))
        if start <= 0 < end:
            return OffsetFound(0).to_command()
        return refusal(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)

    def update_consumer_offset(
        self,
        request: Command,
        peer: Peer,
    ) -> Command:
        header = UpdateConsumerOffset.from_command(request)
        if header.consumer_group not in self.groups:
            return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.consumer_group} not exist!")
        is_known = owner_topic(header.topic) in self.topics
        if not is_known or not may_commit_in(self.reader, header.topic, header.queue_id):
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} not exist!")
        # The topic's number of queues is no limit, since it may have been larger. RocketMQ accepts any queue id.
        if not 0 <= header.queue_id < MAX_QUEUES_PER_TOPIC:
            return refusal(ResponseCode.INVALID_PARAMETER, f"queueId[{header.queue_id}] is illegal, no topic has it")
        if not may_commit_in(self.reader, header.topic, header.queue_id, header.commit_offset):
            remark = f"commitOffset[{header.commit_offset}] is beyond the end of {header.topic}"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        key = (header.consumer_group, header.topic, header.queue_id)
        member = self.clients.members(header.consumer_group).get(peer)
        is_out_of_date = header.from_slave and self.offsets.was_reset(*key)
        if is_out_of_date or not commit(self.offsets, key, header.commit_offset, member):
            return replace(success(), remark=PREVIOUSLY_RESET)
        return success()


def queue_topic(request: Command, topic: str) -> str:
    """Returns the topic to read: the internal topic for the request's field `liteTopic`, or `topic` without it."""
    lite_topic = request.ext.get("liteTopic")
    return f"{LMQ_PREFIX}{topic}${lite_topic}" if lite_topic else topic


def may_commit_in(reader: StoreReader, topic: str, queue_id: int, offset: int = 0) -> bool:
    """Returns False for a lite topic's queue that is empty or ends before `offset`, and True for any other queue.

    With commits in empty queues, requests with arbitrary names could fill the table of offsets. An offset beyond the
    end is one of a deleted queue with the same name.
    """
    return not is_lite_queue(topic) or reader.bounds((topic, queue_id))[1] >= max(offset, 1)


def commit(offsets: GroupOffsets, key: tuple[str, str, int], offset: int, member: ClientInfo | None) -> bool:
    """Commits an offset of a group, topic and queue id. Returns False, with nothing changed, if a reset forbids it.

    After a reset, the group's `member` may commit once it has pulled at the new offset. `member` is None for a client
    outside the group.
    """
    client_id = None if member is None else member.client_id
    if not offsets.may_commit(*key, offset, trio.current_time(), client_id):
        return False
    offsets.commit(*key, offset)
    return True
