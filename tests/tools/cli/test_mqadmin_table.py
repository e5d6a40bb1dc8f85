"""The tables about mqadmin: each of its commands has a counterpart that `pyrmq` takes, or the reason for none."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import click
import pytest

from tests.support.commands import commands
from tests.support.mqadmin_commands import COMMANDS

DOCS = Path(__file__).parents[3] / "docs"


def rows(page: str, header: str) -> list[tuple[str, str]]:
    """Returns the two cells of each row of the table that begins with this header."""
    lines = (DOCS / page).read_text().split(f"| {header} |", 1)[1].splitlines()[2:]
    cells = [line.strip("| ").split(" | ") for line in takewhile(lambda line: line.startswith("|"), lines)]
    return [(theirs, ours) for theirs, ours in cells]


COUNTERPARTS = rows("command-line.md", "with mqadmin | with pyrmq")
REASONS = rows("limits.md", "mqadmin | instead, or the reason")


def names(table: list[tuple[str, str]]) -> list[str]:
    return [code.split()[0] for theirs, _ in table for code in re.findall(r"`([^`]+)`", theirs)]


def test_each_command_is_in_one_of_the_tables() -> None:
    counterparts, reasons = set(names(COUNTERPARTS)), names(REASONS)
    assert counterparts | set(reasons) == COMMANDS["5.4.0"] | COMMANDS["4.9.7"]
    assert counterparts & set(reasons) == set()
    assert sorted(set(reasons)) == sorted(reasons)
    assert all(len(reason) > 20 for _, reason in REASONS)


@pytest.mark.parametrize("ours", [ours for _, ours in COUNTERPARTS])
def test_a_counterpart_is_a_command_with_these_options(ours: str) -> None:
    by_name = commands()
    words = ""
    for code in re.findall(r"`([^`]+)`", ours):
        parts = code.split()
        if parts[0] == "pyrmq":
            matches = [name for name in by_name if parts[1:][: len(name.split())] == name.split()]
            words = max(matches, key=len)
        elif not parts[0].startswith("--"):  # the last word of the command before, of the same group
            group = words.rpartition(" ")[0]
            words = words if words == "broker clean" else f"{group} {parts[0]}"
        command = by_name[words]
        assert not isinstance(command, click.Group), code
        option_names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {part for part in parts if part.startswith("-")} <= option_names, code
