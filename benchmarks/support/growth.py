"""Figures of processes during a long run: samples of them, and their slopes, which show what grows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

MIB: Final = 1 << 20
MILLION: Final = 1_000_000
# The part of a run in which memory, files and threads may still grow to the size that the work needs.
WARM_UP: Final = 0.3
LEAST_SAMPLES: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one process by name, when so many messages had been consumed."""

    process: str
    messages: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Bound:
    """The growth of a figure that passes: so much for a million messages, or so much in all, which is noise."""

    a_million: float
    in_all: float


BOUNDS: Final[Mapping[str, Bound]] = {
    "resident MiB": Bound(0.25, 6.0),
    "heap MiB": Bound(0.25, 12.0),
    "handles": Bound(0.1, 4.0),
    "threads": Bound(0.1, 4.0),
    "tasks": Bound(0.1, 8.0),
    "disk MiB": Bound(1.0, 96.0),
}


@dataclass(frozen=True, slots=True)
class Growth:
    """The slope of one figure of one process after the warm-up, for a million messages and over all that followed.

    It is the lesser slope of the two halves: a leak grows in both. A process that was held up once, as by other work of
    the machine, keeps the memory that it needed then, which is a step in one of them.
    """

    process: str
    figure: str
    a_million: float
    in_all: float

    @property
    def is_too_much(self) -> bool:
        bound = BOUNDS[self.figure]
        return self.a_million > bound.a_million and self.in_all > bound.in_all

    def __str__(self) -> str:
        return f"{self.process}, {self.figure}: {self.a_million:+.3f} for a million messages, {self.in_all:+.1f} in all"


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """Returns the growth of each figure of each process. Raises `ValueError` for too few samples after the warm-up."""
    last = max(sample.messages for sample in samples)
    results = []
    for process in dict.fromkeys(sample.process for sample in samples):
        kept = [sample for sample in samples if sample.process == process and sample.messages >= WARM_UP * last]
        if len(kept) < LEAST_SAMPLES:
            raise ValueError(f"{process}: {len(kept)} samples after the warm-up; {LEAST_SAMPLES} at least are needed")
        for figure in kept[0].figures:
            points = [(sample.messages / MILLION, sample.figures[figure]) for sample in kept]
            slope = min(_slope(points[: len(points) // 2]), _slope(points[len(points) // 2 :]))
            results.append(Growth(process, figure, slope, slope * (points[-1][0] - points[0][0])))
    return results


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Returns the median of the slopes between all pairs of points, which one step does not change much."""
    return median([(later[1] - first[1]) / (later[0] - first[0]) for first, later in combinations(points, 2)])


def disk_mib(directory: Path) -> float:
    """Returns the blocks that the files below a directory take. One that is removed meanwhile counts nothing."""
    blocks = 0
    for folder, _, files in os.walk(directory):
        for file in files:
            try:
                blocks += (Path(folder) / file).stat().st_blocks
            except FileNotFoundError:
                continue
    return blocks * 512 / MIB
