"""The steps of tasks of the loop, in processor time: during the longest of them no request is answered."""

from __future__ import annotations

import math
import time

import trio
from trio.abc import Instrument


class LongestStep(Instrument):
    """The number of steps, and the processor time of the longest and of all: a part of the work on any machine."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self.all_seconds = 0.0
        self._began = math.inf  # it joins in the middle of a step

    @property
    def share(self) -> float:
        """The part of the work that the longest step did."""
        return self.seconds / self.all_seconds

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self._began < math.inf:
            took = time.thread_time() - self._began
            self.steps += 1
            self.all_seconds += took
            self.seconds = max(self.seconds, took)
