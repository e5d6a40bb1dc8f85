"""The longest step of a task of the loop, in processor time, during which no request is answered."""

from __future__ import annotations

import math
import time

import trio
from trio.abc import Instrument


class LongestStep(Instrument):
    """The most processor time that one step of one task took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = math.inf  # it joins in the middle of a step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seconds = max(self.seconds, time.thread_time() - self._began)
