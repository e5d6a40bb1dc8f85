"""Every Python example of README and docs runs, as it is printed, on a cluster of our own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_spark.session import FOLDER
from tests.support.apart import PANDAS, installed_apart
from tests.support.block_runner import BlockRunner, Printed
from tests.support.maven import ApacheUnavailable
from tests.support.spark import CONNECT_SETTING, NOT_CONNECTED
from tests.test_docs import PAGES, ROOT

# Packages that blocks import and the environment does not have, with what these need beside it.
APART = {
    "pandas": PANDAS,
    "polars": ("polars==2.1.0", "polars-runtime-32==2.1.0"),
    "fastavro": ("fastavro==1.13.1",),
    "fastapi": (
        "fastapi==0.165.0",
        "pydantic==2.14.4",
        "pydantic-core==2.50.5",
        "annotated-doc==0.0.7",
        "annotated-types==0.8.0",
        "typing-inspection==0.4.5",
    ),
}
# What recipes print, in their order: a program may end well and have found nothing.
RECIPES_PRINT = (
    r"black +100\ngreen +50\nwhite +25",
    r"oolong +┆ 75 .*\n.*black +┆ 100 ",
    r"Cup\(id=3, color='green'\)",
    r"'tea', 'boxes': 2}\n.*'cup', 'boxes': 1}",
    r"tea\| +2\|\n\| +cup\| +1\|",
    r"{'ann': 2}",
)
# The blocks of a tab are indented.
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
NAMESERVER = "127.0.0.1:9876"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def examples() -> list[object]:
    return [
        pytest.param(block, id=f"{page.name}-{number}", marks=[pytest.mark.spark] if "pyspark" in block else [])
        for page in PAGES
        for number, block in enumerate(blocks(page), 1)
    ]


def blocks(page: Path) -> list[str]:
    """Returns the blocks of Python of a page."""
    return [textwrap.dedent(block) for _, block in BLOCK.findall(page.read_text())]


@pytest.fixture(scope="module")
def runners() -> Iterator[dict[str, BlockRunner]]:
    """Processes for blocks, by their PYTHONPATH, which those that use Spark have for themselves."""
    runners: dict[str, BlockRunner] = {}
    yield runners
    for runner in runners.values():
        runner.close()


@pytest.mark.timeout(900)  # Spark may start twice, on a machine that does much else
@pytest.mark.parametrize("example", examples())
def test_an_example_runs(example: str, cluster: EmbeddedCluster, runners: dict[str, BlockRunner]) -> None:
    """It ends well, and prints what is expected."""
    code = example.replace(NAMESERVER, cluster.nameserver)
    environment = environment_of(example)
    path = environment["PYTHONPATH"]
    if path not in runners:
        runners[path] = BlockRunner(environment, *([] if "pyspark" in example else ["forks"]))
    printed = runners[path].run(code)
    if "pyspark" in example and NOT_CONNECTED.search(printed.error):
        printed = run_program(code, environment)
    assert printed.error == ""
    assert re.search(expected(example), printed.output)


def test_examples_import_each_name_that_they_use() -> None:
    """A block runs where modules of ours are loaded: an attribute of one would be there though nothing imports it."""
    plain = "".join(block for page in PAGES for block in blocks(page) if "pyspark" not in block)
    assert re.findall(r"^ *import pyrmq_.*", plain, re.MULTILINE) == []


def environment_of(example: str) -> dict[str, str]:
    path = [*packages_apart(example), *([FOLDER] if "pyspark" in example else [])]  # as tests.support.spark has it
    arguments = f"--conf {'='.join(CONNECT_SETTING)} pyspark-shell"
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYSPARK_SUBMIT_ARGS": arguments}


def run_program(code: str, environment: Mapping[str, str]) -> Printed:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    return Printed(done.stdout, done.stderr[-3000:] if done.returncode else "")


def packages_apart(example: str) -> list[Path]:
    """Returns the directories of the packages that the block imports and the environment does not have."""
    named = {*re.findall(r"^(?:import|from) (\w+)", example, re.MULTILINE)}
    named |= {"pandas"} if "mapInArrow" in example else set()  # which Spark asks for there
    try:
        return [installed_apart(name, APART[name]) for name in sorted(named & APART.keys())]
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def expected(example: str) -> str:
    """Returns the pattern of what the block prints; anything, if it is no recipe's."""
    recipes = blocks(ROOT / "docs" / "recipes.md")
    assert len(recipes) == len(RECIPES_PRINT)
    return RECIPES_PRINT[recipes.index(example)] if example in recipes else ""
