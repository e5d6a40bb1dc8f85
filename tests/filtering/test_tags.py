"""Tag expressions, compared with Java's FilterAPI (tests/golden/java_subscriptions.json)."""

from __future__ import annotations

import pytest

from pyrmq_core import InvalidArgument, TagFilter
from pyrmq_core.protocol.java.string_hash import string_hash_code
from tests.support import golden
from tests.support.group_vectors import SUBSCRIPTIONS

ROWS = [row for row in golden.load(SUBSCRIPTIONS) if row["type"] != "SQL92" and row["type"] != "tag"]

# Java subscribes to no message at all with these, without a word.
EVERYTHING = {" ", " * "}  # for us these are "*"
REFUSED = {" || ", "|| ||"}  # no tag is named


@pytest.mark.parametrize("row", ROWS, ids=lambda row: repr(row["expression"]))
def test_as_java(row: dict[str, object]) -> None:
    expression, java = row["expression"], row["java"]
    assert expression is None or isinstance(expression, str)
    if not isinstance(java, dict) or expression in REFUSED:
        with pytest.raises(InvalidArgument, match="names no tag"):
            TagFilter.parse(expression)
        return
    tags = TagFilter.parse(expression).tags
    if expression in EVERYTHING:
        assert tags == set()
        return
    assert tags == set(java["tagsSet"])
    assert {string_hash_code(tag) for tag in tags} == set(java["codeSet"])


def test_the_exceptions_are_exceptions_still() -> None:
    java = {row["expression"]: row["java"] for row in ROWS}
    for expression in EVERYTHING | REFUSED:
        assert java[expression]["subString"] == expression  # no "*", so a broker compares the tags
        assert set(java[expression]["tagsSet"]) <= {"*"}


def test_what_java_puts_in_a_subscription() -> None:
    for row in golden.load(SUBSCRIPTIONS):
        if isinstance(row["java"], str):
            continue
        assert row["java"]["subString"] == (row["expression"] or "*")
        assert row["java"]["subVersion"] == "now"
        assert row["java"]["expressionType"] == (row["type"] or "TAG")
