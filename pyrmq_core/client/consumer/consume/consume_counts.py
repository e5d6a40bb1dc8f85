"""`ConsumeCounts`: messages pulled, consumed and failed by topic, and their rates over the last minute. Pure.

They are shown by `mqadmin consumerStatus`. Source: client/stat/ConsumerStatsManager.java, 5.4.0.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import trio

from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumeStatus, ProcessQueueInfo

SAMPLES: Final = 13  # the samples of a minute, one each 5 s


@dataclass(slots=True)
class TopicCounts:
    """The counts of one topic since the start. `seconds` is the time in `calls` of the handler."""

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

    def note_pull(self, topic: str, messages: int) -> None:
        counts = self._of(topic)
        counts.pulls += 1
        counts.pulled += messages

    def note(self, topic: str, calls: int, messages: int, failed: int, seconds: float) -> None:
        counts = self._of(topic)
        counts.calls += calls
        counts.seconds += seconds
        counts.consumed += messages - failed
        counts.failed += failed

    def sample(self, now: float) -> None:
        """Records a sample of the counts at time `now` in seconds. Rates are computed between samples."""
        self._samples.append((now, {topic: replace(counts) for topic, counts in self._topics.items()}))

    def statuses(self, now: float) -> Mapping[str, ConsumeStatus]:
        """Returns the rates of each topic since the oldest sample."""
        began, before = self._samples[0] if self._samples else (now, {})
        seconds = max(now - began, 1e-3)
        return {
            topic: _status(counts, before.get(topic, TopicCounts()), seconds) for topic, counts in self._topics.items()
        }

    def _of(self, topic: str) -> TopicCounts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts()
        return counts


def _status(counts: TopicCounts, before: TopicCounts, seconds: float) -> ConsumeStatus:
    calls = counts.calls - before.calls
    return ConsumeStatus(
        pull_tps=(counts.pulled - before.pulled) / seconds,
        consume_rt=(counts.seconds - before.seconds) * 1000 / calls if calls else 0.0,
        consume_ok_tps=(counts.consumed - before.consumed) / seconds,
        consume_failed_tps=(counts.failed - before.failed) / seconds,
        consume_failed_msgs=counts.failed - before.failed,
    )


MIB: Final = 1024 * 1024


def queue_info(assigned: AssignedQueue, *, locked: bool = False) -> ProcessQueueInfo:
    """Returns a queue's state for the tools. `locked` says whether an orderly consumer has its lock at the broker."""
    process_queue = assigned.process_queue
    held = len(process_queue)
    ago = trio.current_time() - assigned.intake.pulled_at
    return ProcessQueueInfo(
        commit_offset=process_queue.offset_to_commit,
        cached_msg_min_offset=process_queue.offset_to_commit if held else 0,
        cached_msg_max_offset=process_queue.highest if held else 0,
        cached_msg_count=held,
        cached_msg_size_mib=process_queue.bytes // MIB,
        locked=locked,
        dropped=process_queue.is_dropped,
        last_pull_timestamp_ms=round((time.time() - ago) * 1000),
        last_consume_timestamp_ms=assigned.consumed_at_ms,
    )
