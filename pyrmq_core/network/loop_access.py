"""`LoopAccess`: the functions by which code in any thread reads the clock of trio's loop and schedules calls on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio


@dataclass(frozen=True, slots=True)
class LoopAccess:
    """The access that the code of one thread has to trio's event loop.

    `now` returns the loop's time, and `soon` schedules a function on the loop. `writes_here` is True for a thread that
    may write to connections itself: it holds the loop's lock (`LoopLock`) while the loop waits for I/O. Trio's own
    functions still work only in the loop's thread.
    """

    now: Callable[[], float]
    soon: Callable[..., Any]
    writes_here: bool = False


def _call(function: Callable[..., object], *args: object) -> None:
    function(*args)


# The access of code that runs on the loop.
ON_LOOP: Final = LoopAccess(trio.current_time, _call)
