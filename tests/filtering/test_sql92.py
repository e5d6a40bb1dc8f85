"""SQL over properties: what passes, and where a wrong expression goes wrong."""

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


@given(st.text(alphabet="ab 1.'()=<>,-ANDORITBEW", max_size=40))
def test_any_text_is_read_or_refused(expression: str) -> None:
    try:
        passes = parse(expression)
    except InvalidArgument:
        return
    assert passes({"a": "1"}) in (True, False)
