"""The message ids of many rows: a prefix and counters for ids that count up, else a column of texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.encoding.concat import FixedWidth, RowPart, joined
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.messages.message_id import IdRun

# Returns the ids of the next so many messages: texts, runs of ids that count up (far faster), or an Arrow string array.
Ids: TypeAlias = Callable[[int], Sequence[str] | Sequence[IdRun] | pa.Array]

# The four digits of each counter, as one number.
COUNTERS: Final = np.frombuffer(np.arange(0x10000, dtype=">u2").tobytes().hex().upper().encode(), np.uint32)


def ids_of(ids: Ids, count: int) -> list[RowPart]:
    """Returns the next ids of `count` rows, as parts that joined make each id."""
    produced = ids(count)
    if isinstance(produced, pa.Array):
        texts = produced.cast(pa.string())
    else:
        runs = [run for run in produced if isinstance(run, IdRun)]
        if runs:
            return _counted(runs, count)
        texts = pa.array(produced, pa.string())
    if len(texts) != count or texts.null_count:
        raise InvalidArgument(f"{count} messages and {len(texts) - texts.null_count} ids; each message has one")
    return [texts.view(pa.binary())]


def id_column(ids: Ids, count: int) -> pa.Array:
    """Returns the next ids of `count` rows as one column of strings."""
    return joined(ids_of(ids, count), 0, count).view(pa.string())


def id_texts(parts: Sequence[RowPart], count: int) -> list[str]:
    """Returns the ids of the parts as texts."""
    return [raw.decode() for raw in joined(parts, 0, count).to_pylist()]


def _counted(runs: Sequence[IdRun], count: int) -> list[RowPart]:
    if sum(run.count for run in runs) != count:
        raise InvalidArgument(f"{count} messages and {sum(run.count for run in runs)} ids; each message has one")
    counters = [_digits(run.counter & 0xFFFF, run.count) for run in runs]
    if len(runs) == 1:  # one run is the usual case: it has the ids of a millisecond
        return [runs[0].prefix.encode(), FixedWidth("u4", counters[0])]
    prefixes = np.array([run.prefix.encode() for run in runs])
    each = np.repeat(prefixes, [run.count for run in runs])
    return [FixedWidth(f"S{prefixes.itemsize}", each), FixedWidth("u4", np.concatenate(counters))]


def _digits(first: int, count: int) -> npt.NDArray[np.uint32]:
    """Returns the digits of `count` counters from `first` on; FFFF is followed by 0000."""
    if first + count <= len(COUNTERS):  # a slice of the table is cheaper than a look-up for each counter
        return COUNTERS[first : first + count]
    return COUNTERS.take(np.arange(first, first + count), mode="wrap")
