"""`PopWaits`: pops that wait for a message of their topic or of its retry topics.

A notification (request 200054) waits like a pop, but takes no message. Both wait like held pulls, within the same
limits. A message wakes only the longest waiting pop of each group, since a pop takes many messages. A pop that leaves
messages in its queues wakes the next one. Source: broker/longpolling/PopLongPollingService.java (5.4.0), which does not
notice messages of retry topics with the older form of name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.network import Peer
from pyrmq_core.network.turns import Turns
from pyrmq_core.protocol.messages.names import LMQ_PREFIX, is_lite_queue
from pyrmq_core.protocol.requests.pop.pop_message import ANY_QUEUE
from pyrmq_core.protocol.requests.pop.receipt import RETRY_V1, RETRY_V2, pop_retry_topic
from pyrmq_core.servers.broker.clients.held_pulls import HeldPull, HeldPulls
from pyrmq_core.servers.broker.pop.lite_clients import LiteClients
from pyrmq_core.servers.broker.store.formats import ENTRY
from pyrmq_core.servers.broker.store.reading import QueueKey

# Separates topic and group in the key of a waiting pop. No topic's name has this sign, so no held pull has such a key.
BETWEEN: Final = "@"
# A pop from more queues has a pass of the event loop for itself. A pop takes 3 to 6 us for each of its queues.
MANY_QUEUES: Final = 256


@dataclass(frozen=True, slots=True)
class Waiter:
    """The topic, group and queue of a waiting pop or notification. ANY_QUEUE means all queues of the topic.

    A pop `takes` messages, a notification does not.
    """

    topic: str
    group: str
    queue_id: int
    takes: bool = True

    @property
    def key(self) -> QueueKey:
        return f"{self.topic}{BETWEEN if self.takes else 2 * BETWEEN}{self.group}", self.queue_id

    @property
    def topics(self) -> tuple[str, str, str]:
        retry_topics = (pop_retry_topic(self.topic, self.group, mark) for mark in (RETRY_V1, RETRY_V2))
        return (self.topic, *retry_topics)  # type: ignore[return-value]


def lite_waiter(client_id: str, group: str) -> Waiter:
    """Returns the `Waiter` of a client's pops from all its lite topics."""
    return Waiter(f"{LMQ_PREFIX}{client_id}", group, ANY_QUEUE)


class PopWaits:
    """The waiting pops by topic. `revive_arrived` is set when the revive log gets an entry.

    All pops of the broker take messages in `turns`, so that other requests are served between them.
    """

    def __init__(self, held: HeldPulls, revive_topic: str) -> None:
        self.held = held
        self.turns = Turns()
        self._large = trio.Lock()
        self.revive_topic = revive_topic
        self.revive_arrived = trio.Event()
        self._waiting: dict[str, Counter[Waiter]] = {}  # by topic and by each of its retry topics
        self.lite = LiteClients(lambda client_id, group: self.wake(lite_waiter(client_id, group)))

    async def take_turn(self, queues: int) -> None:
        """Waits for a turn to look for messages in a number of queues."""
        if queues <= MANY_QUEUES:
            await self.turns.take()
        else:
            async with self._large:  # one waiting pop continues in each pass of the event loop
                pass

    def add(
        self,
        waiter: Waiter,
        tags_codes: Collection[int] | None,
        timeout_ms: int,
        peer: Peer,
        size_bytes: int,
        wake: Callable[[], None],
    ) -> HeldPull:
        """Holds a pop for up to `timeout_ms`, until a message arrives with one of `tags_codes`, hashes of tags.

        None selects all messages. `wake` is called once when the wait ends. The request counts for the connection
        `peer`, with `size_bytes`, in the limits on held pulls.
        """
        for topic in waiter.topics:
            self._waiting.setdefault(topic, Counter())[waiter] += 1
        self._note_lite(waiter)

        def leave() -> None:
            self._leave(waiter)
            wake()

        return self.held.add(waiter.key, tags_codes, timeout_ms, peer, size_bytes, waiter.group, leave)

    def drop(self, waiter: Waiter, held: HeldPull) -> None:
        if held.wake is not None:
            self._leave(waiter)
        self.held.drop(held)

    def _leave(self, waiter: Waiter) -> None:
        for topic in waiter.topics:
            waiting = self._waiting[topic]
            waiting[waiter] -= 1
            if not waiting[waiter]:
                del waiting[waiter]
            if not waiting:
                del self._waiting[topic]
        self._note_lite(waiter)

    def _note_lite(self, waiter: Waiter) -> None:
        if waiter.topic.startswith(LMQ_PREFIX):
            client_id = waiter.topic.removeprefix(LMQ_PREFIX)
            self.lite.note_waiting(client_id, waiter.group, waits=self.count(waiter) > 0)

    def count(self, waiter: Waiter) -> int:
        return self._waiting.get(waiter.topic, Counter[Waiter]())[waiter]

    def readable(self, key: QueueKey, entries: bytes) -> None:
        """Wakes, for each group, a pop that waits for the queue `key` and selects one of its new `entries`."""
        if key[0] == self.revive_topic:
            self.revive_arrived.set()
        if self.lite.subscriptions and is_lite_queue(key[0]):
            self.lite.ready(key[0])
        if (waiting := self._waiting.get(key[0])) is None:
            return
        codes = {code for _, _, code in ENTRY.iter_unpack(entries)}
        for waiter in list(waiting):
            if waiter.topic != key[0] or waiter.queue_id in (ANY_QUEUE, key[1]):
                self.held.wake_first(waiter.key, codes)

    def wake_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Wakes a group's longest waiting pop and notification for the queue, and for any queue of the topic."""
        if is_lite_queue(topic):
            self.lite.ready(topic, group)
        for waited in (queue_id, ANY_QUEUE):
            self.wake(Waiter(topic, group, waited))
            self.wake(Waiter(topic, group, waited, takes=False))

    def wake(self, waiter: Waiter) -> bool:
        """Wakes the longest waiting request that equals `waiter`, whatever its filter. Returns False without one."""
        return self.held.wake_first(waiter.key, None)
