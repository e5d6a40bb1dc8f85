"""Walking through JSON: the same values as reading it whole, bare names as text, garbage by its named error."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.json_walk import JsonWalk
from tests.protocol.strategies import TEXT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def walked(text: str) -> dict[str, Any]:
    walk = JsonWalk(text, "test")
    return {name: walk.value() for name in walk.members()}


@given(st.dictionaries(TEXT, VALUES, max_size=5), st.sampled_from([None, 1]))
def test_members_are_those_of_the_whole_text(members: dict[str, Any], indent: int | None) -> None:
    assert walked(json.dumps(members, indent=indent)) == members


def test_bare_names_are_text_at_any_depth() -> None:
    text = '{"a":{0:"x",-1:{ 7 : true}},3:[1]}'
    assert walked(text) == {"a": {"0": "x", "-1": {"7": True}}, "3": [1]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"a"',
        '{"a":',
        '{"a":}',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        '{"a" 1}',
        "{a:1}",
        '{"a":1 "b":2}',
        "{,}",
    ],
)
def test_what_is_no_object_is_named(text: str) -> None:
    with pytest.raises(BodyError, match="test: the body is not JSON at character"):
        walked(text)


@pytest.mark.parametrize("opening", ['{"a":' + "[" * 100_000, '{"a":' + '{"a":' * 100_000, "{1:" * 100_000])
def test_deep_nesting_is_an_error_not_a_crash(opening: str) -> None:
    with pytest.raises(BodyError):
        walked(opening)


@given(st.text(max_size=60))
def test_garbage_is_read_or_named(text: str) -> None:
    with contextlib.suppress(BodyError):
        walked("{" + text)
