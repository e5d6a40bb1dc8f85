"""POP_LITE_MESSAGE (200070) pops from a client's lite topics. LITE_SUBSCRIPTION_CTL (200071) changes which these are.

Source: broker/processor/PopLiteMessageProcessor.java, LiteSubscriptionCtlProcessor.java and
broker/lite/LiteSubscriptionRegistryImpl.java (5.5.0), with their codes. Unlike in RocketMQ, a COMPLETE_ADD (a
client's complete list) counts for maxLiteSubscriptionCount, and takes no lite topic of an exclusive group from another
client. A client id cannot change its group and topic. A broker without lite queues refuses subscriptions. The locks of
lite topics outlast a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code
from pyrmq_core.protocol.messages.lite_topics import lite_queue_name
from pyrmq_core.protocol.messages.names import is_lite_queue
from pyrmq_core.protocol.messages.properties import LITE_TOPIC_NAME, LITE_TOPIC_RULE
from pyrmq_core.protocol.requests.pop.lite import (
    BIND_TOPIC,
    EXCLUSIVE,
    FIRST,
    RESET_IN_EXCLUSIVE,
    RESET_ON_UNSUBSCRIBE,
    SUB_MODEL,
    WILDCARD,
    LiteAction,
    LiteChange,
    LiteStart,
    LiteSubscriptionCtl,
    NotifyUnsubscribeLite,
    PopLiteMessage,
    write_lite_tries,
)
from pyrmq_core.protocol.requests.pop.pop_message import (
    ANY_QUEUE,
    ENTRY_SEPARATOR,
    POLLING_FULL,
    POLLING_TIMEOUT,
    InitMode,
    PopAnswer,
    PopMessage,
)
from pyrmq_core.protocol.requests.pop.receipt import ORDERED_REVIVE_QUEUE
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.clients.group_notices import post_notice
from pyrmq_core.servers.broker.clients.held_pulls import held_bytes
from pyrmq_core.servers.broker.in_turns import InTurns
from pyrmq_core.servers.broker.pop.lite_clients import LiteClient, LiteClients
from pyrmq_core.servers.broker.pop.waits import lite_waiter
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.processors.name_rules import checked, client_fault, group_fault, topic_fault
from pyrmq_core.servers.broker.processors.pops.held import HeldRequest, in_turn
from pyrmq_core.servers.broker.processors.pops.pop_message import (
    ENDS_SOON_MS,
    TOO_LATE_MS,
    PopOutcome,
    PopRequests,
)
from pyrmq_core.servers.broker.processors.pulls.pull_filters import PullFilter
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.tables.attributes import MESSAGE_TYPE
from pyrmq_core.servers.broker.tables.topics import WRITE

ROUTE_SECONDS: Final = 3.0
# The most changes in a request, since each may query a NameServer. RocketMQ's proxy sends one.
MOST_CHANGES: Final = 100
ALL_MESSAGES: Final = PullFilter()


class QuotaExceeded(Exception):
    """Raised for a subscription beyond the broker's maxLiteSubscriptionCount."""


@dataclass(frozen=True, slots=True)
class LiteGroupRequests:
    """The handlers of pops from lite topics, and of subscriptions to them."""

    pops: PopRequests
    registration: BrokerRegistration

    def handlers(self) -> Handlers:
        names = {"topic": topic_fault, "consumerGroup": group_fault, "clientId": client_fault}
        return {
            RequestCode.POP_LITE_MESSAGE: checked(self.pop, **names),
            RequestCode.LITE_SUBSCRIPTION_CTL: self.control,
        }

    @property
    def clients(self) -> LiteClients:
        return self.pops.reviver.waits.lite

    def pop(self, request: Command, peer: Peer) -> Answer:
        header = PopLiteMessage.from_command(request)
        ends_ms = (header.born_time_ms or clock.now_ms()) + header.poll_time_ms
        return in_turn(self.pops.reviver.waits, peer, partial(self._begin, request, header, ends_ms, peer))

    def _begin(self, request: Command, header: PopLiteMessage, ends_ms: int, peer: Peer) -> Answer:
        now_ms, wanted = clock.now_ms(), _as_pop(header)
        if now_ms - ends_ms > TOO_LATE_MS:
            ip = self.pops.settings.config.advertised_ip
            return refusal(POLLING_TIMEOUT, f"the broker[{ip}] pop message is timeout too much")
        refused = self._refuse(header, wanted, peer)
        if refused is not None:
            return refused
        outcome = self._take(header, wanted)
        left_ms = min(ends_ms - now_ms, header.poll_time_ms)
        if outcome.queues or left_ms <= ENDS_SOON_MS or header.max_messages <= 0:
            return _answer(header, outcome, POLLING_TIMEOUT)
        waits, size_bytes = self.pops.reviver.waits, held_bytes(request, None)
        if not waits.held.has_room(peer, size_bytes):
            return _answer(header, outcome, POLLING_FULL)
        waiter, attempt = (
            lite_waiter(header.client_id, header.consumer_group),
            partial(self._again, header, wanted, peer),
        )
        pass_on = partial(self._pass_on, header)
        return HeldRequest(
            waits, waiter, attempt, peer, size_bytes, left_ms, is_ready=outcome.has_moved, pass_on=pass_on
        )

    def _pass_on(self, header: PopLiteMessage) -> None:
        """Reports the queues of a client whose woken pop lost its connection to other pops of the group."""
        client = self.clients.get(header.client_id)
        for queue in () if client is None else self.clients.marked(client):
            self.clients.ready(queue, header.consumer_group)

    async def _again(self, header: PopLiteMessage, wanted: PopMessage, peer: Peer, is_over: bool) -> Command | None:
        while True:
            await self.pops.reviver.waits.turns.take()
            if (refused := self._refuse(header, wanted, peer)) is not None:
                return refused
            outcome = self._take(header, wanted)
            if outcome.queues or (is_over and not outcome.has_moved):
                return _answer(header, outcome, POLLING_TIMEOUT)
            if not outcome.has_moved:
                return None

    def _take(self, header: PopLiteMessage, wanted: PopMessage) -> PopOutcome:
        """Takes messages from the queues that are ready for the client.

        `has_moved` of the result is True if it took none and more queues are ready.
        """
        outcome = PopOutcome(clock.now_ms(), ORDERED_REVIVE_QUEUE)
        client = self.clients.get(header.client_id)
        if client is None or (client.group, client.topic) != (header.consumer_group, header.topic):
            return outcome
        limits = self.pops.settings.config.pull_limits
        most = min(header.max_messages, limits.max_messages)
        for queue in self.clients.take_ready(client) if most > 0 else ():
            if self.pops.reviver.store.reader.bounds((queue, 0))[1]:
                self.pops.take_from(queue, 0, wanted, ALL_MESSAGES, outcome)
            if outcome.messages >= most or outcome.size_bytes >= limits.max_bytes:
                break
        has_more = most > 0 and bool(self.clients.marked(client))
        outcome.has_moved = has_more and not outcome.queues
        if has_more and outcome.queues:
            self.pops.reviver.waits.wake(lite_waiter(client.client_id, client.group))
        return outcome

    def _refuse(self, header: PopLiteMessage, wanted: PopMessage, peer: Peer) -> Command | None:
        if (refused := self.pops.refuse(wanted, peer)) is not None:
            return refused
        topic, group = self.pops.topics.get(header.topic), self.pops.groups.known(header.consumer_group)
        if topic is None or not is_lite_topic(topic):
            return refusal(ResponseCode.INVALID_PARAMETER, f"the topic [{header.topic}] message type not match")
        if group is None or group["attributes"].get(BIND_TOPIC) != header.topic:
            remark = f"subscription bind topic not match, {header.consumer_group}"
            return refusal(ResponseCode.INVALID_PARAMETER, remark)
        return None

    async def control(self, request: Command, peer: Peer) -> Command:
        if not request.body:
            return refusal(ResponseCode.ILLEGAL_OPERATION, "Request body is null.")
        changes = LiteSubscriptionCtl.from_command(request).changes
        if not changes:
            return refusal(ResponseCode.ILLEGAL_OPERATION, "LiteSubscriptionCtlRequestBody is empty.")
        if len(changes) > MOST_CHANGES:
            return refusal(ResponseCode.INVALID_PARAMETER, f"{len(changes)} changes are more than {MOST_CHANGES}")
        for change in changes:
            if not (change.client_id.strip() and change.group.strip() and change.topic.strip()):
                continue
            try:
                refused = self._fault(change) or await self._apply(change, peer)
            except QuotaExceeded as error:
                refused = refusal(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, str(error))
            if refused is not None:
                return refused
        return success()

    def _fault(self, change: LiteChange) -> Command | None:
        fault = topic_fault(change.topic) or group_fault(change.group) or client_fault(change.client_id)
        if not fault and not all(map(LITE_TOPIC_NAME.fullmatch, change.lite_topics)):
            fault = LITE_TOPIC_RULE
        if fault:
            return refusal(ResponseCode.INVALID_PARAMETER, fault)
        if change.action not in (LiteAction.PARTIAL_ADD, LiteAction.COMPLETE_ADD):
            return None
        group = self.pops.groups.find(change.group, clock.now_ms())
        if group is None or not group["consumeEnable"]:
            return refusal(ResponseCode.ILLEGAL_OPERATION, "Consumer group is not allowed to consume.")
        if not self.pops.settings.config.keeps_lite_queues:
            remark = "this broker keeps no lite topics: enableLmq and enableMultiDispatch are off"
            return refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        return None

    async def _apply(self, change: LiteChange, peer: Peer) -> Command | None:
        is_addition = change.action in (LiteAction.PARTIAL_ADD, LiteAction.COMPLETE_ADD)
        mine = await self._kept_here(change) if is_addition and change.lite_topics else []
        group, before = self.pops.groups.known(change.group), self.clients.get(change.client_id)
        attributes = {} if group is None else group["attributes"]
        if before is not None and (before.group, before.topic) != (change.group, change.topic):
            return refusal(ResponseCode.ILLEGAL_OPERATION, "the client id belongs to another group or topic")
        match change.action:
            case LiteAction.COMPLETE_REMOVE:
                self.clients.forget(change.client_id)
            case LiteAction.PARTIAL_REMOVE:
                names = {lite_queue_name(change.topic, name) for name in change.lite_topics}
                left = [] if before is None else [queue for queue in before.queues if queue in names]
                if before is not None:
                    self.clients.remove(before, left)
                if attributes.get(RESET_ON_UNSUBSCRIBE) == "true":
                    async for queue in InTurns(left):
                        self._start(change.group, queue, FIRST)
            case LiteAction.PARTIAL_ADD if WILDCARD in attributes:
                remark = "subscribe lite operation is not supported for this group"
                return refusal(ResponseCode.ILLEGAL_OPERATION, remark)
            case LiteAction.PARTIAL_ADD:
                client = self._registered(change, peer)
                await self._subscribe(client, mine, attributes, change.start, takes_over=True)
            case LiteAction.COMPLETE_ADD if WILDCARD in attributes:
                client = self._registered(change, peer)
                if self.clients.add_all(client):
                    await self.mark_waiting(client)
            case LiteAction.COMPLETE_ADD:
                client, kept = self._registered(change, peer), frozenset(mine)
                self.clients.remove(client, [queue for queue in client.queues if queue not in kept])
                await self._subscribe(client, mine, attributes)
        return None

    def _registered(self, change: LiteChange, peer: Peer) -> LiteClient:
        if self.clients.get(change.client_id) is None and len(self.clients) >= self._most:
            raise QuotaExceeded(f"lite subscription quota exceeded {self._most}")
        return self.clients.register(change.client_id, change.group, change.topic, peer)

    @property
    def _most(self) -> int:
        return self.pops.settings.config.max_lite_subscription_count

    async def _kept_here(self, change: LiteChange) -> list[str]:
        """Returns the queues of those lite topics that producers send to this broker, or that have messages here."""
        config, bounds = self.pops.settings.config, self.pops.reviver.store.reader.bounds
        has_topic = change.topic in self.pops.topics
        brokers = await write_queues(config, self.registration, change.topic) if has_topic else []
        queues = []
        async for name in InTurns(change.lite_topics):
            queue = lite_queue_name(change.topic, name)
            if is_assigned(brokers, name, config.broker_name) or bounds((queue, 0))[1]:
                queues.append(queue)
        return queues

    async def _subscribe(
        self,
        client: LiteClient,
        queues: Iterable[str],
        attributes: Mapping[str, Any],
        start: LiteStart | None = None,
        *,
        takes_over: bool = False,
    ) -> None:
        """Subscribes a client to queues.

        An exclusive group allows one client for each queue. With `takes_over` other clients lose the queues, and
        receive a notice. Otherwise the client gets no queue of another client, and receives the notice for it again.
        """
        is_exclusive, resets = attributes.get(SUB_MODEL) == EXCLUSIVE, attributes.get(RESET_IN_EXCLUSIVE) == "true"
        async for queue in InTurns(queues):
            if self.clients.get(client.client_id) is not client:  # the client was removed meanwhile
                return
            is_new = queue not in client.queues
            if is_exclusive and takes_over:
                self._exclude_others(client, queue, FIRST if resets else None)
            elif is_exclusive and is_new and next(self.clients.subscribers(queue, client.group), None) is not None:
                self._notify_of_loss(client, queue)
                continue
            if is_new and self.clients.subscriptions >= self._most:
                raise QuotaExceeded(f"lite subscription quota exceeded {self._most}")
            self._start(client.group, queue, start)
            if self.clients.add(client, queue) or start is not None:
                self._mark(client, queue)

    def _exclude_others(self, client: LiteClient, queue: str, start: LiteStart | None) -> None:
        for other in list(self.clients.subscribers(queue, client.group)):
            if other is not client:
                self.clients.remove(other, [queue])
                self._start(client.group, queue, start)
                self._notify_of_loss(other, queue)

    @staticmethod
    def _notify_of_loss(client: LiteClient, queue: str) -> None:
        notice = NotifyUnsubscribeLite(queue.rpartition("$")[2], client.group, client.client_id)
        post_notice(client.peer, notice.to_command().oneway())

    def _start(self, group: str, queue: str, start: LiteStart | None) -> None:
        """Moves the group's offset in a queue as a subscription requests. As in 5.5.0, a start time is ignored.

        In a queue without messages it commits no offset, since requests with arbitrary names could fill the table.
        """
        end = self.pops.reviver.store.reader.bounds((queue, 0))[1]
        committed, target = self.pops.offsets.committed(group, queue, 0), None
        match start:
            case LiteStart("POLICY", 1):
                target = 0
            case LiteStart("POLICY", 2):
                target = end
            case LiteStart("OFFSET", value):
                target = max(0, value)
            case LiteStart("TAIL_N", value) if committed is not None:
                target = max(0, committed - value)
        if end and target is not None and target != committed:
            self.pops.offsets.commit(group, queue, 0, target)
            self.pops.reviver.ordered.forget((group, queue, 0))

    async def mark_waiting(self, client: LiteClient) -> None:
        """Marks those queues of a client's lite topics that have messages from the group's offset on."""
        keys = self.pops.reviver.store.queues.keys_of(client.topic) if client.has_all else ()
        async for queue in InTurns([*client.queues, *(name for name, _ in keys if is_lite_queue(name))]):
            self._mark(client, queue)

    def _mark(self, client: LiteClient, queue: str) -> None:
        end = self.pops.reviver.store.reader.bounds((queue, 0))[1]
        if (self.pops.offsets.committed(client.group, queue, 0) or 0) < end:
            self.clients.mark(client, queue)


def is_lite_topic(topic: TopicConfig) -> bool:
    return topic.attributes.get(MESSAGE_TYPE) == "LITE"


async def write_queues(config: BrokerConfig, registration: BrokerRegistration, topic: str) -> list[str]:
    """Returns the broker's name for each queue that a topic's producers use, or an empty list without a route."""
    if not config.nameservers:
        return []
    try:
        route = await registration.route(topic, ROUTE_SECONDS)
    except RocketMQError:
        return []
    masters = {broker.broker_name for broker in route.broker_datas if broker.master is not None}
    return [
        data.broker_name
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & WRITE and data.broker_name in masters
        for _ in range(data.write_queue_nums)
    ]


def is_assigned(queues: Sequence[str], lite_topic: str, broker_name: str) -> bool:
    """Returns True if producers send the lite topic to a broker. `queues` are as from `write_queues` (empty: True)."""
    return not queues or queues[consistent_bucket(string_hash_code(lite_topic), len(queues))] == broker_name


def _as_pop(header: PopLiteMessage) -> PopMessage:
    return PopMessage(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=ANY_QUEUE,
        max_msg_nums=header.max_messages,
        invisible_ms=header.invisible_ms,
        poll_time_ms=header.poll_time_ms,
        born_time_ms=header.born_time_ms,
        init_mode=InitMode.MAX,
        order=True,
        attempt_id=header.attempt_id,
    )


def _answer(header: PopLiteMessage, outcome: PopOutcome, code: int) -> Command:
    return PopAnswer(
        code=ResponseCode.SUCCESS if outcome.queues else code,
        remark="FOUND" if outcome.queues else "NO_MESSAGE_IN_QUEUE",
        pop_time_ms=outcome.pop_time_ms,
        invisible_ms=header.invisible_ms,
        revive_queue_id=outcome.revive_queue_id,
        order_count_info=ENTRY_SEPARATOR.join(write_lite_tries(each.tries, each.offsets) for each in outcome.queues),
        records=b"".join(each.records for each in outcome.queues),
    ).to_command()
