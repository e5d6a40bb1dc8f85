"""A progress line on standard error, which is removed at the end. It is shown only on a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

SECONDS_BEFORE: Final = 1.0


class ProgressLine:
    """A line with the number of finished items and their rate. With a `total` it has a bar."""

    def __init__(self, what: str, console: Console, total: int | None) -> None:
        self._what = what
        self._console = console
        self._total = total
        self._began = time.monotonic()
        self._shown: Progress | None = None
        self._task = TaskID(0)
        self._is_paused = False

    def update(self, done: int, position: int | None = None, more: str = "") -> None:
        """Shows the number of finished items and the text `more`. Moves the bar to `position`, by default to `done`."""
        seconds = time.monotonic() - self._began
        if self._shown is None:
            if seconds < SECONDS_BEFORE or not self._console.is_terminal:
                return
            bar = () if self._total is None else (BarColumn(),)
            columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn())
            # By default rich redirects stdout and stderr, and would write all printed lines to this console.
            self._shown = Progress(
                *columns, console=self._console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._task = self._shown.add_task("", total=self._total)
            self._shown.start()
        elif self._is_paused:
            self._shown.start()
        self._is_paused = False
        text = f"{done:,} {self._what}, {done / seconds:,.0f} a second{more}"
        self._shown.update(self._task, description=text, completed=done if position is None else position)

    def pause(self) -> None:
        """Removes the line before something is printed to the terminal. The next update shows it again."""
        if self._shown is not None:
            self._shown.stop()
            self._is_paused = True

    def close(self) -> None:
        if self._shown is not None:
            self._shown.stop()


@contextmanager
def progress_line(what: str, total: int | None = None) -> Iterator[ProgressLine]:
    line = ProgressLine(what, Console(stderr=True), total)
    try:
        yield line
    finally:
        line.close()
