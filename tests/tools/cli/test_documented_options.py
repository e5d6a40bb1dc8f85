"""Commands against the pages: each option has a place there, and what the pages name is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pyrmq_core.tools.cli.commands import pyrmq
from tests.support.commands import commands_of

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
# Their options are those of `python -m pyrmq_core.servers.broker` and `pyrmq_core.servers.nameserver`.
PASSING_ON = tuple(commands_of(pyrmq)[name] for name in ("broker", "nameserver"))
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


def options(command: click.Command, words: str = "pyrmq") -> Iterator[tuple[str, click.Option]]:
    if isinstance(command, click.Group):
        for name, inner in commands_of(command).items():
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


def written(page: str) -> Iterator[str]:
    """Yields the commands of a page, in its sentences and in its blocks; a pipe has several."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = [*re.findall(r"`([^`\n]*)`", page), *(line for block in blocks for line in block.splitlines())]
    for line in lines:
        for part in re.split(r" \\?\| | #", line):
            if match := re.match(r"(?:\w+=\S+ )*pyrmq ([a-z].*)", part.strip()):
                yield match[1]


def faults(line: str) -> Iterator[str]:
    """Yields the words of a command that the program does not know."""
    command: click.Command = pyrmq
    words = line.split()
    for word in words:
        name = word.rstrip(",")
        if not isinstance(command, click.Group) or name not in commands_of(command):
            break
        command = commands_of(command)[name]
    if command is pyrmq:
        yield words[0]
    option_names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    if command not in PASSING_ON:
        named = (match[1] for word in words if (match := re.match(r"(--?[a-zA-Z][\w-]*)", word)))
        yield from (name for name in named if name not in {*option_names, "-h", "--help"})


def test_every_command_in_the_docs_is_there() -> None:
    lines = [(page.name, line) for page in PAGES for line in written(page.read_text())]
    assert len(lines) > 150
    assert {line: line_faults for line in lines if (line_faults := list(faults(line[1])))} == {}


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("topics list", ["topics"]),
        ("topic list --jsn", ["--jsn"]),
        ("group progress G --members -n host:1", []),
        ("broker -c FILE", []),
        ("acl users --json", ["--json"]),
    ],
)
def test_what_the_program_does_not_know(line: str, unknown: list[str]) -> None:
    assert list(faults(line)) == unknown
