"""Runs of several sides in turn, compared with the first side: medians with the least and the most. Plain values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum

from benchmarks.support.pairs import Spread


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one side: its time, and the processor seconds of all processes that took part.

    `python_cpu`, that of Spark's Python workers, is a part of `spark_cpu`. `others` is the machine's other load during
    the run, in cores. `detail` holds more figures of the run by name.
    """

    seconds: float
    rows: int
    spark_cpu: float = 0.0
    python_cpu: float = 0.0
    broker_cpu: float = 0.0
    others: float = 0.0
    detail: Mapping[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    def as_json(self) -> dict[str, object]:
        figures: dict[str, object] = asdict(self)
        del figures["detail"]
        return {**figures, **self.detail}


class Better(Enum):
    """The meaning of a ratio: how many times the rate, or how many times the time."""

    MORE_ROWS_A_SECOND = "x the rate"
    FEWER_SECONDS = "x as long"


@dataclass(slots=True)
class Row:
    """The runs of one kind of job, by side and by the number of the pair. A run that failed is missing."""

    name: str
    better: Better = Better.MORE_ROWS_A_SECOND
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)

    def add(self, side: str, pair: int, run: Run) -> None:
        self.runs.setdefault(side, {})[pair] = run

    def seconds(self, side: str) -> Spread:
        return Spread.of([run.seconds for run in self.runs[side].values()])

    def ratio(self, side: str, base: str, less: Mapping[str, float] | None = None) -> Spread | None:
        """Returns a side beside the base, pair by pair, or None without a pair that both have.

        `less` are the seconds of each side that are taken off first. A pair in which nothing would be left of a run is
        left out.
        """
        overheads, ours, theirs = less or {}, self.runs.get(side, {}), self.runs.get(base, {})
        ratios = []
        for pair in sorted(ours.keys() & theirs.keys()):
            our = ours[pair].seconds - overheads.get(side, 0.0)
            their = theirs[pair].seconds - overheads.get(base, 0.0)
            if our <= 0 or their <= 0:
                continue
            by_time = our / their
            more = ours[pair].rows / theirs[pair].rows
            ratios.append(more / by_time if self.better is Better.MORE_ROWS_A_SECOND else by_time)
        return Spread.of(ratios) if ratios else None

    def as_json(self, base: str) -> dict[str, object]:
        ratios = {side: self.ratio(side, base) for side in self.runs if side != base}
        return {
            "name": self.name,
            "ratio": self.better.value,
            "ratios": {side: [r.median, r.least, r.most, r.count] for side, r in ratios.items() if r is not None},
            "runs": {
                side: {str(pair): run.as_json() for pair, run in runs.items()} for side, runs in self.runs.items()
            },
        }


def cpu_text(runs: Sequence[Run]) -> str:
    """Returns the processor seconds for a million rows: Spark's side (of it Python) + the broker."""

    spark = statistics.median(run.spark_cpu * 1e6 / run.rows for run in runs)
    python = statistics.median(run.python_cpu * 1e6 / run.rows for run in runs)
    broker = statistics.median(run.broker_cpu * 1e6 / run.rows for run in runs)
    return f"{spark:.2f} ({python:.2f}) + {broker:.2f}"


def table(rows: Sequence[Row], base: str, less: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns the lines of a table: every row and side with its time, its ratio to the base, and its processor time.

    A ratio is one of rates. For rows where fewer seconds are better it is one of times, and says so. `less` are, by the
    row's name, the seconds of each side that the second ratio takes off first.
    """
    lines = [
        f"{'row':18} {'side':16} {'seconds: median (least to most)':31} {'rows/s':>10} {'beside ' + base:22} "
        f"{'the same, net':22} {'processor s a million':24} other load"
    ]
    for row in rows:
        for side, by_pair in row.runs.items():
            runs = list(by_pair.values())
            own = str(row.ratio(side, base) or "") if side != base else ""
            net = str(row.ratio(side, base, less[row.name]) or "") if side != base and row.name in less else ""
            by_rate = row.better is Better.MORE_ROWS_A_SECOND
            others = Spread.of([run.others for run in runs])
            rate, cpu = (f"{statistics.median(run.rate for run in runs):,.0f}", cpu_text(runs)) if by_rate else ("", "")
            lines.append(
                f"{row.name:18} {side:16} {row.seconds(side)!s:31} {rate:>10} {own:22} "
                f"{net if by_rate else own and row.better.value:22} {cpu:24} {others}"
            )
    return lines
