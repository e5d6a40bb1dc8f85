"""README, docs and the pages of tests name what there is, all of it, and fit a screen."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest

from pyrmq_core.blocking import Admin
from pyrmq_core.client.consumer.member_settings import PushSettings
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.columnar import SOURCE_COLUMNS
from pyrmq_spark.options import ALIASES, ConnectionOptions, SinkOptions, SourceOptions
from pyrmq_spark.write.columns import SINK_TYPES
from tests.support.commands import commands

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE_COLUMNS = 80
LINK = re.compile(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for target, anchor in LINK.findall(page.read_text()):
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            missing.append(f"{target}#{anchor}")
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives a page's headings."""
    headings = (heading.lower() for heading in HEADING.findall(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def named_in(*pages: str) -> set[str]:
    """Returns the words in backquotes of these pages."""
    text = "".join((ROOT / "docs" / page).read_text() for page in pages)
    return {word for quoted in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", quoted)}


def test_every_page_is_in_the_sites_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {"start.md", "CHANGELOG.md", *(page.name for page in PAGES if page.name != "README.md")}
    assert sorted(re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)) == sorted(pages)


def test_every_option_is_on_its_page() -> None:
    for tables, page in (((SourceOptions, ConnectionOptions), "spark-sources.md"), ((SinkOptions,), "spark-sinks.md")):
        options = {line.metadata["name"] for table in tables for line in fields(table)}
        assert options - named_in(page) == set()


def test_every_other_name_of_an_option_is_on_its_page() -> None:
    assert ALIASES.keys() - {name.lower() for name in named_in("spark-sources.md")} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/zh.md"])
def test_every_extra_is_named(page: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    text = (ROOT / page).read_text()
    assert [name for name in sorted(extras - {"dev"}) if f"`{name}`" not in text and f"[{name}]" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_methods_of_an_admin_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"\badmin((?:\.[a-z]\w*)+)\(", page.read_text())
    assert [path for path in named if not callable(attribute(Admin, path.split(".")[1:]))] == []


def attribute(owner: object, names: Sequence[str]) -> object:
    """Returns what the names lead to, through the classes of properties; None where one of them is not there."""
    for name in names:
        value = getattr(owner, name, None)
        owner = get_type_hints(value.fget)["return"] if isinstance(value, property) else value
    return owner


def test_every_column_is_on_its_page() -> None:
    assert SOURCE_COLUMNS.keys() - named_in("spark-sources.md") == set()
    assert SINK_TYPES.keys() - named_in("spark-sinks.md") == set()


def test_every_setting_of_a_push_consumer_is_on_its_page() -> None:
    own = {field.name for field in fields(PushSettings)} - {field.name for field in fields(ConsumerSettings)}
    assert own - named_in("consumers.md") == set()


def test_every_command_is_on_its_page() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert [words for words in commands() if f"pyrmq {words}" not in text] == []


def test_the_design_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("[dpt]*/**/*.*")} | {
        path.name for path in ROOT.iterdir()
    }
    named = re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", text)
    assert [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)] == []
    rooms = {str(path.relative_to(ROOT)) for top in ("pyrmq_core", "pyrmq_spark") for path in (ROOT / top).rglob("*")}
    shown = re.findall(r"`((?:pyrmq_core|pyrmq_spark)/[\w/]+)`", text)
    assert shown
    assert [room for room in shown if room not in rooms] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_has_one_line_width(page: Path) -> None:
    """Tables and blocks of code are as wide as they have to be."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_python_of_pages_is_formatted() -> None:
    options = ("--config", "pyproject.toml", "--line-length", str(CODE_COLUMNS))
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", *options, *map(str, PAGES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_a_page_fits_a_screen(page: Path) -> None:
    """The site cuts a wider line at the right edge of its block."""
    blocks = re.findall(r"^```.*?\n(.*?)^```$", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > CODE_COLUMNS] == []


def test_guarantees_name_tests_that_are_there() -> None:
    missing = []
    for name, test in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text()):
        path = ROOT / (name if "/" in name else f"tests/spark/{name}")
        if not path.exists() or (test and f"def {test}(" not in path.read_text()):
            missing.append(f"{name}::{test}")
    assert missing == []


def test_the_page_of_tests_names_every_file_of_jobs() -> None:
    page = (ROOT / "tests" / "README.md").read_text()
    support = ROOT / "tests" / "support"
    jobs = {path.name for pattern in ("*_jobs.py", "spark_*.py") for path in support.glob(pattern)}
    assert jobs == set(re.findall(r"`(\w+_jobs\.py|spark_\w+\.py)`", page))


@pytest.mark.parametrize("page", sorted((ROOT / "tests").rglob("README.md")), ids=lambda page: page.parent.name)
def test_pages_of_tests_name_tests_and_files_that_are_there(page: Path) -> None:
    text = page.read_text()
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.*")}
    named = re.findall(r"`((?:[\w.]+/)*\w+\.py)\b", text)
    assert [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)] == []
    functions = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert set(re.findall(r"\b(test_\w+)\b(?!\.py|\.\.\.)", text)) - functions == set()
