"""Parses ISO-8601 times on the command line, and formats times for people and for programs.

A time without a zone is local time.
"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from pyrmq_core.tools.search.ages import UNITS, time_before


def instant(text: str, option: str, *, or_else: str = "") -> datetime:
    """Parses an ISO-8601 time, which is local time without a zone. Raises `BadParameter` for another text.

    `or_else` lists other words that the option accepts, for the error's text.
    """
    try:
        when = datetime.fromisoformat(text)
        return when if when.tzinfo else when.astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError for times before year 1 or after 9999
        wanted = f"{or_else}an ISO-8601 time"
        fault = f"{text!r} is not {wanted} such as 2026-05-01T12:00, or 2026-05-01T12:00+02:00"
        raise click.BadParameter(fault, param_hint=option) from None


def optional_instant(text: str | None, option: str) -> datetime | None:
    return None if text is None else instant(text, option)


def ago_or_instant(text: str, option: str, *, or_else: str = "") -> datetime:
    """Parses an ISO-8601 time, or an age such as `90s`, `15m`, `1h` or `2d`, which counts back from now.

    Raises `BadParameter` for another text. `or_else` is as in `instant`.
    """
    try:
        when = time_before(datetime.now(UTC), text)
    except OverflowError:
        raise click.BadParameter(f"{text!r} is before the year 1", param_hint=option) from None
    return instant(text, option, or_else=f"{or_else}an age such as 15m, 1h or 2d, or ") if when is None else when


def shown_time(when: datetime | None) -> str | None:
    return None if when is None else f"{when.astimezone():%Y-%m-%d %H:%M:%S}"


def iso_time(when: datetime | None) -> str | None:
    return None if when is None else when.astimezone(UTC).isoformat(timespec="milliseconds")


def age(since: datetime | None, now: datetime) -> str | None:
    """Formats an age in its largest unit, such as `3h`, or `0s` below a second."""
    if since is None:
        return None
    seconds = max(0, int((now - since).total_seconds()))
    return next((f"{seconds // size}{unit}" for unit, size in UNITS if seconds >= size), "0s")
