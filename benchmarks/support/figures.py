"""Figures of several paths in the same sittings, compared: median ratios with their spread, and CPU for a million."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.support.processes import WORKERS, cpu_seconds

OUTPUT = Path("build/benchmarks")
LIBRARIES = ("trio", "pyarrow", "numpy", "pyspark")
HEADING = f"{'':40} {'ours /s':>10} {'theirs /s':>10} {'ratio':>6} {'(spread)':13} {'CPU s/M':>8}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: rows a second, and CPU seconds of its client for a million rows."""

    rate: float
    cpu: float


class Stopwatch:
    """Time and CPU between entering `timed` and leaving it. More time may be added, such as until all is readable."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0

    def figure(self, rows: int) -> Figure:
        return Figure(rows / self.seconds, self.cpu * 1e6 / rows)


@contextmanager
def timed(*, workers: bool = False) -> Iterator[Stopwatch]:
    """Measures its block: with `workers`, the CPU of Spark's Python workers, ended ones too, not this process's own."""
    watch = Stopwatch()
    cpu = cpu_seconds(WORKERS) if workers else process_time()
    began = perf_counter()
    yield watch
    watch.seconds += perf_counter() - began
    watch.cpu += (cpu_seconds(WORKERS) if workers else process_time()) - cpu


@dataclass(frozen=True, slots=True)
class Pair:
    """Two paths that are compared."""

    name: str
    ours: str
    theirs: str


@dataclass(slots=True)
class Sittings:
    """The figures of each path, one a sitting. A path that was left out has a shorter list."""

    figures: dict[str, list[Figure]] = field(default_factory=dict)

    def add(self, path: str, figure: Figure) -> None:
        self.figures.setdefault(path, []).append(figure)

    def compared(self, pair: Pair) -> Compared | None:
        ours, theirs = self.figures.get(pair.ours, []), self.figures.get(pair.theirs, [])
        return Compared(pair, ours, theirs) if ours and theirs else None


@dataclass(frozen=True, slots=True)
class Compared:
    pair: Pair
    ours: Sequence[Figure]
    theirs: Sequence[Figure]

    @property
    def ratios(self) -> list[float]:
        return [mine.rate / other.rate for mine, other in zip(self.ours, self.theirs, strict=False)]

    @property
    def cpu(self) -> float:
        return statistics.median(figure.cpu for figure in self.ours)

    def line(self) -> str:
        pair, ratios = self.pair, self.ratios
        rates = [statistics.median(figure.rate for figure in figures) for figures in (self.ours, self.theirs)]
        return (
            f"{pair.name:40} {rates[0]:>10,.0f} {rates[1]:>10,.0f} {statistics.median(ratios):>6.2f} "
            f"({min(ratios):.2f}-{max(ratios):.2f}){'':2} {self.cpu:>8.2f}"
        )

    def as_json(self) -> dict[str, object]:
        ratios = self.ratios
        return {
            "name": self.pair.name,
            "ours": [[figure.rate, figure.cpu] for figure in self.ours],
            "theirs": [[figure.rate, figure.cpu] for figure in self.theirs],
            "ratio": statistics.median(ratios),
            "spread": [min(ratios), max(ratios)],
            "cpu_seconds_a_million": self.cpu,
        }


def write_json(path: Path, rows: Sequence[Compared], **more: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), "rows": [row.as_json() for row in rows], **more}, indent=1)
    path.write_text(text + "\n")


def machine() -> dict[str, object]:
    """Returns the cores, processor, system and versions, without which a figure means nothing."""
    versions = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {"cores": os.cpu_count(), "processor": _processor(), "system": platform.system(), "versions": versions}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
