"""`LoopAccess`: how code uses the loop from any thread, by its clock, its scheduling, and the right to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio


@dataclass(frozen=True, slots=True)
class LoopAccess:
    """The functions by which a caller starts work on the loop.

    `now` returns the loop's time, and `soon` schedules a function on the loop. `writes_here` is true for a thread that
    has the loop's lock while the loop waits for I/O (`LoopLock`). Such a thread may write to a connection, but not use
    trio's functions, which work only in the loop's own thread.
    """

    now: Callable[[], float]
    soon: Callable[..., Any]
    writes_here: bool = False


def _call(function: Callable[..., object], *args: object) -> None:
    function(*args)


# The access of code that runs on the loop.
ON_LOOP: Final = LoopAccess(trio.current_time, _call)
