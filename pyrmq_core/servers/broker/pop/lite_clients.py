"""`LiteClients`: the clients that subscribe to lite topics, and for each the queues in which messages may wait for it.

A queue is marked as ready for every client that subscribes to it: when it gets a message, when an ordered pop unlocks
it, and when a client subscribes. A pop takes the marked queues in turn, and drops each mark. Of several clients of a
group the first to pop gets the messages, and only one waiting pop of the group is woken. RocketMQ marks a queue for one
client of the group, and for another one if that client does not pop for 10 s (broker/lite/LiteEventDispatcher.java,
5.5.0). As there, subscriptions are in memory alone, and their clients renew them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pyrmq_core.network import Peer
from pyrmq_core.protocol.messages.names import owner_topic
from pyrmq_core.servers.broker import clock


@dataclass(eq=False, slots=True)
class LiteClient:
    """A client of a group with the queues of its lite topics. `has_all` says that it has all of its parent topic.

    `peer` is the connection of its last subscription, and `renewed_ms` the time of it on the clock that never goes
    back.
    """

    client_id: str
    group: str
    topic: str
    peer: Peer
    renewed_ms: int
    accessed_ms: int
    has_all: bool = False
    queues: dict[str, None] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)


class LiteClients:
    """The clients by their ids.

    `wake` wakes a waiting pop of a client, by its id and group. It returns False if the client has none.
    """

    def __init__(self, wake: Callable[[str, str], bool]) -> None:
        self._wake = wake
        self._clients: dict[str, LiteClient] = {}
        # By queue, or by parent topic for clients that have all of its lite topics.
        self._subscribers: dict[str, dict[LiteClient, None]] = {}
        self.subscriptions = 0

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, client_id: str) -> LiteClient | None:
        return self._clients.get(client_id)

    def subscribers(self, queue: str, group: str | None = None) -> list[LiteClient]:
        """Returns the clients that get the messages of a queue, of one group or of all, the latest to pop last."""
        clients = [*self._subscribers.get(queue, ()), *self._subscribers.get(owner_topic(queue), ())]
        return [client for client in clients if group is None or client.group == group]

    def of_group(self, group: str) -> list[LiteClient]:
        return [client for client in self._clients.values() if client.group == group]

    def register(self, client_id: str, group: str, topic: str, peer: Peer) -> LiteClient:
        """Returns the client, made if it is new, and renews its subscriptions."""
        client = self._clients.get(client_id)
        if client is None:
            now_ms = clock.now_ms()
            client = self._clients[client_id] = LiteClient(client_id, group, topic, peer, clock.running_ms(), now_ms)
        client.peer, client.renewed_ms = peer, clock.running_ms()
        return client

    def add(self, client: LiteClient, queue: str) -> bool:
        """Subscribes a client to a queue. Returns False if it was subscribed before."""
        if queue in client.queues:
            return False
        client.queues[queue] = None
        self._subscribers.setdefault(queue, {})[client] = None
        self.subscriptions += 1
        return True

    def add_all(self, client: LiteClient) -> bool:
        """Subscribes a client to all lite topics of its parent topic. Returns False if it was so before."""
        is_new, client.has_all = not client.has_all, True
        self._subscribers.setdefault(client.topic, {})[client] = None
        self.subscriptions += is_new
        return is_new

    def remove(self, client: LiteClient, queues: Iterable[str]) -> None:
        for queue in queues:
            client.ready.pop(queue, None)
            if queue in client.queues:
                del client.queues[queue]
                self._leave(client, queue)

    def forget(self, client_id: str) -> None:
        """Removes a client. Queues that were ready for it are ready for the others anyway."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self.remove(client, list(client.queues))
            if client.has_all:
                self._leave(client, client.topic)

    def expire(self, before_ms: int) -> None:
        """Removes the clients that have not renewed their subscriptions since a time."""
        for client in [client for client in self._clients.values() if client.renewed_ms < before_ms]:
            self.forget(client.client_id)

    def ready(self, queue: str, group: str | None = None) -> None:
        """Marks a queue as ready for its subscribers, of one group or of all, and wakes a waiting pop of each group."""
        woken = set[str]()
        for client in self.subscribers(queue, group):
            client.ready[queue] = None
            if client.group not in woken and self._wake(client.client_id, client.group):
                woken.add(client.group)

    def mark(self, client: LiteClient, queue: str) -> None:
        client.ready[queue] = None
        self._wake(client.client_id, client.group)

    def take_ready(self, client: LiteClient) -> Iterator[str]:
        """Yields the queues that are ready for a client now, and drops the mark of each."""
        client.accessed_ms = clock.now_ms()
        for _ in range(len(client.ready)):
            queue = next(iter(client.ready))
            del client.ready[queue]
            for key in (queue, client.topic):  # another client of the group is first next time
                if client in (subscribers := self._subscribers.get(key, {})):
                    subscribers[client] = subscribers.pop(client)
            yield queue

    def _leave(self, client: LiteClient, key: str) -> None:
        self.subscriptions -= 1
        del self._subscribers[key][client]
        if not self._subscribers[key]:
            del self._subscribers[key]
