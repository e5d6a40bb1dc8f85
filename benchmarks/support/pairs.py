"""Paired runs: A B, then B A, and so on; the verdict is the median of the pairs' ratios, with its spread."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Pairs:
    """Rates of two roads run in turn; larger is better."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def run(self, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
        """One pair; every second one in the other order."""
        if len(self.ours) % 2:
            their_rate = theirs()
            self.ours.append(ours())
        else:
            self.ours.append(ours())
            their_rate = theirs()
        self.theirs.append(their_rate)

    @property
    def ratios(self) -> list[float]:
        return [our / their for our, their in zip(self.ours, self.theirs, strict=True)]

    def line(self, name: str) -> str:
        ratios = self.ratios
        return (
            f"{name:44} {statistics.median(self.ours):>12,.0f} {statistics.median(self.theirs):>12,.0f} "
            f"{statistics.median(ratios):>7.2f}  ({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} pairs)"
        )


HEADING = f"{'':44} {'ours, rows/s':>12} {'raw, rows/s':>12} {'ratio':>7}"


def cpu_seconds(words: str) -> float:
    """User and system time of all processes whose command line holds `words`, their ended children included."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    total += sum(map(int, (entry / "stat").read_text().rpartition(")")[2].split()[11:15]))
            except OSError:
                continue  # it ended meanwhile
    return total / CLOCK_TICKS


def resident_bytes(words: str) -> int:
    """The largest resident set among processes whose command line holds `words`."""
    largest = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    pages = int((entry / "statm").read_text().split()[1])
                    largest = max(largest, pages * os.sysconf("SC_PAGE_SIZE"))
            except OSError:
                continue
    return largest


def job_cpu_seconds() -> float:
    """Of Spark and its Python workers that this process started: their ended children count, this process does not."""
    processes: dict[int, tuple[int, int, bool]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                is_spark = b"pyspark" in (entry / "cmdline").read_bytes()
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            processes[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])), is_spark
    total = 0
    for pid, (parent, ticks, is_spark) in processes.items():
        while parent in processes and parent != os.getpid():
            parent = processes[parent][0]
        total += ticks if is_spark and parent == os.getpid() and pid != os.getpid() else 0
    return total / CLOCK_TICKS
