"""A broker's two clocks in ms: the system clock, which may be set at any time, and a monotonic clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def running_ms() -> int:
    return time.monotonic_ns() // 1_000_000
