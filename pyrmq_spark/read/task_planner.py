"""Plans the tasks of a read. Message sizes, which brokers report, decide which ranges share a task.

A wrong or missing size costs only time: there are then too few or too many tasks, with the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pyrmq_core import RocketMQError
from pyrmq_spark.options import SourceOptions
from pyrmq_spark.read.range_planner import QueueRange, RangePartition, may_share, share_out

if TYPE_CHECKING:
    from pyrmq_core.blocking import PullConsumer

# The most topics whose message size is queried for a read. For other topics the largest of these sizes is assumed.
SAMPLED_TOPICS: Final = 4
# How long a message size is cached, since a query may plan every few milliseconds.
KEPT_SECONDS: Final = 60.0


class TaskPlanner:
    """A planner of tasks for one reader. It keeps the mean size of a topic's messages for a minute."""

    def __init__(self, consumer: Callable[[], PullConsumer], options: SourceOptions) -> None:
        self._consumer = consumer
        self._options = options
        self._sizes: dict[str, tuple[float, float]] = {}  # by topic: the mean size, and when it was requested

    def tasks(self, pieces: Sequence[QueueRange]) -> list[RangePartition]:
        options = self._options
        longest = may_share(pieces, options.min_partitions)
        self._learn_sizes(longest.values())
        mean_sizes = {topic: size for topic in longest if (size := self._sizes.get(topic, (0.0, 0.0))[0])}
        shared = share_out(
            pieces, mean_sizes, min_partitions=options.min_partitions, max_records=options.max_records_per_partition
        )
        return [RangePartition(*ranges) for ranges in shared]

    def _learn_sizes(self, ranges: Iterable[QueueRange]) -> None:
        now = time.monotonic()
        self._sizes = {topic: sample for topic, sample in self._sizes.items() if now - sample[1] < KEPT_SECONDS}
        sampled = {
            queue_range.queue: queue_range.start
            for queue_range in islice(ranges, SAMPLED_TOPICS)
            if queue_range.queue.topic not in self._sizes
        }
        if not sampled:
            return
        try:
            sizes = self._consumer().mean_sizes(sampled)
        except RocketMQError:  # the task that reads the range raises the error if it persists
            sizes = dict.fromkeys(sampled, 0.0)
        self._sizes |= {queue.topic: (size, now) for queue, size in sizes.items()}
