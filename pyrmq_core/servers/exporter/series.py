"""`Histogram` and `Counts`: a server's numbers by labels, with a limit on the combinations of labels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from pyrmq_core.servers.exporter.families import Buckets, Sample

# The most series (combinations of labels) of a metric. One of a histogram takes half a KiB of memory, and a line for
# each bucket on the page.
MAX_SERIES: Final = 2_000
# The value of each label in the series of all combinations beyond MAX_SERIES.
OTHER: Final = "other"

Labels = tuple[str, ...]


class _Series:
    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class Histogram:
    """A histogram for each combination of labels. All combinations beyond the first `max_series` share one histogram.

    `bounds` are the upper bounds of the buckets. One more bucket has no bound.
    """

    def __init__(self, bounds: tuple[float, ...], *, max_series: int = MAX_SERIES) -> None:
        self.bounds = bounds
        self._max_series = max_series
        self._series: dict[Labels, _Series] = {}

    def observe(self, labels: Labels, value: float) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series.setdefault(
                bounded(labels, len(self._series), self._max_series), _Series(len(self.bounds) + 1)
            )
        series.counts[bisect_left(self.bounds, value)] += 1
        series.total += value

    def samples(self) -> Iterator[Sample]:
        for labels, series in list(self._series.items()):
            yield Sample(labels, Buckets(tuple(accumulate(series.counts)), series.total))


class Counts:
    """A sum for each combination of labels. All combinations beyond the first `max_series` share one sum."""

    def __init__(self, *, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._sums: dict[Labels, float] = {}

    def add(self, labels: Labels, number: float = 1) -> None:
        if labels not in self._sums:
            labels = bounded(labels, len(self._sums), self._max_series)
        self._sums[labels] = self._sums.get(labels, 0) + number

    def samples(self) -> Iterator[Sample]:
        for labels, number in list(self._sums.items()):
            yield Sample(labels, number)


def bounded(labels: Labels, series: int, most: int) -> Labels:
    """Returns `labels`, or `OTHER` for each of them if there are `most` series already. `series` is their number."""
    return labels if series < most else (OTHER,) * len(labels)
