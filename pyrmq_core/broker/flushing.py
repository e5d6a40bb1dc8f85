"""Brings the store to the medium: in time (ASYNC_FLUSH), or before a send is answered (SYNC_FLUSH), one sync for many.

Syncs run in a worker thread; everything else of the store stays in the loop's thread.
Source: store/CommitLog.java, GroupCommitService and FlushRealTimeService (5.4.0).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.broker.settings import SYNC_FLUSH, BrokerConfig
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.errors import StoreError

log = logging.getLogger(__name__)

MILLISECONDS: Final = 1000


class Flusher:
    """`run` flushes until cancelled. After a failed sync `failure` says why nothing may be acknowledged any more."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._is_sync = config.flush_disk_type == SYNC_FLUSH
        self._log_seconds = config.flush_interval_commit_log / MILLISECONDS
        self._queue_seconds = config.flush_interval_consume_queue / MILLISECONDS
        self._timeout_seconds = config.sync_flush_timeout / MILLISECONDS
        self._waiting: deque[tuple[int, trio.Event]] = deque()  # by the log's end they wait for, ascending
        self._wanted = trio.Event()
        self.failure = ""

    @property
    def is_sync(self) -> bool:
        return self._is_sync

    async def wait_flushed(self, end: int) -> bool:
        """Whether everything before `end` came to the medium within syncFlushTimeout."""
        if self._store.flushed >= end:
            return True
        flushed = trio.Event()
        self._waiting.append((end, flushed))
        with trio.move_on_after(self._timeout_seconds):
            await flushed.wait()
        return self._store.flushed >= end

    def want(self) -> None:
        """There is something to flush, whether anybody waits for it or not."""
        self._wanted.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_log)
            nursery.start_soon(self._flush_queues)

    async def _flush_log(self) -> None:
        while not self.failure:
            if self._is_sync:
                await self._wanted.wait()
                self._wanted = trio.Event()
            else:
                await trio.sleep(self._log_seconds)
            end, syncs = self._store.unsynced()
            if await self._sync(syncs):
                self._store.synced(end)
                while self._waiting and self._waiting[0][0] <= end:
                    self._waiting.popleft()[1].set()

    async def _flush_queues(self) -> None:
        """The queues' turn; then recovery may begin at what both have."""
        while not self.failure:
            await trio.sleep(self._queue_seconds)
            end = self._store.flushed
            self._store.dispatch(end if self._is_sync else self._store.end)
            if await self._sync(self._store.unsynced_queues()):
                try:
                    self._store.mark_safe(end)
                except StoreError as error:
                    log.warning("the checkpoint is not written: %s", error)

    async def _sync(self, syncs: list[Callable[[], None]]) -> bool:
        """After a failed sync the system may have dropped what was written: no later sync makes up for it."""
        if not syncs:
            return True
        try:
            await trio.to_thread.run_sync(_call_all, syncs)
        except StoreError as error:
            self.failure = str(error)
            log.critical("nothing more is stored: %s", error)
            return False
        return True


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
