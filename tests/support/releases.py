"""The Spark tests on releases of PySpark, each in a pytest of its own; `make matrix` writes a table of the results.

The older releases are installed apart, and stand before the environment's own on the path. A test that an older release
fails is refused by name (RMQ_OLD_PYSPARK), or listed in `DIFFERENCES`; every other failure fails the run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.support.apart import installed_apart
from tests.support.outcomes import OUTCOMES_FILE, Outcome, read_outcomes
from tests.support.spark import NOT_CONNECTED, ROOT

NEWEST: Final = version("pyspark")
OLDER: Final = ("4.0.5", "4.1.4", "4.2.1")
BUILD: Final = ROOT / "build" / "matrix"
TABLE: Final = BUILD / "results.md"
REFUSED: Final = re.compile(r"^E .*(\[RMQ_OLD_PYSPARK\]|spark_errors\.OldPySpark:)", re.MULTILINE)
ALL_TESTS: Final = ("tests/spark", "--ignore", "tests/spark/test_releases.py")
SECONDS: Final = 7200
# Of PySpark itself: 4.1 leaves the driver's sockets of the file system to the garbage collector.
WARNINGS: Final = ("ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@dataclass(frozen=True, slots=True)
class Difference:
    """Tests that fail before a release, by the beginning of their ids, and the reason in a user's words."""

    before: str
    tests: str
    reason: str


DIFFERENCES: Final = (
    Difference(
        "4.1",
        "tests/spark/test_batches.py::TestBatchJobs::test_a_frame_is_read_again_from_the_same_offsets",
        "a frame is planned anew by each action, so its end is another one",
    ),
    Difference(
        "4.1",
        "tests/spark/test_tables.py::test_each_query_of_a_view_reads_what_the_topic_holds_then",
        "a frame is planned anew by each action, so its end is another one",
    ),
    Difference("4.1", "tests/spark/test_examples.py::test_inserts", "an INSERT has to name all columns of the view"),
    Difference(
        "4.2", "tests/spark/test_discovery.py::test_an_installed_package_is_found", "the types of Spark load NumPy"
    ),
    Difference(
        "4.2",
        "tests/spark/test_loading.py::test_planning_a_write_and_closing_it_load_no_columns_and_no_network",
        "the types of Spark load NumPy",
    ),
    Difference(
        "4.2",
        "tests/spark/test_killed_streams.py::test_every_row_once_over_3_kills",
        "the query that is killed has limits, which are refused by name",
    ),
    Difference("4.1", "tests/spark/test_pipelines.py", "Spark has no declarative pipelines"),
    Difference(
        "4.2",
        "tests/spark/test_where_it_runs.py::test_from_spark_connect",
        "the job's query has a limit, which is refused by name",
    ),
    Difference("4.1", "tests/spark/test_worker_logs.py", "Spark keeps no logs of tasks for SQL"),
    Difference(
        "4.1",
        "tests/spark/test_line_at_the_end.py::test_it_stands_on_the_drivers_standard_error_and_in_the_workers_logs",
        "Spark keeps no logs of tasks for SQL",
    ),
    Difference(
        "4.1",
        "tests/spark/test_line_at_the_end.py::test_a_cancelled_write_counts_no_rows",
        "Spark keeps no logs of tasks for SQL",
    ),
    Difference(
        "4.2",
        "tests/spark/test_progress.py::test_the_figures_of_every_query_for_prometheus_and_opentelemetry",
        "a query does not report how far its queues go, so the figures lack its lag",
    ),
)


def apart(release: str) -> list[Path]:
    """Returns what stands first on the path for this PySpark; raises `ApacheUnavailable` if it cannot be fetched."""
    return [] if release == NEWEST else [installed_apart(f"pyspark-{release}", [f"pyspark=={release}"])]


def run_tests(
    release: str, tests: Sequence[str], file: Path, *, seconds: float, keep: bool = False
) -> dict[str, Outcome]:
    """Runs these tests on a release, once more those that Spark gave up on, and returns how each ended.

    With `keep` the outcomes of other tests that the file has stay in it.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if not keep:
        file.unlink(missing_ok=True)
    _pytest(release, tests, file, seconds)
    outcomes = read_outcomes(file)
    if again := [name for name, outcome in outcomes.items() if NOT_CONNECTED.search(outcome.text)]:
        _pytest(release, again, file, seconds)
        outcomes = read_outcomes(file)
    return outcomes


def _pytest(release: str, tests: Sequence[str], file: Path, seconds: float) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += ["--continue-on-collection-errors", "-p", "tests.support.outcomes"]
    command += [*(part for warning in WARNINGS for part in ("-W", warning)), *tests]
    with open(f"{file}.log", "a") as log:
        subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {OUTCOMES_FILE: str(file), "PYTHONPATH": os.pathsep.join(map(str, apart(release)))},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )


def is_before(release: str, other: str) -> bool:
    """Returns whether a release came before another one, by the numbers of its name."""
    numbers, others = ([int(part) for part in name.split(".")[:2]] for name in (release, other))
    return numbers < others


def reason_of(release: str, test: str) -> str | None:
    """Returns why a test is known to fail on a release."""
    return next(
        (entry.reason for entry in DIFFERENCES if test.startswith(entry.tests) and is_before(release, entry.before)),
        None,
    )


def unexplained(release: str, outcomes: Mapping[str, Outcome]) -> dict[str, str]:
    """Returns the failures that are neither refused by name nor known differences, by test."""
    return {
        test: outcome.text
        for test, outcome in outcomes.items()
        if outcome.word == "failed" and kind_of(release, test, outcome) == "failed"
    }


def kind_of(release: str, test: str, outcome: Outcome) -> str:
    """Returns the word of a test's cell: passed, skipped, refused by name, differs or failed."""
    if outcome.word != "failed":
        return outcome.word
    if reason_of(release, test):
        return "differs"
    if is_before(release, NEWEST) and REFUSED.search(outcome.text):
        return "refused by name"
    return "failed"


Matrix = Mapping[str, Mapping[str, Outcome]]
KINDS: Final = ("passed", "refused by name", "differs", "skipped", "failed")


def cell(release: str, file: str, outcomes: Mapping[str, Outcome]) -> str:
    """Returns how many tests of a file ended in which way."""
    counts = Counter(
        kind_of(release, test, outcome) for test, outcome in outcomes.items() if test.partition("::")[0] == file
    )
    return ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "–"


def table(matrix: Matrix) -> str:
    """Returns the results of all releases: a row a file, and below it a row a test that did not pass everywhere."""
    files = sorted({test.partition("::")[0] for outcomes in matrix.values() for test in outcomes})
    lines = [f"| `tests/spark` | {' | '.join(matrix)} |", "|---" * (len(matrix) + 1) + "|"]
    lines += [
        f"| `{Path(file).name}` | {' | '.join(cell(release, file, matrix[release]) for release in matrix)} |"
        for file in files
    ]
    lines += ["", "| test | did not pass on | why |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {', '.join(releases)} | {why} |" for (name, why), releases in sorted(_ended(matrix).items())
    ]
    return "\n".join(lines) + "\n"


def _ended(matrix: Matrix) -> dict[tuple[str, str], list[str]]:
    """Returns the releases on which each test did not pass, by its name without parameters and the reason."""
    ended: dict[tuple[str, str], list[str]] = {}
    for release, outcomes in matrix.items():
        for test, outcome in outcomes.items():
            kind = kind_of(release, test, outcome)
            if kind not in ("passed", "skipped"):
                name = "::".join(part for part in Path(test).name.partition("[")[0].split("::") if part[0].islower())
                releases = ended.setdefault((name, reason_of(release, test) or kind), [])
                releases += [release] * (release not in releases)
    return ended


def main(arguments: Sequence[str]) -> None:
    """Runs the Spark tests on the releases that are named, or on all, and writes the table; other results stay.

    What begins with `tests/` is run in place of all of them: so the table may be made in pieces.
    """
    everything = (*OLDER, NEWEST)
    tests = [word for word in arguments if word.startswith("tests/")]
    for release in [word for word in arguments if word not in tests] or everything:
        run_tests(release, tests or ALL_TESTS, BUILD / release, seconds=SECONDS, keep=bool(tests))
    matrix = {release: outcomes for release in everything if (outcomes := read_outcomes(BUILD / release))}
    TABLE.write_text(table(matrix))
    failures = {f"{release} {test}" for release in matrix for test in unexplained(release, matrix[release])}
    sys.exit("\n".join(["failed:", *sorted(failures)]) if failures else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
