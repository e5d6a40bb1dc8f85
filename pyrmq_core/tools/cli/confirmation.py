"""The question before a deletion that cannot be undone, and the option `--yes` that answers it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def yes_option(command: Command) -> Command:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def confirm(question: str) -> None:
    """Asks the question. Raises `ClickException` unless the answer is yes, and `UsageError` if stdin is no terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError("this deletion cannot be undone; without a terminal it needs --yes")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing is deleted")
