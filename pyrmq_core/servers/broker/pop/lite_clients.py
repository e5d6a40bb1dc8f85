"""`LiteClients`: the clients that subscribe to lite topics, and the queues in which messages may wait for them.

Lite topics (5.5.0) are small topics below a parent topic, each with one queue.

A queue is marked as ready when it gets a message, when an ordered pop unlocks it, and when a client subscribes. Up to
16 subscribers of a group have a mark each. More share one mark, so that a message costs no more with a hundred thousand
subscribers. A pop takes the marked queues in turn, and removes their marks. Of a group's clients the first to pop gets
the messages, and only one waiting pop of the group is woken. RocketMQ marks a queue for one client of the group, and
for another one if that client does not pop for 10 s (broker/lite/LiteEventDispatcher.java, 5.5.0). As in RocketMQ,
subscriptions are kept only in memory, and the clients renew them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from pyrmq_core.network import Peer
from pyrmq_core.protocol.messages.names import owner_topic
from pyrmq_core.servers.broker import clock

# If a group has more subscribers to a queue than this, the queue is marked once for all of them.
FEW: Final = 16
# The most queues marked for its client, and the most marked for all, that a pop examines before other tasks run.
MOST_MARKED: Final = 32


@dataclass(eq=False, slots=True)
class LiteClient:
    """A client of a group, with the queues of its lite topics.

    With `has_all` it subscribes to all lite topics of `topic`. `peer` is the connection of its last subscription, and
    `renewed_ms` the monotonic time of that.
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

    def gets(self, queue: str) -> bool:
        return queue in self.queues or (self.has_all and owner_topic(queue) == self.topic)


class LiteClients:
    """The clients that subscribe to lite topics, by client id.

    `wake` wakes a waiting pop of the client with an id and a group. It returns False if the client has none.
    """

    def __init__(self, wake: Callable[[str, str], bool]) -> None:
        self._wake = wake
        self._clients: dict[str, LiteClient] = {}
        # By queue, or by parent topic for clients that subscribe to all its lite topics, and then by group.
        self._subscribers: dict[str, dict[str, dict[LiteClient, None]]] = {}
        # By group: the queues that are marked for all subscribers, and the ids of clients with waiting pops.
        self._shared: dict[str, dict[str, None]] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        self.subscriptions = 0

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, client_id: str) -> LiteClient | None:
        return self._clients.get(client_id)

    def subscribers(self, queue: str, group: str | None = None) -> Iterator[LiteClient]:
        """Yields the clients of a group, or of all groups, that get a queue's messages.

        In each group, the client that popped most recently is the last one.
        """
        groups = dict.fromkeys(self._groups(queue)) if group is None else (group,)
        return (client for name in groups for clients in self._places(queue, name) for client in clients)

    def of_group(self, group: str) -> list[LiteClient]:
        return [client for client in self._clients.values() if client.group == group]

    def register(self, client_id: str, group: str, topic: str, peer: Peer) -> LiteClient:
        """Renews a client's subscriptions, and returns the client. Creates a missing client."""
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
        self._enter(client, queue)
        return True

    def add_all(self, client: LiteClient) -> bool:
        """Subscribes a client to all lite topics of its parent topic. Returns False if it was subscribed before."""
        if client.has_all:
            return False
        client.has_all = True
        self._enter(client, client.topic)
        return True

    def remove(self, client: LiteClient, queues: Iterable[str]) -> None:
        for queue in queues:
            if queue in client.queues:
                del client.queues[queue]
                self._leave(client, queue)
            if not client.gets(queue):
                client.ready.pop(queue, None)

    def forget(self, client_id: str) -> None:
        """Removes a client. The queues that were ready for it are also marked for the group's other subscribers."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            self.remove(client, list(client.queues))
            if client.has_all:
                self._leave(client, client.topic)

    def expire(self, before_ms: int) -> None:
        """Removes the clients that have not renewed their subscriptions since the monotonic time `before_ms`."""
        for client in [client for client in self._clients.values() if client.renewed_ms < before_ms]:
            self.forget(client.client_id)

    def note_waiting(self, client_id: str, group: str, *, waits: bool) -> None:
        """Records whether a client has a waiting pop. The client need not be registered."""
        if waits:
            self._waiting.setdefault(group, {})[client_id] = None
        elif (waiting := self._waiting.get(group)) is not None:
            waiting.pop(client_id, None)
            if not waiting:
                del self._waiting[group]

    def ready(self, queue: str, group: str | None = None) -> None:
        """Marks a queue as ready for its subscribers, of one group or of all, and wakes a waiting pop of each group."""
        for name in dict.fromkeys(self._groups(queue)) if group is None else (group,):
            places = self._places(queue, name)
            count = sum(map(len, places))
            if count > FEW:
                self._shared.setdefault(name, {})[queue] = None
            else:
                for client in chain(*places):
                    client.ready[queue] = None
            any(self._wake(client.client_id, name) for client in self._waiting_for(queue, name, places, count))

    def mark(self, client: LiteClient, queue: str) -> None:
        client.ready[queue] = None
        self._wake(client.client_id, client.group)

    def marked(self, client: LiteClient) -> list[str]:
        """Returns the queues that are ready for a client, or only the first ones of many."""
        shared = self._shared.get(client.group, {})
        if client.has_all or len(shared) <= len(client.queues):
            queues = (queue for queue in shared if client.gets(queue))
        else:
            queues = (queue for queue in client.queues if queue in shared)
        return list(dict.fromkeys(chain(islice(client.ready, MOST_MARKED), islice(queues, MOST_MARKED))))

    def take_ready(self, client: LiteClient) -> Iterator[str]:
        """Yields the queues of `marked`, and removes the mark of each."""
        client.accessed_ms = clock.now_ms()
        for queue in self.marked(client):
            client.ready.pop(queue, None)
            self._drop_shared(client.group, queue)
            for key in (queue, client.topic):  # moves the client behind the others of its group
                if client in (subscribers := self._subscribers.get(key, {}).get(client.group, {})):
                    subscribers[client] = subscribers.pop(client)
            yield queue

    def _groups(self, queue: str) -> Iterator[str]:
        for key in (queue, owner_topic(queue)):
            yield from self._subscribers.get(key, ())

    def _places(self, queue: str, group: str) -> list[dict[LiteClient, None]]:
        tables = (self._subscribers.get(key, {}).get(group) for key in (queue, owner_topic(queue)))
        return [clients for clients in tables if clients]

    def _waiting_for(
        self, queue: str, group: str, places: Iterable[dict[LiteClient, None]], count: int
    ) -> Iterator[LiteClient]:
        """Yields the subscribers with waiting pops. Searches the shorter list: subscribers or waiting clients."""
        waiting = self._waiting.get(group, {})
        if count <= len(waiting):
            return (client for client in chain(*places) if client.client_id in waiting)
        clients = (self._clients.get(client_id) for client_id in waiting)
        return (client for client in clients if client is not None and client.group == group and client.gets(queue))

    def _drop_shared(self, group: str, queue: str) -> None:
        if (shared := self._shared.get(group)) is not None:
            shared.pop(queue, None)
            if not shared:
                del self._shared[group]

    def _enter(self, client: LiteClient, key: str) -> None:
        self.subscriptions += 1
        self._subscribers.setdefault(key, {}).setdefault(client.group, {})[client] = None

    def _leave(self, client: LiteClient, key: str) -> None:
        self.subscriptions -= 1
        groups = self._subscribers[key]
        del groups[client.group][client]
        if groups[client.group]:
            return
        del groups[client.group]
        if not groups:
            del self._subscribers[key]
        queues = list(self._shared.get(client.group, ())) if key == client.topic else [key]
        for queue in queues:
            if not self._places(queue, client.group):
                self._drop_shared(client.group, queue)
