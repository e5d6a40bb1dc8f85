"""The connected clients: producers and consumers by group, and the subscriptions of consumers, from heartbeats.

Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData

BROADCASTING: Final = "BROADCASTING"


@dataclass(slots=True)
class ClientInfo:
    """One client's membership in a group. `seen_ms` is the time of its last heartbeat."""

    client_id: str
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group's clients by connection, and its subscriptions and settings from the latest heartbeat."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    members: dict[Peer, ClientInfo] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]


@dataclass(slots=True)
class _Groups:
    """A connection's producer and consumer groups. The dicts are ordered sets, whose values are unused."""

    producers: dict[str, None] = field(default_factory=dict)
    consumers: dict[str, None] = field(default_factory=dict)
    producer_id: str = ""  # the producers' client id in their last heartbeat


_NO_GROUPS: Final = _Groups()


class ClientTable:
    """The connected clients by group. A method that adds or removes clients returns the consumer groups that changed.

    The groups of a connection are listed in `_groups_of`, so that its removal does not search all groups.
    """

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, ClientInfo]] = {}
        self._groups_of: dict[Peer, _Groups] = {}
        self._by_producer_id: dict[str, Peer] = {}

    def heartbeat(
        self, beat: HeartBeat, groups: Iterable[ConsumerData], peer: Peer, language: str, version: int, now_ms: int
    ) -> list[str]:
        """Registers a client for the producer groups in `beat`, and for the consumer groups in `groups`.

        Returns the consumer groups whose members or subscriptions changed. `peer` is the client's connection.
        """

        def info() -> ClientInfo:
            return ClientInfo(beat.client_id, language, version, now_ms)

        own = self._groups_of.setdefault(peer, _Groups())
        for group in beat.producer_groups:
            self.producers.setdefault(group, {})[peer] = info()
            own.producers[group] = None
        if beat.producer_groups:
            self._forget_producer_id(peer, own)
            own.producer_id = beat.client_id
            self._by_producer_id[beat.client_id] = peer
        changed = []
        for data in groups:
            own.consumers[data.group_name] = None
            if self._note_consumer(data, peer, info()):
                changed.append(data.group_name)
        self._forget_if_idle(peer, own)
        return changed

    def groups_with(self, peer: Peer, beat: HeartBeat) -> int:
        own = self._groups_of.get(peer, _NO_GROUPS)
        producers = own.producers.keys() | set(beat.producer_groups)
        return len(producers) + len(own.consumers.keys() | {data.group_name for data in beat.consumers})

    def leave(self, peer: Peer, producer_group: str | None, consumer_group: str | None) -> list[str]:
        """Removes a connection from a producer group, a consumer group or both.

        Returns the consumer group in a list if the connection was in it, or else an empty list.
        """
        own = self._groups_of.get(peer, _NO_GROUPS)
        if producer_group in own.producers:
            self._drop_producer(producer_group, peer)
        if consumer_group not in own.consumers:
            return []
        self._drop_consumer(consumer_group, peer)
        return [consumer_group]

    def disconnected(self, peer: Peer) -> list[str]:
        """Removes a closed connection. Returns the consumer groups that changed."""
        own = self._groups_of.get(peer, _NO_GROUPS)
        changed = list(own.consumers)
        for group in list(own.producers):
            self._drop_producer(group, peer)
        for group in changed:
            self._drop_consumer(group, peer)
        return changed

    def expire(self, before_ms: int) -> Iterator[list[str]]:
        """Removes clients from the groups for which they have sent no heartbeat since `before_ms`.

        Yields once for each connection, with the consumer groups that it left.
        """
        for peer in list(self._groups_of):
            own = self._groups_of.get(peer, _NO_GROUPS)
            for group in [name for name in own.producers if self.producers[name][peer].seen_ms < before_ms]:
                self._drop_producer(group, peer)
            silent = [name for name in own.consumers if self.consumers[name].members[peer].seen_ms < before_ms]
            for group in silent:
                self._drop_consumer(group, peer)
            yield silent

    def producer(self, client_id: str) -> Peer | None:
        """Returns the connection from which a producer with this client id last sent a heartbeat, or None."""
        return self._by_producer_id.get(client_id)

    def members(self, group: str) -> Mapping[Peer, ClientInfo]:
        consumers = self.consumers.get(group)
        return {} if consumers is None else consumers.members

    def has_members(self, group: str) -> bool:
        return bool(self.members(group))

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        consumers = self.consumers.get(group)
        return None if consumers is None else consumers.subscriptions.get(topic)

    def _note_consumer(self, data: ConsumerData, peer: Peer, info: ClientInfo) -> bool:
        group = self.consumers.setdefault(data.group_name, ConsumerGroup())
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        registered = group.members.get(peer)
        changed = registered is None or registered.client_id != info.client_id
        group.members[peer] = info
        subscribed = {subscription.topic: subscription for subscription in data.subscriptions}
        for topic, subscription in subscribed.items():
            before = group.subscriptions.get(topic)
            if before is None:
                changed = True
            if before is None or subscription.sub_version > before.sub_version:
                group.subscriptions[topic] = subscription
        for topic in group.subscriptions.keys() - subscribed.keys():
            del group.subscriptions[topic]
            changed = True
        return changed

    def _drop_producer(self, group: str, peer: Peer) -> None:
        members = self.producers[group]
        del members[peer]
        if not members:
            del self.producers[group]
        own = self._groups_of[peer]
        del own.producers[group]
        if not own.producers:
            self._forget_producer_id(peer, own)
        self._forget_if_idle(peer, own)

    def _drop_consumer(self, group: str, peer: Peer) -> None:
        consumers = self.consumers[group]
        del consumers.members[peer]
        if not consumers.members:
            del self.consumers[group]
        own = self._groups_of[peer]
        del own.consumers[group]
        self._forget_if_idle(peer, own)

    def _forget_if_idle(self, peer: Peer, own: _Groups) -> None:
        if not own.producers and not own.consumers:
            del self._groups_of[peer]

    def _forget_producer_id(self, peer: Peer, own: _Groups) -> None:
        if self._by_producer_id.get(own.producer_id) is peer:
            del self._by_producer_id[own.producer_id]
