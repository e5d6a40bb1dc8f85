"""`WaitingHalves`: the half messages without an end, counted by the topic of their message.

A half message is known by its queue offset, so that whatever is said of it twice counts once. RocketMQ counts up and
down in a file instead (config/transactionMetrics): a kill leaves its figure wrong for good.
Source: broker/transaction/TransactionMetrics.java (5.4.0).
"""

from __future__ import annotations

import sys
from typing import Final

# Beyond it half messages are not counted: a figure, not the transactions, depends on this.
MOST_WAITING: Final = 1_000_000
# Topics that are reported with none, as RocketMQ does, so that a graph falls to 0 and does not break off.
MOST_TOPICS: Final = 2_000


class WaitingHalves:
    """The topics of half messages by queue offset, and the number of each topic's."""

    def __init__(self, most_waiting: int = MOST_WAITING, most_topics: int = MOST_TOPICS) -> None:
        self.by_topic: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._most_waiting = most_waiting
        self._most_topics = most_topics

    def add(self, offset: int, topic: str) -> None:
        """Counts a half message, unless it is counted."""
        if offset not in self._topics and len(self._topics) < self._most_waiting:
            self._topics[offset] = topic = sys.intern(topic)
            self.by_topic[topic] = self.by_topic.get(topic, 0) + 1

    def remove(self, offset: int) -> None:
        """Counts a half message no more, if it was."""
        if (topic := self._topics.pop(offset, None)) is not None:
            self.by_topic[topic] -= 1
            if not self.by_topic[topic] and len(self.by_topic) > self._most_topics:
                del self.by_topic[topic]
