"""The data source on the oldest release of PySpark: some twenty tests of what releases do differently.

Each release is installed once into the cache, and runs in a pytest of its own (`tests/support/releases.py`). All other
tests run on the newest. `make soak` has more tests on each older release, and `make matrix` runs all tests on all four.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apart import PANDAS, installed_apart
from tests.support.maven import ApacheUnavailable
from tests.support.releases import NEWEST, OLDER, apart, run_tests, unexplained
from tests.support.spark import NOT_CONNECTED, ROOT

BATCHES: Final = "tests/spark/test_batches.py::TestBatchJobs::test_"
REFUSED: Final = "tests/spark/test_batches.py::TestRefusedJobs::test_"
STREAMS: Final = "tests/spark/test_streams.py::TestStreamJobs::test_"
DIFFERENT: Final = (
    "tests/spark/test_every_release.py",
    "tests/spark/test_older_streams.py",
    f"{BATCHES}a_view_takes_inserts",
    f"{BATCHES}a_frame_is_read_again_from_the_same_offsets",
    f"{REFUSED}a_null_topic_fails_the_write_by_name",
    f"{STREAMS}a_sink_that_fails_in_batch_0_gets_the_same_rows_again",
)
CASES: Final = (
    *DIFFERENT,
    f"{BATCHES}rows_come_back_as_they_went",
    f"{BATCHES}topics_come_from_the_column",
    f"{BATCHES}tags_are_filtered_at_the_broker_and_again",
    f"{BATCHES}offsets_bound_what_is_read",
    f"{BATCHES}large_and_compressed_bodies",
    f"{BATCHES}frames_without_rows",
    f"{REFUSED}an_unknown_topic",
    f"{STREAMS}latest_sees_what_comes",
)
AT_LEAST: Final = 20  # tests that pass, of the different ones; each other case is one more
SECONDS: Final = 1500
# The last one without Python data sources, with the Py4J that it pins.
PYSPARK_3: Final = ("pyspark==3.5.9", "py4j==0.10.9.7")
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.spark
@pytest.mark.timeout(2 * SECONDS + 600)  # the first time it is installed
@pytest.mark.parametrize(
    ("release", "cases"),
    [
        pytest.param(OLDER[0], DIFFERENT, id=f"{OLDER[0]}, different"),
        *(pytest.param(release, CASES, id=release, marks=pytest.mark.soak) for release in OLDER),
    ],
)
def test_batches_streams_and_sinks(release: str, cases: Sequence[str], tmp_path: Path) -> None:
    try:
        outcomes = run_tests(release, cases, tmp_path / "outcomes", seconds=SECONDS)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    failures = unexplained(release, outcomes)
    assert not failures, "\n\n".join(f"PySpark {release}, {test}:\n{text}" for test, text in failures.items())
    passed = [test for test, outcome in outcomes.items() if outcome.word == "passed"]
    assert len(passed) >= AT_LEAST + len(cases) - len(DIFFERENT), (tmp_path / "outcomes.log").read_text()[-3000:]


def run_example(python: str | Path, page: str, mark: str, cluster: EmbeddedCluster, extra: dict[str, str]) -> str:
    """Returns what the page's only example with `mark` in it prints under this Python."""
    (block,) = (block for block in BLOCK.findall((ROOT / page).read_text()) if mark in block)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | extra
    command = [str(python), "-c", block.replace("127.0.0.1:9876", cluster.nameserver)]
    for _ in range(2):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
        if not NOT_CONNECTED.search(done.stderr):
            break
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def fresh_environment(directory: Path, lent: Sequence[Path]) -> Path:
    """Returns the Python of an environment with this package as pip installs it, and with other packages by path.

    The last path has hatchling, which builds the wheel.
    """
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    tools = os.environ | {"PYTHONPATH": str(lent[-1])}
    subprocess.run([*pip, "--no-build-isolation", str(ROOT)], check=True, cwd=directory, env=tools, timeout=300)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("".join(f"{path}\n" for path in lent))
    return python


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("release", [*OLDER, NEWEST])
def test_the_readme_runs_in_a_fresh_environment(release: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    python = fresh_environment(tmp_path / "venv", [*apart(release), packages])
    printed = run_example(python, "README.md", "SparkSession", cluster, {"PYSPARK_PYTHON": str(python)})
    assert re.search(r"EUR\| *12\.50\|", printed)


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_the_recipe_for_pyspark_3_5(cluster: EmbeddedCluster) -> None:
    path = [installed_apart("pyspark-3.5.9", PYSPARK_3), installed_apart("pandas", PANDAS), ROOT]
    extra = {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYSPARK_PYTHON": sys.executable}
    assert run_example(sys.executable, "docs/spark-releases.md", "mapInArrow", cluster, extra).split() == [
        "1000",
        "1000",
    ]
