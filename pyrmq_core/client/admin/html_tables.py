"""HTML tables of `Admin`'s results, which a notebook shows in place of a value's `repr`.

All texts are escaped, because they may come from a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from html import escape
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.log_lines import one_line

MAX_ROWS: Final = 1000
# The most characters in a cell.
MAX_CHARS: Final = 200

T = TypeVar("T")


class ShownAsTable:
    """A value that a notebook shows as an HTML table.

    Fields that are texts, numbers or times are shown above the table. `ROWS` is the name of the field with the table's
    rows. `COLUMNS` are properties of a row that are columns too.
    """

    __slots__ = ()
    ROWS: ClassVar[str]
    COLUMNS: ClassVar[tuple[str, ...]] = ()

    def _repr_html_(self) -> str:
        rows = getattr(self, self.ROWS)
        failures: Mapping[str, RocketMQError] = getattr(self, "failures", {})
        single = {
            name: value
            for name in _names(self)
            if isinstance(value := getattr(self, name), str | int | float | datetime)
        }
        head = ", ".join(f"{_cell(name)}: <b>{_cell(value)}</b>" for name, value in single.items())
        lost = "".join(f"<p>no answer of {_cell(name)}: {_cell(error)}</p>" for name, error in failures.items())
        return f"{f'<p>{head}</p>' if head else ''}{table_of(rows, self.COLUMNS)}{lost}"


class TableRows(tuple[T, ...]):
    """A tuple of rows, which a notebook shows as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return table_of(self)


def table_of(rows: Iterable[Any] | Mapping[Any, Any], more: Sequence[str] = ()) -> str:
    """Returns an HTML table of rows or of a mapping's items: a column for each field and each property in `more`."""
    count = len(rows) if isinstance(rows, Sequence | Mapping) else 0
    body: list[str] = []
    head: list[str] = []
    for row in islice(rows.items() if isinstance(rows, Mapping) else rows, MAX_ROWS):
        keyed = (("", row[0]),) if isinstance(rows, Mapping) else ()
        value = row[1] if isinstance(rows, Mapping) else row
        columns = getattr(value, "SHOWN", ())
        names = columns or ((*_names(value), *more) if is_dataclass(value) else ())
        cells = [*keyed, *((name, getattr(value, name)) for name in names)] if names else [*keyed, ("", value)]
        head = head or [name for name, _ in cells]
        body.append(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for _, cell in cells)}</tr>")
    left = f"<p>and {count - MAX_ROWS} more</p>" if count > MAX_ROWS else ""
    titles = f"<tr>{''.join(f'<th>{_cell(name)}</th>' for name in head)}</tr>" if any(head) else ""
    return f"<table>{titles}{''.join(body)}</table>{left}"


def _names(value: Any) -> list[str]:
    return [field.name for field in fields(value)]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="seconds")
    elif isinstance(value, Mapping | tuple) and not all(isinstance(part, str) for part in value):
        text = str(len(value))
    else:
        text = ", ".join(value) if isinstance(value, Mapping | tuple) else str(value)
    return escape(one_line(text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."))
