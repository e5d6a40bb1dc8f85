"""The queues of a stream: the existing queues with their ends, and the deleted queues.

A broker that is down deletes no queue: a queue counts as deleted only when its broker is registered and the topic's
route no longer has the queue, readable or not. A query waits for a broker that does not answer, and fails after
`pullTimeoutMs`. Nothing is skipped. While no NameServer answers, the query continues with the known queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from pyrmq_core import MessageQueue, NoNameServer, OffsetRange, line_logger
from pyrmq_spark.options import SourceOptions
from pyrmq_spark.patience import of_a_stream, retry_until_timeout
from pyrmq_spark.read.queue_selection import candidate_topics, check_sql, not_readable
from pyrmq_spark.stream.stream_offset import Offsets

if TYPE_CHECKING:
    from pyrmq_core.blocking import PullConsumer

log = line_logger(__name__)

# The least time between queries to brokers for an idle stream, which Spark polls every 10 ms
# (spark.sql.streaming.pollingDelay). The answer to Spark waits until then: an old answer would end
# `processAllAvailable` with unread messages.
FLOOR_SECONDS: Final = 0.1
# The additional wait for each queue. A look-up takes 2 us of a processor for a queue, and Spark's own work as much, so
# that both stay near 1 % of a core.
FLOOR_SECONDS_A_QUEUE: Final = 0.0002
MAX_FLOOR_SECONDS: Final = 1.0
# The number of repeated look-ups before a queue counts as lost (fetchOffset.numRetries of Kafka's source).
LOOKS_AT_LOSS: Final = 3
LOSS_PAUSE_SECONDS: Final = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """The range of offsets that brokers keep of each existing queue, and the deleted queues with the reasons.

    For a queue without new messages, the lowest offset may be unknown: then the range is empty, at the queue's end.
    """

    bounds: Mapping[MessageQueue, OffsetRange]
    gone: Mapping[MessageQueue, str] = field(default_factory=dict)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        return {queue: available.end for queue, available in self.bounds.items()}


@dataclass(frozen=True, slots=True)
class _Look:
    start: Offsets
    kept: Mapping[MessageQueue, OffsetRange]
    seen: QueueBounds


def floor_seconds(queues: int) -> float:
    return min(MAX_FLOOR_SECONDS, max(FLOOR_SECONDS, queues * FLOOR_SECONDS_A_QUEUE))


class QueueWatch:
    """The queues of a streaming query and their offsets, looked up at brokers.

    New queues are noticed within `refresh` seconds.
    """

    def __init__(self, consumer: PullConsumer, options: SourceOptions, *, refresh: float) -> None:
        self._consumer = consumer
        self._options = options
        self._refresh = refresh
        self._queues: frozenset[MessageQueue] = frozenset()
        self._registered: frozenset[str] = frozenset()
        self._masterless: frozenset[str] = frozenset()
        self._unreadable: frozenset[MessageQueue] = frozenset()
        self._is_alone = False
        self._checked: set[str] = set()
        self._discovered_at = float("-inf")
        self._queried_at = float("-inf")
        self._reached: Offsets | None = None
        self._last: _Look | None = None

    def look(self, start: Offsets) -> QueueBounds:
        """Returns each queue's lowest and end offset now, and the deleted queues. Waits for brokers that do not answer.

        `start` has, by queue, the offset at which the query continues. If nothing has changed since the last call, and
        `start` is the same object, the result is the same object.
        """
        if self._reached == start:
            time.sleep(max(0.0, self._queried_at + floor_seconds(len(start)) - time.monotonic()))
        stale = time.monotonic() - self._discovered_at >= self._refresh
        last = self._last
        seen = self.retry_until_timeout(lambda again: self._look(start, discover=stale or again))
        if last is not None and seen is last.seen and not seen.gone:
            self._queried_at = time.monotonic()
            return seen
        for number in range(LOOKS_AT_LOSS):
            if not seen.gone and all(seen.bounds[queue].end >= offset for queue, offset in start.items()):
                break
            time.sleep(LOSS_PAUSE_SECONDS if number else 0.0)
            seen = self.retry_until_timeout(lambda _: self._look(start, discover=True))
        self._reached, self._queried_at = dict(start), time.monotonic()
        return seen

    def retry_until_timeout(self, ask: Callable[[bool], T]) -> T:
        return retry_until_timeout(ask, self._options.pull_timeout, of_a_stream)

    def _look(self, start: Offsets, *, discover: bool) -> QueueBounds:
        last = self._last
        if not discover and last is not None and last.start is start:  # an idle stream, many times a second
            kept = self._consumer.offset_bounds(last.kept, start)
            return last.seen if kept == last.kept else self._note(start, kept, last.seen.gone)
        if discover:
            self._discover_if_possible(start)
        missing = {queue for queue in start if queue not in self._queues}
        # A missing queue whose broker is not registered is still requested, at the broker's last address.
        gone = {queue: self._reason(queue) for queue in missing if queue.broker_name in self._registered}
        queried = sorted(self._queues | (missing - set(gone)))
        return self._note(start, self._consumer.offset_bounds(queried, start), gone)

    def _note(
        self, start: Offsets, kept: Mapping[MessageQueue, OffsetRange], gone: Mapping[MessageQueue, str]
    ) -> QueueBounds:
        seen = QueueBounds(
            {queue: self._checked_bounds(queue, start, range_kept) for queue, range_kept in kept.items()}, gone
        )
        self._last = _Look(start, kept, seen)
        return seen

    def _checked_bounds(self, queue: MessageQueue, start: Offsets, bounds: OffsetRange) -> OffsetRange:
        reached = start.get(queue)
        if reached is None:
            return bounds
        if queue.broker_name in self._masterless:  # a slave may lag behind its lost master, or have begun later
            bounds = OffsetRange(min(bounds.start, reached), max(bounds.end, reached))
        if queue in self._unreadable and bounds.end > reached:
            raise not_readable([queue])
        return bounds

    def _discover_if_possible(self, start: Offsets) -> None:
        """Updates the known queues as `_discover` does, if a NameServer answers.

        Otherwise the known queues stay as they are, and none counts as deleted. Raises `NoNameServer` if none has ever
        answered.
        """
        try:
            self._discover(start)
        except NoNameServer as error:
            if self._discovered_at == float("-inf"):
                raise
            if not self._is_alone:
                log.warning("going on with the %d queues that are known: %s", len(self._queues), error)
            self._is_alone, self._registered = True, frozenset()
            self._discovered_at = time.monotonic()
            return
        if self._is_alone:
            log.info("a NameServer answers again")
        self._is_alone = False

    def _discover(self, start: Offsets) -> None:
        """Updates the known queues by the topics' routes. A queue missing there is deleted if its broker is registered.

        An unreadable queue is known only if the query already reads it: then it is in `start`. A broker counts as
        registered if it was so before and after the request for routes, since a broker that comes or goes in between
        may be missing in the routes.
        """
        options = self._options
        before = self._brokers()
        routes = self._consumer.topic_queues(candidate_topics(self._consumer, options))
        # An unreadable queue counts only if the query reads it already.
        unreadable = {
            queue
            for topic_queues in routes.values()
            if topic_queues
            for queue in topic_queues.unreadable
            if queue in start
        }
        there = {
            queue for topic_queues in routes.values() if topic_queues for queue in topic_queues.readable
        } | unreadable
        unchecked = {queue for queue in there if queue.broker_name not in self._checked}
        check_sql(self._consumer, unchecked, options)
        self._checked |= {queue.broker_name for queue in unchecked}
        self._queues = frozenset(there if options.assign is None else there & set(options.assign))
        self._unreadable = self._queues & unreadable
        after = self._brokers()
        self._registered = frozenset(before.keys() & after.keys())
        self._masterless = frozenset(name for name, has_master in after.items() if not has_master)
        self._discovered_at = time.monotonic()
        new = sorted(self._queues - set(start))
        if new and start:
            log.info("queues that are new are read from their beginning: %s", ", ".join(map(str, new)))

    def _brokers(self) -> dict[str, bool]:
        table = self._consumer.cluster_info().broker_addr_table
        return {name: broker.master is not None for name, broker in table.items() if broker.broker_addrs}

    def _reason(self, queue: MessageQueue) -> str:
        if any(other.topic == queue.topic for other in self._queues):
            return f"{queue.broker_name} is up, and the topic has no such queue on it any more"
        return (
            f"{queue.broker_name} is up, and topic {queue.topic} was deleted, or is not chosen by the options any more"
        )
