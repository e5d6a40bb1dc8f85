"""Parses JSON texts to Spark rows by Spark SQL expressions without UDFs, and more strictly than Spark's `from_json`.

`from_json` ignores what follows the first value of a text, and reads 1e400 as infinity. For a number in a column of
strings it returns the text of a double, which may lack digits. So the text is put inside an object,
`{"body":[TEXT],"end":"MARK"}`, which is complete only if the text is one JSON object. Where a string of a row may be
such a number, the text is read again only for the strings, with each number in quotes and after a mark.

Nothing here analyzes a frame or parses a schema in the JVM, which Spark refuses in the functions of a declarative
pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

# A noncharacter of Unicode, reserved for use inside a program, so that no producer's text should have it.
MARK: Final = "\ufdd0"
BYTE_ORDER_MARK: Final = "\ufeff"
CORRUPT: Final = "corrupt"
STRINGS: Final = "_strings"
ARRAY: Final = "array<"
OPTIONS: Final = {"columnNameOfCorruptRecord": CORRUPT, "allowSingleQuotes": "false"}

# Texts that hold a number whose digits `from_json` may change: a fraction, an exponent, -0, NaN and infinity.
CHANGED_NUMBER: Final = r"[0-9][.eE]|-0(?![0-9])|NaN|Infinity"
# Strings that `from_json` may have made of a CHANGED_NUMBER, or of an array or object with one.
CHANGED_STRING: Final = rf'^(?:-?[0-9]+\.[0-9E-]+|0)$|^[\[{{"{MARK}]'
# Texts that may hold a number beyond a double, of which Spark would make infinity.
HUGE_NUMBER: Final = r"[eE]\+?[0-9]{3}|[0-9]{300}"
# From the end of the last match (\G): a part without numbers, of which strings are skipped, then a number. Possessive
# quantifiers keep Java's stack flat in strings of megabytes.
NEXT_NUMBER: Final = r'\G((?:[^"0-9NI-]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+)(-?(?:[0-9][0-9.eE+-]*+|NaN|Infinity))'
MARKED_NUMBER: Final = rf'"?{MARK}(-?(?:[0-9][0-9.eE+-]*|NaN|Infinity))"?'
# Marked numbers that a double holds: up to 300 digits, an exponent up to 307, or 308 after a small number.
MARKED_DOUBLE: Final = (
    rf'"{MARK}(-?[0-9.]{{1,300}}(?:[eE](?:-[0-9]+|\+?0*(?:[0-9]{{1,2}}|[12][0-9]{{2}}|30[0-7])))?'
    r'|-?[01](?:\.[0-7][0-9]*)?[eE]\+?308|NaN|-?Infinity)"'
)
QUOTED_OR_MARK: Final = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),]")
FIELD: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*[:\s]\s*(\S.*?)\s*", re.DOTALL)


class Struct(NamedTuple):
    """A struct type with strings in it: each field's name, and its type if it is or has a string, else None."""

    fields: tuple[tuple[str, Shape | None], ...]


class Container(NamedTuple):
    """An array or map type with strings in it: `head` is `array<` or `map<string,`, `element` its elements' shape."""

    head: str
    element: Shape


# The strings within a type: a string itself, or a struct, array or map that has some.
Shape = Struct | Container | str


@dataclass(frozen=True, slots=True)
class JsonRow:
    """The parsed JSON objects of a frame: one or two of its columns, from which the values of members are computed.

    `row` has the values as `from_json` reads them. `strings` has the strings exactly as in the text, where these may
    differ.
    """

    row: Column
    strings: Column | None
    shape: Shape | None

    def value(self, *names: str) -> Column:
        """Returns the member at a path of names, or null for a text that is no JSON object or has no such member."""
        value, strings, shape = _only_row(self.row), self.strings, self.shape
        strings = None if strings is None else F.get(strings, F.lit(0))
        for name in names:
            value = value.getField(name)
            shape = dict(shape.fields).get(name) if isinstance(shape, Struct) else None
            strings = None if shape is None or strings is None else strings.getField(name)
        return value if shape is None or strings is None else exact(value, strings, shape)

    def fits(self) -> Column:
        """Returns whether the text is one JSON object whose members fit their types. A null does not fit."""
        is_whole = _only_row(self.row).isNotNull() & (self.row.getField("end") == MARK)
        return F.coalesce(is_whole & self.row.getField(CORRUPT).isNull(), F.lit(False))


def with_json(
    frame: DataFrame, text: Column, fields: str, own_fields: str | None = None, *, name: str
) -> tuple[DataFrame, JsonRow]:
    """Returns the frame with JSON texts parsed into one or two new columns, and a `JsonRow` that reads their values.

    `text` is the column of texts, and the new columns' names begin with `name`. `fields` are the DDL of the objects'
    members. Names that differ only by case cannot be selected: `own_fields` are then the same types with other names,
    and a cast renames them by position.
    """
    own_fields = fields if own_fields is None else own_fields
    shape, json_shape = shape_of(f"struct<{own_fields}>"), shape_of(f"struct<{fields}>")
    bare = F.when(text.startswith(BYTE_ORDER_MARK), F.substring(text, 2, 2**31 - 1)).otherwise(text)
    wrapped = F.when(F.is_valid_utf8(text), F.concat(F.lit('{"body":['), bare, F.lit(f'],"end":"{MARK}"}}')))
    marked = with_marks(wrapped)
    within = F.when(wrapped.rlike(HUGE_NUMBER), F.regexp_replace(marked, MARKED_DOUBLE, "$1")).otherwise(wrapped)
    end_fields = f"`end` string, {CORRUPT} string"
    parsed = F.from_json(within, f"body array<struct<{fields}>>, {end_fields}", OPTIONS)
    # Parsed values are columns of a projection: Spark would compute an expression again for each use in a condition.
    frame = frame.select("*", parsed.cast(f"struct<body array<struct<{own_fields}>>, {end_fields}>").alias(name))
    row = F.col(name)
    if shape is None or json_shape is None:
        return frame, JsonRow(row, None, None)
    is_changed = wrapped.rlike(CHANGED_NUMBER) & _may_differ(_only_row(row), shape)
    strings = F.from_json(F.when(is_changed, marked), f"body array<{type_of(json_shape)}>", OPTIONS)
    strings = strings.cast(f"struct<body array<{type_of(shape)}>>").getField("body")
    frame = frame.select("*", strings.alias(name + STRINGS))
    return frame, JsonRow(row, F.col(name + STRINGS), shape)


def with_marks(text: Column) -> Column:
    return F.regexp_replace(text, NEXT_NUMBER, f'$1"{MARK}$2"')


def without_marks(value: Column) -> Column:
    return F.when(value.contains(MARK), F.regexp_replace(value, MARKED_NUMBER, "$1")).otherwise(value)


def is_number(value: Column) -> Column:
    """Returns whether a string that `from_json` returned may be, or contain, a number that has lost digits."""
    # In most cases the first character decides, without the search by a pattern.
    may_be = (value < ":") | value.startswith("[") | value.startswith("{") | value.startswith(MARK)
    return may_be & value.rlike(CHANGED_STRING)


def has_numbers(text: Column) -> Column:
    """Returns whether a text may contain a number that loses digits if `from_json` reads it as a string."""
    return text.rlike(CHANGED_NUMBER)


def _only_row(row: Column) -> Column:
    body = row.getField("body")
    return F.when(F.size(body) == 1, F.get(body, F.lit(0)))


def _may_differ(plain: Column, shape: Shape) -> Column:
    match shape:
        case Struct(fields):
            differ = [_may_differ(plain.getField(name), inner) for name, inner in fields if inner is not None]
            return reduce(Column.__or__, (F.coalesce(part, F.lit(False)) for part in differ))
        case Container(head, element):
            values = plain if head == ARRAY else F.map_values(plain)
            return F.exists(values, lambda value: _may_differ(value, element))
        case _:
            return plain.rlike(CHANGED_STRING)


def exact(plain: Column, strings: Column, shape: Shape) -> Column:
    """Returns the value `plain` with its strings replaced by those in `strings`. If either is null, returns `plain`."""
    match shape:
        case Struct(fields):
            parts = [
                (plain.getField(name) if inner is None else exact(plain.getField(name), strings.getField(name), inner))
                .alias(name)
                for name, inner in fields
            ]  # fmt: skip
            value = F.struct(*parts)
        case Container(head, element) if head == ARRAY:
            value = F.zip_with(plain, strings, lambda value, text: exact(value, text, element))
        case Container(_, element):
            value = F.transform_values(strings, lambda key, text: exact(F.element_at(plain, key), text, element))
        case _:
            value = without_marks(strings)
    return F.when(plain.isNull() | strings.isNull(), plain).otherwise(value)


def shape_of(type_: str) -> Shape | None:
    """Returns where a type of Spark's SQL has strings, as a tree of its nested types, or None if it has none."""
    head, _, parameters = type_.partition("<")
    inner = parameters.rpartition(">")[0]
    match head.strip().lower():
        case "struct":
            fields = tuple((name, shape_of(own)) for name, own in _fields(inner))
            return Struct(fields) if any(shape is not None for _, shape in fields) else None
        case "array":
            element = shape_of(inner)
            return None if element is None else Container(ARRAY, element)
        case "map":
            key, value = split_at_commas(inner)
            element = shape_of(value)
            return None if element is None else Container(f"map<{key},", element)
        case word:
            return "string" if word.split(" ")[0] == "string" else None


def type_of(shape: Shape) -> str:
    match shape:
        case Struct(fields):
            inner = [f"{quoted(name)}: {type_of(own)}" for name, own in fields if own is not None]
            return f"struct<{', '.join(inner)}>"
        case Container(head, element):
            return f"{head}{type_of(element)}>"
        case _:
            return shape


def split_at_commas(ddl: str) -> Iterator[str]:
    """Yields the parts of a DDL between commas, except those in types, names and comments."""
    start = depth = 0
    for mark in QUOTED_OR_MARK.finditer(ddl):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark[0], 0)
        if mark[0] == "," and not depth:
            yield ddl[start : mark.start()]
            start = mark.end()
    yield ddl[start:]


def _fields(ddl: str) -> Iterator[tuple[str, str]]:
    for part in split_at_commas(ddl):
        if (field := FIELD.fullmatch(part)) is not None:
            name_in_quotes, bare, type_ = field.groups()
            yield bare or name_in_quotes.replace("``", "`"), type_


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
