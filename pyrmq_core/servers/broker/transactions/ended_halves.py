"""`EndedHalves`: half messages that need no further check. `WaitingHalves`: undecided half messages by topic.

A half message ends with its commit or rollback. A check stores it again, and then the commit or rollback of one copy
ends all copies. In RocketMQ it ends only the copy that the producer names. The other is checked again, and the message
may be delivered twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

# The most commits and rollbacks in memory, and the most offsets of copies. Each is needed for some minutes.
MOST_KEPT: Final = 100_000

# The most half messages that are counted, for metrics only.
MOST_WAITING: Final = 1_000_000
# With more topics than this, those without half messages are no longer reported. In RocketMQ they stay, with 0.
MOST_TOPICS: Final = 2_000


class WaitingHalves:
    """The undecided half messages: their topics by queue offset, and their number by topic.

    RocketMQ's numbers are in a file (config/transactionMetrics), and wrong after a kill. Source:
    broker/transaction/TransactionMetrics.java (5.4.0).
    """

    def __init__(self, most_waiting: int = MOST_WAITING, most_topics: int = MOST_TOPICS) -> None:
        self.by_topic: dict[str, int] = {}
        self._topics: dict[int, str] = {}
        self._most_waiting = most_waiting
        self._most_topics = most_topics

    def add(self, offset: int, topic: str) -> None:
        if offset not in self._topics and len(self._topics) < self._most_waiting:
            self._topics[offset] = topic = sys.intern(topic)
            self.by_topic[topic] = self.by_topic.get(topic, 0) + 1

    def remove(self, offset: int) -> None:
        if (topic := self._topics.pop(offset, None)) is not None:
            self.by_topic[topic] -= 1
            if not self.by_topic[topic] and len(self.by_topic) > self._most_topics:
                del self.by_topic[topic]


class EndedHalves:
    """The half messages that need no further check, by queue offset, and the producers' latest commits and rollbacks.

    The next pass of checks begins at the queue offset `position`. Half messages before it are dropped.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self.position = 0
        self.waiting = WaitingHalves()
        self._most_kept = most_kept
        self._done: set[int] = set()  # offsets from `position` on: ended, stored again, or discarded
        self._lists: dict[int, int] = {}  # by offset in OP_HALF_TOPIC: the highest queue offset in the record
        self._ends: dict[int, bool] = {}  # by offset: a producer's decision, True for a commit
        self._successors: dict[int, int] = {}
        self.unwritten: list[int] = []  # finished offsets without a stored record

    def is_done(self, offset: int) -> bool:
        return offset in self._done

    def has_end(self, offset: int) -> bool:
        return offset in self._ends

    def is_committed(self, offset: int) -> bool:
        return self._ends.get(offset, False) or self._ends.get(self.last(offset), False)

    def last(self, offset: int) -> int:
        """Returns the queue offset at which the half message was last stored again, or `offset` if it never was."""
        while (successor := self._successors.get(offset)) is not None:
            offset = successor
        return offset

    def begin(self, offset: int, topic: str) -> None:
        if offset >= self.position and not self.is_done(offset):
            self.waiting.add(offset, topic)

    def end(self, offset: int, *, committed: bool) -> None:
        """Stores that the half message at `offset` and its latest copy were `committed`, or else rolled back."""
        for half_offset in dict.fromkeys((offset, self.last(offset))):
            if half_offset not in self._ends and not self.is_done(half_offset):
                self.finish(half_offset)
            self._ends[half_offset] = committed or self._ends.get(half_offset, False)
        _shorten(self._ends, self._most_kept)

    def replace(self, offset: int, successor: int) -> None:
        self.follow(offset, successor)
        self.finish(offset)

    def follow(self, offset: int, successor: int) -> None:
        self._successors[offset] = successor
        _shorten(self._successors, self._most_kept)

    def finish(self, offset: int) -> None:
        """Marks the half message at `offset` as one that needs no further check.

        The offset is added to `unwritten`, from which the caller removes it when it has stored a record of it.
        """
        self._add(offset)
        self.unwritten.append(offset)

    def pass_over(self, offset: int) -> None:
        """Marks a half message that cannot be checked as one that needs no check, without a record in the log."""
        self._add(offset)

    def listed(self, op_offset: int, offsets: Iterable[int]) -> None:
        """Marks the half messages at `offsets`, which need no further check.

        They are listed in the record at `op_offset` of RMQ_SYS_TRANS_OP_HALF_TOPIC.
        """
        highest = -1
        for offset in offsets:
            self._add(offset)
            highest = max(highest, offset)
        self._lists[op_offset] = highest

    def move_to(self, position: int) -> None:
        passed = range(self.position, position)
        self._done.difference_update(passed)
        for offset in passed:
            self.waiting.remove(offset)
        self.position = position

    def first_needed(self, op_offset: int) -> int:
        """Returns the first offset in RMQ_SYS_TRANS_OP_HALF_TOPIC, from `op_offset` on, that a start must read.

        Records that list only half messages before `position` are not needed.
        """
        while (highest := self._lists.get(op_offset)) is not None and highest < self.position:
            del self._lists[op_offset]
            op_offset += 1
        return op_offset

    def _add(self, offset: int) -> None:
        if offset >= self.position:
            self._done.add(offset)
            self.waiting.remove(offset)


def _shorten(table: dict[int, int] | dict[int, bool], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
