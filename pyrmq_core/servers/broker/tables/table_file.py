"""`TableFile`: the JSON file of a table. Each write includes all changes made during the previous write.

The text is encoded and written in a worker thread. Only requests that promise durability wait for `written`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.tables.config_files import load_config, save_config

log = line_logger(__name__)

# Returns the file's members as they were when `snapshot` returned this function. It is called in a worker thread.
Members: TypeAlias = Callable[[], Mapping[str, Any]]

# A file that could not be written is written again after this time, or at the next change.
RETRY_SECONDS: Final = 5.0
# A thread that encodes a large table slows the event loop. So after a write that took more processor time than this, a
# pause of the same length follows. If no request waits for the file, nine more follow.
SHORT_SECONDS: Final = 0.01
UNASKED_PAUSES: Final = 9


class TableFile:
    """The JSON file of one table, which `run` writes in a worker thread after each change.

    `snapshot` is called in the event loop's thread, and returns a function that builds the file's members in the worker
    thread. To be quick, it may only copy references. `changes` is the number of all changes, and `written_changes` the
    number of those in the file. `on_written` is called after each write.
    """

    def __init__(
        self,
        files: Files,
        name: str,
        snapshot: Callable[[], Members],
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.changes = 0
        self.written_changes = 0
        self._files = files
        self._snapshot = snapshot
        self._on_written = on_written
        self._tried = 0
        self._failure = ""
        self._changed = trio.Event()
        self._ended = trio.Event()
        self._requested = trio.Event()

    @property
    def is_behind(self) -> bool:
        return self.written_changes < self.changes

    def load(self) -> dict[str, Any]:
        """Returns the members of the file. Raises `StoreError` if it cannot be read."""
        return load_config(self._files, self.name)

    def changed(self) -> None:
        """Counts a change of the table, which `run` soon writes to the file."""
        self.changes += 1
        self._changed.set()

    async def written(self, changes: int | None = None) -> None:
        """Waits until the file has the first `changes` changes of the table, by default all changes so far.

        Raises `StoreError` if writing them failed.
        """
        target = self.changes if changes is None else changes
        while self.written_changes < target:
            if self._failure and self._tried >= target:
                raise StoreError(self._failure)
            self._requested.set()
            await self._ended.wait()

    async def run(self) -> None:
        while True:
            with trio.move_on_after(RETRY_SECONDS if self._failure else math.inf):
                await self._changed.wait()
            self._changed, self._requested = trio.Event(), trio.Event()
            changes, members, seconds = self.changes, self._snapshot(), 0.0
            try:
                seconds = await trio.to_thread.run_sync(self._save, members)
            except StoreError as error:
                log.error("%s is not written: %s", self.name, error)
                self._failure = str(error)
            else:
                self._failure = ""
                self._note_written(changes)
            self._tried = changes
            ended, self._ended = self._ended, trio.Event()
            ended.set()
            if seconds > SHORT_SECONDS:
                await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        await trio.sleep(seconds)
        with trio.move_on_after(UNASKED_PAUSES * seconds):
            await self._requested.wait()

    def save(self) -> None:
        """Writes the file in the calling thread, at the broker's start and stop. Raises `StoreError` if that fails."""
        changes = self.changes
        self._save(self._snapshot())
        self._note_written(changes)

    def _note_written(self, changes: int) -> None:
        self.written_changes = changes
        self._on_written()

    def _save(self, members: Members) -> float:
        started = time.thread_time()
        save_config(self._files, self.name, members())
        return time.thread_time() - started
