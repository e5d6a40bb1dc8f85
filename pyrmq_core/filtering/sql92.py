"""SQL92 over message properties: an expression is parsed once, and then evaluated for each message.

    a > 3 AND (region IN ('eu', 'us') OR name IS NULL) AND TAGS <> 'x' AND NOT (done = TRUE)

It is RocketMQ's dialect, with its surprises: the parser ignores any text after a complete expression, a minus before a
property gives null, two missing properties are equal, and 0.0 is not accepted as a number. A message passes only if the
result is TRUE. Source: filter/parser/SelectorParser.jj, filter/expression/*.java (5.4.0). RocketMQ does not have the
limits below.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering import sql_conditions as conditions
from pyrmq_core.filtering.sql_conditions import ORDERS, TEXT_TESTS, Kind, Part, Properties, UnfitOperand
from pyrmq_core.filtering.sql_values import Incomparable, Long, Number
from pyrmq_core.protocol.java.integers import MAX_INT, MAX_LONG

BLANKS: Final = re.compile(r"[ \t\n\r\f]*")
LINE_END: Final = re.compile(r"[\n\r]")
TOKEN: Final = re.compile(
    r"""(?P<decimal>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
    |(?P<whole>0|[1-9][0-9]*[lL]?)|(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
    |(?P<sign><>|>=|<=|[=<>(),+-])|(?P<end>\Z)""",
    re.VERBOSE,
)
KEYWORDS: Final = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"))
# The limits of an expression, far above what users write. Each condition is evaluated for every message, and each level
# of nesting uses Python's stack, which is limited to a thousand calls.
MAX_CHARS: Final = 65_536
MAX_CONDITIONS: Final = 512
DEEPEST: Final = 100
SHOWN_CHARS: Final = 200


def parse(text: str, *, text_tests: bool = True) -> Callable[[Properties], bool]:
    """Returns a function that tests a message's properties. Raises `InvalidArgument` if RocketMQ refuses the text.

    `text_tests=False` is the dialect before 5.1.3, in which CONTAINS, STARTSWITH and ENDSWITH are names of properties.
    """
    evaluate = _Parser(text, text_tests).condition().evaluate

    def passes(properties: Properties) -> bool:
        try:
            return evaluate(properties) is True
        except Incomparable:
            return False

    return passes


def ignored_rest(text: str, *, text_tests: bool = True) -> str:
    """Returns the text that follows a complete expression, which RocketMQ ignores.

    It is empty if the parser refuses the expression. `text_tests` is the same as for `parse`.
    """
    try:
        parser = _Parser(text, text_tests)
        parser.condition()
    except InvalidArgument:
        return ""
    return parser.rest


class _Parser:
    def __init__(self, text: str, text_tests: bool) -> None:
        if len(text) > MAX_CHARS:
            raise InvalidArgument(f"the SQL expression has {len(text)} characters; {MAX_CHARS} at most are taken")
        self._text = text
        self._text_tests = TEXT_TESTS.keys() if text_tests else frozenset[str]()
        self._keywords = KEYWORDS | self._text_tests
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self._at = self._next_at = self._depth = self._conditions = 0
        self.kind = self.token = ""
        self._advance()

    def condition(self) -> Part:
        try:
            return conditions.condition_of(self._either())
        except UnfitOperand as reason:
            raise InvalidArgument(f"{self._named()} {reason}") from None

    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def _named(self) -> str:
        return f"the SQL expression {self._text[:SHOWN_CHARS]!r}"

    def _refuse(self, expected: str) -> NoReturn:
        token_text = f"{self.token!r}" if self.token else "the end"
        raise InvalidArgument(
            f"{self._named()} has {token_text[:SHOWN_CHARS]} at character {self._at + 1}, where {expected} is wanted"
        )

    def _either(self) -> Part:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidArgument(f"the SQL expression is nested deeper than {DEEPEST}")
        parts = [self._both()]
        while self._take("OR"):
            parts.append(self._both())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else self._checked(conditions.any_of(parts))

    def _both(self) -> Part:
        parts = [self._equality()]
        while self._take("AND"):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else self._checked(conditions.all_of(parts))

    def _equality(self) -> Part:
        left = self._comparison()
        while True:
            if self.token in ("=", "<>"):
                negated = self._advance() == "<>"
                left = self._checked(conditions.equal(left, self._comparison(), negated=negated))
            elif self._take("IS"):
                negated = self._take("NOT")
                if not self._take("NULL"):
                    self._refuse("NULL")
                left = self._checked(conditions.is_null(left, negated=negated))
            else:
                return left

    def _comparison(self) -> Part:
        left = self._unary()
        while True:
            if self.token in ORDERS:
                sign = self._advance()
                left = self._checked(conditions.ordered(sign, left, self._unary()))
                continue
            negated = self._take("NOT")
            test = self._test(left, negated)
            if test is None:
                if negated:
                    self._refuse(" or ".join(("BETWEEN, IN", *sorted(self._text_tests))))
                return left
            left = self._checked(test)

    def _test(self, left: Part, negated: bool) -> Part | None:
        if self._take("BETWEEN"):
            low = self._unary()
            if not self._take("AND"):
                self._refuse("AND")
            return conditions.between(left, low, self._unary(), negated=negated)
        if self._take("IN"):
            return conditions.one_of(left, self._list(), negated=negated)
        for word in self._text_tests:
            if self._take(word):
                return conditions.text_test(word, left, self._string(), negated=negated)
        return None

    def _list(self) -> frozenset[str]:
        self._expect("(")
        texts = {self._string()}
        while self.token == ",":
            self._advance()
            texts.add(self._string())
        self._expect(")")
        return frozenset(texts)

    def _unary(self) -> Part:
        prefixes = []
        while self.token in ("+", "-") or self._is_next("NOT"):
            prefixes.append(self._advance())
        part = self._primary()
        opposite: Part | None = None  # the opposite of `part` if it is a condition
        for prefix in reversed(prefixes):
            if prefix == "-":
                part, opposite = conditions.negative(part), None
            elif prefix != "+":
                if opposite is None:
                    # TRUE, FALSE and NULL become a condition, too.
                    part = replace(conditions.condition_of(part), kind=Kind.CONDITION)
                    opposite = self._checked(conditions.opposite(part))
                part, opposite = opposite, part
        return part

    def _primary(self) -> Part:
        if self.token == "(":
            self._advance()
            inner = self._either()
            self._expect(")")
            return inner
        if self.kind == "text":
            return conditions.constant(self._string())
        if self.kind in ("whole", "decimal"):
            return conditions.constant(self._number())
        for word, value in (("TRUE", True), ("FALSE", False), ("NULL", None)):
            if self._take(word):
                return conditions.constant(value)
        if self.kind != "name":
            self._refuse("a property, a value or (")
        return conditions.property_named(self._advance())

    def _checked(self, part: Part) -> Part:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise InvalidArgument(
                f"the SQL expression has more than {MAX_CONDITIONS} conditions; write IN (...), or divide it"
            )
        if part.level > DEEPEST:
            raise InvalidArgument(f"the SQL expression is nested deeper than {DEEPEST}")
        return part

    def _number(self) -> Number:
        if self.kind == "decimal":
            decimal = float(self.token)
            if decimal == 0 or math.isinf(decimal):
                self._refuse("a number that is neither zero nor too large for 64 bits (write 0 for zero)")
            self._advance()
            return decimal
        digits = self.token.rstrip("lL")
        if len(digits) > len(str(MAX_LONG)) or int(digits) > MAX_LONG:
            self._refuse(f"a whole number up to {MAX_LONG}")
        self._advance()
        return int(digits) if int(digits) <= MAX_INT else Long(digits)

    def _string(self) -> str:
        if self.kind != "text":
            self._refuse("a text in single quotes")
        return self._advance()[1:-1].replace("''", "'")

    def _expect(self, sign: str) -> None:
        if self.token != sign:
            self._refuse(sign)
        self._advance()

    def _is_next(self, word: str) -> bool:
        return self.kind == "keyword" and self.token.upper() == word

    def _take(self, word: str) -> bool:
        if not self._is_next(word):
            return False
        self._advance()
        return True

    def _advance(self) -> str:
        token = self.token
        self._at = self._after_blanks(self._next_at)
        match = TOKEN.match(self._text, self._at)
        if match is None:
            self.token = self._text[self._at]
            self._refuse("a property, a value or an operator")
        self.kind = match.lastgroup or "end"
        self.token, self._next_at = match[0], match.end()
        if self.kind == "name" and self.token.upper() in self._keywords:
            self.kind = "keyword"
        return token

    def _after_blanks(self, at: int) -> int:
        """Returns the position after blanks and comments. A comment with `--` has to end with a line break."""
        while True:
            match = BLANKS.match(self._text, at)
            at = at if match is None else match.end()
            if self._text.startswith("--", at) and at < self._last_line_end:
                line_end = LINE_END.search(self._text, at)
                at = self._last_line_end if line_end is None else line_end.end()
            elif self._text.startswith("/*", at) and (end := self._text.find("*/", at + 2)) >= 0:
                at = end + 2
            else:
                return at
