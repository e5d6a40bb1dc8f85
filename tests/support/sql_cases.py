"""Random SQL92 expressions and properties: what RocketMQ's own filter makes of them, and what ours does."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import parse
from tests.support.java_programs import run_java

PROGRAM = Path(__file__).parent.parent / "interop" / "java" / "EvaluateSql.java"
MINUTES = 30 * 60.0  # for 100,000 cases on a busy machine
MESSAGES_A_CASE = 4
Properties = Mapping[str, str]
Case = tuple[str, Sequence[Properties]]

NAMES = ("a", "b", "A", "_u", "$1", "missing")
KEYWORD_SINCE_5 = "contains"
WHOLES = ("0", "1", "5", "5", "9", "-3", "+5", "010", "2147483647", "2147483648", "-2147483648", "9007199254740993")
LONGS = ("9223372036854775807", "9223372036854775808", "3000000000", "4294967295l", "5L", "5l", "0L")
DECIMALS = ("0.0", "5.", ".5", "2.5", "1e3", "1E-3", "00.5", "1e400", "4.9e-324", "9007199254740992.0", "1.5L", "5e")
TEXTS = ("", "a", "b", "ab", "abc", "5", "5.0", "2.5", "true", "TRUE", "it's", "é", "中", "\U0001f600", "a\nb", " 5")
# Property texts that Java's and Python's numbers read differently.
ODD = (
    *("true", "True", "false", "yes", "NaN", "nan", "Infinity", "-Infinity", "inf", "1_000", " 5", "5 ", "\t2.5\n"),
    *("5f", "5D", "5.0d", "0x10", "0x1p3", "0x.8P1d", "-0x1p2000", "0x1", "٣", "\U0001d7d3", "", "+", "-", "+-5"),
    *("-0.0", "0.0", "-0", "1e", "1e5", ".", "5.", ".5", "1e999", "-1e999", "1e-999", "\xa05", "5L", "\x0b5"),
)
ORDERS = ("=", "=", "<>", "<>", ">", ">=", "<", "<=")
WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
BLANKS = (" ", " ", " ", " ", "\n", "\t", "  ", "\r\n", "\f", " /* x */ ", " /**/ ", " -- c\n", " /* it's * / **/")
JUNK = (
    *("#", "!", '"', "x", "0x5", "--", "-- c", "/*", "/", ")", "(", "AND", "OR", "NOT", "IS", "''", "'", "5", "010"),
    *("\x0b", "\x00", "\xa0", "\u3000", "!=", "==", "LIKE 'a%'", "+ 1", ",", ";", "é", "null", "x'", "中"),
)


def random_case(random: Random) -> Case:
    """Returns an expression, now and then a wrong one, and messages to try it on."""
    text = _either(random, random.choice((0, 0, 0, 1, 2)))
    for _ in range(random.choice((0, 0, 0, 0, 0, 1, 2))):
        text = _spoilt(random, text)
    return text, [_properties(random) for _ in range(MESSAGES_A_CASE)]


def java_results(version: str, cases: Sequence[Case]) -> list[str | None]:
    """Returns a release's result for each case: a letter for each message, None if the expression is refused."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-sql-") as directory:
        written, results = Path(directory) / "cases.json", Path(directory) / "results.json"
        written.write_text(json.dumps(cases))
        run_java(version, PROGRAM, str(written), str(results), timeout=MINUTES)
        letters: list[str | None] = json.loads(results.read_text(encoding="utf-8"))
    assert len(letters) == len(cases)
    return letters


def our_result(case: Case, *, text_tests: bool) -> str | None:
    """Returns which messages pass (T) and which do not (-), or None if the expression is refused."""
    text, messages = case
    try:
        passes = parse(text, text_tests=text_tests)
    except InvalidArgument:
        return None
    return "".join("T" if passes(properties) else "-" for properties in messages)


def _either(random: Random, depth: int) -> str:
    return _joined(random, "OR", [_both(random, depth) for _ in range(_few(random))])


def _both(random: Random, depth: int) -> str:
    return _joined(random, "AND", [_equality(random, depth) for _ in range(_few(random))])


def _few(random: Random) -> int:
    return random.choice((1, 1, 1, 1, 2, 3))


def _joined(random: Random, word: str, parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        text = _row(random, text, _cased(random, word), part)
    return text


def _equality(random: Random, depth: int) -> str:
    choice = random.randrange(24)
    if choice < 6:
        return _row(random, _ordinal(random, depth), random.choice(ORDERS), _ordinal(random, depth))
    if choice < 10:
        return _row(random, _name(random), random.choice(("=", "<>")), _any(random, depth))
    if choice < 13:
        return _row(random, _any(random, depth), "IS", random.choice(("NULL", "NOT NULL", "not null", "null")))
    if choice < 20:
        return _comparison(random, depth)
    if choice < 22:
        return _row(random, _comparison(random, depth), random.choice(ORDERS), _any(random, depth))
    return _any(random, depth)


def _comparison(random: Random, depth: int) -> str:
    negated = ["NOT"] if random.randrange(3) == 0 else []
    choice = random.randrange(9)
    if choice < 4:
        return _row(random, _any(random, depth), *negated, _cased(random, random.choice(WORDS)), _text(random))
    if choice < 6:
        bounds = sorted((_ordinal(random, 0), _ordinal(random, 0)))
        return _row(random, _ordinal(random, depth), *negated, _cased(random, "BETWEEN"), bounds[0], "AND", bounds[1])
    texts = ", ".join(_text(random) for _ in range(random.choice((1, 2, 3, 6))))
    left = _any(random, depth) if random.randrange(8) == 0 else _name(random)
    return _row(random, left, *negated, "IN", f"({texts})")


def _ordinal(random: Random, depth: int) -> str:
    """Returns what may have an order, or now and then anything."""
    if random.randrange(12) == 0:
        return _any(random, depth)
    prefix = random.choice(("", "", "", "", "", "-", "+", "- -"))
    return _row(random, *filter(None, (prefix, _name(random) if random.randrange(5) < 3 else _number(random))))


def _any(random: Random, depth: int) -> str:
    prefix = random.choice(("", "", "", "", "", "NOT", "NOT", "NOT NOT", "-", "+", "not"))
    inner = _constant(random) if random.randrange(9) == 0 else _name(random)
    if depth and random.randrange(3):
        inner = f"({_either(random, depth - 1)})"
    return _row(random, *filter(None, (prefix, inner)))


def _name(random: Random) -> str:
    return KEYWORD_SINCE_5 if random.randrange(60) == 0 else random.choice(NAMES)


def _number(random: Random) -> str:
    numbers = random.choice((WHOLES, WHOLES, LONGS, DECIMALS))
    return random.choice(numbers)


def _constant(random: Random) -> str:
    choice = random.randrange(4)
    return _number(random) if choice < 2 else _text(random) if choice == 2 else random.choice(("TRUE", "FALSE", "NULL"))


def _text(random: Random) -> str:
    return "'" + random.choice(TEXTS).replace("'", "''") + "'"


def _cased(random: Random, word: str) -> str:
    return random.choice((word, word, word.lower(), word.title()))


def _row(random: Random, *parts: str) -> str:
    text = parts[0]
    for part in parts[1:]:
        text += random.choice(BLANKS) + part
    return text


def _spoilt(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    choice = random.randrange(6)
    if choice == 0:
        return text[:at] + text[at + 1 :]
    if choice == 1:
        return text[:at]
    if choice == 2:
        return text + " " + random.choice(JUNK)
    if choice == 3:
        return text + random.choice(JUNK)
    return text[:at] + random.choice(JUNK) + text[at:]


def _properties(random: Random) -> Properties:
    values = (*TEXTS, *WHOLES, *LONGS, *DECIMALS, *ODD)
    return {name: random.choice(values) for name in (*NAMES[:-1], KEYWORD_SINCE_5) if random.randrange(3)}
