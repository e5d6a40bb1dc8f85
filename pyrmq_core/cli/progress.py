"""A line about work under way, on standard error: only on a terminal, and only after a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

SECONDS_BEFORE: Final = 1.0


class ProgressLine:
    """The number of things done and their rate; with a `total`, also a bar."""

    def __init__(self, what: str, console: Console, total: int | None) -> None:
        self._what = what
        self._console = console
        self._total = total
        self._began = time.monotonic()
        self._shown: Progress | None = None
        self._task = TaskID(0)

    def update(self, done: int, position: int | None = None) -> None:
        """Shows that so many things are done; `position` is how much of the `total` that is, if it is another unit."""
        seconds = time.monotonic() - self._began
        if self._shown is None:
            if seconds < SECONDS_BEFORE or not self._console.is_terminal:
                return
            bar = () if self._total is None else (BarColumn(),)
            columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn())
            self._shown = Progress(*columns, console=self._console, transient=True)
            self._task = self._shown.add_task("", total=self._total)
            self._shown.start()
        text = f"{done:,} {self._what}, {done / seconds:,.0f} a second"
        self._shown.update(self._task, description=text, completed=done if position is None else position)

    def close(self) -> None:
        """Removes the line."""
        if self._shown is not None:
            self._shown.stop()


@contextmanager
def progress_line(what: str, total: int | None = None) -> Iterator[ProgressLine]:
    """Yields the line of one piece of work, and removes it at the end."""
    line = ProgressLine(what, Console(stderr=True), total)
    try:
        yield line
    finally:
        line.close()
