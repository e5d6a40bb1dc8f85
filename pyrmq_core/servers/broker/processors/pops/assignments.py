"""QUERY_ASSIGNMENT (400), which returns the queues of a group's member, and SET_MESSAGE_REQUEST_MODE (401).

The request mode (401) says whether a group pulls or pops the messages of a topic. A member of a group that pops is
assigned all queues of the topic, or those that it and the next `popShareQueueNum` members would pull. The topic's
queues at all brokers come from its route. If no NameServer answers, the answer has no list, and the client keeps its
queues.
Source: broker/processor/QueryAssignmentProcessor.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageQueue
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.messages.names import is_retry_topic
from pyrmq_core.protocol.requests.pop.assignments import (
    Assignments,
    QueryAssignment,
    QueueAssignment,
    RequestMode,
    SetRequestMode,
)
from pyrmq_core.protocol.requests.pop.pop_message import ANY_QUEUE
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.client_table import BROADCASTING, ClientTable
from pyrmq_core.servers.broker.processors.handlers import Handlers
from pyrmq_core.servers.broker.processors.name_rules import group_fault, topic_fault
from pyrmq_core.servers.broker.processors.put_message import RequestRefused, refused_by_disk
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.tables.request_modes import RequestModes
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import READ, TopicTable

ROUTE_SECONDS: Final = 3.0

Queues = Sequence[MessageQueue]


@dataclass(frozen=True, slots=True)
class AssignmentRequests:
    """The handlers of requests to assign queues to members of groups, and to let a group pull or pop a topic."""

    settings: LiveSettings
    topics: TopicTable
    groups: GroupTable
    clients: ClientTable
    modes: RequestModes
    registration: BrokerRegistration

    def handlers(self) -> Handlers:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
        }

    async def query(self, request: Command, _: Peer) -> Command:
        query = QueryAssignment.from_command(request)
        if fault := topic_fault(query.topic) or group_fault(query.consumer_group):
            return refusal(ResponseCode.INVALID_PARAMETER, fault)
        group = self.clients.consumers.get(query.consumer_group)
        is_broadcast = query.message_model == BROADCASTING
        if group is None and not is_broadcast:
            return Assignments().to_command()
        queues = await self._queues(query.topic)
        if queues is None:
            return Assignments().to_command()
        mode, client_ids = self.modes.find(query.topic, query.consumer_group), [] if group is None else group.client_ids
        own = queues if is_broadcast else assigned(mode, query.strategy, query.client_id, queues, sorted(client_ids))
        rows = None if own is None else tuple(QueueAssignment(queue, mode.mode) for queue in own)
        return Assignments(rows).to_command()

    async def _queues(self, topic: str) -> list[MessageQueue] | None:
        if not self.settings.config.nameservers:
            config, name = self.topics.get(topic), self.settings.config.broker_name
            return None if config is None else [MessageQueue(topic, name, at) for at in range(config.read_queue_nums)]
        try:
            route = await self.registration.route(topic, ROUTE_SECONDS)
        except RocketMQError:
            return None
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queue_datas
            if data.perm & READ
            for queue_id in range(data.read_queue_nums)
        )

    async def set_mode(self, request: Command, _: Peer) -> Command:
        mode = SetRequestMode.from_command(request)
        if is_retry_topic(mode.topic):
            return refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if mode.topic not in self.topics:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic[:255]}] not exist")
        if self.groups.find(mode.consumer_group, clock.now_ms()) is None:
            return refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if not self.modes.put(mode):
            return refusal(ResponseCode.SYSTEM_ERROR, "there are too many modes of groups")
        try:
            with refused_by_disk():
                await self.modes.file.written()
        except RequestRefused as error:
            return refusal(error.code, str(error))
        return success()


def averagely(queues: Queues, members: int, index: int) -> Queues:
    size, more = divmod(len(queues), members)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


def averagely_by_circle(queues: Queues, members: int, index: int) -> Queues:
    return queues[index::members]


STRATEGIES: Final[Mapping[str, Callable[[Queues, int, int], Queues]]] = {
    "AVG": averagely,
    "AVG_BY_CIRCLE": averagely_by_circle,
}


def assigned(
    mode: SetRequestMode, strategy: str, client_id: str, queues: Queues, client_ids: Sequence[str]
) -> Queues | None:
    """Returns the queues assigned to the member `client_id`, or None for an unknown strategy.

    `queues` are all queues of the topic, and `client_ids` the ids of all members, both sorted. A member that pops also
    gets the queues of further members, as many as `mode` says.
    """
    allocate = STRATEGIES.get(strategy)
    if allocate is None:
        return None
    number, share = len(client_ids), mode.share_queues
    pops = mode.mode is RequestMode.POP
    if pops and (share <= 0 or share >= number - 1):
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return [MessageQueue(mode.topic, broker, ANY_QUEUE) for broker in brokers]
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if not pops:
        return allocate(queues, number, index)
    if number > len(queues):
        return [queues[index % len(queues)]] if queues else []
    return [queue for step in range(share + 1) for queue in allocate(queues, number, (index + step) % number)]
