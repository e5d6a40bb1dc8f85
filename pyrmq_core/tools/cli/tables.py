"""Prints rows as a table for people or as JSON for programs, once or, with `--watch`, at intervals.

`drawn_tables`, which formats the tables for people, is imported only when it is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

from pyrmq_core.errors import RocketMQError
from pyrmq_core.network.log_lines import visible_text
from pyrmq_core.tools.search.json_output import json_text

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON array of objects.")

Command = TypeVar("Command", bound=Callable[..., Any])

WATCH_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Watch:
    """The options `--watch` and `--interval`: whether a table is repeated, and after how many seconds."""

    enabled: bool = False
    interval: float = WATCH_SECONDS


def watch_options(command: Command) -> Command:
    """Adds `--watch` and `--interval` to a command, and passes it their values as `watch`."""

    @functools.wraps(command)
    def watching(**arguments: Any) -> Any:
        watch = Watch(arguments.pop("watched"), arguments.pop("interval"))
        return command(watch=watch, **arguments)

    interval = click.FloatRange(0.1, 3600)
    for add in (
        click.option(
            "--interval",
            default=WATCH_SECONDS,
            show_default=True,
            type=interval,
            help="With --watch: seconds between two tables.",
        ),
        click.option("--watch", "watched", is_flag=True, help="Repeat the table until Ctrl-C."),
    ):
        watching = add(watching)
    return watching  # type: ignore[return-value]  # the same function to click, which calls it by names


def show(rows: Iterable[Mapping[str, object]], columns: Iterable[str], *, as_json: bool) -> None:
    click.echo(text_of(rows, columns, as_json=as_json), nl=False)


def report(text: str, rows: Iterable[Mapping[str, object]], *, as_json: bool) -> None:
    """Prints a text about a change if it is not empty. With `as_json`, prints the changed rows instead."""
    if as_json:
        show(rows, (), as_json=True)
    elif text:
        click.echo(visible_text(text))


def text_of(rows: Iterable[Mapping[str, object]], columns: Iterable[str], *, as_json: bool) -> str:
    """Formats rows as JSON, or as a table with numbers aligned at the right.

    On a narrow terminal, cells with several words are wrapped, then the widest columns are narrowed. If the table still
    does not fit, each row becomes a block of lines `column value`.
    """
    if as_json:
        return json_text(list(rows)) + "\n"
    from pyrmq_core.tools.cli.drawn_tables import table_text

    return table_text(list(rows), list(columns))


async def show_watched(make: Callable[[], Awaitable[str]], watch: Watch) -> None:
    """Prints the text that `make` returns. With `--watch`, shows it again at intervals.

    With `--watch`, an error of `make` is shown in place of the text. Otherwise it is raised.
    """
    if not watch.enabled:
        click.echo(await make(), nl=False)
        return
    from pyrmq_core.tools.cli.drawn_tables import draw_again_and_again

    await draw_again_and_again(functools.partial(_text_or_error, make), watch.interval)


def rendered(*lines: str) -> str:
    from pyrmq_core.tools.cli.drawn_tables import drawn

    return drawn(*lines)


async def _text_or_error(make: Callable[[], Awaitable[str]]) -> str:
    try:
        return await make()
    except RocketMQError as error:
        return visible_text(f"Error: {error}\n")
