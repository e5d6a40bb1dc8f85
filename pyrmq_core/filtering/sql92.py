"""SQL92 over message properties: parses an expression once, and says of each message whether it passes.

    a > 3 AND (region IN ('eu', 'us') OR name IS NULL) AND TAGS <> 'x' AND NOT (done = TRUE)

Three-valued, as SQL is: a property that is missing is null, and what is not TRUE does not pass. Properties are text,
and are read as a number where they are compared with one; a message where such a text is no number does not pass,
whatever else the expression says.
Source: filter/src/main/javacc/SelectorParser.jj, filter/expression/*.java (5.4.0). Left out: arithmetic, which they do
not have either.
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
DEEPEST: Final = 100


def parse(text: str) -> Callable[[Properties], bool]:
    """Whether a message with these properties passes. `InvalidArgument` says where the expression goes wrong."""
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
    """A text compared with a number that it is not; Java's evaluation ends there, too."""


class _Parser:
    """Recursive descent; `kind` and `token` are what stands next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._next_at = self._depth = 0
        self.kind = self.token = ""
        self._advance()

    def refuse(self, wanted: str = "an operator or the end") -> NoReturn:
        found = f"{self.token!r}" if self.token else "the end"
        raise InvalidArgument(
            f"the SQL expression {self._text!r} has {found} at character {self._at + 1}, where {wanted} is wanted"
        )

    def either(self) -> Expression:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidArgument(f"the SQL expression is nested deeper than {DEEPEST}")
        left = self._both()
        while self._take("OR"):
            left = _or(left, self._both())
        self._depth -= 1
        return left

    def _both(self) -> Expression:
        left = self._equality()
        while self._take("AND"):
            left = _and(left, self._equality())
        return left

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            if self.token in ("=", "<>"):
                sign = self._advance()
                left = _compare(sign, left, self._comparison())
            elif self._take("IS"):
                wanted = not self._take("NOT")
                if not self._take("NULL"):
                    self.refuse("NULL")
                left = _is_null(left, wanted)
            else:
                return left

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            if self.token in (">", ">=", "<", "<="):
                sign = self._advance()
                left = _compare(sign, left, self._unary())
                continue
            negated = self._take("NOT")
            test = self._test(left)
            if test is None:
                if negated:
                    self.refuse("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
                return left
            left = _not(test) if negated else test

    def _test(self, left: Expression) -> Expression | None:
        if self._take("BETWEEN"):
            low = self._unary()
            if not self._take("AND"):
                self.refuse("AND")
            return _and(_compare(">=", left, low), _compare("<=", left, self._unary()))
        if self._take("IN"):
            return _one_of(left, self._list())
        for word, test in TEXT_TESTS.items():
            if self._take(word):
                return _text_test(test, left, self._string())
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
        if self._take("NOT"):
            return _not(self._unary())
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
        """The token that stood next; the one after it stands next now."""
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
    return int(text) if text.isdecimal() else float(text)


def _negated(number: int | float) -> int | float:
    return -number


def _constant(value: Value) -> Expression:
    return lambda _: value


def _and(left: Expression, right: Expression) -> Expression:
    def both(properties: Properties) -> Value:
        one = _truth(left(properties))
        if one is False:
            return False
        other = _truth(right(properties))
        return other if one else (False if other is False else None)

    return both


def _or(left: Expression, right: Expression) -> Expression:
    def either(properties: Properties) -> Value:
        one = _truth(left(properties))
        if one:
            return True
        other = _truth(right(properties))
        return True if other else (None if one is None or other is None else False)

    return either


def _not(inner: Expression) -> Expression:
    def negated(properties: Properties) -> Value:
        value = _truth(inner(properties))
        return None if value is None else not value

    return negated


def _truth(value: Value) -> bool | None:
    return value if isinstance(value, bool) else None


def _is_null(inner: Expression, wanted: bool) -> Expression:
    return lambda properties: (inner(properties) is None) is wanted


def _one_of(inner: Expression, texts: frozenset[str]) -> Expression:
    def contained(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else str(value) in texts

    return contained


def _text_test(test: Callable[[str, str], bool], inner: Expression, wanted: str) -> Expression:
    def tested(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else isinstance(value, str) and bool(wanted) and test(value, wanted)

    return tested


def _compare(sign: str, left: Expression, right: Expression) -> Expression:
    order = ORDERS[sign]

    def compared(properties: Properties) -> Value:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        return order(*_alike(one, other))

    return compared


def _alike(one: bool | int | float | str, other: bool | int | float | str) -> tuple[object, object]:
    """Both as values of one type."""
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
