"""The lines of Python that a piece of work runs: a measure of work that is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Lines:
    """A number of lines, each turn of a loop counted."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def counted_lines() -> Iterator[Lines]:
    """Counts the lines that this thread runs in the block, also those of other tasks of its loop."""
    lines = Lines()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        lines.count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def lines_of(work: Callable[[], object]) -> int:
    """Returns the number of lines that the work runs."""
    with counted_lines() as lines:
        work()
    return lines.count
