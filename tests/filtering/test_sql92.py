"""SQL over properties: the messages that pass, and the place of an error in an expression."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import ignored_rest, parse

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
        "NOT (missing CONTAINS 'test')",
        "NOT (missing STARTSWITH 'test')",
        "region = 'eu' AND NOT (missing ENDSWITH 'test')",
        "region <> missing",
        "missing = absent",
        "NOT n",
        "NOT missing IS NULL",
        "n = -- fifteen\n 15",
        "n = /* 'fifteen' */ 15 /**/",
        "n = --15",
        "n = 15 bad ((",
        "n = 15 -- fifteen",
        "n = 15L AND price = 25E-1",
        "price > 2.5 OR price = 2.5",
        "- n IS NULL",
        "n > - -14",
        "NOT NOT NOT region",
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
        "missing <> region",
        "missing <> absent",
        "NOT missing",
        "n = 0xF",
        "n = 015",
        "price = 2",
        "TRUE = done",
        "odd = 1 OR n = 15",
    ],
)
def test_these_do_not(expression: str) -> None:
    assert not parse(expression)(PROPERTIES)


@pytest.mark.parametrize(
    ("expression", "where"),
    [
        ("n = ", "the end at character 5, where a property, a value"),
        ("n IN (1)", "'1' at character 7, where a text in single quotes"),
        ("n = 'x", '"\'" at character 5'),
        ("n BETWEEN 1 OR 2", "'OR' at character 13, where AND"),
        ("(n = 1", "the end at character 7, where \\)"),
        ("n IS 3", "'3' at character 6, where NULL"),
        ("n NOT 3", "'3' at character 7, where BETWEEN"),
        ("n = #", "'#' at character 5"),
        ("n = 1 #", "'#' at character 7"),
        ("n = /* x", "'/' at character 5"),
        ("n\x0b= 1", r"'\\x0b' at character 2"),
        ("n > 0.0", "'0.0' at character 5, where a number that is neither zero"),
        ("n > 1e400", "'1e400' at character 5, where a number"),
        ("n = 9223372036854775808", "where a whole number up to 9223372036854775807"),
        ("n >= '5'", "compares a text by >=: only numbers"),
        ("n > (a = 1)", "compares a condition, .* by >: only"),
        ("n BETWEEN 'a' AND 'c'", "compares a text by BETWEEN"),
        ("n BETWEEN 3 AND 1", "BETWEEN 3 AND 1: the lower bound comes first"),
        ("n = NULL", "write IS NULL"),
        ("NULL <> n", "write IS NULL"),
        ("TRUE = 1", "compares TRUE or FALSE with a number"),
        ("5", "a number or a text where a condition is wanted"),
        ("n = 1 AND -n", "a number or a text where a condition is wanted"),
        ("5 IN ('5')", "IN behind something else than a property"),
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
        ("n" + " CONTAINS 'a'" * 200, "nested deeper than 100"),
        ("n" + " IS NULL" * 200, "nested deeper than 100"),
        ("-(" * 60 + "n" + " > 1)" * 60, "nested deeper than 100"),
        ("(NOT " * 200 + "n" + ")" * 200, "nested deeper than 100"),
        ("n = " + "9" * 5_000, "where a whole number up to"),
        ("n IN (" + "'a'," * 20_000 + "'a')", "80010 characters; 65536 at most"),
        ("x" * 60_000 + " #", "has '#' at character 60002"),
        ("n = " + "-" * 60_000, "has the end at character 60005"),
    ],
    ids=range(12),
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
    assert parse("-(" * 48 + "n" + " BETWEEN 1 AND 20)" * 48 + " IS NULL")(PROPERTIES)


TRUTHS = {"TRUE": True, "FALSE": False, "(missing = 1)": None}


@given(st.lists(st.sampled_from(sorted(TRUTHS)), min_size=1, max_size=5), st.sampled_from(["AND", "OR"]))
def test_and_and_or_have_three_values(words: list[str], word: str) -> None:
    values = [TRUTHS[name] for name in words]
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


NUMBERS = {
    "whole": ("n = 5", ["5", "+5", "005", "\u0665"], ["5.0", " 5", "5L", "5_0", "", "\U0001d7d3", "0x5", "3000000000"]),
    "long": ("n > 2147483648", ["3000000000", "9223372036854775807"], ["1", "9223372036854775808", "3e9"]),
    "negative long": ("n <> -2147483648", ["3000000000"], ["-2147483648", "x"]),
    "decimal": (
        "n = 5.0",
        ["5", " 5\n", "5f", "5D", "0x1.4p2", "+.5e1", "5.", "0x.AP3d"],
        ["5_0", "\u0665", "5L", "0x5", "inf", "\xa05", "e", "."],
    ),
    "above all": ("n > 1e300", ["NaN", "Infinity", "1e999", "0x1p99999"], ["nan", "-Infinity", "inf", "-0x1p99999"]),
    "signed zero": ("n < zero", ["-0.0", "-0", "-1e-999"], ["0", "NaN", "x"]),
    "rounded": ("n = 9007199254740992.0", ["9007199254740993"], ["9007199254740994"]),
    "texts": ("n > zero", ["5", "5.0", "0x1p3"], ["x", "0", ""]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_text_is_a_number_as_java_reads_it(kind: str) -> None:
    expression, passing, others = NUMBERS[kind]
    passes = parse(expression)
    assert [text for text in passing + others if passes({"n": text, "zero": "0"})] == passing


@pytest.mark.parametrize(
    ("expression", "rest", "older"),
    [
        ("n = 1", "", ""),
        ("n = 1 -- one", "-- one", "-- one"),
        ("n = 1 /* one */", "", ""),
        ("n = 010 AND m = 2", "10 AND m = 2", "10 AND m = 2"),
        ("n = 0x5", "x5", "x5"),
        ("n = 1 ANDD m = 2", "ANDD m = 2", "ANDD m = 2"),
        ("n CONTAINS 'a'", "", "CONTAINS 'a'"),
        ("n = ", "", ""),
    ],
)
def test_the_end_of_an_expression_may_be_ignored(expression: str, rest: str, older: str) -> None:
    assert ignored_rest(expression) == rest
    assert ignored_rest(expression, text_tests=False) == older
