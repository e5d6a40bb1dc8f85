"""`Timers`: the tasks that deliver timer messages and write the checkpoint of their files.

After a disk error the delivery waits a second and tries again, so that no message is skipped. It reads the system's
clock at least every second, since the clock may be set, or the host may sleep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.timers.timer_copies import TimerMessage
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_QUEUE, TIMER_TOPIC, TimerSettings
from pyrmq_core.servers.broker.timers.timer_store import TimerStore
from pyrmq_core.servers.broker.timers.topic_counts import TopicCounts

log = line_logger(__name__)

RETRY_SECONDS: Final = 1.0
MAX_WAIT_SECONDS: Final = 1.0


class Timers:
    """The tasks of one broker's timer messages. Unless `enabled`, all messages wait (timerWheelEnable=false).

    A checkpoint is written every `flush_ms`. `now_ms` returns the system's clock. With `counts_topics` waiting messages
    are counted by topic, for which a start reads all entries. `on_taken` is called with each new timer message,
    `on_delivered` with the topic and the bytes of each delivered message.
    """

    def __init__(
        self,
        store: MessageStore,
        files: Files,
        settings: TimerSettings,
        *,
        enabled: bool,
        flush_ms: int,
        counts_topics: bool = False,
        now_ms: Callable[[], int] = clock.now_ms,
        on_taken: Callable[[TimerMessage], None] = lambda message: None,
        on_delivered: Callable[[str, int], None] = lambda topic, size_bytes: None,
    ) -> None:
        self.settings = settings
        self.enabled = enabled
        self.messages = TimerStore(
            store,
            files,
            settings,
            warn=lambda line: log.error("%s", line),
            on_taken=on_taken,
            on_delivered=on_delivered,
        )
        self.messages.files.topics = TopicCounts() if counts_topics else None
        self._store = store
        self._flush_seconds = flush_ms / 1000
        self._now_ms = now_ms
        self._arrived = trio.Event()
        self._saved = (0, 0)
        self.delivered_ms = 0  # all messages due up to this time are delivered; it may lie in the future

    def open(self) -> None:
        """Opens the timer files of an opened store. Blocks. Raises `StoreError` if they cannot be opened."""
        if self.enabled:
            for line in self.messages.open(self._now_ms()):
                log.warning("%s", line)
            return
        start, end = self._store.reader.bounds(TIMER_QUEUE)
        if end > start:
            log.warning(
                "%s has %d messages, and timerWheelEnable is false: those that wait are delivered by a broker with "
                "timerWheelEnable=true",
                TIMER_TOPIC,
                end - start,
            )

    def arrived(self) -> None:
        self.delivered_ms = min(self.delivered_ms, self._now_ms())  # the new message is due later than now
        self._arrived.set()

    async def run(self) -> None:
        if self.enabled:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._deliver)
                nursery.start_soon(self._save)

    def close(self) -> None:
        """Writes the timer files so that the next start repeats nothing. Blocks. Raises `StoreError` on failure."""
        if self.enabled and self.messages.files.may_save:
            self.messages.close(self._now_ms())

    async def _deliver(self) -> None:
        failure = ""
        while True:
            self._arrived = trio.Event()
            try:
                now_ms = self._now_ms()
                wait_ms = self.messages.work(now_ms)
                if wait_ms > 0:
                    self.delivered_ms = now_ms + wait_ms - 1
                wait_seconds = min(wait_ms / 1000, MAX_WAIT_SECONDS)
                failure = ""
            except StoreError as error:
                if str(error) != failure:
                    failure = str(error)
                    log.warning("timer messages wait: %s", failure)
                await trio.sleep(RETRY_SECONDS)
                continue
            if wait_seconds <= 0:
                await trio.lowlevel.checkpoint()
                continue
            with trio.move_on_after(wait_seconds):
                await self._arrived.wait()

    async def _save(self) -> None:
        """Syncs the timer files, waits until the commit log is synced as far, and writes the checkpoint."""
        while self.messages.files.may_save:
            await trio.sleep(self._flush_seconds)
            await self._remove_files()
            progress = self.messages.progress
            if not self.messages.files.names or progress == self._saved:
                continue
            state, end = self.messages.state(self._now_ms()), self._store.end
            try:
                await trio.to_thread.run_sync(_call_all, self.messages.files.syncs())
            except StoreError as error:
                self.messages.files.may_save = False
                log.error("no checkpoint of timer messages is written until the next start: %s", error)
                return
            if await self._flushed(end):
                self.messages.files.is_saving = True
                try:
                    await trio.to_thread.run_sync(self.messages.files.save, state)
                    self._saved = progress
                except StoreError as error:
                    log.warning("the checkpoint of timer messages is not written: %s", error)
                finally:
                    self.messages.files.is_saving = False

    async def _remove_files(self) -> None:
        try:
            await trio.to_thread.run_sync(_call_all, self.messages.removals)
        except StoreError as error:
            log.warning("%s; it is tried again", error)

    async def _flushed(self, end: int) -> bool:
        while self._store.flushed < end:
            if self._store.failure:
                return False
            await trio.sleep(self._flush_seconds)
        return True


def _call_all(calls: list[Callable[[], None]]) -> None:
    while calls:
        calls[0]()
        del calls[0]
