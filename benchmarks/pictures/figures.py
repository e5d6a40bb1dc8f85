"""The figures of the pictures, as a file that is small enough to read: bars with their least and most, by chart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("figures.json")
# The rows of a sitting, as `benchmarks.kafka` names them, and as the picture does.
JOBS: Final = {
    "write": "write",
    "read": "read, all columns",
    "body": "read, body only",
    "stream": "stream, `availableNow`",
}
SIZES: Final = {"100": "100 B", "1024": "1 KiB"}
KINDS: Final = {"plain": "plain topic", "batch": "batch topic"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio, median and spread: of one kind of topic or client (`side`) in one row."""

    row: str
    side: str
    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture; `axis` says what a ratio means."""

    title: str
    axis: str
    bars: tuple[Bar, ...]


def read(file: Path) -> dict[str, Chart]:
    """Returns the charts by the names of their pictures."""
    found = json.loads(file.read_text())
    return {
        name: Chart(chart["title"], chart["axis"], tuple(Bar(**bar) for bar in chart["bars"]))
        for name, chart in found.items()
    }


def write(file: Path, charts: Mapping[str, Chart]) -> None:
    """Writes the charts, a line a bar, so that a change of one figure is a change of one line."""
    parts = []
    for name, chart in charts.items():
        bars = ",\n".join(f"   {json.dumps(asdict(bar))}" for bar in chart.bars)
        head = f'  "title": {json.dumps(chart.title)},\n  "axis": {json.dumps(chart.axis)},\n'
        parts.append(f' {json.dumps(name)}: {{\n{head}  "bars": [\n{bars}\n  ]\n }}')
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def of_sitting(file: Path) -> tuple[Bar, ...]:
    """Returns the bars of a sitting's `kafka.json`; raises `KeyError` for a row that it lacks."""
    ratios = {row["name"]: row["ratios"] for row in json.loads(file.read_text())["rows"]}
    return tuple(
        Bar(f"{row}, {size}", side, *(round(figure, 2) for figure in ratios[f"{job}-{body}"][kind][:3]))
        for body, size in SIZES.items()
        for job, row in JOBS.items()
        for kind, side in KINDS.items()
    )


def table(chart: Chart) -> list[str]:
    """Returns the lines of the table of `docs/performance.md`."""
    bars = {(bar.row, bar.side): bar for bar in chart.bars}
    heads = [(size, side) for size in SIZES.values() for side in KINDS.values()]
    lines = ["| | " + " | ".join(f"{size} {side}" for size, side in heads) + " |", "|---" * (len(heads) + 1) + "|"]
    cells = {row: [str(bars[f"{row}, {size}", side]) for size, side in heads] for row in JOBS.values()}
    return lines + [f"| {row} | {' | '.join(found)} |" for row, found in cells.items()]
