"""`Tally`: a counter of one topic or group, with its figures for the last minute, hour and day.

Source: common/stats/StatsItem.java (5.4.0), with its intervals: a sample every 10 s for the minute, every 10 minutes
for the hour, every hour for the day. A figure does not include counts after the last sample.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SECOND_MS: Final = 1000


class Period(NamedTuple):
    """The samples of one figure: one every `every_ms` milliseconds, of which the newest `kept` are kept."""

    every_ms: int
    kept: int


MINUTE: Final = Period(10 * SECOND_MS, 7)
HOUR: Final = Period(600 * SECOND_MS, 7)
DAY: Final = Period(3600 * SECOND_MS, 25)
PERIODS: Final = (MINUTE, HOUR, DAY)


class Sample(NamedTuple):
    """The values of a tally's counters at the time `at_ms`, counted since the tally was created."""

    at_ms: int
    messages: int = 0
    requests: int = 0
    size_bytes: int = 0


class Figure(NamedTuple):
    """The increase of one counter in a period: `sum` in total, `tps` per second, `avgpt` per request."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


NO_FIGURE: Final = Figure()


@dataclass(slots=True)
class Tally:
    """The counters of a topic or group since they were created, and samples of them by period.

    `is_system` is True for RocketMQ's own topics, `is_tool` for the group of RocketMQ's tools.
    """

    is_system: bool = False
    is_tool: bool = False
    messages: int = 0
    requests: int = 0
    size_bytes: int = 0
    samples: dict[Period, deque[Sample]] = field(default_factory=dict)

    def take_sample(self, period: Period, now_ms: int) -> None:
        """Adds the current counters to a period's samples. The first call also adds a sample of zeros before them."""
        samples = self.samples.get(period)
        if samples is None:
            samples = self.samples[period] = deque([Sample(now_ms - period.every_ms)], maxlen=period.kept)
        samples.append(Sample(now_ms, self.messages, self.requests, self.size_bytes))

    def figure(self, period: Period, counter: str) -> Figure:
        """Returns the increase of `messages` or `size_bytes` over a period's samples, or zeros without samples."""
        samples = self.samples.get(period)
        if not samples:
            return NO_FIGURE
        first, last = samples[0], samples[-1]
        gained: int = getattr(last, counter) - getattr(first, counter)
        requests, passed_ms = last.requests - first.requests, last.at_ms - first.at_ms
        return Figure(
            gained,
            gained * SECOND_MS / passed_ms if passed_ms > 0 else 0.0,
            gained / requests if requests > 0 else 0.0,
        )

    def is_idle(self) -> bool:
        day = self.samples.get(DAY)
        return day is not None and len(day) == DAY.kept and day[0][1:] == day[-1][1:]
