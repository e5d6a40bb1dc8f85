"""Message ids of many rows: a matrix of digits where they only count up, else a column of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from pyrmq_core.columnar.joining import Part
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.message_id import IdRun

# Gives the next ids of so many messages: texts, runs of ids that count up (far quicker), or an Arrow string array.
Ids: TypeAlias = Callable[[int], Sequence[str] | Sequence[IdRun] | pa.Array]

# Four digits for each counter, as one number.
COUNTERS: Final = np.frombuffer(b"".join(b"%04X" % value for value in range(0x10000)), np.uint32)
COUNTER_DIGITS: Final = 4


def ids_of(ids: Ids, count: int) -> Part:
    """The next ids of `count` rows."""
    given = ids(count)
    if isinstance(given, pa.Array):
        texts = given.cast(pa.string())
    else:
        runs = [run for run in given if isinstance(run, IdRun)]
        if runs:
            return _digits(runs, count)
        texts = pa.array(given, pa.string())
    if len(texts) != count or texts.null_count:
        raise InvalidArgument(f"{count} messages and {len(texts) - texts.null_count} ids; each message has one")
    return texts.view(pa.binary())


def some_of(part: Part, start: int, end: int) -> Part:
    """The ids of rows `start` to `end`, without it."""
    return part.slice(start, end - start) if isinstance(part, pa.Array) else part[start:end]


def id_texts(part: Part) -> list[str]:
    """The same ids one by one."""
    if isinstance(part, pa.Array):
        return [text.decode() for text in part.to_pylist()]
    return [bytes(row).decode() for row in np.asarray(part)]


def _digits(runs: Sequence[IdRun], count: int) -> Part:
    if sum(run.count for run in runs) != count:
        raise InvalidArgument(f"{count} messages and {sum(run.count for run in runs)} ids; each message has one")
    width = len(runs[0].prefix) + COUNTER_DIGITS
    digits = np.empty((count, width), np.uint8)
    start = 0
    for run in runs:
        rows = digits[start : start + run.count]
        rows[:, :-COUNTER_DIGITS] = np.frombuffer(run.prefix.encode(), np.uint8)
        counters = np.arange(run.counter, run.counter + run.count) & 0xFFFF
        rows[:, -COUNTER_DIGITS:] = COUNTERS[counters].view(np.uint8).reshape(-1, COUNTER_DIGITS)
        start += run.count
    return digits
