"""Paired runs: A B, then B A, and so on. The verdict is the median of the pairs' ratios, with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: units a second, processor microseconds of a unit, and the median of a call. What is unknown is 0."""

    rate: float
    cpu_us: float = 0.0
    p50_us: float = 0.0

    @classmethod
    def of(cls, units: float, seconds: float, cpu: float, times: Sequence[float] = ()) -> Figure:
        """Returns the figure of so many units. `times` are the seconds of each call."""
        return cls(units / seconds, cpu * 1e6 / units, statistics.median(times) * 1e6 if times else 0.0)


class Clock:
    """The time since it was made, and the processor time: that of this process, or what `cpu` returns."""

    def __init__(self, cpu: Callable[[], float] = time.process_time) -> None:
        self._cpu = cpu
        self._spent, self._began = cpu(), time.perf_counter()

    def seconds(self) -> tuple[float, float]:
        return time.perf_counter() - self._began, self._cpu() - self._spent

    def figure(self, units: float, times: Sequence[float] = ()) -> Figure:
        return Figure.of(units, *self.seconds(), times)


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some figures, the least and the most of them, and their number."""

    median: float
    least: float
    most: float
    count: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> Spread:
        return cls(statistics.median(figures), min(figures), max(figures), len(figures))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def pairs_of(count: int, ours: Callable[[], T], theirs: Callable[[], T]) -> list[tuple[T, T]]:
    """Runs so many pairs, every second one in the other order."""
    pairs = []
    for number in range(count):
        if number % 2:
            their_result = theirs()
            pairs.append((ours(), their_result))
        else:
            pairs.append((ours(), theirs()))
    return pairs


def heading(ours: str, theirs: str) -> str:
    """Returns what stands above the lines of `table_line`. The processor time is that of a unit, in microseconds."""
    return f"{'':52} {ours:>12} {theirs:>12} {'ratio (spread)':22} {'CPU us':>8} {'theirs':>8}"


def table_line(
    name: str, pairs: Sequence[tuple[Figure, Figure]], value: Callable[[Figure], float] = lambda figure: figure.rate
) -> str:
    """Returns the medians of a value, its ratio to theirs, pair by pair, and the medians of the processor times."""
    ours, theirs = zip(*pairs, strict=True)
    ratio = Spread.of([value(our) / value(their) for our, their in pairs])
    medians = [statistics.median(map(value, side)) for side in (ours, theirs)]
    cpu = [statistics.median(figure.cpu_us for figure in side) for side in (ours, theirs)]
    times = [f"{median:8.2f}" if median else "" for median in cpu]
    return f"{name:52} {medians[0]:12,.0f} {medians[1]:12,.0f} {ratio!s:22} {times[0]:8} {times[1]}".rstrip()
