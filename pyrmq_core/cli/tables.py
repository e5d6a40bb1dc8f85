"""The output of rows: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import click
from rich.console import Console
from rich.table import Table

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON array of objects.")


def show(rows: Iterable[Mapping[str, object]], columns: Iterable[str], *, as_json: bool) -> None:
    """Prints the rows, each of which has all the columns."""
    rows, columns = list(rows), list(columns)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*("" if row[column] is None else str(row[column]) for column in columns))
    click.echo(rendered(table), nl=False)


def rendered(*lines: Table | str) -> str:
    """Returns the text of tables and lines, for `click.echo`: rich itself ends the process when a pipe is closed."""
    console = Console(highlight=False)
    with console.capture() as captured:
        for line in lines:  # a pipe has no width: nothing is cut there
            console.print(line, soft_wrap=not console.is_terminal, markup=False)
    return captured.get()
