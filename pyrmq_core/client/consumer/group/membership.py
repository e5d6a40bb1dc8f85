"""`Membership`: a consumer's subscriptions, which its client's heartbeats report to brokers.

Sources: client/impl/consumer/DefaultMQPushConsumerImpl.java (subscribe, copySubscription),
client/impl/factory/MQClientInstance.java (registerConsumer, sendHeartbeatToAllBroker), 5.4.0.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

import trio

from pyrmq_core.client.client_session import ClientSession
from pyrmq_core.client.consumer.group.consumer_requests import ConsumerMember, ConsumerRequests
from pyrmq_core.client.consumer.group.subscriptions import Filter, Subscription
from pyrmq_core.errors import InvalidState, ProtocolError, RocketMQError
from pyrmq_core.model import ConsumeFromWhere, MessageModel
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.header_requests import response_error
from pyrmq_core.protocol.java.json_text import load_object
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, SubscriptionData

log = logging.getLogger(__name__)

PASSIVELY: Final = "CONSUME_PASSIVELY"
ACTIVELY: Final = "CONSUME_ACTIVELY"
# The most differing subscriptions that are logged, in case a broker returns a different text each time.
MOST_REPORTS: Final = 100
LEAST_SECONDS: Final = 1.0


class Membership:
    """A consumer's membership in its group. `consume_type` is PASSIVELY for push, ACTIVELY for lite pull."""

    def __init__(
        self,
        client: ClientSession,
        group: str,
        consume_type: str,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
    ) -> None:
        self._client = client
        self._group = group
        self._consume_type = consume_type
        self._message_model = message_model
        self._where = consume_from_where
        self._subscriptions: dict[str, Subscription] = {}
        self._is_member = False
        self._changed = trio.Event()
        self._reported: set[tuple[str, str]] = set()
        self._not_compared = RareLine()

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self._subscriptions

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._subscriptions)

    def filter_of(self, topic: str) -> Filter:
        subscription = self._subscriptions.get(topic)
        if subscription is None:
            raise InvalidState(f"group {self._group} no longer subscribes to {topic}")
        return subscription.filter

    def subscribe(self, topic: str, wanted: Filter) -> Subscription:
        """Adds a subscription, or changes the topic's filter. `announce` reports it to brokers."""
        before = self._subscriptions.get(topic)
        version = _now_ms() if before is None else max(_now_ms(), before.version_ms + 1)  # always increases
        subscription = self._subscriptions[topic] = Subscription(topic, wanted, version)
        self._note()
        return subscription

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        self._note()

    def renew_version(self, topic: str) -> None:
        """Gives a subscription a newer version, as Java's clients do when the queues of the consumer change."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            self._subscriptions[topic] = Subscription(
                topic, subscription.filter, max(_now_ms(), subscription.version_ms + 1)
            )
            self._note()

    async def join(self, member: ConsumerMember) -> None:
        """Joins the group: sends a heartbeat to the brokers of all known routes. `member` receives their requests.

        Raises `InvalidState` if the client already has a consumer of this group.
        """
        self._client.callbacks(ConsumerRequests).register(self._group, member)
        self._client.heartbeats.add_consumer(self._group, self._data)
        self._is_member = True
        await self.announce()

    async def announce(self) -> None:
        if self._is_member:
            await self._client.heartbeats.send_round()

    def announce_soon(self) -> None:
        """Makes `run` send a heartbeat, which reports all changes made until then."""
        self._changed.set()

    async def run(self) -> None:
        """Sends heartbeats to all brokers after changes, at most one a second, until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed, began = trio.Event(), trio.current_time()
            await self.announce()
            await trio.sleep_until(began + LEAST_SECONDS)

    async def leave(self) -> None:
        if self._is_member:
            self._is_member = False
            self._client.callbacks(ConsumerRequests).unregister(self._group)
            await self._client.heartbeats.remove(consumer=self._group)

    async def report_differences(self) -> None:
        """Logs, once each, the differences of this consumer's subscriptions from those that brokers keep for its group.

        A broker keeps the newest subscription to a topic for all members, so members with different ones lose messages.
        """
        for broker in self._client.routes.brokers:
            if broker.master is None:
                continue
            try:
                kept = await self._kept_subscriptions(broker.master)
            except RocketMQError as error:
                if self._not_compared.is_due():
                    text = f"{error}{self._not_compared.left_out()}"
                    log.info("the subscriptions of group %s cannot be compared: %s", self._group, text)
                continue
            for topic, own in self._subscriptions.items():
                other = kept.get(topic)
                if other is None or not own.is_like(other):
                    self._report(topic, own, other, f"{broker.broker_name} ({broker.master})")

    def _report(self, topic: str, own: Subscription, other: SubscriptionData | None, broker_name: str) -> None:
        theirs = "none" if other is None else repr(other.sub_string)
        if (topic, theirs) in self._reported or len(self._reported) >= MOST_REPORTS:
            return
        self._reported.add((topic, theirs))
        log.warning(
            "the members of group %s have different subscriptions to %s: this one %r, at broker %s %s; members of one "
            "group need equal ones, or messages are passed over",
            self._group,
            topic,
            own.filter.expression,
            broker_name,
            theirs,
        )

    async def _kept_subscriptions(self, address: str) -> dict[str, SubscriptionData]:
        question = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": self._group})
        answer = await self._client.call(address, question)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return {topic: own.data() for topic, own in self._subscriptions.items()}  # no members to compare with
        if answer.code != ResponseCode.SUCCESS:
            raise response_error(answer, question.code, address)
        table = load_object(answer.body, "consumer connections").get("subscriptionTable")
        if not isinstance(table, dict):
            raise ProtocolError(f"{address}: consumer connections without a subscriptionTable")
        return {
            str(topic): SubscriptionData.from_members(members)
            for topic, members in table.items()
            if isinstance(members, dict) and "topic" in members
        }

    def _data(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            self._consume_type,
            self._message_model.value,
            self._where.value,
            tuple(subscription.data() for subscription in self._subscriptions.values()),
            self._client.unit_mode,
        )

    def _note(self) -> None:
        if self._is_member:
            self._client.heartbeats.add_consumer(self._group, self._data)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
