"""Who is connected: producers and consumers by group, as their heartbeats say, and what consumers subscribe to.

Source: broker/client/ConsumerManager.java, ConsumerGroupInfo.java, ProducerManager.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.heartbeat import ConsumerData, HeartBeat, SubscriptionData

BROADCASTING: Final = "BROADCASTING"


@dataclass(slots=True)
class ClientInfo:
    """One client's membership in a group; `seen_ms` is its last heartbeat."""

    client_id: str
    language: str
    version: int
    seen_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The clients of a consumer group that are connected, and what the group subscribes to."""

    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    members: dict[Peer, ClientInfo] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def client_ids(self) -> list[str]:
        return [client.client_id for client in self.members.values()]


_Gone = Callable[[Peer, ClientInfo], bool]


class ClientTable:
    """Changes by heartbeat, by leaving, by a closed connection and by silence; each says which groups changed."""

    def __init__(self) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[Peer, ClientInfo]] = {}

    def heartbeat(
        self, beat: HeartBeat, groups: Iterable[ConsumerData], peer: Peer, language: str, version: int, now_ms: int
    ) -> list[str]:
        """Notes a client's groups; the consumer groups whose members or subscriptions changed."""

        def info() -> ClientInfo:
            return ClientInfo(beat.client_id, language, version, now_ms)

        for group in beat.producer_groups:
            self.producers.setdefault(group, {})[peer] = info()
        return [data.group_name for data in groups if self._note_consumer(data, peer, info())]

    def leave(self, client_id: str, producer_group: str | None, consumer_group: str | None) -> list[str]:
        """A client leaves groups; the consumer groups that changed."""
        if producer_group is not None:
            self._drop_producers(producer_group, lambda _, info: info.client_id == client_id)
        if consumer_group is None:
            return []
        return self._drop_consumers([consumer_group], lambda _, info: info.client_id == client_id)

    def disconnected(self, peer: Peer) -> list[str]:
        """A connection is gone; the consumer groups that changed."""
        for group in list(self.producers):
            self._drop_producers(group, lambda other, _: other is peer)
        return self._drop_consumers(list(self.consumers), lambda other, _: other is peer)

    def expire(self, before_ms: int) -> list[str]:
        """Forgets those whose last heartbeat is older; the consumer groups that changed."""
        for group in list(self.producers):
            self._drop_producers(group, lambda _, info: info.seen_ms < before_ms)
        return self._drop_consumers(list(self.consumers), lambda _, info: info.seen_ms < before_ms)

    def members(self, group: str) -> Mapping[Peer, ClientInfo]:
        known = self.consumers.get(group)
        return {} if known is None else known.members

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        known = self.consumers.get(group)
        return None if known is None else known.subscriptions.get(topic)

    def _note_consumer(self, data: ConsumerData, peer: Peer, info: ClientInfo) -> bool:
        group = self.consumers.setdefault(data.group_name, ConsumerGroup())
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        known = group.members.get(peer)
        changed = known is None or known.client_id != info.client_id
        group.members[peer] = info
        wanted = {subscription.topic: subscription for subscription in data.subscriptions}
        for topic, subscription in wanted.items():
            before = group.subscriptions.get(topic)
            if before is None:
                changed = True
            if before is None or subscription.sub_version > before.sub_version:
                group.subscriptions[topic] = subscription
        for topic in group.subscriptions.keys() - wanted.keys():
            del group.subscriptions[topic]
            changed = True
        return changed

    def _drop_producers(self, group: str, gone: _Gone) -> None:
        members = self.producers.get(group, {})
        for peer in [peer for peer, info in members.items() if gone(peer, info)]:
            del members[peer]
        if not members:
            self.producers.pop(group, None)

    def _drop_consumers(self, groups: Iterable[str], gone: _Gone) -> list[str]:
        changed = []
        for name in groups:
            group = self.consumers.get(name)
            if group is None:
                continue
            leaving = [peer for peer, info in group.members.items() if gone(peer, info)]
            for peer in leaving:
                del group.members[peer]
            if leaving:
                changed.append(name)
            if not group.members:
                del self.consumers[name]
        return changed
