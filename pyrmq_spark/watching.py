"""Watches a stream's queues: which there are, where they end, and which are gone. A broker that is down is not gone.

A queue is gone only when its broker is registered and the topic's route has it no longer. What cannot be told, because
a broker or NameServer does not answer, is waited for; after `pullTimeoutMs` that is an error, and nothing is skipped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from pyrmq_core import MessageQueue, NetworkError, NoRoute, OffsetRange, ResponseError, RocketMQError, RoutingError
from pyrmq_spark.choosing import AdminOf, candidate_topics, check_sql
from pyrmq_spark.conditions import BrokerUnavailable
from pyrmq_spark.options import SourceOptions
from pyrmq_spark.stream_offsets import Offsets

if TYPE_CHECKING:
    from pyrmq_core.blocking import PullConsumer

log = logging.getLogger(__name__)

# Spark asks a stream without data every 10 ms (spark.sql.streaming.pollingDelay); brokers are asked this often at most.
# The answer waits until then: an old one would end `processAllAvailable` with messages unread.
FLOOR_SECONDS: Final = 0.1
PAUSE_SECONDS: Final = 0.2
# What looks lost is looked at again so often, with everything asked anew (fetchOffset.numRetries of Kafka's source).
LOOKS_AT_LOSS: Final = 3
LOSS_PAUSE_SECONDS: Final = 0.5
# A broker that is starting, ending or busy: SYSTEM_BUSY, SERVICE_NOT_AVAILABLE, GO_AWAY.
PASSING_CODES: Final = (2, 14, 1500)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen:
    """What every queue that is there keeps, and which queues are there no longer, each with the reason.

    Of a queue without anything to read, the lowest offset is not asked for: its end stands in for it.
    """

    bounds: Mapping[MessageQueue, OffsetRange]
    gone: Mapping[MessageQueue, str] = field(default_factory=dict)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        return {queue: kept.end for queue, kept in self.bounds.items()}


class QueueWatch:
    """Asks for one query. `refresh` is how long, in seconds, it may take until new queues are noticed."""

    def __init__(self, consumer: PullConsumer, admin: AdminOf, options: SourceOptions, *, refresh: float) -> None:
        self._consumer = consumer
        self._admin = admin
        self._options = options
        self._refresh = refresh
        self._patience = options.pull_timeout
        self._queues: frozenset[MessageQueue] = frozenset()
        self._registered: frozenset[str] = frozenset()
        self._masterless: frozenset[str] = frozenset()
        self._checked: set[str] = set()
        self._discovered_at = float("-inf")
        self._asked_at = float("-inf")
        self._reached: Offsets | None = None

    def look(self, start: Offsets) -> Seen:
        """What there is now; `start` are the offsets reached. Waits for brokers that do not answer."""
        if self._reached == start:
            time.sleep(max(0.0, self._asked_at + FLOOR_SECONDS - time.monotonic()))
        stale = time.monotonic() - self._discovered_at >= self._refresh
        seen = self.patiently(lambda again: self._look(start, discover=stale or again))
        for number in range(LOOKS_AT_LOSS):
            if not seen.gone and all(seen.bounds[queue].end >= offset for queue, offset in start.items()):
                break
            time.sleep(LOSS_PAUSE_SECONDS if number else 0.0)
            seen = self.patiently(lambda _: self._look(start, discover=True))
        self._reached, self._asked_at = dict(start), time.monotonic()
        return seen

    def patiently(self, ask: Callable[[bool], T]) -> T:
        """What `ask` gives; called again, with True, while brokers or NameServers do not answer."""
        deadline, again = time.monotonic() + self._patience, False
        while True:
            try:
                return ask(again)
            except (NetworkError, RoutingError, ResponseError) as error:
                if not _passes(error):
                    raise
                if time.monotonic() >= deadline:
                    raise self._unavailable(error) from error
                if not again:
                    log.warning("waiting up to %g s: %s", self._patience, error)
            again = True
            time.sleep(PAUSE_SECONDS)

    def _look(self, start: Offsets, *, discover: bool) -> Seen:
        if discover:
            self._discover(start)
        missing = {queue for queue in start if queue not in self._queues}
        # A missing queue whose broker is not registered is asked for all the same, where its broker was last.
        gone = {queue: self._reason(queue) for queue in missing if queue.broker_name in self._registered}
        asked = self._queues | (missing - set(gone))
        ends = self._consumer.max_offsets(sorted(asked))
        for queue, reached in start.items():
            if queue.broker_name in self._masterless and queue in ends:  # a slave may lag behind its lost master
                ends[queue] = max(ends[queue], reached)
        lowest = self._consumer.min_offsets([queue for queue, end in ends.items() if start.get(queue) != end])
        return Seen({queue: OffsetRange(min(lowest.get(queue, end), end), end) for queue, end in ends.items()}, gone)

    def _discover(self, start: Offsets) -> None:
        """Registered counts a broker that is so before and after its routes are asked for: one that comes or goes
        meanwhile may miss in them."""
        options = self._options
        before = self._brokers()
        if options.assign is None:
            topics = set(candidate_topics(self._consumer, self._admin, options))
        else:
            topics = {queue.topic for queue in options.assign}
        routes = self._consumer.current_queues(sorted(topics))
        there = {queue for queues in routes.values() for queue in queues or ()}
        unchecked = {queue for queue in there if queue.broker_name not in self._checked}
        check_sql(self._consumer, unchecked, options)
        self._checked |= {queue.broker_name for queue in unchecked}
        self._queues = frozenset(there if options.assign is None else there & set(options.assign))
        after = self._brokers()
        self._registered = frozenset(before.keys() & after.keys())
        self._masterless = frozenset(name for name, has_master in after.items() if not has_master)
        self._discovered_at = time.monotonic()
        new = sorted(self._queues - set(start))
        if new and start:
            log.info("queues that are new are read from their beginning: %s", ", ".join(map(str, new)))

    def _brokers(self) -> dict[str, bool]:
        """Those that are registered, and whether by their master."""
        table = self._admin().cluster_info().broker_addr_table
        return {name: broker.master is not None for name, broker in table.items() if broker.broker_addrs}

    def _reason(self, queue: MessageQueue) -> str:
        if any(other.topic == queue.topic for other in self._queues):
            return f"{queue.broker_name} is up, and the topic has no such queue on it any more"
        return (
            f"{queue.broker_name} is up, and topic {queue.topic} was deleted, or is not chosen by the options any more"
        )

    def _unavailable(self, error: RocketMQError) -> BrokerUnavailable:
        return BrokerUnavailable(
            f"waited {self._patience:g} s in vain, and nothing was skipped: {error}; start the query again when its "
            "brokers are back, or let it wait longer with pullTimeoutMs"
        )


def _passes(error: RocketMQError) -> bool:
    """Whether the same question may be answered later."""
    if isinstance(error, ResponseError):
        return error.code in PASSING_CODES
    return not isinstance(error, NoRoute)
