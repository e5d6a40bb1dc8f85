"""The update of the index of keys, in steps between the event loop's other work, and its look-ups, a few at a time.

While messages are stored, each step is followed by a rest ten times as long, so that the index takes at most a tenth of
the loop's time. If messages arrive faster, the index lags, and catches up later. Before a look-up, the waiting messages
are added to the index without such rests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.protocol.messages.record import unpack_record
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.appending import Dispatched
from pyrmq_core.servers.broker.store.index.key_index import KeyIndex
from pyrmq_core.servers.broker.store.message_store import MessageStore

log = line_logger(__name__)

# The pause after a step while messages are stored, as a multiple of the step's duration.
REST: Final = 10
LEAST_REST_SECONDS: Final = 0.005
RETRY_SECONDS: Final = 1.0
# The most seconds that a look-up waits before it may read.
TURN_SECONDS: Final = 5.0
# The most seconds that a look-up waits for a lagging index, or adds waiting messages to it.
WAIT_SECONDS: Final = 3.0
# The most seconds of a look-up's search.
LOOK_UP_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.05
# How many look-ups may read at a time, and how many may wait or read. Otherwise many look-ups would take all time of
# the loop, and much memory for answers.
READING_AT_ONCE: Final = 4
MOST_LOOK_UPS: Final = 256


class Found(NamedTuple):
    """The records with a key, in the order of the log.

    `last_update` is the store time in ms and the log offset of the newest indexed message, or zeros without records.
    """

    records: list[bytes]
    last_update: tuple[int, int]


class KeyIndexing:
    """The index of keys of one store, updated by `run` unless messageIndexEnable=false."""

    def __init__(self, store: MessageStore, config: BrokerConfig) -> None:
        self._store = store
        self._is_on = config.message_index_enable and config.index_file_write_enable
        self._index = KeyIndex(store, config.index_layout)
        self._is_clean = True
        self._arrived = trio.Event()
        self._said = ""
        self._look_ups = BoundedWork(READING_AT_ONCE, MOST_LOOK_UPS, TURN_SECONDS)
        self._leaving: list[Callable[[], None]] = []  # the functions that remove old files

    def open(self, *, clean: bool) -> None:
        """Opens the index files, and checks them unless the last stop was `clean`. A failure is only logged.

        `catch_up` tries again to open them.
        """
        self._is_clean = clean
        self._index.begin()
        try:
            self._open(clean=clean)
        except StoreError as error:
            if self._is_on:
                self._say(error)
            else:
                log.error("the index of keys cannot be opened, look-ups find nothing: %s", error)

    def close(self) -> None:
        """Syncs the index files. Raises `StoreError` if they can be neither synced nor removed.

        After a crash, files that could not be opened are removed, since the next start may open them without a check.
        """
        if self._index.is_open:
            self._index.close()
        elif not self._is_clean:
            self._index.remove()

    @property
    def stored_bytes(self) -> int:
        """The size of the index files that `remove_old` would keep, without the newest file."""
        return self._index.stored_bytes(self._store.start)

    async def remove_old(self) -> None:
        """Removes index files whose messages are all before the log's start. A failed removal is repeated later."""
        self._leaving += self._index.retire_before(self._store.start)
        try:
            while self._leaving:
                await trio.to_thread.run_sync(self._leaving[0])
                del self._leaving[0]
        except StoreError as error:
            log.error("old files of the index are not removed: %s", error)

    async def catch_up(self) -> bool:
        """Adds the messages that the index lacks, read from the log. Returns False if the disk fails meanwhile."""
        try:
            if self._is_on:
                if not self._index.is_open:
                    self._open(clean=False)
                await self._rest_between(self._index.catch_up())
        except StoreError as error:
            self._say(error)
            return False
        self._said = ""
        return True

    def note(self, messages: Dispatched) -> None:
        if self._is_on:
            self._index.note(messages)
            self._arrived.set()

    def note_replayed(self) -> None:
        if self._is_on:
            self._index.note_replayed(self._store.readable_end)
            self._arrived.set()

    async def run(self) -> None:
        while self._is_on:
            try:
                await self._work()
            except Exception:
                log.exception("the index of keys is behind")
                await trio.sleep(RETRY_SECONDS)

    async def _work(self) -> None:
        self._arrived = trio.Event()
        if not self._index.is_live:
            if not await self.catch_up():
                await trio.sleep(RETRY_SECONDS)
            return
        try:
            await self._rest_between(self._waiting_steps())
            await self._seal_full_files()
        except StoreError as error:
            self._say(error)
            await trio.sleep(RETRY_SECONDS)
        if self._has_all:
            await self._arrived.wait()

    @property
    def _has_all(self) -> bool:
        return self._index.is_live and not self._index.has_waiting

    async def look_up(
        self, key: tuple[str, str, str | None], most: int, times_ms: tuple[int, int], most_bytes: int
    ) -> Found | None:
        """Returns the newest records with a key, at most `most`, or None if too many look-ups wait.

        `key` is topic, key and type of index, and `times_ms` the first and the last store time. The oldest records are
        left out if all together exceed `most_bytes`.
        """
        return await self._look_ups.run(partial(self._read, key, most, times_ms, most_bytes), self._wait_until_live)

    async def _wait_until_live(self) -> None:
        with trio.move_on_after(WAIT_SECONDS):
            while self._is_on and not self._index.is_live:  # noqa: ASYNC110 - it may fall behind again
                await trio.sleep(LOOK_SECONDS)

    async def _enter_waiting(self) -> None:
        if not self._is_on:
            return
        with trio.move_on_after(WAIT_SECONDS):
            try:
                for _ in self._waiting_steps():
                    await trio.lowlevel.checkpoint()
            except StoreError as error:
                self._say(error)

    async def _read(
        self, key: tuple[str, str, str | None], most: int, times_ms: tuple[int, int], most_bytes: int
    ) -> Found:
        offsets: list[int] = []
        records: list[bytes] = []
        total = 0
        with trio.move_on_after(LOOK_UP_SECONDS):
            await self._enter_waiting()
            try:
                for _ in self._index.find(key, most, times_ms, offsets):
                    await trio.lowlevel.checkpoint()
            except StoreError as error:
                log.warning("a look-up in the index ends early: %s", error)
        for offset in sorted(offsets, reverse=True):  # so that the oldest records are left out
            record = self._store.reader.record(offset)
            # Skips records of other topics with the same hash, which the caller may have no permission to read.
            if record is None or decode_java_utf8(unpack_record(record, 0).topic) != key[0]:
                continue
            total += len(record)
            if total > most_bytes:
                break
            records.append(record)
            await trio.lowlevel.checkpoint()
        return Found(records[::-1], self._index.last_update if offsets else (0, 0))

    def _open(self, *, clean: bool) -> None:
        for warning in self._index.open(clean=clean):
            log.warning("%s", warning)

    def _waiting_steps(self) -> Iterator[None]:
        while self._index.has_waiting:
            self._index.step()
            yield

    async def _rest_between(self, steps: Iterator[None]) -> None:
        end, began = self._store.end, time.perf_counter()
        for _ in steps:
            seconds = time.perf_counter() - began
            is_busy = self._store.end != end
            end = self._store.end
            await trio.sleep(max(LEAST_REST_SECONDS, REST * seconds) if is_busy else seconds)
            began = time.perf_counter()

    async def _seal_full_files(self) -> None:
        while (file := self._index.full_file()) is not None:
            await self._rest_between(file.unwritten())
            await trio.to_thread.run_sync(file.file.sync)
            file.seal()
            self._index.mark_synced(file)

    def _say(self, error: StoreError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            log.error("the index of keys is behind, and tries again: %s", error)
