"""Finds the first row that cannot become a message, and names its column and the reason.

The rules are those of `payload.check_message`. A column is first tested as a whole, by a quick test that every correct
column passes. Only if it fails, each row is tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import Bools, Int32s, Ints, byte_view, encoded, offsets_of
from pyrmq_core.columnar.encoding.row_parts import properties_bytes
from pyrmq_core.columnar.encoding.sink_rows import BytesColumn, CheckedRows, SinkRows, outgoing_rows, windows
from pyrmq_core.columnar.encoding.user_properties import UserProperties
from pyrmq_core.errors import InvalidMessage
from pyrmq_core.model import KEPT_NAMES
from pyrmq_core.protocol.messages.names import MAX_MESSAGE_BYTES, check_sent_topic
from pyrmq_core.protocol.messages.properties import (
    MAX_PROPERTIES_BYTES,
    MAX_STORED_PROPERTIES_BYTES,
    SHARDING_KEY,
)

SEPARATORS: Final = (1, 2)
SPACE: Final = ord(" ")
RESERVED: Final = pa.array(sorted(name.encode() for name in KEPT_NAMES), pa.binary())
# A UNIQ_KEY of usual length, for the check of lengths.
SOME_ID: Final = (b"0" * 32,)

EMPTY: Final = "{it} is empty, which is lost on the way; {instead}"
SEPARATED: Final = "{it} holds U+0001 or U+0002, which separate properties; remove them"
SPACED: Final = "one of its elements holds a space, which separates keys"
NULL_WORD: Final = "one of its elements is null"
BLANK: Final = "it holds no word; make it null"
NULL_VALUE: Final = "one of its values is null; leave that name out"
KEPT_NAME: Final = (
    "it sets {value}, a name RocketMQ keeps for itself; a frame that was read is written back with "
    'select("topic", "body", "tags", "keys")'
)
TWO_KEYS: Final = f"it sets {SHARDING_KEY} to another value than the column shardingKey; give one of them"


NO_TOPIC: Final = "it is null; name the topic, or give one for all rows"

# For each broken rule, a mask of the elements that break it, and the reason.
RowFaults = Iterator[tuple[Bools, str]]


class Fault(NamedTuple):
    """The reason why row `row` of a batch, counted from 0, cannot be sent. `column` has the wrong value."""

    row: int
    column: str
    reason: str


def check(rows: pa.RecordBatch, max_body_bytes: int = MAX_MESSAGE_BYTES) -> list[CheckedRows] | Fault:
    """Returns the rows, in parts, for `encode_rows`, or the fault of the first row that cannot be sent.

    Raises `InvalidArgument` for a column of a wrong type.
    """
    checked = []
    for first, part in windows(rows):
        outgoing = outgoing_rows(part)
        fault = fault_of(outgoing, max_body_bytes)
        if "topic" in part.schema.names:
            fault = _lower(fault, _topic_fault(part.column("topic")))
        if fault is not None:
            return fault._replace(row=first + fault.row)
        checked.append(CheckedRows(part, outgoing))
    return checked


def first_fault(rows: pa.RecordBatch, max_body_bytes: int = MAX_MESSAGE_BYTES) -> Fault | None:
    """Returns the fault of the first row that cannot be sent, or None if all can.

    Raises `InvalidArgument` for a column of a wrong type.
    """
    checked = check(rows, max_body_bytes)
    return checked if isinstance(checked, Fault) else None


def fault_of(rows: SinkRows, max_body_bytes: int = MAX_MESSAGE_BYTES) -> Fault | None:
    """Returns the fault of the first row that cannot be sent, or None if all can. It does not check topics."""
    faults = [*_body_faults(rows.body, max_body_bytes)]
    for name, text in rows.texts.items():
        if name == "keys" and rows.words is not None:
            faults += _word_faults(rows.words)
        else:
            faults += _of_rows(name, _text_faults(text))
            if name == "keys":
                faults += _of_rows(name, _blank(text))
    if rows.properties is not None:
        faults += _property_faults(rows.properties, rows.texts.get("shardingKey"))
    size = properties_bytes(rows, SOME_ID, waits=False)
    if len(size) and size.max() > MAX_PROPERTIES_BYTES:
        faults += _too_long(rows, size)
    return min(faults, default=None, key=lambda fault: fault.row)


def _body_faults(body: BytesColumn, max_bytes: int) -> Iterator[Fault]:
    sizes = body.sizes
    if body.there is None and sizes.max(initial=0) <= max_bytes:
        return
    valid = _valid(body.array)
    rules = (
        (~valid, "it is null; a message has a body"),
        (valid & (sizes == 0), "it is empty; brokers refuse empty bodies"),
        (valid & (sizes > max_bytes), f"it is larger than {max_bytes} bytes (a broker's maxMessageSize)"),
    )
    yield from _of_rows("body", iter(rules))


def _text_faults(text: BytesColumn, it: str = "it", instead: str = "make it null") -> RowFaults:
    if text.there is not None:
        yield ~text.there & _valid(text.array), EMPTY.format(it=it, instead=instead)
    if (separated := _holding(text.array, SEPARATORS)) is not None:
        yield separated & _valid(text.array), SEPARATED.format(it=it)


def _blank(keys: BytesColumn) -> RowFaults:
    octets, starts = byte_view(keys.array), offsets_of(keys.array)[:-1]
    likely = np.flatnonzero(keys.sizes > 0 if keys.there is None else keys.there)
    likely = likely[octets[starts[likely]] == SPACE]
    blank = [row for row in likely.tolist() if not keys.array[row].as_py().strip(b" ")]
    if blank:
        yield np.isin(np.arange(len(keys.sizes)), blank), BLANK


def _word_faults(words: pa.Array) -> Iterator[Fault]:
    offsets = words.offsets.to_numpy()
    inside = words.values.slice(offsets[0], offsets[-1] - offsets[0]).view(pa.binary())
    yield from _of_elements("keys", offsets, inside, _word_rules(inside))


def _word_rules(word: pa.Array) -> RowFaults:
    if word.null_count:
        yield ~_valid(word), NULL_WORD
    yield from _text_faults(BytesColumn.of(word), "one of its elements", "leave it out")
    if (spaced := _holding(word, (SPACE,))) is not None:
        yield spaced, SPACED


def _property_faults(properties: UserProperties, sharding_key: BytesColumn | None) -> Iterator[Fault]:
    offsets = properties.array.offsets.to_numpy()
    names, values = (
        child.slice(offsets[0], offsets[-1] - offsets[0]).view(pa.binary())
        for child in (properties.array.keys, properties.array.items)
    )
    to_check = names if properties.names is None else names[: len(properties.names)]
    yield from _of_elements("properties", offsets, to_check, _name_rules(to_check))
    yield from _of_elements("properties", offsets, values, _value_rules(values))
    if sharding_key is not None:  # `_tidied` has removed equal sharding keys from `properties`
        twice = pc.equal(names, pa.scalar(SHARDING_KEY.encode(), pa.binary())).to_numpy(zero_copy_only=False)
        keyed = _valid(sharding_key.array)
        row_of_pair = np.repeat(np.arange(len(keyed)), np.diff(offsets))
        yield from _of_elements("properties", offsets, names, iter([(twice & keyed[row_of_pair], TWO_KEYS)]))


def _name_rules(name: pa.Array) -> RowFaults:
    yield from _text_faults(BytesColumn.of(name), "one of its names", "leave it out")
    yield pc.is_in(name, value_set=RESERVED).to_numpy(zero_copy_only=False), KEPT_NAME


def _value_rules(value: pa.Array) -> RowFaults:
    if value.null_count:
        yield ~_valid(value), NULL_VALUE
    yield from _text_faults(BytesColumn.of(value), "one of its values", "leave that name out")


def _too_long(rows: SinkRows, size: Ints) -> Iterator[Fault]:
    row = int(np.flatnonzero(size > MAX_PROPERTIES_BYTES)[0])
    longest = max(rows.texts, key=lambda name: int(rows.texts[name].sizes[row]), default="")
    column = longest if rows.properties is None else "properties"
    yield Fault(
        row,
        column,
        f"with keys, tags and id the properties take {size[row]} bytes; {MAX_PROPERTIES_BYTES} at most are sent, since "
        f"a broker keeps {MAX_STORED_PROPERTIES_BYTES} with what it adds itself; move large values into the body",
    )


def _topic_fault(topics: pa.Array) -> Fault | None:
    coded = encoded(topics)
    wrong = {-1: NO_TOPIC}
    for code, name in enumerate(coded.dictionary.to_pylist()):
        try:
            check_sent_topic(name)
        except InvalidMessage as error:
            wrong[code] = str(error)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(np.isin(codes, list(wrong)))
    return Fault(int(rows[0]), "topic", wrong[int(codes[rows[0]])]) if len(rows) else None


def _holding(text: pa.Array, byte_values: tuple[int, ...]) -> Bools | None:
    bounds, octets = offsets_of(text), byte_view(text)
    used = octets[bounds[0] : bounds[-1]]
    if not len(used) or used.min() > max(byte_values):
        return None
    places = np.flatnonzero(np.isin(used, byte_values))
    if not len(places):
        return None
    holding = np.zeros(len(text), np.bool_)
    holding[np.searchsorted(bounds, places + bounds[0], side="right") - 1] = True
    return holding


def _valid(array: pa.Array) -> Bools:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _of_rows(column: str, row_faults: RowFaults) -> Iterator[Fault]:
    for broken, reason in row_faults:
        rows = np.flatnonzero(broken)
        if len(rows):
            yield Fault(int(rows[0]), column, reason)


def _of_elements(column: str, offsets: Int32s, elements: pa.Array, row_faults: RowFaults) -> Iterator[Fault]:
    for broken, reason in row_faults:
        places = np.flatnonzero(broken)
        if len(places):
            row = int(np.searchsorted(offsets, offsets[0] + places[0], side="right")) - 1
            value = elements[int(places[0])].as_py()
            yield Fault(row, column, reason.replace("{value}", "" if value is None else value.decode()))


def _lower(left: Fault | None, right: Fault | None) -> Fault | None:
    if left is None or right is None:
        return left or right
    return right if right.row < left.row else left
