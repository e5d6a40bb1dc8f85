"""`TopicCounts`: the number of waiting timer messages of each topic, from timer entries, which have only its hash."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.servers.broker.timers.timer_log import DELETE, TimerEntry

# With more topics than this, those without a waiting message are no longer reported.
TOPICS_KEPT: Final = 2000


class TopicCounts:
    """The numbers of waiting timer messages by topic. Topics with the same hash share one number."""

    def __init__(self) -> None:
        self._numbers = Counter[int]()  # by the topic's hash
        self._names: dict[int, str] = {}

    def name(self, topic: str) -> None:
        self._names[topic_hash(topic)] = topic

    def add(self, entry: TimerEntry) -> None:
        self._numbers[entry.topic_hash] += change_of(entry)

    def change(self, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        self._numbers.subtract(before)
        self._numbers.update(after)

    def clear(self) -> None:
        self._numbers.clear()

    def by_topic(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns the numbers of waiting messages by topic. `topics` are the broker's, to find the names of hashes."""
        if len(self._numbers) > TOPICS_KEPT:
            self._numbers = Counter({key: number for key, number in self._numbers.items() if number})
        if not self._numbers.keys() <= self._names.keys():
            self._names.update((topic_hash(topic), topic) for topic in topics)
        self._names = {key: name for key, name in self._names.items() if key in self._numbers}
        return {self._names[key]: number for key, number in self._numbers.items() if key in self._names}


def change_of(entry: TimerEntry) -> int:
    """Returns by how much an entry changes the number of waiting messages: 1, or -1 if it recalls another message."""
    return -1 if entry.magic & DELETE else 1


@functools.lru_cache(maxsize=4096)
def topic_hash(topic: str) -> int:
    return string_hash_code(topic)
