"""The options of commands against their pages: each option that a help shows has a place there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from pyrmq_core.cli.commands import pyrmq

DOCS = Path(__file__).parents[2] / "docs"


def options(command: click.Command, words: str = "pyrmq") -> Iterator[tuple[str, click.Option]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from options(inner, f"{words} {name}")
        return
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield words, option


def test_every_option_is_in_the_docs() -> None:
    pages = "".join((DOCS / name).read_text() for name in ("command-line.md", "web.md"))
    missing = [
        f"{words} {option.opts[-1]}"
        for words, option in options(pyrmq)
        if not any(
            re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", pages)
            for name in (*option.opts, *option.secondary_opts)
        )
    ]
    assert missing == []
    assert sum(1 for _ in options(pyrmq)) > 400
