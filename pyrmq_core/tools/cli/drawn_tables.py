"""Tables for people, as wide as the terminal, drawn once or repeatedly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import click
import trio
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pyrmq_core.network.log_lines import visible_text

PIPE_WIDTH: Final = 100_000
# The least width to which a column of texts is narrowed: the length of an address.
LEAST_FOLDED: Final = 16


def table_text(rows: Sequence[Mapping[str, object]], columns: list[str]) -> str:
    """Formats the rows as a table for the terminal, which `tables.text_of` describes."""
    console = _console()
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    right = [_are_numbers([row[column] for row in rows]) for column in columns]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + 2 * len(widths) <= console.width:
        return _plain(console, columns, cells, list(zip(widths, right, strict=True)))
    table = _wrapped(columns, cells, right)
    wide = console.options.update(max_width=PIPE_WIDTH)
    if Measurement.get(console, wide, table).minimum <= console.width:
        return drawn(table)
    least = [
        width if number else max(cell_len(column), min(width, LEAST_FOLDED))
        for column, width, number in zip(columns, widths, right, strict=True)
    ]
    if folded := folded_widths(widths, least, console.width - 2 * len(columns)):
        return drawn(_wrapped(columns, cells, right, folded))
    if not rows:
        return drawn("  ".join(columns))
    return drawn(*(block for row_cells in cells for block in (_block(columns, row_cells), "")))


def folded_widths(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Returns the widths with the widest columns narrowed, until all have `room` characters in total.

    No column gets narrower than its width in `least`. Returns [] if the widths in `least` exceed `room`.
    """
    if sum(least) > room:
        return []
    fitted = list(widths)
    while sum(fitted) > room:
        wide = max((column for column in range(len(fitted)) if fitted[column] > least[column]), key=fitted.__getitem__)
        fitted[wide] -= 1
    return fitted


def _wrapped(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], widths: Sequence[int] = ()
) -> Table:
    """Returns a table with cells wrapped between words. With `widths`, columns get these, and cells break anywhere."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        words = any(" " in row[number] for row in cells)
        table.add_column(
            column,
            justify="right" if right[number] else "left",
            overflow="fold",
            no_wrap=not (words or widths),
            width=widths[number] if widths else None,
            header_style="bold",
        )
    for row_cells in cells:
        table.add_row(*map(Text, row_cells))
    return table


async def draw_again_and_again(make: Callable[[], Awaitable[str]], interval: float) -> None:
    """Shows the text that `make` returns, every `interval` seconds until cancelled.

    The text takes the whole terminal. If the output is no terminal, the texts are printed one after another.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        while True:
            click.echo(await make(), nl=False)
            await trio.sleep(interval)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(cut_to_height(console, await make()), refresh=True)
            await trio.sleep(interval)


def cut_to_height(console: Console, text: str) -> Text:
    """Returns the lines that fit on the terminal. If some do not fit, the last line says how many."""
    lines = list(Text.from_ansi(text.rstrip("\n")).wrap(console, console.width))
    if len(lines) > console.height:
        kept = console.height - 1
        note = Text(f"... {len(lines) - kept} lines more than this terminal has room for")
        note.truncate(console.width)
        lines[kept:] = [note]
    return Text("\n").join(lines)


def drawn(*lines: Table | str) -> str:
    """Formats tables and lines for `click.echo`, since rich itself ends the process when a pipe is closed."""
    console = _console()
    with console.capture() as captured:
        for line in lines:
            text = visible_text(line) if isinstance(line, str) else line
            console.print(text, soft_wrap=not console.is_terminal, markup=False)
    return captured.get()


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def _plain(console: Console, columns: list[str], cells: list[list[str]], layout: list[tuple[int, bool]]) -> str:
    # Formatting without rich takes a tenth of the time.

    def line(texts: Sequence[str]) -> str:
        padded = (
            " " * (width - cell_len(text)) + text if right else text + " " * (width - cell_len(text))
            for text, (width, right) in zip(texts, layout, strict=True)
        )
        return "  ".join(padded).rstrip()

    bold, reset = ("\x1b[1m", "\x1b[0m") if console.is_terminal and console.color_system is not None else ("", "")
    return "".join(f"{text}\n" for text in (f"{bold}{line(columns)}{reset}", *map(line, cells)))


def _block(columns: Sequence[str], cells: Sequence[str]) -> Table:
    block = Table(box=None, pad_edge=False, show_header=False)
    block.add_column(no_wrap=True)
    block.add_column(overflow="fold")
    for column, cell in zip(columns, cells, strict=True):
        block.add_row(column, Text(cell))
    return block


def _are_numbers(values: Iterable[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(value, int | float) for value in present)


def _cell(value: object) -> str:
    text = "" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
