"""An SQL92 expression over message properties (`MessageSelector.bySql`), which the broker evaluates.

It needs a broker with `enablePropertyFilter`. A broker returns every message if it cannot compile the expression. So
the client first asks a broker to check the expression (CHECK_CLIENT_CONFIG). Source: common/filter/ExpressionType.java,
remoting/protocol/filter/FilterAPI.java.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.filtering.sql92 import parse


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A filter that the broker evaluates. Only messages of batch topics are filtered again by the client."""

    KIND: ClassVar[str] = "SQL92"
    expression: str

    def __post_init__(self) -> None:
        if not _is_text(self.expression) or not self.expression.strip():
            raise InvalidArgument(
                "the SQL expression is empty, or no text; write one such as \"amount > 3 AND region = 'eu'\""
            )

    @property
    def passes_all(self) -> bool:
        return False

    def predicate(self) -> Callable[[Mapping[str, str]], bool]:
        """Returns a function that tests a message's properties. Raises `InvalidArgument` for a wrong expression."""
        return _parsed(self.expression)

    def matches(self, _tag: str | None) -> bool:
        return True


@functools.lru_cache(maxsize=64)
def _parsed(expression: str) -> Callable[[Mapping[str, str]], bool]:
    return parse(expression)


def _is_text(value: object) -> bool:
    return isinstance(value, str)
