"""The strategy that moves few queues when a member joins or leaves: a ring of hashes (ConsistentHashRouter.java)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import md5
from typing import Final

from pyrmq_core.client.arguments import whole_number
from pyrmq_core.client.consumer.rebalance.strategy import check_lists
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue

MOST_VIRTUAL_NODES: Final = 10_000


def md5_hash(key: str) -> int:
    """Returns the first four bytes of the MD5 of a text in UTF-8, as Java's ring does."""
    return int.from_bytes(md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


class AllocateMessageQueueConsistentHash:
    """The owner of a queue is the next member on a ring (AllocateMessageQueueConsistentHash.java).

    Each member stands on the ring `virtual_nodes` times; more of them share the queues more evenly. All members need
    the same number and the same `hash_function`.
    """

    __slots__ = ("hash_function", "virtual_nodes")

    def __init__(self, virtual_nodes: int = 10, hash_function: Callable[[str], int] = md5_hash) -> None:
        if not callable(hash_function):
            raise InvalidArgument(f"hash_function={hash_function!r}: it is a function of a text that returns a number")
        self.virtual_nodes = whole_number("virtual_nodes", virtual_nodes, 1, MOST_VIRTUAL_NODES)
        self.hash_function = hash_function

    def __repr__(self) -> str:
        return f"AllocateMessageQueueConsistentHash({self.virtual_nodes})"

    @property
    def name(self) -> str:
        """The name of the strategy in Java's logs and tools."""
        return "CONSISTENT_HASH"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the queues whose next node on the ring is the member's."""
        check_lists(client_id, queues, client_ids)
        if client_id not in client_ids:
            return ()
        ring = self._ring(client_ids)
        places = sorted(ring)
        return tuple(queue for queue in queues if ring[self._place(queue, places)] == client_id)

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Returns the member at each place of the ring.

        Of two members at one place the later one stays. An id that is listed twice stands there twice as often.
        """
        ring: dict[int, str] = {}
        nodes = Counter[str]()
        for client_id in client_ids:
            first = nodes[client_id]
            for number in range(first, first + self.virtual_nodes):
                place = self.hash_function(f"{client_id}-{number}")
                if place in ring:
                    nodes[ring[place]] -= 1
                ring[place] = client_id
                nodes[client_id] += 1
        return ring

    def _place(self, queue: MessageQueue, places: Sequence[int]) -> int:
        key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return places[bisect_left(places, self.hash_function(key)) % len(places)]
