"""The columns that are inferred from bodies: each type holds every value that was seen."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import BodySchema, infer_body_schema
from pyrmq_core.columnar import DEFAULT_COLUMNS
from pyrmq_core.columnar.body_schema import MESSAGE_COLUMNS, distinct_names


def inferred(*bodies: object) -> BodySchema:
    return infer_body_schema(body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies)


def type_of(*values: str) -> str:
    """Returns the type of a column that has these values, as they stand in JSON."""
    (column,) = inferred(*(f'{{"v": {value}}}'.encode() for value in values)).columns
    assert column.name == "v"
    return column.type


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "-5"], "bigint"),
        (["1.5", "2e3"], "double"),
        (["1", "1.5"], "double"),
        (["9007199254740993"], "bigint"),
        (["9007199254740993", "1.5"], "decimal(38,18)"),
        (["9007199254740993", "1.5e-19"], "string"),
        (["9007199254740993", "1e30"], "string"),
        (["9007199254740993", "NaN"], "string"),
        (["1234567890123456789.01"], "decimal(38,18)"),
        (["1.2345678901234567e+300", "Infinity"], "double"),
        (["1e99999999999999999999", "-1e-99999999999999999999"], "string"),
        (["1e400"], "string"),
        (["1.5", "-1e-400"], "string"),
        (["1.7976931348623157e308", "-5e-324", "0e999", "0.0"], "double"),
        (["[1.5, 1e400]"], "array<string>"),
        (["9007199254740993", "1e99999999999999999999"], "string"),
        (["9223372036854775808", "1"], "decimal(38,0)"),
        (["1" * 39], "string"),
        (["12345678901234567890", "0.25"], "decimal(38,18)"),
        (["true", "null", "false"], "boolean"),
        (["true", "1"], "string"),
        (["1", '"1"'], "string"),
        (["null"], "string"),
        (["[]"], "array<string>"),
        (["[1, null]", "[2.5]"], "array<double>"),
        (['[1, "a", {"b": 2}]'], "array<string>"),
        (["[[1], [2.5, null]]"], "array<array<double>>"),
        (['{"a": 1}', '{"a": 2.5, "b": {"c": [true]}}'], "struct<a:double,b:struct<c:array<boolean>>>"),
        (['[{"a": 1}, {"b": "x"}]'], "array<struct<a:bigint,b:string>>"),
        (["{}"], "map<string,string>"),
        (['{"a": 1}', "[1]"], "string"),
        (['{"a": 1}', '"text"'], "string"),
        (['{"a b": 1, "c`d": 2, "order": 3}'], "struct<`a b`:bigint,`c``d`:bigint,order:bigint>"),
    ],
)
def test_types(values: list[str], expected: str) -> None:
    assert type_of(*values) == expected


def test_names_that_differ_by_case_and_those_of_a_message() -> None:
    schema = inferred({"id": 1, "ID": 2, "Id_2": 3, "topic": "t", "TAGS": {"a": 1, "A": 2}, "_corrupt": 0, "": 9})
    assert [(column.name, column.json_name) for column in schema.columns] == [
        ("id", "id"),
        ("ID_3", "ID"),
        ("Id_2", "Id_2"),
        ("body_topic", "topic"),
        ("body_TAGS", "TAGS"),
        ("body__corrupt", "_corrupt"),
    ]
    assert schema.ddl.split(", ")[4] == "body_TAGS struct<a:bigint,A_2:bigint>"
    assert schema.json_ddl.split(", ")[4] == "TAGS struct<a:bigint,A:bigint>"


def test_the_columns_of_a_message_are_those_of_a_read() -> None:
    assert sorted(MESSAGE_COLUMNS) == sorted(DEFAULT_COLUMNS)


def test_an_object_by_changing_names_is_a_map() -> None:
    prices = [{"prices": {f"item {number}": number, f"item {number + 1}": 0.5}} for number in range(100)]
    assert inferred(*prices).ddl == "prices map<string,double>"
    wide = {f"c{number}": number for number in range(300)}
    assert len(inferred({"row": wide}, {"row": wide}).columns[0].type.split(",")) == 300
    many = {"of": {f"n{number}": number for number in range(5000)}}
    assert inferred(many).ddl == "of map<string,bigint>"
    assert len(inferred({f"n{number}": number for number in range(5000)}).columns) == 2000


def test_nesting_has_a_bound() -> None:
    deep: object = 1
    for _ in range(100):
        deep = {"d": deep}
    assert inferred(deep).ddl.count("struct<") == 31
    assert inferred(b'{"v":' + b"[" * 100_000 + b"]" * 100_000 + b"}", {"v": 1}).ddl == "v bigint"


def test_many_spellings_of_a_name_take_no_longer_than_many_names() -> None:
    spellings = ["".join(pair) for pair in itertools.product(*zip("abcdefghijk", "ABCDEFGHIJK", strict=True))]
    few, many = (calls_of(partial(distinct_names, spellings[:count])) for count in (200, 1800))
    assert many < 12 * few
    names = distinct_names([*spellings, "abcdefghijk_7"])
    assert len({name.lower() for name in names}) == len(names)
    assert "abcdefghijk_7" in names
    assert "abcdefghijk" in names


def calls_of(function: Callable[[], object]) -> int:
    """Returns how many calls of Python and C functions it takes: the same count on each machine."""
    count = 0

    def profiled(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(profiled)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def test_names_of_all_objects_together_are_bounded() -> None:
    inner = {f"name{number}": 1 for number in range(1800)}
    schema = inferred({"first": 1, **{f"o{number}": inner for number in range(20)}, "last": 1}, {"first": 2})
    assert schema.is_cut
    assert schema.columns[0].name == "first"
    assert 9_000 < schema.ddl.count(":bigint") <= 10_000
    assert max(len(schema.ddl.encode()), len(schema.json_ddl.encode())) <= 256 * 1024
    assert not inferred({"o": inner}, {"first": 1}).is_cut
    # Few names of 10,000 bytes each, arrays within arrays, and numbers behind names.
    for members in (
        {f"{number:010000}": 1 for number in range(400)},
        {f"c{number}": json.loads("[" * 30 + "1" + "]" * 30) for number in range(1999)},
        {"".join(pair): 1 for pair in itertools.islice(itertools.product("aA", repeat=120), 1999)},
    ):
        wide = inferred(members)
        assert wide.is_cut
        assert 0 < len(wide.ddl.encode()) <= 256 * 1024
        assert len(wide.json_ddl.encode()) <= 256 * 1024


def test_a_map_gives_back_the_room_of_its_names() -> None:
    bodies = [{"prices": {f"item {body} {number}": [1] for number in range(1500)}} for body in range(10)]
    schema = inferred(*bodies, {"after": {f"n{number}": 1 for number in range(60)}})
    assert not schema.is_cut
    assert schema.ddl.startswith("prices map<string,array<bigint>>, after struct<n0:bigint,")


def test_a_body_larger_than_a_message_is_counted_alone() -> None:
    large = b'{"a": "' + b"a" * (4 * 1024 * 1024) + b'"}'
    assert inferred(large, {"b": 1}) == replace(inferred({"b": 1}), sampled=2)


def test_a_byte_order_mark_is_no_part_of_json() -> None:
    assert inferred(b'\xef\xbb\xbf{"a": 1}') == inferred({"a": 1})


def test_forms() -> None:
    half = inferred({"a": 1}, b"no JSON", {"a": 2}, b"[1]")
    assert (half.form, half.ddl, half.sampled, half.fitting) == ("json", "a bigint", 4, 2)
    texts = inferred(b"one", "zwölf".encode(), b"", b"\xff\xfe")
    assert (texts.form, texts.ddl, texts.sampled, texts.fitting) == ("text", "text string", 3, 2)
    assert inferred(*[b"text"] * 20, {"test": 1}).form == "text"
    assert inferred(b"\xff", b"\x00\xfe", b"a") == BodySchema("bytes", (), 3, 3)
    assert inferred() == inferred(b"") == BodySchema("empty", (), 0, 0)
    assert inferred(b'{"\\ud800": 1, "a": "\\ud800"}').ddl == "a string"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(st.binary() | values.map(lambda value: json.dumps(value).encode())))
def test_any_bodies_have_a_schema(bodies: Iterable[bytes]) -> None:
    schema = infer_body_schema(bodies)
    assert (schema.form == "json") == bool(schema.columns and schema.columns[0].name != "text") or not schema.columns
    names = [column.name.lower() for column in schema.columns]
    assert len(names) == len(set(names))
    assert not set(names) & {name.lower() for name in MESSAGE_COLUMNS}
