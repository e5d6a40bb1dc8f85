"""An SQL92 expression over message properties (`MessageSelector.bySql`): evaluated by the broker, text here.

A broker with `enablePropertyFilter` evaluates it; one that cannot compile it gives every message, so it is checked
first (CHECK_CLIENT_CONFIG). Source: common/filter/ExpressionType.java; remoting/protocol/filter/FilterAPI.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """The expression as the broker gets it; what comes back needs no second look."""

    KIND: ClassVar[str] = "SQL92"
    expression: str

    def __post_init__(self) -> None:
        if not self.expression.strip():
            raise InvalidArgument("the SQL expression is empty; write one such as \"amount > 3 AND region = 'eu'\"")

    @property
    def passes_all(self) -> bool:
        return False

    def matches(self, _tag: str | None) -> bool:
        return True
