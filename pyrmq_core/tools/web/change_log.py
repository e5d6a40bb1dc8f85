"""`ChangeLog`: the changes made through the page. The latest are in memory, and a file has all as JSON lines."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import RocketMQError

MAX_ENTRIES: Final = 100
BEGUN: Final = "begun"
DONE: Final = "done"
FAILED: Final = "failed"


class ChangeNotLogged(RocketMQError):
    """Raised if the log's file cannot be written. The change is then not made."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """The name of a viewer from a proxy's header, or an empty text, and the address of the connection."""

    name: str = ""
    address: str = ""


@dataclass(slots=True)
class LogEntry:
    """One change. `state` is begun, done or failed. A change with a `ticket` can be undone."""

    number: int
    at: datetime
    viewer: Viewer
    what: str
    state: str = BEGUN
    result: str = ""
    ticket: str = ""


class ChangeLog:
    """The log of the changes made through one page server. Without a file it is in memory only."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._entries: deque[LogEntry] = deque(maxlen=MAX_ENTRIES)
        self._number = 0

    @property
    def entries(self) -> list[LogEntry]:
        return list(reversed(self._entries))

    async def begin(self, viewer: Viewer, what: str) -> LogEntry:
        """Logs a change before it is made, and returns its entry.

        Raises `ChangeNotLogged` if the file cannot be written.
        """
        self._number += 1
        entry = LogEntry(self._number, datetime.now(UTC), viewer, what)
        await self._write(entry)
        self._entries.append(entry)
        return entry

    async def end(self, entry: LogEntry, state: str, result: str) -> None:
        """Logs the result of a change, even if the task is cancelled.

        If the file cannot be written, `entry.result` says so.
        """
        entry.state, entry.result = state, result
        with trio.CancelScope(shield=True):
            try:
                await self._write(entry)
            except ChangeNotLogged as error:
                entry.result = Text("{result} ({error})", result=result, error=str(error))

    async def _write(self, entry: LogEntry) -> None:
        if self._file is None:
            return
        line = {
            "change": entry.number,
            "when": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "viewer": entry.viewer.name,
            "address": entry.viewer.address,
            "what": entry.what,
            "state": entry.state,
            "result": entry.result,
        }
        try:
            await trio.to_thread.run_sync(_append, self._file, json.dumps(line) + "\n")
        except OSError as error:
            text = Text("the log of changes {file} takes no line: {error}", file=self._file, error=error)
            raise ChangeNotLogged(text) from error


def _append(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(line)
