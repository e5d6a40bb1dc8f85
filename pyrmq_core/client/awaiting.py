"""`Awaited`: what a task waits for, told once by a plain function; a task that is cancelled says so, and hears no more.

A bare reschedule of the task: half the price of an event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Awaited(Generic[T]):
    """What `tell` is given, `wait` gives to one task."""

    __slots__ = ("_given_up", "_is_told", "_task", "_value")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._given_up: Callable[[], None] | None = None
        self._is_told = False

    def tell(self, value: T) -> None:
        self._value = value
        self._is_told = True
        task, self._task = self._task, None
        self._given_up = None  # it leads back here by way of the call: a circle would be left to the garbage collector
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def wait(self, given_up: Callable[[], None]) -> T:
        """`given_up` is called when the waiting task is cancelled."""
        if not self._is_told:
            self._task = trio.lowlevel.current_task()
            self._given_up = given_up
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        return self._value

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        if self._given_up is not None:
            self._given_up()
        return trio.lowlevel.Abort.SUCCEEDED
