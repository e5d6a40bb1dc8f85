"""The removal of the store's oldest files when they are old enough, when the disk fills, or to keep a size limit.

First the messages of a segment of the commit log become unreadable, and the minimum offsets of their queues rise. Then
the segment's file is removed in a worker thread, and after it the queue files of removed messages. After a crash
between these steps, the next start serves or removes the remaining files. The last segment is never removed, nor the
last file of a queue, which has the next offset. Source: store/DefaultMessageStore.java, CleanCommitLogService and
CleanConsumeQueueService (5.4.0).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.messages.names import HALF_TOPIC, TRANSACTION_GROUP
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.disk.files import DiskSpace
from pyrmq_core.servers.broker.store.layout import QUEUES_FOLDER
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store.retention_rules import Judgement, is_above_size, judge, may_go
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets

log = line_logger(__name__)

MILLISECONDS: Final = 1000
SOON_SECONDS: Final = 1.0
# After an administrator's request, this many rounds remove old segments at any hour, not only at deleteWhen.
ROUNDS_BY_HAND: Final = 20
# How many queues are examined before other tasks run.
QUEUES_AT_ONCE: Final = 20

# Topics that the broker itself reads: topic, the group whose offset is its progress, and a name of the messages.
OWN_WORK: Final = ((HALF_TOPIC, TRANSACTION_GROUP, "half messages of transactions"),)


class Retention:
    """The removal of one store's old files. While the disk is full, it also lets the store refuse messages.

    `on_removed` is called after messages were removed. `other_bytes` returns the size of other files, such as those of
    the index of keys, that are removed with old messages. `now_ms` is the system clock.
    """

    def __init__(
        self,
        store: MessageStore,
        config: BrokerConfig,
        now_ms: Callable[[], int] = clock.now_ms,
        *,
        on_removed: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
        other_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self.configure(config)
        self._now_ms = now_ms
        self._on_removed = on_removed
        self._other_bytes = other_bytes
        self._by_hand = 0
        self._wanted = trio.Event()
        self._leaving: list[Callable[[], None]] = []  # functions that remove a segment's file
        self._leaving_queues: dict[QueueKey, list[Callable[[], None]]] = {}  # functions that remove queue files
        self._tried = -float("inf")
        self._cleaned_start = 0  # the log's start when the queues were last cleaned
        self._queue_bytes = 0
        self._said: set[str] = set()

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self._rules = config.retention

    def want(self) -> None:
        self._wanted.set()

    def remove_by_hand(self) -> None:
        self._by_hand = ROUNDS_BY_HAND
        self.want()

    async def run(self) -> None:
        while True:
            self._wanted = trio.Event()
            try:
                await self.work()
            except StoreError as error:
                log.error("old files are not removed: %s", error)
            except Exception:
                log.exception("old files are not removed")
            interval = self._config.clean_resource_interval / MILLISECONDS
            # Checks soon again, since a segment can be removed once the checkpoint, written each second, is beyond it.
            with trio.move_on_after(min(interval, SOON_SECONDS) if self._is_above_size else interval):
                await self._wanted.wait()

    async def work(self) -> None:
        spaces = await trio.to_thread.run_sync(self._spaces)
        if self._rules.max_store_bytes:
            self._queue_bytes = await self._measure_queues()
        now_ms, by_hand, start = self._now_ms(), self._by_hand > 0, self._store.start
        self._by_hand = max(0, self._by_hand - 1)
        hour = time.localtime(now_ms // MILLISECONDS).tm_hour
        judgement = judge(self._rules, hour, spaces, self._store_bytes, by_hand=by_hand)
        if spaces:
            self._note_fullness(judgement)
        if await self._finish_removal():
            await self._keep_to_size()
            await self._remove_old(judgement, now_ms)
        if self._store.start != start:
            await self._on_removed()
        if self._store.start != self._cleaned_start or self._leaving_queues:
            await self._clean_queues()

    @property
    def _is_above_size(self) -> bool:
        return is_above_size(self._rules, self._store_bytes)

    @property
    def _store_bytes(self) -> int:
        return self._store.log_bytes + self._queue_bytes + self._other_bytes()

    def _spaces(self) -> list[DiskSpace]:
        files, log_folder = self._store.files, self._store.settings.log_folder.rstrip("/")
        try:
            return [files.space(log_folder), files.space(QUEUES_FOLDER)]
        except StoreError as error:
            self._say("space", f"{error}: old files go by their age alone")
            return []

    async def _measure_queues(self) -> int:
        total = 0
        for keys in _in_parts(list(self._store.queues.by_key)):
            total += sum([self._store.queues.stored_bytes(key) for key in keys])
            await trio.lowlevel.checkpoint()
        return total

    def _note_fullness(self, judgement: Judgement) -> None:
        store, used = self._store, judgement.used_percent
        if judgement.is_full and not store.refusal:
            store.refusal = (
                f"the broker's disk is full: {used} % are used, and above {self._rules.warning_percent} % "
                "(diskSpaceWarningLevelRatio) nothing is stored; make room, or lower fileReservedTime"
            )
            log.error("messages are refused: %s", store.refusal)
        elif store.refusal and not judgement.is_full:
            store.refusal = ""
            log.warning("messages are taken again: there is room on the disk")

    async def _keep_to_size(self) -> None:
        while self._is_above_size and self._store.oldest_segment() is not None:
            most = self._rules.max_store_bytes
            self._say(
                "size", f"the store has reached maxStoreBytes={most}: its oldest messages are removed from now on"
            )
            if not await self._remove_oldest():
                return

    async def _remove_old(self, judgement: Judgement, now_ms: int) -> None:
        for number in range(self._config.delete_file_batch_max):
            oldest = self._store.oldest_segment()
            modified_ms = None if oldest is None else self._store.files.modified_ms(oldest.path)
            if modified_ms is None or not may_go(self._rules, judgement, modified_ms, now_ms):
                if not number and judgement.at_once:
                    used = judgement.used_percent
                    self._say("room", f"{used} % of the disk are used, and there is no old segment to remove")
                return
            if number:
                await trio.sleep(self._config.delete_commit_log_files_interval / MILLISECONDS)
            if not await self._remove_oldest():
                return

    async def _remove_oldest(self) -> bool:
        oldest = self._store.oldest_segment()
        if oldest is None:
            return False
        self._leaving = self._store.remove_oldest_segment()
        log.info("messages before %d are removed from the commit log: %s", oldest.next_start, oldest.path)
        self._tried = -float("inf")
        return await self._finish_removal()

    async def _finish_removal(self) -> bool:
        """Removes the file of a segment that is no longer served. Returns True if no such file is left.

        While there is one, no later segment may be removed, since a gap would hide the segments before it.
        """
        if not self._leaving:
            return True
        interval_ms = self._config.redelete_hanged_file_interval
        if trio.current_time() - self._tried < interval_ms / MILLISECONDS:
            return False
        try:
            await trio.to_thread.run_sync(_call_all, self._leaving)
        except StoreError as error:
            self._tried = trio.current_time()
            log.error("%s; it is tried again after %d ms, and nothing else is removed until then", error, interval_ms)
            return False
        return True

    async def _clean_queues(self) -> None:
        start = self._store.start
        for keys in _in_parts(list({**self._store.queues.by_key, **self._leaving_queues})):
            for key in keys:
                await self._clean_queue(key)
            await trio.lowlevel.checkpoint()
        self._cleaned_start = start

    async def _clean_queue(self, key: QueueKey) -> None:
        removals = self._leaving_queues.setdefault(key, [])
        try:
            removals += self._store.queues.retire_files(key)
            if removals:
                await trio.to_thread.run_sync(_call_all, removals)
                await trio.sleep(self._config.delete_consume_queue_files_interval / MILLISECONDS)
        except StoreError as error:
            self._say(str(error), f"{error}; it is tried again")
        else:
            del self._leaving_queues[key]

    def _say(self, what: str, line: str) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", line)


def _in_parts(keys: Sequence[QueueKey]) -> list[Sequence[QueueKey]]:
    return [keys[at : at + QUEUES_AT_ONCE] for at in range(0, len(keys), QUEUES_AT_ONCE)]


def _call_all(calls: list[Callable[[], None]]) -> None:
    while calls:
        calls[0]()
        del calls[0]


def unread_lines(store: MessageStore, offsets: GroupOffsets) -> list[str]:
    """Returns a log line for each queue of half messages in which retention removed undecided transactions."""
    lines = []
    for topic, group, what in OWN_WORK:
        for queue_id in store.reader.queues_of(topic):
            start, _ = store.reader.bounds((topic, queue_id))
            done = offsets.committed(group, topic, queue_id) or 0
            if done < start:
                lines.append(
                    f"{start - done} {what} (queue {queue_id} of {topic}, from {done} on) were removed unfinished, "
                    "with old segments of the commit log: these transactions are never committed"
                )
    return lines
