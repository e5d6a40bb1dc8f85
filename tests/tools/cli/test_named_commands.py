"""The commands of `pyrmq` that pages, errors and other texts name: each exists, and has the options that are named."""

from __future__ import annotations

import ast
import html
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner

from pyrmq_core.tools.cli.commands import pyrmq
from pyrmq_core.tools.cli.operation.server_groups import ServerGroup

ROOT: Final = Path(__file__).parent.parent.parent.parent
SOURCES: Final = [
    path for package in ("pyrmq_core", "pyrmq_spark") for path in sorted((ROOT / package).rglob("*.py"))
] + [ROOT / "pyspark_rocketmq.py", ROOT / "pyrmq_pytest.py"]
TEMPLATES: Final = sorted((ROOT / "pyrmq_core").rglob("templates/*.html"))
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# What follows the word where it is the library, and not the command.
PROSE: Final = frozenset(("before", "command", "commands", "installed", "raises", "reads", "stored", "that"))
# A stand-in for a value that a text fills in: a name, a number, or an offset.
VALUE: Final = "1"
NAMED: Final = re.compile(r"(?<![\w./-])pyrmq ([a-z](?:[\w./:={}-]+ ?)+)")
OPTION: Final = re.compile("--?[a-z]")
OPTIONS: Final = re.compile(r"(?<!\S)--?[a-z][a-z-]*")
MODULE: Final = re.compile(r"python -m (pyrmq\w+(?:\.\w+)*)")


def texts_of(path: Path) -> Iterator[str]:
    """Yields the texts in a module, with stand-ins for the values of f-strings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def codes_of(path: Path) -> Iterator[str]:
    """Yields the pieces of code in a page of documentation, by lines."""
    text = path.read_text()
    for block in re.findall(r"```(?:bash|console|shell|sh)\n(.*?)```", text, re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`(pyrmq [^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Returns the command that the words begin with, and the other words; `KeyError` for a command that is not there.

    A word behind a group of commands may be the name of none only if it is an option.
    """
    command: click.Command = pyrmq
    for place, word in enumerate(words):
        if not isinstance(command, click.Group) or word.startswith("-"):
            return command, words[place:]
        following = command.get_command(click.Context(command), word)
        if following is None:
            raise KeyError(word)
        command = following
    return command, []


def fault_of(named: str) -> str:
    """Returns what is wrong with a command as a text names it, or an empty text.

    Plain words behind the command may be the text's own; options have to be the command's.
    """
    words = [word.rstrip(".:") for word in named.split()]
    if words[0] in PROSE:
        return ""
    try:
        command, rest = command_of(words)
    except KeyError as error:
        return f"pyrmq {named}: there is no {error}"
    names = set(chain.from_iterable((*option.opts, *option.secondary_opts) for option in command.params))
    if isinstance(command, ServerGroup):  # it passes these on to the server, whose help it shows
        names |= set(OPTIONS.findall(CliRunner().invoke(pyrmq, [words[0], "--help"]).output))
    unknown = [word for word in rest if OPTION.match(word) and word.partition("=")[0] not in {*names, "-h", "--help"}]
    return f"pyrmq {named}: it has no {unknown[0]}" if unknown else ""


def test_faults_are_following() -> None:
    assert "no 'topics'" in fault_of("topics create x")
    assert "no 'made'" in fault_of("topic made x")
    assert fault_of("send orders --body hello") == "pyrmq send orders --body hello: it has no --body"
    assert fault_of("group progress 1 then reset") == ""


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_commands_of_the_page_can_be_run_as_they_stand(path: Path) -> None:
    for code in re.findall(r"<code>(pyrmq [^<]*)</code>", path.read_text()):
        words = shlex.split(html.unescape(re.sub(r"\{\{.*?\}\}", VALUE, code)))[1:]
        command, rest = command_of(words)
        command.make_context("pyrmq", rest, resilient_parsing=False)


def test_commands_in_texts_exist() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in SOURCES
        for text in texts_of(path)
        for named in NAMED.findall(text)
        if (fault := fault_of(named.strip()))
    ]
    assert faults == []


def test_commands_in_the_documentation_exist() -> None:
    faults = [
        f"{path.name}: {fault}"
        for path in PAGES
        for code in codes_of(path)
        for named in NAMED.findall(code)
        if (fault := fault_of(named.strip()))
    ]
    assert faults == []


def test_modules_in_texts_exist() -> None:
    named = {module for path in SOURCES for text in texts_of(path) for module in MODULE.findall(text)}
    assert named
    assert [module for module in sorted(named) if find_spec(module) is None] == []
