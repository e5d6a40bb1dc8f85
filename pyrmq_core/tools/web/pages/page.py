"""Values and functions that all pages share: their result, the parameters of a query, and the pages of a long list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from starlette.requests import Request

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument, RocketMQError
from pyrmq_core.tools.search.ages import AGE
from pyrmq_core.tools.web.zones import form_zone, zone_of

Answer = TypeVar("Answer")
Item = TypeVar("Item")

# The longest accepted value: topics have at most 127 characters, groups 255, keys and ids a few more.
MAX_QUERY_CHARACTERS: Final = 1024
MAX_DIGITS: Final = 19
ROWS_A_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class Shown:
    """A page to render: its template, and the values in it."""

    template: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part(Generic[Item]):
    """One page of a long list: its rows, the number of all rows, and the numbers of this page and the last page."""

    rows: Sequence[Item]
    total: int
    number: int
    last: int


def part(request: Request, rows: Sequence[Item], size: int = ROWS_A_PAGE) -> Part[Item]:
    """Returns the page of a long list whose number the request has, or the last page if the number is too great."""
    last = max(1, -(-len(rows) // size))
    number = min(page_number(request, "page"), last)
    return Part(rows[(number - 1) * size : number * size], len(rows), number, last)


def page_number(request: Request, name: str) -> int:
    """Returns the page number in the query, or 1 if the parameter is not a number."""
    text = query(request, name)
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 1


def ordered(request: Request, rows: Iterable[Item], orders: Mapping[str, Callable[[Item], Any]]) -> list[Item]:
    """Sorts the rows in the order that the request names, or else in the first of `orders`."""
    order = query(request, "sort")
    return sorted(rows, key=orders[order] if order in orders else next(iter(orders.values())))


def matching(request: Request, rows: Iterable[Item], texts: Callable[[Item], Iterable[str]]) -> list[Item]:
    wanted = query(request, "filter").lower()
    return [row for row in rows if not wanted or any(wanted in text.lower() for text in texts(row))]


def query(request: Request, name: str) -> str:
    """Returns a parameter of the request's query. Raises `InvalidArgument` if it is too long."""
    return bounded(name, request.query_params.get(name, "").strip())


def bounded(name: str, value: str) -> str:
    """Returns the value of a parameter or field. Raises `InvalidArgument` if it is too long."""
    if len(value) > MAX_QUERY_CHARACTERS:
        values = {"name": name[:80], "number": len(value), "most": MAX_QUERY_CHARACTERS}
        raise InvalidArgument(Text("{name} has {number} characters; {most} at most", **values))
    return value


def needed(request: Request, name: str) -> str:
    """Returns a required parameter of the query. Raises `InvalidArgument` if it is missing."""
    value = query(request, name)
    if not value:
        raise InvalidArgument(Text("the address lacks {name}=...; follow a link to this page", name=name))
    return value


def one_of(values: Mapping[str, str], name: str, choices: Mapping[str, Answer]) -> Answer:
    """Returns the entry of `choices` that `values[name]` names. A missing text counts as an empty one.

    Raises `InvalidArgument` if there is no such entry.
    """
    text = values.get(name, "")
    if text not in choices:
        names = ", ".join(filter(None, choices))
        raise InvalidArgument(Text("{name}={value!r}: it is one of {known}", name=name, value=text[:80], known=names))
    return choices[text]


def whole_number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS and int(text) < 2**63):
        raise InvalidArgument(Text("{name}={value!r} is not a number from 0 on", name=name, value=text[:MAX_DIGITS]))
    return int(text)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of time from a form. `fields` has the texts to show in the form again.

    A text is an age as the viewer typed it, or a time in the viewer's zone.
    """

    since: datetime | None
    before: datetime | None
    fields: Mapping[str, str]


def time_range(request: Request) -> TimeRange:
    """Returns the range of time in the request's query: from `since` to `before`, or from the age `last` until now.

    A time without an offset is in the form's zone.
    """
    zone, shown = form_zone(query(request, "zone"), zone_of(request)), zone_of(request)
    last = query(request, "last")
    texts = {"since": last, "before": ""} if last else {name: query(request, name) for name in ("since", "before")}
    times = {name: zone.read(text, name) for name, text in texts.items()}
    fields = {name: text if AGE.fullmatch(text) else shown.write(times[name]) for name, text in texts.items()}
    return TimeRange(times["since"], times["before"], fields)


async def tried(look_up: Callable[[], Awaitable[Answer]]) -> tuple[Answer | None, str]:
    """Returns the answer and an empty text, or None and the error's text, so that a failure does not hide the page."""
    try:
        return await look_up(), ""
    except RocketMQError as error:
        return None, str(error)
