"""`LoopAccess`: the functions by which code in any thread reads the clock of trio's loop, or schedules calls on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import trio


@dataclass(frozen=True, slots=True)
class LoopAccess:
    """The functions by which the code in one thread uses trio's event loop.

    `now` returns the loop's time, and `soon` schedules a function on the loop. `writes_here` is True in another thread
    that holds the loop's lock (`LoopLock`) while the loop waits for I/O. Its code may write to connections, but must
    not call trio's functions.
    """

    now: Callable[[], float]
    soon: Callable[..., Any]
    writes_here: bool = False


def _call(function: Callable[..., object], *args: object) -> None:
    function(*args)


# For code that runs on the loop.
ON_LOOP: Final = LoopAccess(trio.current_time, _call)
