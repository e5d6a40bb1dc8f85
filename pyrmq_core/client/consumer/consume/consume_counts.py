"""`ConsumeCounts`: counts of pulled, consumed and failed messages by topic, and their rates over the last minute.

Pure: it takes the time as an argument. `mqadmin consumerStatus` shows the rates. Source:
client/stat/ConsumerStatsManager.java, 5.4.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumeStatus

SAMPLES: Final = 13  # one sample each 5 s, for a minute


@dataclass(slots=True)
class TopicCounts:
    """The counts of one topic since the start. `seconds` is the total time of the handler's `calls`."""

    pulled: int = 0
    pulls: int = 0
    consumed: int = 0
    failed: int = 0
    calls: int = 0
    seconds: float = 0.0


class ConsumeCounts:
    def __init__(self) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._samples: deque[tuple[float, dict[str, TopicCounts]]] = deque(maxlen=SAMPLES)

    def of(self, topic: str) -> TopicCounts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts()
        return counts

    def note_pull(self, topic: str, messages: int) -> None:
        counts = self.of(topic)
        counts.pulls += 1
        counts.pulled += messages

    def sample(self, now: float) -> None:
        """Records the counts at time `now` in seconds. `statuses` computes rates since the oldest recorded time."""
        self._samples.append((now, {topic: replace(counts) for topic, counts in self._topics.items()}))

    def statuses(self, now: float) -> Mapping[str, ConsumeStatus]:
        began, before = self._samples[0] if self._samples else (now, {})
        seconds = max(now - began, 1e-3)
        return {
            topic: _status(counts, before.get(topic, TopicCounts()), seconds)
            for topic, counts in self._topics.items()
            if counts.pulls
        }


def _status(counts: TopicCounts, before: TopicCounts, seconds: float) -> ConsumeStatus:
    calls = counts.calls - before.calls
    return ConsumeStatus(
        pull_tps=(counts.pulled - before.pulled) / seconds,
        consume_rt=(counts.seconds - before.seconds) * 1000 / calls if calls else 0.0,
        consume_ok_tps=(counts.consumed - before.consumed) / seconds,
        consume_failed_tps=(counts.failed - before.failed) / seconds,
        consume_failed_msgs=counts.failed - before.failed,
    )
