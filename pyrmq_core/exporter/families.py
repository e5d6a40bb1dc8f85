"""`Family`: one metric of a server with its samples, as plain values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Kind(enum.Enum):
    """The kind of a metric: a count that only grows, or a value of the moment."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Sample(NamedTuple):
    """The values of a family's labels, in their order, and the number."""

    labels: tuple[str, ...]
    value: float


class Family(NamedTuple):
    """A metric by its name, its labels, and the samples, which are made as they are taken."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Iterable[Sample]


# Yields the families of this moment; a long walk over tables is a generator, so that it can be interrupted.
Collect = Callable[[], Iterator[Family]]
