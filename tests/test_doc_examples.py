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
from tests.support.block_runner import BlockRunner, Printed, builder_of
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


def wants_pandas(example: str) -> bool:
    """Checks whether Spark's driver asks for pandas. Its other processes start sooner without it."""
    return "mapInArrow" in example


def examples() -> list[object]:
    """Returns the blocks of all pages. Those that build Spark's session alike come one after another.

    One that wants pandas comes last, as the driver keeps what it has imported.
    """
    numbered = [(block, f"{page.name}-{number}") for page in PAGES for number, block in enumerate(blocks(page), 1)]
    return [
        pytest.param(block, id=name, marks=[pytest.mark.spark] if "pyspark" in block else [])
        for block, name in sorted(numbered, key=lambda example: (wants_pandas(example[0]), builder_of(example[0])))
    ]


def blocks(page: Path) -> list[str]:
    """Returns the blocks of Python of a page."""
    return [textwrap.dedent(block) for _, block in BLOCK.findall(page.read_text())]


@pytest.fixture(scope="module")
def forks() -> Iterator[BlockRunner]:
    """Runs the blocks without Spark."""
    runner = BlockRunner(os.environ, "forks")
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def sparks() -> Iterator[BlockRunner]:
    """Runs the blocks that use Spark."""
    runner = BlockRunner(spark_environment())
    yield runner
    runner.close()


@pytest.mark.timeout(900)  # Spark may start twice, on a machine that does much else
@pytest.mark.parametrize("example", examples())
def test_an_example_runs(example: str, cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> None:
    """It ends well, and prints what is expected."""
    code = example.replace(NAMESERVER, cluster.nameserver)
    uses_spark, path = "pyspark" in example, packages_apart(example)
    runner: BlockRunner = request.getfixturevalue("sparks" if uses_spark else "forks")
    printed = runner.run(code, path)
    if uses_spark and NOT_CONNECTED.search(printed.error):
        printed = run_program(code, spark_environment(*path))
    assert printed.error == ""
    assert re.search(expected(example), printed.output)


def test_examples_import_each_name_that_they_use() -> None:
    """A block runs where modules of ours are loaded: an attribute of one would be there though nothing imports it."""
    plain = "".join(block for page in PAGES for block in blocks(page) if "pyspark" not in block)
    assert re.findall(r"^ *import pyrmq_.*", plain, re.MULTILINE) == []


def spark_environment(*path: Path) -> dict[str, str]:
    """Returns an environment with the path, and the packages that functions of blocks import in Spark's processes."""
    with_spark = [block for page in PAGES for block in blocks(page) if "pyspark" in block and not wants_pandas(block)]
    path = (*path, *packages_apart("\n".join(with_spark)), FOLDER)  # as tests.support.spark has it
    arguments = f"--conf {'='.join(CONNECT_SETTING)} --conf spark.ui.enabled=false pyspark-shell"
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYSPARK_SUBMIT_ARGS": arguments}


def run_program(code: str, environment: Mapping[str, str]) -> Printed:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False, env=environment)
    return Printed(done.stdout, done.stderr[-3000:] if done.returncode else "")


def packages_apart(example: str) -> list[Path]:
    """Returns the directories of the packages that the block imports and the environment does not have."""
    named = {*re.findall(r"^(?:import|from) (\w+)", example, re.MULTILINE)}
    named |= {"pandas"} if wants_pandas(example) else set()
    try:
        return [installed_apart(name, APART[name]) for name in sorted(named & APART.keys())]
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def expected(example: str) -> str:
    """Returns the pattern of what the block prints; anything, if it is no recipe's."""
    recipes = blocks(ROOT / "docs" / "recipes.md")
    assert len(recipes) == len(RECIPES_PRINT)
    return RECIPES_PRINT[recipes.index(example)] if example in recipes else ""
