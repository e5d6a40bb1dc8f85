"""SQL over properties: the messages that pass, and the place of an error in an expression."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import parse

PROPERTIES = {"n": "15", "price": "2.5", "region": "eu", "done": "true", "TAGS": "a", "quote": "it's", "odd": "x1"}


@pytest.mark.parametrize(
    "expression",
    [
        "n = 15",
        "n <> 14",
        "n > 14 AND n >= 15 AND n < 16 AND n <= 15",
        "n between 10 and 20",
        "n NOT BETWEEN 16 AND 20",
        "price > 2.4",
        "price < +2.6 AND n > -1",
        "region = 'eu'",
        "region IN ('us', 'eu')",
        "region NOT IN ('us')",
        "missing IS NULL",
        "region IS NOT NULL",
        "done = TRUE",
        "NOT (done = FALSE)",
        "n = 1 OR region = 'eu'",
        "n = 1 AND n = 2 OR n = 15",
        "n = 15 OR n = 1 AND n = 2",
        "missing = 1 OR n = 15",
        "quote = 'it''s'",
        "region CONTAINS 'u'",
        "region STARTSWITH 'e' AND region ENDSWITH 'u'",
        "region NOT CONTAINS 'x'",
        "(((n = 15)))",
        "TRUE",
    ],
)
def test_these_pass(expression: str) -> None:
    assert parse(expression)(PROPERTIES)


@pytest.mark.parametrize(
    "expression",
    [
        "n = 14",
        "missing = 1",
        "missing <> 1",
        "NOT missing = 1",
        "missing > 1 AND n = 15",
        "odd > 3",
        "NOT (odd > 3)",
        "missing NOT CONTAINS 'a'",
        "n",
        "NULL",
        "region CONTAINS ''",
        "missing IN ('a')",
        "done",
    ],
)
def test_these_do_not(expression: str) -> None:
    assert not parse(expression)(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("n = ", "the end at character 5, where a property, a value"),
        ("bad bad ((", "'bad' at character 5, where an operator or the end"),
        ("n IN (1)", "'1' at character 7, where a text in single quotes"),
        ("n = 'x", '"\'" at character 5'),
        ("n BETWEEN 1 OR 2", "'OR' at character 13, where AND"),
        ("(n = 1", "the end at character 7, where \\)"),
        ("n IS 3", "'3' at character 6, where NULL"),
        ("n NOT 3", "'3' at character 7, where BETWEEN"),
        ("- n = 1", "'n' at character 3, where a number"),
        ("n = #", "'#' at character 5"),
        ("", "the end at character 1"),
        ("(" * 200, "nested deeper"),
    ],
)
def test_a_wrong_expression_says_where(expression: str, where: str) -> None:
    with pytest.raises(InvalidArgument, match=where):
        parse(expression)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (" OR ".join(["n = 1"] * 1_000), "more than 512 conditions"),
        (" AND ".join(["n = 1"] * 1_000), "more than 512 conditions"),
        (" OR ".join(["n = 1 AND n = 2"] * 500), "more than 512 conditions"),
        ("n = 1" + " = 1" * 1_000, "nested deeper than 100|more than 512"),
        ("n > 1" + " > 1" * 200, "nested deeper than 100"),
        ("n" + " IS NULL" * 200, "nested deeper than 100"),
        ("n" + " BETWEEN 1 AND 2" * 200, "nested deeper than 100"),
        ("n" + " NOT IN ('a')" * 200, "nested deeper than 100"),
        ("(NOT " * 200 + "n" + ")" * 200, "nested deeper than 100"),
        ("n = " + "9" * 5_000, "a number of 5000 digits"),
        ("n = ." + "9" * 5_000, "a number of 5001 digits"),
        ("n IN (" + "'a'," * 20_000 + "'a')", "80010 characters; 65536 at most"),
        ("x" * 60_000 + " y", "has 'y' at character 60002"),
    ],
    ids=range(13),
)
def test_what_would_be_too_much_to_evaluate_is_refused_when_parsed(expression: str, what: str) -> None:
    with pytest.raises(InvalidArgument, match=what) as caught:
        parse(expression)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "expression",
    [
        " OR ".join(["n = 1"] * 500 + ["n = 15"]),
        " AND ".join(["n = 15"] * 500),
        "NOT " * 10_000 + "(n = 15)",
        "NOT " * 10_001 + "(n = 1)",
        "(" * 99 + "n = 15" + ")" * 99,
        "region IN (" + "'a'," * 10_000 + "'eu')",
    ],
    ids=range(6),
)
def test_long_expressions_are_evaluated(expression: str) -> None:
    """Little of the stack is left, as where servers and Spark call it."""
    passes = parse(expression)

    def deep(left: int) -> bool:
        return passes(PROPERTIES) if left == 0 else deep(left - 1)

    assert deep(400)


def test_a_chain_evaluates_each_operand_once() -> None:
    """Each BETWEEN once evaluated the expression before it twice: a hundred of them never ended."""
    assert not parse("n" + " BETWEEN 1 AND 20" * 99)(PROPERTIES)


TRUTHS = {"TRUE": True, "FALSE": False, "(missing = 1)": None}


@given(st.lists(st.sampled_from(sorted(TRUTHS)), min_size=1, max_size=5), st.sampled_from(["AND", "OR"]))
def test_and_and_or_have_three_values(words: list[str], word: str) -> None:
    values = [TRUTHS[one] for one in words]
    strong = word == "OR"
    expected = strong if strong in values else None if None in values else not strong
    text = f" {word} ".join(words)
    assert parse(text)({}) is (expected is True)
    assert parse(f"NOT ({text})")({}) is (expected is False)
    assert parse(f"NOT NOT ({text})")({}) is (expected is True)
    assert parse(f"NOT NOT NOT ({text})")({}) is (expected is False)


@given(st.text(alphabet="ab 1.'()=<>,-ANDORITBEW", max_size=40))
def test_any_text_is_read_or_refused(expression: str) -> None:
    try:
        passes = parse(expression)
    except InvalidArgument:
        return
    assert passes({"a": "1"}) in (True, False)
