"""`Where`: a small language of conditions on one message, parsed here and never evaluated as Python.

    json.user.id == 42 and (tags in ['paid', 'sent'] or not properties.region == 'eu')

    condition    or, and, not, ( ), then a comparison, or a value alone, which has to be true
    comparison   == != < <= > >= in, not in
    value        json, json.a.b, json['a b'], json.items[0], properties.NAME, tags, keys, born, stored
                 42  -1.5e3  'text'  "text"  true  false  null  [1, 2]

Values of different kinds are not equal and have no order. A missing value equals null. Numbers of any length are
compared exactly. `born` and `stored` are compared with ISO-8601 times in quotes. Pure.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageExt

MAX_CHARACTERS: Final = 4096
MAX_DEPTH: Final = 50
MAX_COLUMNS: Final = 12

BLANKS: Final = re.compile(r"\s*")
NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
TEXT: Final = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
WORD: Final = re.compile(r"[A-Za-z_]\w*")
MEMBER: Final = re.compile(r"[\w$@-]+")
INDEX: Final = re.compile(r"[0-9]{1,9}")
COMPARISON: Final = re.compile(r"==|!=|<=|>=|<|>")
ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
CONSTANTS: Final = {"true": True, "false": False, "null": None}
ROOTS: Final = ("json", "properties", "tags", "keys", "born", "stored")
TIMES: Final = ("born", "stored")


class Row(NamedTuple):
    """A message, and its body as JSON if the condition reads it."""

    message: MessageExt
    document: Any


Value = Callable[[Row], Any]
Test = Callable[[Row], bool]


@dataclass(frozen=True, slots=True)
class Where:
    """A parsed condition. `reads_json` says whether it reads bodies."""

    text: str
    holds: Test
    reads_json: bool

    @classmethod
    def parse(cls, text: str) -> Where:
        """Parses a condition. Raises `InvalidArgument` with the position of the first error."""
        if len(text) > MAX_CHARACTERS:
            raise InvalidArgument(f"the condition has {len(text)} characters; {MAX_CHARACTERS} are possible")
        parser = _Parser(text)
        holds = parser.condition(0)
        parser.end()
        return cls(text, holds, parser.reads_json)


@dataclass(frozen=True, slots=True)
class Columns:
    """Parsed expressions for columns, such as `json.user.id, tags`: for each text the function that returns its value.

    `reads_json` is True if one of them reads the body.
    """

    values: Mapping[str, Value]
    reads_json: bool

    @classmethod
    def parse(cls, text: str) -> Columns:
        """Parses expressions such as `json.user.id, tags`. An `InvalidArgument` has the position of the first error."""
        if len(text) > MAX_CHARACTERS:
            raise InvalidArgument(f"the columns have {len(text)} characters; {MAX_CHARACTERS} are possible")
        parser = _Parser(text)
        values = dict([parser.column()])
        while parser.goes_on():
            values |= [parser.column()]
        if len(values) > MAX_COLUMNS:
            raise InvalidArgument(f"there are {len(values)} columns; {MAX_COLUMNS} are possible")
        return cls(values, parser.reads_json)


@dataclass(frozen=True, slots=True)
class _Operand:
    """One side of a comparison. `position` is its place in the text.

    `root` is the first name of a path, such as `json`, and `literal` the value of a constant.
    """

    value: Value
    position: int
    root: str = ""
    literal: object = None


class _Parser:
    """A recursive-descent parser. Each method parses the part of the language in its name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.reads_json = False

    def condition(self, depth: int) -> Test:
        if depth > MAX_DEPTH:
            raise self._wrong(f"more than {MAX_DEPTH} conditions stand within one another")
        tests = [self._conjunction(depth)]
        while self._takes_word("or"):
            tests.append(self._conjunction(depth))
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def column(self) -> tuple[str, Value]:
        operand = self._operand()
        return self._text[operand.position : self._position], operand.value

    def goes_on(self) -> bool:
        self._skip_blanks()
        if self._position < len(self._text):
            self._expect(",")
            return True
        return False

    def end(self) -> None:
        self._skip_blanks()
        if self._position < len(self._text):
            hint = "; equality is ==" if self._text[self._position] == "=" else ""
            raise self._wrong(f"the end, a comparison, and or or was expected{hint}")

    def _conjunction(self, depth: int) -> Test:
        tests = [self._negation(depth)]
        while self._takes_word("and"):
            tests.append(self._negation(depth))
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _negation(self, depth: int) -> Test:
        if self._takes_word("not"):
            if depth > MAX_DEPTH:
                raise self._wrong(f"more than {MAX_DEPTH} conditions stand within one another")
            inner = self._negation(depth + 1)
            return lambda row: not inner(row)
        if self._takes("("):
            inner = self.condition(depth + 1)
            self._expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        left = self._operand()
        self._skip_blanks()
        at = self._position
        if (match := COMPARISON.match(self._text, at)) is not None:
            self._position = match.end()
            return _compared(match[0], *self._same_kind(left, self._operand()))
        negated = self._takes_word("not")
        if self._takes_word("in"):
            right = self._operand()
            for side in (left, right):
                if side.root in TIMES:
                    raise self._wrong(f"{side.root} is compared by == != < <= > or >=", side.position)
            holder = _words if right.root == "keys" else right.value
            return lambda row: _contains(holder(row), left.value(row)) is not negated
        if negated:
            raise self._wrong("in was expected after not")
        if left.root in TIMES:
            raise self._wrong(f"a comparison of {left.root} was expected", at)
        return lambda row: left.value(row) is True

    def _same_kind(self, left: _Operand, right: _Operand) -> tuple[Value, Value]:
        """Returns the values of both sides, to be compared. A text beside `born` or `stored` is parsed as a time."""
        sides: list[Value] = []
        for side, other in ((left, right), (right, left)):
            if other.root in TIMES and side.root not in TIMES:
                sides.append(_constant(self._time(side)))
            else:
                sides.append(side.value)
        return sides[0], sides[1]

    def _time(self, operand: _Operand) -> datetime:
        try:
            if isinstance(operand.literal, str):
                when = datetime.fromisoformat(operand.literal)
                return when if when.tzinfo else when.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise self._wrong("an ISO-8601 time in quotes was expected, such as '2026-05-01T12:00+02:00'", operand.position)

    def _operand(self) -> _Operand:
        self._skip_blanks()
        at = self._position
        if (word := WORD.match(self._text, at)) is not None and word[0] not in CONSTANTS:
            return self._path(word)
        literal = self._literal()
        return _Operand(_constant(literal), at, literal=literal)

    def _literal(self) -> Any:
        self._skip_blanks()
        at = self._position
        if (word := WORD.match(self._text, at)) is not None and word[0] in CONSTANTS:
            self._position = word.end()
            return CONSTANTS[word[0]]
        if (number := NUMBER.match(self._text, at)) is not None:
            self._position = number.end()
            return Decimal(number[0]) if number[1] or number[2] else int(number[0])
        if (text := TEXT.match(self._text, at)) is not None:
            self._position = text.end()
            return _unescaped(text)
        if self._text[at : at + 1] in ("'", '"'):
            raise self._wrong("the text that begins here has no end: a quote closes it")
        if not self._takes("["):
            raise self._wrong("a value was expected: a number, a text in quotes, true, false, null or a name")
        items: list[Any] = []
        while not self._takes("]"):
            if items:
                self._expect(",")
            self._skip_blanks()
            if self._text.startswith("[", self._position):
                raise self._wrong("a list has no lists in it")
            items.append(self._literal())
        return items

    def _path(self, word: re.Match[str]) -> _Operand:
        root, at = word[0], word.start()
        if root not in ROOTS:
            raise self._wrong(f"{root} is no name; there are {', '.join(ROOTS)}, and texts stand in quotes", at)
        self._position = word.end()
        steps: list[str | int] = []
        while True:
            if self._text.startswith(".", self._position):
                self._position += 1
                member = self._matched(MEMBER, "a member's name")
                if member[0].isdecimal():
                    raise self._wrong(
                        f"a number stands in brackets: [{member[0]}] is an element, ['{member[0]}'] a name",
                        member.start(),
                    )
                steps.append(member[0])
            elif self._text.startswith("[", self._position):
                self._position += 1
                quoted = TEXT.match(self._text, self._position)
                step = quoted or self._matched(INDEX, "a number, or a name in quotes,")
                self._position = step.end()
                steps.append(int(step[0]) if quoted is None else _unescaped(quoted))
                self._expect("]")
            else:
                break
        return _Operand(self._value_of(root, steps, at), at, root)

    def _value_of(self, root: str, steps: list[str | int], at: int) -> Value:
        if root == "json":
            self.reads_json = True
            return lambda row: _member(row.document, steps)
        if root == "properties":
            match steps:
                case [str() as name]:
                    return lambda row: row.message.properties.get(name)
            raise self._wrong("the name of one property was expected: properties.NAME", at)
        if steps:
            raise self._wrong(f"{root} has no members", at)
        return FIELDS[root]

    def _matched(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = pattern.match(self._text, self._position)
        if match is None:
            raise self._wrong(f"{what} was expected")
        self._position = match.end()
        return match

    def _takes_word(self, word: str) -> bool:
        self._skip_blanks()
        match = WORD.match(self._text, self._position)
        if match is None or match[0] != word:
            return False
        self._position = match.end()
        return True

    def _takes(self, character: str) -> bool:
        self._skip_blanks()
        if not self._text.startswith(character, self._position):
            return False
        self._position += 1
        return True

    def _expect(self, character: str) -> None:
        if not self._takes(character):
            raise self._wrong(f"{character} was expected")

    def _skip_blanks(self) -> None:
        if (match := BLANKS.match(self._text, self._position)) is not None:
            self._position = match.end()

    def _wrong(self, why: str, position: int | None = None) -> InvalidArgument:
        at = self._position if position is None else position
        shown = "the end" if at >= len(self._text) else repr(self._text[at])
        return InvalidArgument(f"character {at + 1}, {shown}: {why}")


FIELDS: Final[dict[str, Value]] = {
    "tags": lambda row: row.message.tags,
    "keys": lambda row: row.message.keys,
    "born": lambda row: row.message.born_timestamp,
    "stored": lambda row: row.message.store_timestamp,
}
ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _unescaped(quoted: re.Match[str]) -> str:
    return ESCAPED.sub(r"\1", quoted[1] if quoted[1] is not None else quoted[2])


def _constant(value: Any) -> Value:
    return lambda row: value


def _words(row: Row) -> list[str]:
    return (row.message.keys or "").split()


def _member(value: Any, steps: list[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def _compared(sign: str, left: Value, right: Value) -> Test:
    if sign == "==":
        return lambda row: _are_equal(left(row), right(row))
    if sign == "!=":
        return lambda row: not _are_equal(left(row), right(row))
    order = ORDERS[sign]

    def test(row: Row) -> bool:
        first, second = left(row), right(row)
        return _kind(first) == _kind(second) in ("number", "text", "time") and order(first, second)

    return test


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "truth"
        case int() | Decimal():
            return "number"
        case str():
            return "text"
        case datetime():
            return "time"
    return type(value).__name__


def _are_equal(left: Any, right: Any) -> bool:
    return _kind(left) == _kind(right) and bool(left == right)


def _contains(holder: Any, value: Any) -> bool:
    match holder:
        case str():
            return isinstance(value, str) and value in holder
        case list():
            # `value in holder` takes a tenth of the time of `any`: the sender decides how long the list is.
            return value in holder and any(_are_equal(item, value) for item in holder)
        case dict():
            return isinstance(value, str) and value in holder
    return False
