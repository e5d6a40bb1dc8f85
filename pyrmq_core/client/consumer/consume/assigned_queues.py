"""`AssignedQueues`: the queues that a consumer reads now, each with its pulled messages and the `Intake` that pulls it.

Sources: client/impl/consumer/RebalanceImpl.java (updateProcessQueueTableInRebalance), RebalancePushImpl.java, 5.4.0.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from pyrmq_core.client.consumer.consume.consume_counts import ConsumeCounts, TopicCounts
from pyrmq_core.client.consumer.consume.intake import Intake
from pyrmq_core.client.consumer.consume.process_queue import ProcessQueue
from pyrmq_core.client.consumer.consume.queue_locks import QueueLocks
from pyrmq_core.client.consumer.offsets.offset_store import OffsetStore
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import MessageExt, MessageQueue
from pyrmq_core.network.problems import Problems
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ProcessQueueInfo

log = logging.getLogger(__name__)

# The time that running handlers of a dropped queue have to finish before its offset is stored.
GRACE_SECONDS: Final = 1.0
# The time after which a dropped queue is unlocked even if its handler still runs
# (RebalancePushImpl.UNLOCK_DELAY_TIME_MILLS).
LONGEST_HOLD_SECONDS: Final = 20.0
# A queue counts as stalled if it was not pulled for this time (RebalanceImpl.PULL_MAX_IDLE_TIME).
STALL_SECONDS: Final = 120.0
STARTS_AT_ONCE: Final = 64
MIB: Final = 1024 * 1024
START: Final = "reading the start offsets of"


class Starts(Protocol):
    async def start_of(self, queue: MessageQueue) -> int:
        """Returns the offset from which to read a queue. Raises `RocketMQError` if it cannot be determined now."""
        ...


@dataclass(eq=False, slots=True)
class AssignedQueue:
    """A queue that this consumer reads, with its pulled messages and the `Intake` that pulls them.

    `in_handlers` is the number of messages in handler calls now, and `counts` has the statistics of the topic.
    `consumed_at_ms` is the Unix time at which a handler call last ended. `dropped_at` is the time of the first `drop`,
    by trio's clock.
    """

    process_queue: ProcessQueue
    intake: Intake
    counts: TopicCounts
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    in_handlers: int = 0
    consumed_at_ms: int = 0
    dropped_at: float = math.inf
    _idle: trio.Event | None = None
    _waiting: trio.CancelScope | None = None

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.queue

    def drop(self) -> None:
        """Stops pulling, drops the waiting messages, and cancels `interruptible` blocks. Running handlers continue."""
        self.process_queue.drop()
        self.dropped_at = min(self.dropped_at, trio.current_time())
        self.scope.cancel()
        if self._waiting is not None:
            self._waiting.cancel()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        with trio.CancelScope() as self._waiting:
            if self.process_queue.is_dropped:
                self._waiting.cancel()
            yield
        self._waiting = None

    def entered(self, count: int) -> None:
        self.in_handlers += count

    def left(self, count: int) -> None:
        self.in_handlers -= count
        if self._idle is not None and self.in_handlers <= 0:
            self._idle.set()
        intake = self.intake
        if intake.is_held_back:
            intake.room_freed()

    def note_calls(self, calls: int, messages: int, failed: int, seconds: float) -> None:
        """Adds a number of handler calls to the statistics, with their messages, failed messages and total seconds."""
        self.consumed_at_ms = time.time_ns() // 1_000_000
        counts = self.counts
        counts.calls += calls
        counts.seconds += seconds
        counts.consumed += messages - failed
        counts.failed += failed

    def consumed(self, messages: Sequence[MessageExt], calls: int, seconds: float) -> None:
        """Records messages as consumed, after successful handler calls that took `seconds` together."""
        self.note_calls(calls, len(messages), 0, seconds)
        self.process_queue.finish(messages)
        self.left(len(messages))

    def info(self, *, is_locked: bool) -> ProcessQueueInfo:
        """Returns the queue's state for administration tools. `is_locked` says if this consumer has its lock."""
        process_queue = self.process_queue
        held = len(process_queue)
        ago = trio.current_time() - self.intake.pulled_at
        return ProcessQueueInfo(
            commit_offset=process_queue.offset_to_commit,
            cached_msg_min_offset=process_queue.offset_to_commit if held else 0,
            cached_msg_max_offset=process_queue.highest if held else 0,
            cached_msg_count=held,
            cached_msg_size_mib=process_queue.bytes // MIB,
            locked=is_locked,
            dropped=process_queue.is_dropped,
            last_pull_timestamp_ms=round((time.time() - ago) * 1000),
            last_consume_timestamp_ms=self.consumed_at_ms,
        )

    async def wait_idle(self) -> None:
        while self.in_handlers > 0:
            self._idle = trio.Event()
            await self._idle.wait()


class AssignedQueues:
    """The queues that this consumer reads.

    `new_intake` creates the `Intake` that pulls a queue. `starts` decides the offset at which reading a queue begins,
    and `store` keeps its consumed offset. `on_added` is called with each new queue, and `on_changed` with each topic
    whose queues changed. Only orderly consumers have `locks`.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        store: OffsetStore,
        starts: Starts,
        new_intake: Callable[[ProcessQueue], Intake],
        on_added: Callable[[AssignedQueue], None],
        on_changed: Callable[[str], None],
        problems: Problems,
        locks: QueueLocks | None = None,
        counts: ConsumeCounts | None = None,
    ) -> None:
        self._nursery = nursery
        self._store = store
        self._starts = starts
        self._new_intake = new_intake
        self._on_added = on_added
        self._on_changed = on_changed
        self._locks = locks
        self._counts = counts or ConsumeCounts()
        self._table: dict[MessageQueue, AssignedQueue] = {}
        self._of_topics: defaultdict[str, dict[MessageQueue, AssignedQueue]] = defaultdict(dict)
        self._problems = problems
        self._changing = trio.Lock()

    def __iter__(self) -> Iterator[AssignedQueue]:
        return iter(list(self._table.values()))

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._table

    def get(self, queue: MessageQueue) -> AssignedQueue | None:
        return self._table.get(queue)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return tuple(queue for queue, assigned in self._table.items() if not assigned.process_queue.is_dropped)

    def of_topic(self, topic: str) -> list[AssignedQueue]:
        return list(self._of_topics[topic].values()) if topic in self._of_topics else []

    async def update(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Adds and drops queues of the topic, so that this consumer reads exactly `wanted`. Returns True if it does.

        Returns False if the caller has to try again. A handler may still have messages of a dropped queue, or another
        member has locked a new queue, or its start offset could not be read. A queue whose pulling has stalled is
        dropped and added again.
        """
        kept = frozenset(wanted)
        async with self._changing:
            lost = [entry for entry in self.of_topic(topic) if entry.queue not in kept or _is_at_end(entry)]
            held = await self._drop_all(lost)
            await self._unlock_unless(lambda queue: queue.topic != topic or queue in kept)
            new = [queue for queue in wanted if queue not in self._table]
            added = await self._add_all(topic, new)
        if len(lost) > held or added:
            self._on_changed(topic)
        return not held and added == len(new)

    async def drop_others(self, topics: Collection[str]) -> bool:
        kept = frozenset(topics)
        self._problems.keep(START, kept)
        async with self._changing:
            others = [entry for topic in self._of_topics.keys() - kept for entry in self.of_topic(topic)]
            held = await self._drop_all(others)
            await self._unlock_unless(lambda queue: queue.topic in kept)
        return not held

    async def move(self, offsets: Mapping[MessageQueue, int], only: ProcessQueue | None = None) -> None:
        """Stores the group's new offset of each queue in `offsets`. Drops the queue, which `update` adds again.

        Queues that this consumer does not read are skipped. With `only`, a queue is also skipped if `only` is not its
        process queue any more, because it was dropped and added again meanwhile.
        """
        async with self._changing:
            moved = [self._table[queue] for queue in offsets if queue in self._table]
            moved = [entry for entry in moved if only in (None, entry.process_queue)]
            for assigned in moved:
                assigned.process_queue.correct(offsets[assigned.queue])
            await self._drop_all(moved, holds=False)

    async def restart(self, queue: MessageQueue, offset: int, only: ProcessQueue | None = None) -> bool:
        """Drops a queue's pulled messages, and continues to read it at another offset. Returns True.

        Returns False, and changes nothing, if this consumer does not read the queue, or if its process queue is not
        `only`.
        """
        async with self._changing:
            before = self._table.get(queue)
            if before is None or only not in (None, before.process_queue):
                return False
            before.drop()
            self._store.update(queue, offset, increase_only=False)
            self._start(queue, offset)
            return True

    async def close(self) -> None:
        """Drops every queue without waiting for handlers. Stores the queues' offsets and releases their locks."""
        async with self._changing:
            await self._drop_all(list(self._table.values()), grace=0, holds=False)
            await self._unlock_unless(lambda queue: False)

    def note_offsets(self) -> None:
        for assigned in self._table.values():
            self._note_offset(assigned.process_queue)

    def _note_offset(self, process_queue: ProcessQueue) -> None:
        is_corrected = process_queue.corrected is not None
        self._store.update(process_queue.queue, process_queue.offset_to_commit, increase_only=not is_corrected)

    async def _add_all(self, topic: str, queues: Collection[MessageQueue]) -> int:
        if self._locks is not None and queues:
            locked = await self._locks.lock(queues)
            queues = [queue for queue in queues if queue in locked]
        started: list[MessageQueue] = []
        failures: list[RocketMQError] = []
        limit = trio.CapacityLimiter(STARTS_AT_ONCE)

        async def start(queue: MessageQueue) -> None:
            async with limit:
                try:
                    self._store.forget(queue)
                    offset = await self._starts.start_of(queue)
                except RocketMQError as error:
                    failures.append(error)
                    return
                self._start(queue, offset)
                started.append(queue)

        async with trio.open_nursery() as nursery:
            for queue in queues:
                nursery.start_soon(start, queue)
        if failures:
            self._problems.failed(START, topic, failures[0])
        else:
            self._problems.passed(START, topic)
        return len(started)

    async def _unlock_unless(self, is_kept: Callable[[MessageQueue], bool]) -> None:
        if self._locks is not None:
            await self._locks.unlock(
                [queue for queue in self._locks.wanted if queue not in self._table and not is_kept(queue)]
            )

    def _start(self, queue: MessageQueue, offset: int) -> None:
        process_queue = ProcessQueue(queue, offset)
        assigned = self._table[queue] = AssignedQueue(
            process_queue, self._new_intake(process_queue), self._counts.of(queue.topic)
        )
        self._of_topics[queue.topic][queue] = assigned
        log.debug("%s is consumed from offset %d", queue, offset)
        self._nursery.start_soon(self._pull, assigned)
        self._on_added(assigned)

    async def _pull(self, assigned: AssignedQueue) -> None:
        with assigned.scope:
            await assigned.intake.run()

    async def _drop_all(
        self,
        dropped: Collection[AssignedQueue],
        grace: float = GRACE_SECONDS,
        *,
        holds: bool = True,
    ) -> int:
        """Stops pulling, waits up to `grace` seconds for running handlers, stores the offsets, and releases locks.

        With `holds`, a queue whose handler still runs stays locked for up to 20 s, so that the queue's next consumer
        does not overtake the handler. Returns the number of queues that stay locked. The caller has to drop them again
        later.
        """
        if not dropped:
            return 0
        for assigned in dropped:
            assigned.drop()
        with trio.move_on_after(grace):
            for assigned in dropped:
                await assigned.wait_idle()
        every = len(dropped)
        if self._locks is not None and holds:
            oldest = trio.current_time() - LONGEST_HOLD_SECONDS
            dropped = [entry for entry in dropped if entry.in_handlers <= 0 or entry.dropped_at < oldest]
        for assigned in dropped:
            self._note_offset(assigned.process_queue)
        queues = [assigned.queue for assigned in dropped]
        await self._store.persist(queues, confirmed=True)
        if self._locks is not None:
            await self._locks.unlock(queues)
        for queue in queues:
            self._table.pop(queue, None)
            of_topic = self._of_topics[queue.topic]
            of_topic.pop(queue, None)
            if not of_topic:
                del self._of_topics[queue.topic]
            self._store.forget(queue)
        return every - len(dropped)


def _is_at_end(assigned: AssignedQueue) -> bool:
    intake = assigned.intake
    if assigned.process_queue.is_dropped:
        return True
    return not intake.is_held_back and trio.current_time() - intake.pulled_at > STALL_SECONDS
