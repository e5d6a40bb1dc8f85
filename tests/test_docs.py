"""Every Python example of README and docs runs, as it is printed, on a cluster of our own; pages name what there is."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.client.consumer.push_settings import PushSettings
from pyrmq_core.client.consumer.settings import ConsumerSettings
from pyrmq_core.columnar import SOURCE_COLUMNS
from pyrmq_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from pyrmq_spark.write.columns import SINK_TYPES
from tests.support.commands import commands

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMESERVER = "127.0.0.1:9876"
LINK = re.compile(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def examples() -> list[object]:
    return [
        pytest.param(block, id=f"{page.name}-{number}", marks=[pytest.mark.spark] if "pyspark" in block else [])
        for page in PAGES
        for number, block in enumerate(BLOCK.findall(page.read_text()), 1)
    ]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("example", examples())
def test_an_example_runs(example: str, cluster: EmbeddedCluster) -> None:
    code = example.replace(NAMESERVER, cluster.nameserver)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


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


def test_every_option_is_on_its_page() -> None:
    for tables, page in (((SourceOptions, ConnectionOptions), "spark-sources.md"), ((SinkOptions,), "spark-sinks.md")):
        options = {line.metadata["name"] for table in tables for line in fields(table)}
        assert options - named_in(page) == set()


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
    """The last part is left out: its files are not built yet."""
    text = (ROOT / "docs" / "design.md").read_text().partition("\n## Where the next rooms")[0]
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


def test_guarantees_name_tests_that_are_there() -> None:
    missing = []
    for name, test in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "docs" / "guarantees.md").read_text()):
        path = ROOT / (name if "/" in name else f"tests/spark/{name}")
        if not path.exists() or (test and f"def {test}(" not in path.read_text()):
            missing.append(f"{name}::{test}")
    assert missing == []
