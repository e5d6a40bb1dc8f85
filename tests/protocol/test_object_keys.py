"""JSON whose names are objects: read with its texts intact, written as fastjson does; hostile text costs little."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.java.object_keys import dump_object, load_key, load_object_keys
from tests.protocol.strategies import TEXT

KEYS = st.fixed_dictionaries({"brokerName": TEXT, "queueId": st.integers(-5, 5), "topic": TEXT})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)
LONG_TEXTS = [
    b"{" * 4_000_000,
    b'{"a":"' + b"{" * 4_000_000,
    b'{"a":[' + b'{"b":1},' * 500_000,
    b'{"' + b'\\"' * 2_000_000,
    b"{{" + b"1" * 4_000_000,
    b"{" + b'{"a":1} ' * 500_000,
]


@given(st.lists(st.tuples(KEYS, VALUES), max_size=3), VALUES)
def test_names_that_are_objects_are_read_again(rows: list[tuple[Any, Any]], other: Any) -> None:
    inner = dump_object((key, dumps(value)) for key, value in rows)
    members = load_object_keys(dump_object([("table", inner), ("other", dumps(other))]), "a table")
    table = [(dumps(load_key(name)), value) for name, value in members["table"].items()]
    assert dict(table) == {dumps(key): value for key, value in rows}
    assert members["other"] == other


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_plain_json_is_read_too(value: dict[str, Any]) -> None:
    assert load_object_keys(dumps(value), "plain") == value


def test_blanks_and_bare_names_are_read() -> None:
    table = load_object_keys(b'{ {"a" : "}" } : 1 , {0:2}\n: {1: 2}}', "spaced")
    assert [(load_key(name), value) for name, value in table.items()] == [({"a": "}"}, 1), ({"0": 2}, {"1": 2})]


@pytest.mark.parametrize("body", LONG_TEXTS, ids=lambda body: repr(body[:8]))
def test_hostile_text_is_refused_in_short_time(body: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BodyError, match="hostile: the body is not"):
        load_object_keys(body, "hostile")
    assert time.process_time() - started < 3
