"""Finds the first row that no message can be made of, and says which column and why.

The rules are those of `names.check_message` and `properties`, looked at a whole column at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.protocol.names import MAX_MESSAGE_BYTES
from pyrmq_core.protocol.properties import BATCH_RECORD_NAMES, RESERVED_NAMES

SEPARATORS: Final = "[\x01\x02]"
RESERVED: Final = pa.array(sorted(RESERVED_NAMES | BATCH_RECORD_NAMES))


class Fault(NamedTuple):
    """Row `row` of a batch, counted from 0, cannot be sent for what stands in `column`."""

    row: int
    column: str
    reason: str


Rule = tuple[pa.Array, str]
"""Which elements break the rule (nulls do not), and what it says."""


def first_fault(rows: pa.RecordBatch, max_body_bytes: int = MAX_MESSAGE_BYTES) -> Fault | None:
    """The fault of the lowest row; None when every row can be sent."""
    faults: list[Fault] = []
    for name in rows.schema.names:
        column = rows.column(name)
        if name == "body":
            faults += _of_rows(name, _body_rules(column, max_body_bytes))
        elif name == "tags":
            faults += _of_rows(name, _text_rules(column))
        elif name == "keys" and _is_list(column):
            faults += _of_elements(name, column, column.offsets, column.values, _word_rules)
        elif name == "keys":
            faults += _of_rows(name, [*_text_rules(column), _blank_rule(column)])
        elif name == "properties":
            faults += _of_elements(name, column, column.offsets, column.keys, _property_name_rules)
            faults += _of_elements(name, column, column.offsets, column.items, _property_value_rules)
    return min(faults, default=None, key=lambda fault: fault.row)


def _body_rules(body: pa.Array, max_bytes: int) -> Iterator[Rule]:
    size = pc.binary_length(body)
    yield pc.is_null(body), "it is null; a message has a body"
    yield pc.equal(size, 0), "it is empty; brokers refuse empty bodies"
    yield pc.greater(size, max_bytes), f"it is larger than {max_bytes} bytes (a broker's maxMessageSize)"


def _text_rules(text: pa.Array) -> Iterator[Rule]:
    yield pc.equal(pc.binary_length(text), 0), "it is empty, which is lost on the way; make it null"
    yield (
        pc.match_substring_regex(text, SEPARATORS),
        "it holds U+0001 or U+0002, which separate properties; remove them",
    )


def _blank_rule(text: pa.Array) -> Rule:
    return pc.equal(pc.binary_length(pc.ascii_trim(text, " ")), 0), "it holds no word; make it null"


def _word_rules(word: pa.Array) -> Iterator[Rule]:
    yield pc.is_null(word), "one of its elements is null"
    yield from _text_rules(word)
    yield pc.match_substring(word, " "), "one of its elements holds a space, which separates keys"


def _property_name_rules(name: pa.Array) -> Iterator[Rule]:
    yield from _text_rules(name)
    yield (
        pc.is_in(name, value_set=RESERVED.cast(name.type)),
        "it sets {value}, a name RocketMQ keeps for itself; a frame that was read is written back with "
        'select("topic", "body", "tags", "keys")',
    )


def _property_value_rules(value: pa.Array) -> Iterator[Rule]:
    yield pc.is_null(value), "one of its values is null; leave that name out"
    yield from _text_rules(value)


def _of_rows(column: str, rules: Iterator[Rule] | list[Rule]) -> Iterator[Fault]:
    for broken, reason in rules:
        row = pc.index(broken, True).as_py()
        if row >= 0:
            yield Fault(row, column, reason)


def _of_elements(
    column: str, rows: pa.Array, offsets: pa.Array, elements: pa.Array, rules: Callable[[pa.Array], Iterator[Rule]]
) -> Iterator[Fault]:
    """Faults of what stands inside lists or maps; `offsets` has a slice's own bounds, `elements` everything beneath."""
    bounds = offsets.to_pylist()
    inside = elements.slice(bounds[0], bounds[-1] - bounds[0]) if len(bounds) > 1 else elements.slice(0, 0)
    for broken, reason in rules(inside):
        index = pc.index(broken, True).as_py()
        if index >= 0:
            row = bisect_right(bounds, bounds[0] + index) - 1
            yield Fault(row, column, reason.replace("{value}", str(inside[index])))


def _is_list(array: pa.Array) -> bool:
    return bool(pa.types.is_list(array.type) or pa.types.is_large_list(array.type))
