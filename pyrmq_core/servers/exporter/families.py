"""`Family`: one metric of a server with its samples, as plain values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Kind(enum.Enum):
    """The kind of a metric: a counter, a gauge or a histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """The values of a histogram: the number of observations up to each bound, and the sum of all observed values.

    The last bound is infinite.
    """

    counts: tuple[int, ...]
    total: float


class Sample(NamedTuple):
    """One sample: the values of the family's labels in order, and a number or a histogram's buckets."""

    labels: tuple[str, ...]
    value: float | Buckets


class Family(NamedTuple):
    """A metric: name, labels, and samples, which may be computed during iteration. `bounds` is for histograms."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Iterable[Sample]
    bounds: tuple[float, ...] = ()


# Yields the present families; a generator, so that other tasks can run during a long walk over tables.
Collect = Callable[[], Iterator[Family]]
