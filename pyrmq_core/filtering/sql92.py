"""SQL92 over message properties: an expression is parsed once, and then evaluated for each message.

    a > 3 AND (region IN ('eu', 'us') OR name IS NULL) AND TAGS <> 'x' AND NOT (done = TRUE)

The logic has three values, as in SQL: a missing property is null, and a message passes only if the result is TRUE. A
property is text, and is read as a number where it is compared with one. If that text is no number, the message does not
pass, whatever the rest of the expression says.
Source: filter/src/main/javacc/SelectorParser.jj, filter/expression/*.java (5.4.0). Left out: arithmetic, as there.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from pyrmq_core.errors import InvalidArgument

Value = bool | int | float | str | None
Properties = Mapping[str, str]
Expression = Callable[[Properties], Value]

TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)[lL]?(?![A-Za-z_$])
    |(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)|(?P<sign><>|>=|<=|[=<>(),+-])|(?P<end>$))""",
    re.VERBOSE,
)
KEYWORDS: Final = frozenset(
    ("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
ORDERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
# The limits of an expression, far above those that users write: each condition is evaluated for every message, and each
# level takes room on Python's stack, which holds a thousand calls.
MAX_CHARS: Final = 65_536
MAX_CONDITIONS: Final = 512
DEEPEST: Final = 100
SHOWN_CHARS: Final = 200


def parse(text: str) -> Callable[[Properties], bool]:
    """Returns the test of a message's properties; `InvalidArgument` names the place of a syntax error."""
    parser = _Parser(text)
    expression = parser.either()
    if parser.kind != "end":
        parser.refuse()

    def passes(properties: Properties) -> bool:
        try:
            return expression(properties) is True
        except _Incomparable:
            return False

    return passes


class _Incomparable(Exception):
    """A comparison of values of different types, as of a text with a number; Java's evaluation ends there, too."""


class _Parser:
    """A recursive-descent parser; `kind` and `token` describe the next token."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARS:
            raise InvalidArgument(f"the SQL expression has {len(text)} characters; {MAX_CHARS} at most are taken")
        self._text = text
        self._at = self._next_at = self._depth = 0
        self._levels: dict[Expression, int] = {}  # depth of each condition; properties and constants have none
        self.kind = self.token = ""
        self._advance()

    def refuse(self, expected: str = "an operator or the end") -> NoReturn:
        found = f"{self.token!r}" if self.token else "the end"
        raise InvalidArgument(
            f"the SQL expression {self._text[:SHOWN_CHARS]!r} has {found[:SHOWN_CHARS]} at character {self._at + 1}, "
            f"where {expected} is wanted"
        )

    def either(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidArgument(f"the SQL expression is nested deeper than {DEEPEST}")
        parts = [self._both()]
        while self._take("OR"):
            parts.append(self._both())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else self._made(_any_of(tuple(parts)), *parts)

    def _both(self) -> Expression:
        parts = [self._equality()]
        while self._take("AND"):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else self._made(_all_of(tuple(parts)), *parts)

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            if self.token in ("=", "<>"):
                sign = self._advance()
                right = self._comparison()
                left = self._made(_compare(sign, left, right), left, right)
            elif self._take("IS"):
                expected = not self._take("NOT")
                if not self._take("NULL"):
                    self.refuse("NULL")
                left = self._made(_is_null(left, expected), left)
            else:
                return left

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            if self.token in (">", ">=", "<", "<="):
                sign = self._advance()
                right = self._unary()
                left = self._made(_compare(sign, left, right), left, right)
                continue
            negated = self._take("NOT")
            test = self._test(left)
            if test is None:
                if negated:
                    self.refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
                return left
            left = self._made(_not(test), test) if negated else test

    def _test(self, left: Expression) -> Expression | None:
        if self._take("BETWEEN"):
            low = self._unary()
            if not self._take("AND"):
                self.refuse("AND")
            high = self._unary()
            return self._made(_between(left, low, high), left, low, high)
        if self._take("IN"):
            return self._made(_one_of(left, self._list()), left)
        for word, test in TEXT_TESTS.items():
            if self._take(word):
                return self._made(_text_test(test, left, self._string()), left)
        return None

    def _list(self) -> frozenset[str]:
        self._expect("(")
        texts = {self._string()}
        while self.token == ",":
            self._advance()
            texts.add(self._string())
        self._expect(")")
        return frozenset(texts)

    def _unary(self) -> Expression:
        negations = 0
        while self._take("NOT"):
            negations += 1
        operand = self._operand()
        for _ in range(negations if negations < 3 else 2 + negations % 2):  # each further pair changes nothing
            operand = self._made(_not(operand), operand)
        return operand

    def _operand(self) -> Expression:
        if self.kind == "sign" and self.token in "+-":
            sign = self._advance()
            if self.kind != "number":
                self.refuse("a number")
            return _constant(_negated(_number(self._advance())) if sign == "-" else _number(self._advance()))
        return self._primary()

    def _primary(self) -> Expression:
        if self.token == "(":
            self._advance()
            inner = self.either()
            self._expect(")")
            return inner
        if self.kind == "number":
            return _constant(_number(self._advance()))
        if self.kind == "text":
            return _constant(self._string())
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self._take(word):
                return _constant(value)
        if self.kind != "name":
            self.refuse("a property, a value or (")
        name = self._advance()
        return lambda properties: properties.get(name)

    def _made(self, expression: Expression, *inner: Expression) -> Expression:
        """Returns the expression; `InvalidArgument` if it is one condition too many, or nested too deeply."""
        level = 1 + max(self._levels.get(one, 0) for one in inner)
        self._levels[expression] = level
        if len(self._levels) > MAX_CONDITIONS:
            raise InvalidArgument(
                f"the SQL expression has more than {MAX_CONDITIONS} conditions; write IN (...), or divide it"
            )
        if level > DEEPEST:
            raise InvalidArgument(f"the SQL expression is nested deeper than {DEEPEST}")
        return expression

    def _string(self) -> str:
        if self.kind != "text":
            self.refuse("a text in single quotes")
        return self._advance()[1:-1].replace("''", "'")

    def _expect(self, sign: str) -> None:
        if self.token != sign:
            self.refuse(sign)
        self._advance()

    def _take(self, word: str) -> bool:
        if self.kind != "keyword" or self.token.upper() != word:
            return False
        self._advance()
        return True

    def _advance(self) -> str:
        """Returns the next token, and moves to the one after it."""
        taken, found = self.token, TOKEN.match(self._text, self._next_at)
        if found is None:
            rest = self._text[self._next_at :].lstrip()
            self._at, self.token = len(self._text) - len(rest), rest[:1]
            self.refuse("a property, a value or an operator")
        self.kind = found.lastgroup or "end"
        self.token = found[self.kind]
        self._at, self._next_at = found.start(self.kind), found.end()
        if self.kind == "name" and self.token.upper() in KEYWORDS:
            self.kind = "keyword"
        return taken


def _number(text: str) -> int | float:
    if len(text) > SHOWN_CHARS:
        raise InvalidArgument(f"the SQL expression has a number of {len(text)} digits")
    return int(text) if text.isdecimal() else float(text)


def _negated(number: int | float) -> int | float:
    return -number


def _constant(value: Value) -> Expression:
    return lambda _: value


def _all_of(parts: tuple[Expression, ...]) -> Expression:
    def all_of(properties: Properties) -> Value:
        result: bool | None = True
        for part in parts:
            truth = _truth(part(properties))
            if truth is False:
                return False
            result = truth and result
        return result

    return all_of


def _any_of(parts: tuple[Expression, ...]) -> Expression:
    def any_of(properties: Properties) -> Value:
        result: bool | None = False
        for part in parts:
            truth = _truth(part(properties))
            if truth:
                return True
            result = None if truth is None else result
        return result

    return any_of


def _not(inner: Expression) -> Expression:
    def negated(properties: Properties) -> Value:
        value = _truth(inner(properties))
        return None if value is None else not value

    return negated


def _truth(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


def _is_null(inner: Expression, expected: bool) -> Expression:
    return lambda properties: (inner(properties) is None) is expected


def _one_of(inner: Expression, texts: frozenset[str]) -> Expression:
    def contained(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else str(value) in texts

    return contained


def _text_test(test: Callable[[str, str], bool], inner: Expression, part: str) -> Expression:
    def tested(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else isinstance(value, str) and bool(part) and test(value, part)

    return tested


def _compare(sign: str, left: Expression, right: Expression) -> Expression:
    order = ORDERS[sign]
    return lambda properties: _ordered(order, left(properties), right(properties))


def _between(inner: Expression, low: Expression, high: Expression) -> Expression:
    def between(properties: Properties) -> Value:
        value = inner(properties)  # once: if it were twice, each nested BETWEEN would double the time
        above = _ordered(operator.ge, value, low(properties))
        if above is False:
            return False
        below = _ordered(operator.le, value, high(properties))
        return below if above else (False if below is False else None)

    return between


def _ordered(order: Callable[[Any, Any], bool], one: Value, other: Value) -> bool | None:
    return None if one is None or other is None else order(*_alike(one, other))


def _alike(one: bool | int | float | str, other: bool | int | float | str) -> tuple[object, object]:
    """Returns both as values of one type; raises `_Incomparable` if they cannot be."""
    if isinstance(one, str) and not isinstance(other, str):
        return _as(other, one), other
    if isinstance(other, str) and not isinstance(one, str):
        return one, _as(one, other)
    if isinstance(one, bool) != isinstance(other, bool):
        raise _Incomparable
    return one, other


def _as(like: bool | int | float, text: str) -> bool | int | float:
    if isinstance(like, bool):
        return text.lower() == "true"
    try:
        return float(text) if isinstance(like, float) else int(text)
    except ValueError:
        raise _Incomparable from None
