"""The strategy without a rule: each member is configured with its queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyrmq_core.client.arguments import queue_of, tuple_of
from pyrmq_core.model import MessageQueue


class AllocateMessageQueueByConfig:
    """A fixed list of queues, whatever the other members have (AllocateMessageQueueByConfig.java).

    Queues that no member names are read by none. Of several topics, each is allocated its own queues of the list; Java
    repeats the whole list for each topic. A configured queue that the topic lacks is returned too, as in Java.
    """

    __slots__ = ("queues",)

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = tuple(map(queue_of, tuple_of("queues", queues, "MessageQueues")))

    def __repr__(self) -> str:
        return f"AllocateMessageQueueByConfig({list(self.queues)!r})"

    @property
    def name(self) -> str:
        """The name of the strategy in Java's logs and tools."""
        return "CONFIG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the configured queues of the topics in `queues`; the members do not matter."""
        topics = {queue.topic for queue in queues}
        return tuple(queue for queue in self.queues if queue.topic in topics)
