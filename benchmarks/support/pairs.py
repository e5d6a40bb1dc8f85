"""Paired runs: A B, then B A, and so on. The verdict is the median of the pairs' ratios, with its spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pairs:
    """Rates of two paths run in turn. Larger is better."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    def run(self, ours: Callable[[], float], theirs: Callable[[], float]) -> None:
        """Runs one pair, every second one in the other order."""
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
