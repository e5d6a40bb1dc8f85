"""`Flusher`: syncs the store to the disk, at intervals (ASYNC_FLUSH) or before sends are answered (SYNC_FLUSH).

Syncs run in a worker thread, each for many sends. Appends and reads run in the event loop's thread. Source:
store/CommitLog.java, GroupCommitService and FlushRealTimeService (5.4.0).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker.settings.broker_config import SYNC_FLUSH, BrokerConfig
from pyrmq_core.servers.broker.store.message_store import MessageStore

log = line_logger(__name__)

MILLISECONDS: Final = 1000


class Flusher:
    """The service that syncs a store's log and queues to the disk, until its `run` is cancelled.

    After a failed sync no send may be acknowledged, and `failure` has the reason. Each sync also checks that the file
    is still at its path, to notice the removal of a file in use.
    """

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._is_sync = config.flush_disk_type == SYNC_FLUSH
        self._log_seconds = config.flush_interval_commit_log / MILLISECONDS
        self._queue_seconds = config.flush_interval_consume_queue / MILLISECONDS
        self._timeout_seconds = config.sync_flush_timeout / MILLISECONDS
        self._waiting: deque[tuple[int, trio.Event]] = deque()  # the log offset up to which each wait needs a sync
        self._requested = trio.Event()
        self._queue_turn = trio.Lock()

    @property
    def failure(self) -> str:
        return self._store.failure

    @property
    def is_sync(self) -> bool:
        return self._is_sync

    async def wait_flushed(self, end: int) -> bool:
        """Returns True once the log is synced up to `end`, or False after syncFlushTimeout or at a failure."""
        if self._store.flushed >= end:
            return True
        if self.failure:
            return False
        flushed = trio.Event()
        self._waiting.append((end, flushed))
        with trio.move_on_after(self._timeout_seconds):
            await flushed.wait()
        return self._store.flushed >= end

    def want(self) -> None:
        self._requested.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_log)
            nursery.start_soon(self._flush_queues)

    async def _flush_log(self) -> None:
        while not self.failure:
            if self._is_sync:
                await self._requested.wait()
                self._requested = trio.Event()
            else:
                await trio.sleep(self._log_seconds)
            end, syncs = self._store.unsynced()
            if await self._sync(syncs):
                self._store.synced(end)
                while self._waiting and self._waiting[0][0] <= end:
                    self._waiting.popleft()[1].set()

    async def _flush_queues(self) -> None:
        while not self.failure:
            await trio.sleep(self._queue_seconds)
            await self.flush_queues()

    async def flush_queues(self) -> None:
        """Syncs the queues in a worker thread, then writes the checkpoint from which recovery begins."""
        async with self._queue_turn:
            mark = self._store.synced_mark
            self._store.dispatch(mark.end if self._is_sync else self._store.end)
            if await self._sync([*self._store.unsynced_queues(), *self._store.checks()]):
                self._store.synced_queues()
                try:
                    self._store.mark_safe(mark)
                    if await self._sync(self._store.unsynced_mark()):
                        self._store.publish_mark()
                except StoreError as error:
                    log.warning("the checkpoint is not written: %s", error)

    async def _sync(self, syncs: list[Callable[[], None]]) -> bool:
        if not syncs:
            return True
        try:
            await trio.to_thread.run_sync(_call_all, syncs)
        except StoreError as error:
            self._store.fail(str(error))
            return False
        return True

    def failed(self, reason: str) -> None:
        """Wakes all callers of `wait_flushed` after the store failed for `reason`, since no sync will follow."""
        log.critical("nothing more is stored until a new start recovers the store: %s", reason)
        while self._waiting:
            self._waiting.popleft()[1].set()
        self._requested.set()


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
