"""The strategies that give every member as many queues as the others, give or take one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyrmq_core.client.consumer.rebalance.strategy import check_lists
from pyrmq_core.model import MessageQueue


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """The default: neighbouring queues for each member (AllocateMessageQueueAveragely.java)."""

    @property
    def name(self) -> str:
        """The name of the strategy in Java's logs and tools."""
        return "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns the member's queues: the first members have one more if the queues do not come out even."""
        check_lists(client_id, queues, client_ids)
        if client_id not in client_ids:
            return ()
        size, more = divmod(len(queues), len(client_ids))
        index = client_ids.index(client_id)
        start = index * size + min(index, more)
        return tuple(queues[start : start + size + (index < more)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """Queues dealt out one by one, as cards are (AllocateMessageQueueAveragelyByCircle.java)."""

    @property
    def name(self) -> str:
        """The name of the strategy in Java's logs and tools."""
        return "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Returns every n-th queue, n being the number of members."""
        check_lists(client_id, queues, client_ids)
        if client_id not in client_ids:
            return ()
        return tuple(queues[client_ids.index(client_id) :: len(client_ids)])
