"""JSON as fastjson writes it: bare integer keys, and no other deviation from strict JSON."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_bounds import MAX_DEPTH
from pyrmq_core.protocol.java.json_text import dumps, dumps_bare, load_object, loads
from tests.protocol.strategies import TEXT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT | st.integers().map(str), inner, max_size=4),
    max_leaves=12,
)


def decode_java_utf8(value: Any) -> str:
    """Returns JSON as fastjson writes maps whose keys are numbers: without quotes."""
    match value:
        case dict():
            members = (
                f"{key if _is_integer(key) else json.dumps(key)}:{decode_java_utf8(inner)}"
                for key, inner in value.items()
            )
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(decode_java_utf8, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _is_integer(key: str) -> bool:
    return key.isascii() and key.removeprefix("-").isdigit()


@given(VALUES)
def test_javas_form_and_strict_json_mean_the_same(value: Any) -> None:
    assert loads(dumps(value), "test") == value
    assert loads(decode_java_utf8(value).encode(), "test") == value
    assert loads(memoryview(decode_java_utf8(value).encode()), "test") == value


def test_bare_keys_inside_strings_are_left_alone() -> None:
    assert loads(b'{0:"{1:2}",1:"a,\\"2:3",-7 :"\\\\"}', "test") == {"0": "{1:2}", "1": 'a,"2:3', "-7": "\\"}


def test_cluster_info_of_java() -> None:
    text = (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
        b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    members = load_object(text, "test")
    assert members["brokerAddrTable"]["broker-a"]["brokerAddrs"] == {"0": "127.0.0.1:10911", "1": "127.0.0.1:10921"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{a:1}",
        b"{0:}",
        b"{'a':1}",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b"{0:" + b"9" * 10_000 + b"}",
        b"Infinity",
        b"[NaN]",
        b"-1e999",
    ],
    ids=range(14),
)
def test_what_is_no_json_is_reported(body: bytes) -> None:
    with pytest.raises(BodyError, match=r"^route: the body is not JSON"):
        loads(body, "route")


@pytest.mark.parametrize("body", [b"[]", b"null", b"7", b'"x"'])
def test_what_is_no_object_is_reported(body: bytes) -> None:
    with pytest.raises(BodyError, match="route: the body is not a JSON object"):
        load_object(body, "route")


@pytest.mark.parametrize("unit", [b'\\"', b'"\\', b"{ ", b",  ", b'{"', b"{1", b"1"])
def test_a_long_hostile_text_is_refused_in_one_pass(unit: bytes) -> None:
    """Each once took time that grows with the square of its length: minutes for these."""
    with pytest.raises(BodyError):
        loads(b'{"a":"' + unit * 500_000, "route")
    with pytest.raises(BodyError):
        loads(b"{" + unit * 500_000, "route")


def deep(value: bytes, depth: int) -> bytes:
    return (
        b"[" * (depth // 2)
        + b'{"a":' * (depth - depth // 2)
        + value
        + b"}" * (depth - depth // 2)
        + b"]" * (depth // 2)
    )


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 900, 100_000])
@pytest.mark.parametrize("value", [b"1", b'"]]]]}}}}"'])
def test_a_value_nested_too_deeply_is_reported(value: bytes, depth: int) -> None:
    with pytest.raises(BodyError, match="nested deeper than 32"):
        loads(deep(value, depth), "route")
    with pytest.raises(BodyError, match="nested deeper than 32"):
        loads(b"{7:" + deep(value, depth) + b"}", "route")


def test_a_value_nested_as_deeply_as_possible_is_read_and_written() -> None:
    value = loads(deep(b'"[[[[{{{{"', MAX_DEPTH), "route")
    assert loads(dumps_bare(value), "route") == value


def test_many_values_beside_each_other_are_not_nested() -> None:
    assert len(loads(b"[" + b",".join([b'{"a":["]",{}]}'] * 10_000) + b"]", "route")) == 10_000


@given(VALUES)
def test_the_depth_of_values_is_what_is_bounded(value: Any) -> None:
    def depth(part: Any) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    text = b"[" * (MAX_DEPTH - depth(value)) + dumps(value) + b"]" * (MAX_DEPTH - depth(value))
    loads(text, "test")
    with pytest.raises(BodyError):
        loads(b'{"b":[' + text + b',"' + b"[" * 40 + b'"]}', "test")


@pytest.mark.parametrize("text", [b'"\\ud800"', b'{"\\uDFFF":1}', b'[{"a":["\\udc00\\ud800"]}]', b'{1:"\\uD800"}'])
def test_half_a_surrogate_is_reported(text: bytes) -> None:
    with pytest.raises(BodyError, match="surrogates not allowed"):
        loads(text, "route")


def test_escapes_that_only_look_so_are_read() -> None:
    assert loads(b'["\\ud83d\\ude00","\\\\ud800"]', "route") == ["\U0001f600", "\\ud800"]


def test_half_a_surrogate_is_written_as_java_writes_it() -> None:
    assert dumps({"a": "\ud800"}) == b'{"a":"?"}'
    assert dumps_bare({0: "\ud800"}) == b'{0:"?"}'


@given(st.dictionaries(st.integers(0, 2**40), st.dictionaries(TEXT, st.integers() | TEXT, max_size=3), max_size=3))
def test_bare_names_are_written_and_read(table: dict[int, dict[str, int | str]]) -> None:
    text = dumps_bare(table)
    assert loads(text, "test") == {str(number): members for number, members in table.items()}
    assert all(f"{number}:{{".encode() in text for number in table)


@given(st.binary(max_size=60) | st.text('{}[]",:0123 \\ab-', max_size=60).map(str.encode))
def test_garbage_gives_body_errors_only(garbage: bytes) -> None:
    with contextlib.suppress(BodyError):
        loads(garbage, "test")
