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
    """One sample of a metric: the values of its labels in order, and a number or a histogram's buckets."""

    labels: tuple[str, ...]
    value: float | Buckets


class Family(NamedTuple):
    """A metric with the names of its labels and its samples, which may be computed during iteration.

    `bounds` has the upper bounds of a histogram's buckets, without the infinite one.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Iterable[Sample]
    bounds: tuple[float, ...] = ()


# Yields a server's metrics. It is a generator, so that other tasks can run between two metrics.
Collect = Callable[[], Iterator[Family]]
