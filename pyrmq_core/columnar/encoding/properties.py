"""The properties strings of rows, as parts to join: the same bytes as `protocol/messages/properties.py`, in its order.

KEYS, UNIQ_KEY, WAIT, TAGS, __SHARDINGKEY, then the user's own
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import Ints, offsets_of, spans
from pyrmq_core.columnar.encoding.concat import NOTHING, FixedWidth, OptionalConstant, RowPart, column_part
from pyrmq_core.columnar.encoding.sink_rows import BytesColumn, SinkRows
from pyrmq_core.columnar.encoding.user_properties import UserProperties
from pyrmq_core.protocol.messages.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, WAIT

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"
NAMES: Final = {"keys": KEYS, "tags": TAGS, "shardingKey": SHARDING_KEY}
WAITS: Final = {True: b"true", False: b"false"}


def property_parts(rows: SinkRows, ids: Sequence[RowPart], *, waits: bool) -> list[RowPart]:
    """Returns the parts that `concat.joined` makes the properties strings of."""
    return [
        *_text_parts(rows, "keys"),
        UNIQ_KEY.encode() + NAME_END,
        *ids,
        VALUE_END + WAIT.encode() + NAME_END + WAITS[waits] + VALUE_END,
        *_text_parts(rows, "tags"),
        *_text_parts(rows, "shardingKey"),
        *([] if rows.properties is None else _user_parts(rows.properties)),
    ]


def properties_bytes(rows: SinkRows, ids: Sequence[RowPart], *, waits: bool) -> Ints:
    """Returns the length in bytes that each properties string will have."""
    same = _fixed_bytes(UNIQ_KEY) + _fixed_bytes(WAIT) + len(WAITS[waits])
    size = np.zeros(len(rows), np.int64)
    for part in ids:
        if isinstance(part, bytes):
            same += len(part)
        elif isinstance(part, FixedWidth):
            same += np.dtype(part.kind).itemsize
        elif isinstance(part, pa.Array):
            size += BytesColumn.of(part).sizes
    for name, text in rows.texts.items():
        if text.there is None:
            same += _fixed_bytes(NAMES[name])
            size += text.sizes
        else:
            size += np.where(text.there, text.sizes + _fixed_bytes(NAMES[name]), 0)
    if rows.properties is not None:
        first, last = rows.properties.pairs()
        for child in (rows.properties.array.keys, rows.properties.array.items):
            bounds = offsets_of(child)
            size += bounds[last] - bounds[first]
        size += 2 * (last - first)
    size += same
    return size


def _fixed_bytes(name: str) -> int:
    return len(name) + 2


def _text_parts(rows: SinkRows, name: str) -> list[RowPart]:
    text = rows.texts.get(name)
    if text is None:
        return []
    head = NAMES[name].encode() + NAME_END
    if text.there is None:
        return [head, column_part(text.array), VALUE_END]
    return [OptionalConstant(head, text.there), text.array, OptionalConstant(VALUE_END, text.there)]


def _user_parts(properties: UserProperties) -> list[RowPart]:
    """Returns the parts for the users' pairs. If names differ from row to row, all pairs are joined first."""
    if properties.names is None:
        return [_strings_of_pairs(properties)]
    parts: list[RowPart] = []
    for number, name in enumerate(properties.names):
        parts += [name.encode() + NAME_END, properties.values_of(number), VALUE_END]
    return parts


def _strings_of_pairs(properties: UserProperties) -> pa.Array:
    first, last = properties.pairs()
    start, stop = (int(first[0]), int(last[-1])) if len(first) else (0, 0)
    names, values = (child.slice(start, stop - start) for child in (properties.array.keys, properties.array.items))
    ends = pa.scalar(NAME_END, pa.binary()), pa.scalar(VALUE_END, pa.binary())
    pairs = pc.binary_join_element_wise(names.view(pa.binary()), ends[0], values.view(pa.binary()), ends[1], NOTHING)
    bounds = offsets_of(pairs).astype(np.int64)
    return spans(pairs.buffers()[2] or pa.py_buffer(b""), bounds[first - start], bounds[last - start])
