"""`Transactions`: commits and rolls back half messages, and checks the undecided ones at intervals.

A commit is stored in two steps: first the committed message, then the record that its half message needs no check. A
kill between the steps leads to a check, and the message is delivered twice if the producer commits it again. It is
never lost. Before a half message is checked, it is stored again at the end of its queue. So the position, at which the
next pass of checks begins, moves past it. A half message that another broker stored may have properties too long for
that: it keeps its place, and its checks are not counted. Sources:
broker/transaction/queue/TransactionalMessageServiceImpl.java, TransactionalMessageCheckService.java (5.4.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.rare_lines import RareLines
from pyrmq_core.protocol.messages.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, TRANSACTION_GROUP
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.appending import Append, DoesNotFit
from pyrmq_core.servers.broker.store.disk.paths import UnsafePath
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.transactions.check_rules import CheckRules, Verdict
from pyrmq_core.servers.broker.transactions.ended_halves import EndedHalves
from pyrmq_core.servers.broker.transactions.half_messages import (
    HALF_QUEUE,
    OP_QUEUE,
    HalfMessage,
    checked_again,
    committed,
    discarded,
    ended_offsets,
    ended_records,
    half_message,
    postponed,
    resumed,
)
from pyrmq_core.servers.broker.transactions.producer_checks import ProducerChecks

log = line_logger(__name__)

MakeTopic = Callable[[TopicConfig], Awaitable[None]]

# The most half messages that one step examines or passes, the most records that a start reads before other tasks run,
# and the most offsets that one append lists.
EXAMINED_AT_ONCE: Final = 24
PASSED_AT_ONCE: Final = 2000
READ_AT_ONCE: Final = 64
LISTED_AT_ONCE: Final = 500
CHECK_MAX_TOPIC: Final = TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1, int(Permission.READ | Permission.WRITE))
HOUR_MS: Final = 3_600_000
# A pass examines all half messages from the oldest one that waits for a producer. If these are more than this many and
# more than four times the undecided ones, the oldest one is stored again at the queue's end.
MOST_FROM_POSITION: Final = 10_000
REPORT_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Pass:
    """The progress of one pass of checks over the half messages before the queue offset `end`.

    `offset` is the queue offset of the next half message to examine.
    """

    now_ms: int
    end: int
    offset: int
    held: int | None = None  # the offset of the first half message that must be examined again
    is_pinned: bool = False  # whether a half message before `offset` has no room to be stored again
    waiting: Counter[str] = field(default_factory=Counter)  # by group: due half messages without a producer


class Transactions:
    """The commits and rollbacks of a broker's half messages. `run` checks the undecided ones until cancelled."""

    def __init__(
        self,
        store: MessageStore,
        offsets: GroupOffsets,
        checks: ProducerChecks,
        config: BrokerConfig,
        store_host: bytes,
        *,
        on_committed: Callable[[str, int], None] = lambda topic, size_bytes: None,
        on_ended: Callable[[HalfMessage, int, bool], None] = lambda half, now_ms, committed: None,
    ) -> None:
        self.config = config
        self._on_committed = on_committed
        self._on_ended = on_ended
        self._store = store
        self._offsets = offsets
        self._checks = checks
        self._store_host = store_host
        self._ended = EndedHalves()
        self._op_offset = 0
        self._is_loaded = False
        self._has_topic = False
        self._reports = RareLines(seconds=REPORT_SECONDS)
        self.most_from_position = MOST_FROM_POSITION

    @property
    def rules(self) -> CheckRules:
        config = self.config
        return CheckRules(
            timeout_ms=config.transaction_time_out,
            most_checks=config.transaction_check_max,
            kept_ms=config.file_reserved_time * HOUR_MS,
        )

    @property
    def waiting_by_topic(self) -> Mapping[str, int]:
        return self._ended.waiting.by_topic

    def load(self) -> None:
        """Loads the progress of the checks from the committed offsets of the group CID_RMQ_SYS_TRANS.

        An offset outside its queue is replaced by the queue's nearest bound.
        """
        self._ended.position = self._progress(HALF_QUEUE)
        self._op_offset = self._progress(OP_QUEUE)

    def half_at(self, commit_log_offset: int, *, or_discarded: bool = False) -> HalfMessage | None:
        """Returns the half message at an offset of the commit log, or None if there is none.

        With `or_discarded` it may also be a discarded one. A queue entry must refer to the offset, which comes from a
        client, since the body of another message may contain bytes like a half message.
        """
        topics = (HALF_TOPIC, CHECK_MAX_TIME_TOPIC) if or_discarded else (HALF_TOPIC,)
        half = half_message(self._store.reader.record(commit_log_offset), topics=topics)
        if half is None:
            return None
        try:
            entry = self._store.reader.entry((half.record.topic.decode(), half.record.queue_id), half.queue_offset)
        except StoreError:
            return None
        return half if entry.physical_offset == commit_log_offset else None

    def began(self, topic: str, queue_offset: int) -> None:
        self._ended.begin(queue_offset, topic)

    def commit(self, half: HalfMessage, now_ms: int) -> None:
        """Stores a committed message in its real topic, where consumers see it, unless it was committed before.

        Raises `StoreError` if that fails.
        """
        if self._ended.is_committed(half.queue_offset):
            return
        message = committed(half)
        stored = self._store.put(message, now_ms)
        self._on_committed(message.topic, stored.end - stored.positions[0])
        self._ended.end(half.queue_offset, committed=True)
        self._on_ended(half, now_ms, True)
        self._list_ended(now_ms)

    def roll_back(self, half: HalfMessage, now_ms: int) -> None:
        if not self._ended.has_end(half.queue_offset):
            self._on_ended(half, now_ms, False)
        self._ended.end(half.queue_offset, committed=False)
        self._list_ended(now_ms)

    def resume(self, half: HalfMessage, now_ms: int) -> bool:
        """Stores a half message again, with its number of checks set to 0.

        Returns False, with nothing stored, if its properties would be too long.
        """
        again = resumed(half)
        if again is None:
            return False
        self.began(half.real_topic, self._store.put(again, now_ms).queue_offset)
        return True

    async def run(self, make_topic: MakeTopic) -> None:
        """Checks undecided half messages at every transactionCheckInterval, until cancelled.

        `make_topic` creates a topic and returns when it is in the topics' file.
        """
        await self._survive(self.read_queues(clock.now_ms()))
        while True:
            await trio.sleep(self.config.transaction_check_interval / 1000)
            await self._survive(self.check(clock.now_ms(), make_topic))

    async def _survive(self, work: Awaitable[None]) -> None:
        try:
            await work
        except StoreError as error:
            log.warning("transactions are checked later: %s", error)
        except Exception:
            log.exception("transactions are checked later")

    async def read_queues(self, now_ms: int) -> None:
        """Loads, on the first call, the half messages stored before this start, and which of them are decided.

        Raises `StoreError` if that fails.
        """
        if not self._is_loaded:
            await self._read_ended()
            await self._read_repeated(now_ms)
            self._is_loaded = True

    async def check(self, now_ms: int, make_topic: MakeTopic) -> None:
        """Makes one pass of checks over the half messages, from the position up to the first one that is too young.

        `make_topic` creates the topic for discarded messages. The call can be repeated after a `StoreError`.
        """
        await self.read_queues(now_ms)
        self._has_topic = False
        current = _Pass(now_ms, self._store.reader.bounds(HALF_QUEUE)[1], self._ended.position)
        while current.offset < current.end:
            match self._step(current):
                case Verdict.WAIT:
                    break
                case Verdict.DISCARD:
                    await make_topic(CHECK_MAX_TOPIC)
                    self._has_topic = True
            await trio.lowlevel.checkpoint()
        self._list_ended(now_ms)
        self._save_progress()
        self._checks.forget(self._ended.position)
        self._report(current.waiting)

    def _step(self, current: _Pass) -> Verdict | None:
        """Examines the next half messages of a pass, and checks those that are due. Returns None if the pass continues.

        Returns WAIT at a half message that is too young, as are all after it, and DISCARD if the topic for discarded
        messages must be created first.
        """
        due, examined = list[HalfMessage](), 0
        current.offset = max(current.offset, self._store.reader.bounds(HALF_QUEUE)[0])
        last = min(current.end, current.offset + PASSED_AT_ONCE)
        try:
            while current.offset < last and examined < EXAMINED_AT_ONCE:
                offset = current.offset
                if not self._ended.is_done(offset) and (half := self._read(offset)) is not None:
                    examined += 1
                    verdict = self._judge(half, current)
                    if verdict is Verdict.WAIT or (verdict is Verdict.DISCARD and not self._has_topic):
                        return verdict
                    again = self._copy(half, verdict)
                    if again is None and verdict is not Verdict.DISCARD:
                        current.held = offset if current.held is None else current.held
                        current.is_pinned |= verdict is not Verdict.HOLD
                        due += [half] if verdict is Verdict.CHECK else []
                    else:
                        due += self._take(half, again, verdict, current.now_ms)
                current.offset += 1
        finally:
            self._ended.move_to(current.offset if current.held is None else current.held)
            self._list_ended(current.now_ms)
            self._save_progress()
            for half in due:
                self._checks.send(half)
        return None

    def _judge(self, half: HalfMessage, current: _Pass) -> Verdict:
        verdict = self.rules.judge(
            half,
            current.now_ms,
            current.now_ms,
            was_missed=self._checks.was_missed(half.queue_offset),
            is_reachable=self._checks.can_reach(half.producer_group),
        )
        if verdict is not Verdict.HOLD:
            return verdict
        current.waiting[half.producer_group] += 1
        most = max(self.most_from_position, 4 * sum(self.waiting_by_topic.values()))
        first = half.queue_offset if current.held is None else current.held
        return Verdict.HOLD if current.is_pinned or current.end - first <= most else Verdict.POSTPONE

    def _report(self, waiting: Counter[str]) -> None:
        for group, count in waiting.items():
            if (line := self._reports.of(group)).is_due():
                log.warning(
                    "%d transactions wait for a producer of group %s: none is connected that could end them; start "
                    "one, they are kept for %d hours after they were sent%s",
                    count,
                    group,
                    self.rules.kept_ms // HOUR_MS,
                    line.left_out(),
                )

    def _copy(self, half: HalfMessage, verdict: Verdict) -> Append | None:
        """Returns the copy to store at the queue's end, or None if none is needed or its properties are too long."""
        if verdict is Verdict.CHECK:
            counted = not self._checks.was_missed(half.queue_offset)
            return checked_again(half, 1 if half.checks is None else half.checks + counted)
        return postponed(half) if verdict is Verdict.POSTPONE else None

    def _take(self, half: HalfMessage, again: Append | None, verdict: Verdict, now_ms: int) -> list[HalfMessage]:
        offset = half.queue_offset
        try:
            if again is None:
                self._store.put(discarded(half), now_ms)
                log.error("transaction %s of group %s has no end; it is kept in " + CHECK_MAX_TIME_TOPIC, *_names(half))
                self._ended.finish(offset)
                return []
            stored = self._store.put(again, now_ms)
        except (DoesNotFit, UnsafePath) as error:
            log.error("half message %d is passed over: %s", offset, error)
            self._ended.pass_over(offset)
            return []
        self._ended.replace(offset, stored.queue_offset)
        self.began(half.real_topic, stored.queue_offset)
        self._list_ended(now_ms)  # at once, so that after a kill at most one message has two undecided half messages
        repeated = half_message(self._store.reader.record(stored.positions[0])) if verdict is Verdict.CHECK else None
        return [] if repeated is None else [repeated]

    def _read(self, offset: int) -> HalfMessage | None:
        half = half_message(self._store.reader.record(self._store.reader.entry(HALF_QUEUE, offset).physical_offset))
        if half is None or half.queue_offset != offset:
            log.error("half message %d is passed over: its record is damaged, or no longer in the log", offset)
            self._ended.pass_over(offset)
            return None
        return half

    def _list_ended(self, now_ms: int) -> None:
        """Stores records that list the half messages in `unwritten`. If the disk fails, the next call tries again."""
        waiting = self._ended.unwritten
        try:
            while offsets := waiting[:LISTED_AT_ONCE]:
                stored = self._store.put(ended_records(offsets, now_ms, self._store_host), now_ms)
                for op_offset, offset in enumerate(offsets, stored.queue_offset):
                    self._ended.listed(op_offset, [offset])
                del waiting[:LISTED_AT_ONCE]
        except StoreError as error:
            log.warning("the ends of %d transactions are recorded later: %s", len(waiting), error)

    async def _read_ended(self) -> None:
        start, end = self._store.reader.bounds(OP_QUEUE)
        self._op_offset = max(self._op_offset, start)
        for offset in range(self._op_offset, end):
            raw = self._store.reader.record(self._store.reader.entry(OP_QUEUE, offset).physical_offset)
            self._ended.listed(offset, ended_offsets(raw))
            if offset % READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _read_repeated(self, now_ms: int) -> None:
        """Reads the undecided half messages at a start, and finds out which of them are copies of an earlier one."""
        start, end = self._store.reader.bounds(HALF_QUEUE)
        for offset in range(max(self._ended.position, start), end):
            half = None if self._ended.is_done(offset) else self._read(offset)
            if half is not None and half.first_offset < offset and self._ended.has_end(half.first_offset):
                self._ended.finish(offset)
            elif half is not None:
                if half.first_offset < offset:
                    self._ended.follow(half.first_offset, offset)
                self.began(half.real_topic, offset)
            if offset % READ_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        self._list_ended(now_ms)

    def _progress(self, key: QueueKey) -> int:
        start, end = self._store.reader.bounds(key)
        progress = self._offsets.committed(TRANSACTION_GROUP, *key)
        return min(max(start, progress or 0), end)

    def _save_progress(self) -> None:
        self._op_offset = self._ended.first_needed(self._op_offset)
        for key, offset in ((HALF_QUEUE, self._ended.position), (OP_QUEUE, self._op_offset)):
            if self._offsets.committed(TRANSACTION_GROUP, *key) != offset:
                self._offsets.commit(TRANSACTION_GROUP, *key, offset)


def _names(half: HalfMessage) -> tuple[str, str]:
    return half.unique_id or str(half.queue_offset), half.producer_group
