"""The parts of a parsed SQL92 expression, which are evaluated by RocketMQ's rules.

The logic has three values, as in SQL, and a missing property is null. Functions raise `UnfitOperand` for parts that
RocketMQ refuses to join, and the parser reports them. Source: filter/expression/ComparisonExpression.java,
LogicExpression.java, UnaryExpression.java (5.4.0).
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.filtering.sql_values import Long, Number, Value, compare, compare_doubles

Properties = Mapping[str, str]
Evaluation = Callable[[Properties], Value]

ORDERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
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


class UnfitOperand(Exception):
    """An error for an operand that an operator does not accept, with the reason."""


class Kind(enum.Enum):
    """The kind of a `Part`, which decides where it is allowed in an expression."""

    PROPERTY = enum.auto()
    CONSTANT = enum.auto()  # a text or a number
    TRUTH = enum.auto()  # TRUE, FALSE or NULL
    CONDITION = enum.auto()
    NEGATIVE = enum.auto()  # a part after a minus, which is no constant even if it is a number


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an expression. `evaluate` returns its value for a message's properties.

    `value` is the value of a constant, `level` the depth of conditions nested in it.
    """

    kind: Kind
    evaluate: Evaluation
    value: Value = None
    level: int = 0

    @property
    def is_constant(self) -> bool:
        return self.kind in (Kind.CONSTANT, Kind.TRUTH)


def property_named(name: str) -> Part:
    return Part(Kind.PROPERTY, lambda properties: properties.get(name))


def constant(value: Value) -> Part:
    kind = Kind.TRUTH if value is None or isinstance(value, bool) else Kind.CONSTANT
    return Part(kind, lambda _: value, value)


def condition_of(part: Part) -> Part:
    """Returns the part as an operand of AND, OR or NOT. A property's name is a condition that is never true.

    Raises `UnfitOperand` for a number or a text.
    """
    if part.kind is Kind.PROPERTY:
        evaluate = part.evaluate
        return Part(Kind.CONDITION, lambda properties: None if evaluate(properties) is None else False)
    if part.kind in (Kind.CONSTANT, Kind.NEGATIVE):
        raise UnfitOperand("has a number or a text where a condition is wanted")
    return part


def all_of(parts: list[Part]) -> Part:
    evaluations = tuple(condition_of(part).evaluate for part in parts)

    def every(properties: Properties) -> Value:
        result: Value = True
        for evaluate in evaluations:
            value = evaluate(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return _condition(every, *parts)


def any_of(parts: list[Part]) -> Part:
    evaluations = tuple(condition_of(part).evaluate for part in parts)

    def is_any(properties: Properties) -> Value:
        result: Value = False
        for evaluate in evaluations:
            value = evaluate(properties)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return _condition(is_any, *parts)


def opposite(part: Part) -> Part:
    evaluate = condition_of(part).evaluate

    def negated(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else not value

    return _condition(negated, part)


def negative(part: Part) -> Part:
    """Returns a part with a minus sign before it: the negative of a number, and null for anything else."""
    number = _number_of(part)
    if number is not None:
        minus = Long(-number) if isinstance(number, Long) else -number
        return Part(Kind.NEGATIVE, lambda _: minus, minus)
    if part.kind is Kind.NEGATIVE:
        return part
    evaluate = part.evaluate

    def nothing(properties: Properties) -> Value:
        evaluate(properties)  # raises `Incomparable` where RocketMQ does
        return None

    return Part(Kind.NEGATIVE, nothing, level=part.level + 1)


def equal(left: Part, right: Part, *, negated: bool) -> Part:
    """Returns the condition `left = right`, or `left <> right` if `negated`.

    Unlike in SQL, two nulls are equal. If only the left value is null, the result is null. If only the right value is
    null, they are unequal. Raises `UnfitOperand` for NULL, and for TRUE or FALSE before a number or a text.
    """
    for part in (left, right):
        if part.is_constant and part.value is None:
            raise UnfitOperand("compares with NULL: write IS NULL or IS NOT NULL")
    if left.kind is Kind.TRUTH and right.kind is Kind.CONSTANT:
        raise UnfitOperand("compares TRUE or FALSE with a number or a text")
    left_value, other = left.evaluate, right.evaluate

    def are_equal(properties: Properties) -> Value:
        value, wanted = left_value(properties), other(properties)
        if value is None and wanted is not None:
            return None
        is_equal = wanted is None if value is None else wanted is not None and compare(value, wanted) == 0
        return is_equal is not negated

    return _condition(are_equal, left, right)


def is_null(part: Part, *, negated: bool) -> Part:
    evaluate = part.evaluate
    return _condition(lambda properties: (evaluate(properties) is None) is not negated, part)


def ordered(sign: str, left: Part, right: Part) -> Part:
    """Returns a comparison by `sign`: `<`, `<=`, `>` or `>=`. Two properties are compared as decimal numbers.

    Raises `UnfitOperand` for texts, truth values and conditions, which have no order.
    """
    for part in (left, right):
        _check_ordered(part, f"by {sign}")
    order, left_value, other = ORDERS[sign], left.evaluate, right.evaluate

    def is_ordered(properties: Properties) -> Value:
        value = left_value(properties)
        return None if value is None else _is_ordered(order, value, other(properties))

    return _condition(is_ordered, left, right)


def between(part: Part, low: Part, high: Part, *, negated: bool) -> Part:
    if not negated and low.is_constant and high.is_constant:
        _check_bounds(low, high)
    for operand in (part, low, high):
        _check_ordered(operand, "by BETWEEN")
    value_of, lowest, highest = part.evaluate, low.evaluate, high.evaluate
    below, above = (operator.lt, operator.gt) if negated else (operator.ge, operator.le)

    def within(properties: Properties) -> Value:
        value = value_of(properties)  # evaluated once, since twice would double the time for each nested BETWEEN
        if value is None:
            return None
        first = _is_ordered(below, value, lowest(properties))
        if first is negated:
            return negated
        second = _is_ordered(above, value, highest(properties))
        return second if second is negated or first is not None else None

    return _condition(within, part, low, high)


def one_of(part: Part, texts: frozenset[str], *, negated: bool) -> Part:
    if part.kind is not Kind.PROPERTY:
        raise UnfitOperand("has IN behind something else than a property's name")
    evaluate = part.evaluate

    def listed(properties: Properties) -> Value:
        value = evaluate(properties)
        return None if value is None else (value in texts) is not negated

    return _condition(listed, part)


def text_test(word: str, part: Part, text: str, *, negated: bool) -> Part:
    """Returns the condition by `word`: CONTAINS, STARTSWITH or ENDSWITH.

    For null or an empty `text` it is false, even if `negated`.
    """
    evaluate, test = part.evaluate, TEXT_TESTS[word]

    def tested(properties: Properties) -> Value:
        value = evaluate(properties)
        return isinstance(value, str) and test(value, text) is not negated

    return _condition(tested if text else lambda _: False, part)


def _condition(evaluate: Evaluation, *inner: Part) -> Part:
    return Part(Kind.CONDITION, evaluate, level=1 + max(part.level for part in inner))


def _check_ordered(part: Part, how: str) -> None:
    if part.kind is Kind.CONSTANT and isinstance(part.value, str):
        raise UnfitOperand(f"compares a text {how}: only numbers and properties have an order")
    if part.kind in (Kind.TRUTH, Kind.CONDITION):
        raise UnfitOperand(
            f"compares a condition, TRUE, FALSE or NULL {how}: only numbers and properties have an order"
        )


def _check_bounds(low: Part, high: Part) -> None:
    lowest, highest = _number_of(low), _number_of(high)
    if lowest is not None and highest is not None and compare(highest, lowest) < 0:
        raise UnfitOperand(f"has BETWEEN {lowest} AND {highest}: the lower bound comes first")


def _number_of(part: Part) -> Number | None:
    return part.value if isinstance(part.value, int | float) and not isinstance(part.value, bool) else None


def _is_ordered(order: Callable[[int, int], bool], left: bool | Number | str, right: Value) -> bool | None:
    if right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return order(compare_doubles(left, right), 0)
    return order(compare(left, right), 0)
