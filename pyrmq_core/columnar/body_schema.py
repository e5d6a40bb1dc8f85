"""Inference of columns from sampled message bodies, which may be JSON objects, texts or bytes.

Types are texts in Spark's syntax, and can represent every sampled value. The type is `string` for numbers that no
number type represents exactly, and for values of several kinds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal, TypeAlias

Form: TypeAlias = Literal["json", "text", "bytes", "empty"]

# The columns of the message itself, which a table has beside those of its body.
MESSAGE_COLUMNS: Final = (
    *("topic", "brokerName", "queueId", "queueOffset", "msgId", "tags", "keys", "body", "properties"),
    *("bornTimestamp", "storeTimestamp", "reconsumeTimes"),
)
CORRUPT: Final = "_corrupt"
TEXT_COLUMN: Final = "text"
# The least fraction of JSON objects with which a topic's bodies are read as JSON: one test message is too few.
LEAST_JSON: Final = 0.1
MAX_DEPTH: Final = 32
# An object with more names is read as a map. At the top level, the further names get no column.
MAX_NAMES: Final = 2000
# The most names of all objects together. Further names get no column.
MAX_ALL_NAMES: Final = 10_000
MAX_SCHEMA_BYTES: Final = 256 * 1024
# The assumed bytes of a column's type in a schema, and of an array or a map around a type.
TYPE_BYTES: Final = 16
MAP_BYTES: Final = 12
# Larger bodies are counted but not parsed. A broker's default limit is the same.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
# An inner object is read as a map if there are this many names, of which each object has only a few.
MAP_NAMES: Final = 64
MAP_SHARE: Final = 0.1

LONG: Final = range(-(2**63), 2**63)
# Beyond this range a double does not represent every whole number exactly.
EXACT: Final = range(-(2**53), 2**53 + 1)
DECIMAL_DIGITS: Final = 38
FRACTION_DIGITS: Final = 18
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class BodyColumn:
    """A column of JSON bodies. `bodies` is the number of sampled bodies that have a value for it.

    `name` and `type` are those of the column in a table. `json_name` and `json_type` have the names as they are in the
    bodies, from which `name` and `type` differ if two names, or a name and a column of the message, are equal except
    for case.
    """

    name: str
    type: str
    json_name: str
    json_type: str
    bodies: int


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The columns of a topic's message bodies, inferred from a sample.

    `form` is `json`, `text` (one column, `text`), `bytes` (no columns), or `empty` if no body was sampled. Of `sampled`
    bodies, `fitting` have this form. `is_cut` is True if some names have no column, because there are more than 10,000
    names, more than 2,000 at the top level, or more than 256 KiB of schema.
    """

    form: Form
    columns: tuple[BodyColumn, ...]
    sampled: int
    fitting: int
    is_cut: bool = False

    @property
    def ddl(self) -> str:
        """The table's typed columns, as Spark's DDL."""
        return ", ".join(f"{quoted(column.name)} {column.type}" for column in self.columns)

    @property
    def json_ddl(self) -> str:
        """The typed columns by their names in the bodies, as DDL for Spark's `from_json`."""
        return ", ".join(f"{quoted(column.json_name)} {column.json_type}" for column in self.columns)


class BodySampler:
    """A collector of sampled message bodies, from which `schema` infers columns.

    It keeps the names and types that occur, but no bodies, and limits the number of names.
    """

    def __init__(self) -> None:
        self._room = _Room()
        self._row = _Shape(self._room)
        self._sampled = self._objects = self._texts = 0

    def add(self, body: bytes) -> None:
        """Adds a body. An empty body is ignored."""
        if not body:
            return
        self._sampled += 1
        try:
            text = body.decode("utf-8-sig")
        except UnicodeDecodeError:
            return
        self._texts += 1
        value = _json_object(text) if len(body) <= MAX_BODY_BYTES else None
        if value is not None:
            self._objects += 1
            self._row.add_object(value, 0)

    def schema(self) -> BodySchema:
        sampled = self._sampled
        if not sampled:
            return BodySchema("empty", (), 0, 0)
        if self._objects >= LEAST_JSON * sampled:
            columns = _columns_of(self._row, self._room)
            return BodySchema("json", columns, sampled, self._objects, self._room.is_over)
        if self._texts >= sampled - self._texts:
            column = BodyColumn(TEXT_COLUMN, "string", TEXT_COLUMN, "string", self._texts)
            return BodySchema("text", (column,), sampled, self._texts)
        return BodySchema("bytes", (), sampled, sampled)


def infer_body_schema(bodies: Iterable[bytes]) -> BodySchema:
    """Returns columns inferred from the bodies. A body that does not have the chosen form is only counted."""
    sampler = BodySampler()
    for body in bodies:
        sampler.add(body)
    return sampler.schema()


class _Float(str):
    __slots__ = ()


def _json_object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text, parse_float=_Float, parse_constant=_Float)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class _Room:
    __slots__ = ("bytes_left", "is_over", "names_left")

    def __init__(self) -> None:
        self.names_left, self.bytes_left = MAX_ALL_NAMES, MAX_SCHEMA_BYTES
        self.is_over = False  # whether a name got no column because the limit was reached

    def takes_name(self, name: str) -> bool:
        size = _name_bytes(name)
        if not self.names_left or self.bytes_left < size:
            self.is_over = True
            return False
        self.names_left -= 1
        self.bytes_left -= size
        return True

    def takes_element(self) -> bool:
        if self.bytes_left < MAP_BYTES:
            self.is_over = True
            return False
        self.bytes_left -= MAP_BYTES
        return True

    def give_back(self, name: str) -> None:
        self.names_left += 1
        self.bytes_left += _name_bytes(name)


def _name_bytes(name: str) -> int:
    return len(quoted(name).encode()) + TYPE_BYTES


class _Shape:
    """A summary of the sampled values at one path, such as `user.id`: their kinds, digits, members and elements."""

    __slots__ = (
        "_room",
        "element",
        "fraction_digits",
        "is_exact",
        "is_map",
        "kinds",
        "names",
        "objects",
        "values",
        "whole_digits",
    )

    def __init__(self, room: _Room) -> None:
        self._room = room
        self.kinds: set[str] = set()
        self.values = self.objects = 0
        self.whole_digits = self.fraction_digits = 0
        self.is_exact = True  # whether a double represents every number so far exactly
        self.names: dict[str, _Shape] = {}
        self.element: _Shape | None = None
        self.is_map = False

    def add(self, value: object, depth: int) -> None:
        if value is None:
            return
        self.values += 1
        if isinstance(value, bool):
            self.kinds.add("boolean")
        elif isinstance(value, int):
            self.kinds.add("long" if value in LONG else "wide")
            self.is_exact &= value in EXACT
            self.whole_digits = max(self.whole_digits, len(str(abs(value))))
        elif isinstance(value, _Float):
            self.kinds.add("double")
            self._add_digits(value)
        elif isinstance(value, str):
            self.kinds.add("string")
        elif depth >= MAX_DEPTH:
            self.kinds.add("deep")
        elif isinstance(value, dict):
            self.kinds.add("object")
            self.add_object(value, depth)
        elif isinstance(value, list):
            if (element := self._any_element()) is None:
                self.kinds.add("deep")
                return
            self.kinds.add("array")
            for inner in value:
                element.add(inner, depth + 1)

    def add_object(self, members: Mapping[str, object], depth: int) -> None:
        self.objects += 1
        for name, value in members.items():
            if len(self.names) >= MAX_NAMES and name not in self.names:
                if not depth:
                    self._room.is_over = True
                    continue
                self._become_map()
            if (shape := self._member(name)) is not None:
                shape.add(value, depth + 1)

    def _add_digits(self, number: str) -> None:
        try:
            value = Decimal(number)  # accepts NaN and Infinity, too
        except InvalidOperation:  # an exponent beyond the range of every type
            self._fits_no_number()
            return
        if value and value.is_finite() and (math.isinf(float(value)) or not float(value)):
            self._fits_no_number()
            return
        _, digits, exponent = value.as_tuple()
        if "e" not in number.lower() and value.is_finite():
            self.is_exact &= abs(value) <= EXACT[-1]
        if not isinstance(exponent, int) or abs(exponent) > DECIMAL_DIGITS:  # NaN, infinite, too large or too small
            self.whole_digits = DECIMAL_DIGITS + 1
            return
        self.whole_digits = max(self.whole_digits, len(digits) + exponent)
        self.fraction_digits = max(self.fraction_digits, -exponent)

    def _fits_no_number(self) -> None:
        self.is_exact, self.whole_digits = False, DECIMAL_DIGITS + 1

    def _any_element(self) -> _Shape | None:
        if self.element is None and self._room.takes_element():
            self.element = _Shape(self._room)
        return self.element

    def _member(self, name: str) -> _Shape | None:
        if self.is_map:
            return self._any_element()
        if name not in self.names:
            if not _is_name(name) or not self._room.takes_name(name):
                return None
            self.names[name] = _Shape(self._room)
        return self.names[name]

    def _become_map(self) -> None:
        self.is_map = True
        shapes, self.names = self.names, {}
        for name, shape in shapes.items():
            self._room.give_back(name)
            element = self._any_element()
            shape.give_back()
            if element is not None:
                element.merge(shape)

    def give_back(self) -> None:
        for name, shape in self.names.items():
            self._room.give_back(name)
            shape.give_back()
        if self.element is not None:
            self._room.bytes_left += MAP_BYTES
            self.element.give_back()

    def merge(self, other: _Shape) -> None:
        self.kinds |= other.kinds
        self.values += other.values
        self.objects += other.objects
        self.whole_digits = max(self.whole_digits, other.whole_digits)
        self.fraction_digits = max(self.fraction_digits, other.fraction_digits)
        self.is_exact &= other.is_exact
        if other.is_map and not self.is_map:
            self._become_map()
        for name, shape in other.names.items():
            if (own := self._member(name)) is not None:
                own.merge(shape)
        if other.element is not None and (element := self._any_element()) is not None:
            element.merge(other.element)

    def is_like_a_map(self) -> bool:
        share = sum(shape.values for shape in self.names.values())
        return len(self.names) > MAP_NAMES and share < MAP_SHARE * len(self.names) * self.objects

    def types(self) -> tuple[str, str]:
        if self.kinds == {"array"}:
            inner, json_inner = self._element_types()
            return f"array<{inner}>", f"array<{json_inner}>"
        if self.kinds == {"object"}:
            return self._object_types()
        text = self._number_type() if self.kinds and self.kinds <= {"long", "wide", "double"} else "string"
        text = "boolean" if self.kinds == {"boolean"} else text
        return text, text

    def _object_types(self) -> tuple[str, str]:
        if self.is_like_a_map():
            self._become_map()
        if self.is_map or not self.names:  # no file format stores a struct without fields
            inner, json_inner = self._element_types()
            return f"map<string,{inner}>", f"map<string,{json_inner}>"
        inner_types = [shape.types() for shape in self.names.values()]
        names = distinct_names(self.names)
        fields = ",".join(f"{quoted(name)}:{own}" for name, (own, _) in zip(names, inner_types, strict=True))
        json_fields = ",".join(f"{quoted(name)}:{own}" for name, (_, own) in zip(self.names, inner_types, strict=True))
        return f"struct<{fields}>", f"struct<{json_fields}>"

    def _element_types(self) -> tuple[str, str]:
        return ("string", "string") if self.element is None else self.element.types()

    def _number_type(self) -> str:
        if self.kinds == {"long"}:
            return "bigint"
        if "double" not in self.kinds:
            return f"decimal({DECIMAL_DIGITS},0)" if self.whole_digits <= DECIMAL_DIGITS else "string"
        if self.is_exact:
            return "double"
        fits = self.whole_digits <= DECIMAL_DIGITS - FRACTION_DIGITS and self.fraction_digits <= FRACTION_DIGITS
        return f"decimal({DECIMAL_DIGITS},{FRACTION_DIGITS})" if fits else "string"


def _columns_of(row: _Shape, room: _Room) -> tuple[BodyColumn, ...]:
    names = distinct_names(row.names, (*MESSAGE_COLUMNS, CORRUPT))
    columns: list[BodyColumn] = []
    room_left = MAX_SCHEMA_BYTES
    for name, (json_name, shape) in zip(names, row.names.items(), strict=True):
        own, json_type = shape.types()
        room_left -= max(len(part.encode()) for part in (quoted(name) + own, quoted(json_name) + json_type)) + 3
        if room_left < 0:  # types are longer than was estimated when their names were accepted
            room.is_over = True
            break
        columns.append(BodyColumn(name, own, json_name, json_type, shape.values))
    return tuple(columns)


def distinct_names(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """Returns the names, changed so that they differ from each other, and from the reserved names, by more than case.

    A reserved name gets the prefix `body_`, and a repeated name a number as suffix.
    """
    names = list(names)
    barred, free = {name.lower() for name in reserved}, {name.lower() for name in names}
    given, next_number = set(barred), dict[str, int]()
    distinct: dict[str, str] = {}
    for name in sorted(names, key=str.swapcase):  # the order in which queues are read must not change the result
        stem = f"body_{name}" if name.lower() in barred else name
        candidate, number = stem, next_number.get(stem.lower(), 2)
        while candidate.lower() in given or (candidate != name and candidate.lower() in free):
            candidate, number = f"{stem}_{number}", number + 1
        # The search for the next free number starts here, so that many names of one spelling take no longer.
        next_number[stem.lower()] = number
        given.add(candidate.lower())
        distinct[name] = candidate
    return [distinct[name] for name in names]


def quoted(name: str) -> str:
    """Returns a name as an identifier of Spark SQL, in backticks where SQL needs them."""
    if PLAIN_NAME.fullmatch(name):
        return name
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _is_name(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False
