"""The figures of the picture beside Kafka, small enough to read as a file: a bar for each row and kind of topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("figures.json")
# The rows of the picture: a job of `benchmarks.kafka`, and the sides of its plain and its batch topic.
JOBS: Final = {
    "write": ("write", "plain", "batch"),
    "read, all columns": ("read", "plain", "batch"),
    "the same, with settings": ("read", "unix", "unix-batch"),
    "read, body only": ("body", "plain", "batch"),
    "stream, `availableNow`": ("stream", "plain", "batch"),
    "the stream, with settings": ("stream", "unix", "unix-batch"),
}
SIZES: Final = {"100": "100 B", "1024": "1 KiB"}
KINDS: Final = ("plain topic", "batch topic")


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio of one row on one kind of topic (`side`): of rows whose lengths vary, and of rows of one length."""

    row: str
    side: str
    varied: float
    equal: float


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture; `axis` says what a ratio means."""

    title: str
    axis: str
    bars: tuple[Bar, ...]


def read(file: Path) -> dict[str, Chart]:
    """Returns the charts by the names of their pictures."""
    charts = json.loads(file.read_text())
    return {
        name: Chart(chart["title"], chart["axis"], tuple(Bar(**bar) for bar in chart["bars"]))
        for name, chart in charts.items()
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
        Bar(f"{row}, {size}", kind, *(round(ratios[f"{job}-{case}"][side][0], 2) for case in (body, f"{body}-equal")))
        for body, size in SIZES.items()
        for row, (job, *sides) in JOBS.items()
        for kind, side in zip(KINDS, sides, strict=True)
    )


def table(chart: Chart) -> list[str]:
    """Returns the lines of the table of `docs/performance.md`."""
    bars = {(bar.row, bar.side): bar for bar in chart.bars}
    heads = [f"{kind}, {lengths}" for kind in KINDS for lengths in ("varied", "equal")]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for row in dict.fromkeys(bar.row for bar in chart.bars):
        ratios = [ratio for kind in KINDS for ratio in (bars[row, kind].varied, bars[row, kind].equal)]
        lines.append(f"| {row} | {' | '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return lines
