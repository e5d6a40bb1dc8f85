"""Reading JSON in steps: the same values as in one step, bare names as text, garbage by its named error."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_text import dumps_bare
from pyrmq_core.servers.protocol.json_cursor import CHARACTERS_AT_ONCE, MAX_TEXT_CHARACTERS, JsonWalk
from tests.protocol.strategies import TEXT

INTS = st.integers(-(2**63), 2**63)
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


def stepped(text: str, at_once: int = CHARACTERS_AT_ONCE) -> tuple[Any, int]:
    """Returns the value, and the number of pauses."""
    walk = JsonWalk(text, "test", at_once=at_once)
    steps, pauses = walk.steps(), 0
    while True:
        try:
            next(steps)
            pauses += 1
        except StopIteration as end:
            walk.end()
            return end.value, pauses


@given(VALUES, st.sampled_from([None, 1]), st.sampled_from([1, 5, 20, 100]))
def test_steps_give_the_whole_value(value: Any, indent: int | None, at_once: int) -> None:
    assert stepped(json.dumps(value, indent=indent), at_once)[0] == value


@given(st.recursive(INTS, lambda inner: st.dictionaries(INTS, inner, max_size=4), max_leaves=12))
def test_steps_give_bare_names_as_text(value: Any) -> None:
    text = dumps_bare(value).decode()
    assert stepped(text, 8)[0] == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    "text", ["[,1]", "[1,,2]", "[1,]", '{,"a":1}', '{"a":1,,"b":2}', '{"a":1,}', "[1}", '{"a":[1}}', "[1]2"]
)
@pytest.mark.parametrize("at_once", [1, 4, CHARACTERS_AT_ONCE])
def test_steps_name_what_is_no_json(text: str, at_once: int) -> None:
    with pytest.raises(BodyError, match="test: the body is not JSON at character"):
        stepped(text, at_once)


@given(st.text(alphabet='{}[],:"\\1a ', max_size=40), st.sampled_from([1, 5, CHARACTERS_AT_ONCE]))
def test_steps_read_what_the_decoder_reads(text: str, at_once: int) -> None:
    try:
        value = stepped(text, at_once)[0]
    except BodyError:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    else:
        assert stepped(json.dumps(value))[0] == value


@pytest.mark.parametrize("part", ["1", '"a"', "[]", "{1:2}", '{"a":[{"b":"]"}]}'])
@pytest.mark.parametrize("inside", ['{"a":[%s]}', '[{"a":[%s]},1]'])
def test_a_long_value_is_read_in_as_many_steps(part: str, inside: str) -> None:
    text = inside % ",".join([part] * (600_000 // len(part)))
    value, pauses = stepped(text)
    assert len(json.dumps(value)) > 400_000
    assert pauses >= len(text) // CHARACTERS_AT_ONCE


@pytest.mark.parametrize("fill", ["x", "\\n", '\\"'])
def test_a_text_is_bounded(fill: str) -> None:
    with pytest.raises(BodyError, match="does not end within"):
        stepped(f'"{fill * MAX_TEXT_CHARACTERS}"')
