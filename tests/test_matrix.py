"""The table of Spark tests by release: how a failure counts, and what its text is; and one module for what differs."""

import re
from pathlib import Path

import pytest

from tests.support import releases
from tests.support.outcomes import Outcome
from tests.support.spark import ROOT

OLD, NEW = releases.OLDER[0], releases.NEWEST
LIMITS, FRAMES, OTHER = (
    "tests/spark/test_a.py::TestJobs::test_limits[5]",
    "tests/spark/test_a.py::test_frames",
    "b.py::c",
)
REFUSED = "query = start()\nE   StreamingQueryException: [RMQ_OLD_PYSPARK] maxOffsetsPerTrigger need PySpark 4.2"


@pytest.fixture(autouse=True)
def one_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "DIFFERENCES", (releases.Difference("4.1", FRAMES, "planned anew"),))


@pytest.mark.parametrize(
    ("release", "test", "text", "kind"),
    [
        (OLD, LIMITS, REFUSED, "refused by name"),
        (NEW, LIMITS, REFUSED, "failed"),
        (OLD, LIMITS, "from pyrmq_spark.spark_errors import OldPySpark\nE   assert 1 == 2", "failed"),
        (OLD, FRAMES, "E   assert 200 == 100", "differs"),
        (releases.OLDER[1], FRAMES, "E   assert 200 == 100", "failed"),
    ],
)
def test_the_kind_of_a_failure(release: str, test: str, text: str, kind: str) -> None:
    outcome = Outcome("failed", text)
    assert releases.kind_of(release, test, outcome) == kind
    assert (test in releases.unexplained(release, {test: outcome})) is (kind == "failed")
    assert releases.kind_of(release, test, Outcome("passed")) == "passed"


def test_the_table_counts_by_file_and_names_what_did_not_pass() -> None:
    old = {LIMITS: Outcome("failed", REFUSED), FRAMES: Outcome("failed", "E   assert"), OTHER: Outcome("passed")}
    new = dict.fromkeys((LIMITS, FRAMES), Outcome("passed"))
    assert releases.table({OLD: old, NEW: new}) == (
        f"| `tests/spark` | {OLD} | {NEW} |\n"
        "|---|---|---|\n"
        "| `b.py` | 1 passed | – |\n"
        "| `test_a.py` | 1 refused by name, 1 differs | 2 passed |\n"
        "\n"
        "| test | did not pass on | why |\n"
        "|---|---|---|\n"
        f"| `test_a.py::test_frames` | {OLD} | planned anew |\n"
        f"| `test_a.py::test_limits` | {OLD} | refused by name |\n"
    )


def test_pieces_of_a_run_keep_each_others_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "outcomes"
    file.write_text(f'["{OTHER}", "passed", ""]\n')
    outcomes = releases.run_tests(NEW, ["tests/test_benchmark_growth.py"], file, seconds=300, keep=True)
    assert {name.partition("::")[0] for name in outcomes} == {"b.py", "tests/test_benchmark_growth.py"}


def test_a_file_that_skips_itself_is_one_outcome(tmp_path: Path) -> None:
    file = tmp_path / "test_limits.py"
    file.write_text('import pytest\n\npytest.skip("before PySpark 4.2", allow_module_level=True)\n')
    outcomes = releases.run_tests(NEW, [str(file)], tmp_path / "outcomes", seconds=300)
    assert [outcome.word for outcome in outcomes.values()] == ["skipped"]


def test_one_module_alone_looks_at_the_release() -> None:
    versions = r"pyspark\.__version__|version_info|version\("
    looks = re.compile(versions + r"|find_spec\(.pyspark|signature\(|hasattr\(datasource")
    modules = {path.name for path in (ROOT / "pyrmq_spark").rglob("*.py") if looks.search(path.read_text())}
    assert modules == {"pyspark_releases.py"}
