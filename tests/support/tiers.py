"""The tiers of the suite: which tests `make test` runs, and which come only with `make test-all`.

No test is marked for its tier by hand. The default tier holds

- every test of a file that needs nothing foreign (Apache RocketMQ, Spark, a browser) and takes at most
  `FILE_SECONDS`, by the durations that `make durations` recorded in `tests/durations.json`;
- `STYLE`: the rules of style, which any change may break;
- for each promise of `docs/guarantees.md` whose attackers are all in other files, the quickest of these attackers, if
  it takes at most `PROMISE_SECONDS`;
- `SMOKE`: one test for each foreign party.

A new file belongs to the default tier until its duration is recorded, unless it needs something foreign. Durations are
seconds of wall time, as one of three processes on two cores takes them: of each file, and of each test that takes
`TEST_SECONDS` or more.
"""

import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
DURATIONS: Final = ROOT / "tests" / "durations.json"
GUARANTEES: Final = ROOT / "docs" / "guarantees.md"

FILE_SECONDS: Final = 10.0
TEST_SECONDS: Final = 1.0
PROMISE_SECONDS: Final = 20.0
# Of the eight minutes style and types take one; three processes share the rest.
BUDGET_SECONDS: Final = 3 * 7 * 60.0
FOREIGN: Final = ("interop", "spark", "browser")
SHARED_FIXTURES: Final = re.compile(r'\bapache(_[45])?: |getfixturevalue\(f?"apache|\bguarded: ')
STYLE: Final = ("tests/test_plain_english.py", "tests/test_walls.py")
SMOKE: Final = {
    "a broker of RocketMQ 5.4.0": "tests/interop/test_client.py::TestClientJobs::test_pulls_and_their_outcomes[5.4.0]",
    "Java's client": "tests/interop/test_java_on_our_servers.py"
    "::test_a_java_producer_sends_to_us_and_a_java_consumer_pulls_from_us[5.4.0]",
    "mqadmin": "tests/interop/test_java_on_our_servers.py::test_mqadmin_shows_our_cluster_and_its_routes[5.4.0]",
    "Spark, a batch": "tests/spark/test_batches.py::TestBatchJobs::test_rows_come_back_as_they_went",
    "Spark, a stream": "tests/spark/test_streams.py::TestStreamJobs::test_available_now_keeps_the_cap_and_its_end",
    "messages of Debezium": "tests/spark/test_golden_changes.py"
    "::test_golden_messages_make_the_tables_of_the_database[debezium_postgresql_6]",
    "messages of Canal": "tests/spark/test_golden_changes.py"
    "::test_golden_messages_make_the_tables_of_the_database[canal_mariadb_5]",
    "a browser": "tests/tools/web/test_browser.py::test_each_page[wide-topics]",
}

Durations = Mapping[str, float]


def read_durations() -> dict[str, float]:
    """Returns the recorded seconds by a file's path, and by the id of each long test."""
    return dict(json.loads(DURATIONS.read_text())) if DURATIONS.exists() else {}


def merge_durations(old: Durations, seconds_by_test: Durations) -> dict[str, float]:
    """Returns the records after a run of every test.

    A file whose time hardly changed keeps its record, so that not every run changes the file that git has.
    """
    records: defaultdict[str, float] = defaultdict(float)
    for test, seconds in seconds_by_test.items():
        records[test.partition("::")[0]] += seconds
        if seconds >= TEST_SECONDS:
            records[test] = seconds
    for name, seconds in records.items():
        if name in old and abs(seconds - old[name]) <= max(2.0, old[name] / 3):
            records[name] = old[name]
    return {name: round(records[name], 1) for name in sorted(records)}


def main(runs: list[str]) -> None:
    """Writes `tests/durations.json` from the files that the parts of `make test-all` wrote."""
    seconds_by_test: dict[str, float] = {}
    for run in runs:
        seconds_by_test |= json.loads(Path(run).read_text())
    part = DURATIONS.with_suffix(".part")
    part.write_text(json.dumps(merge_durations(read_durations(), seconds_by_test), indent=0) + "\n")
    part.replace(DURATIONS)


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """A collected test: its id, the function that it runs, and whether it needs something foreign."""

    id: str
    source: str  # of the function, as `path::name`: that of a job stands in tests/support
    foreign: bool = False

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]

    def is_below(self, paths: Iterable[str]) -> bool:
        """Returns whether its file is one of these, lies in a folder of these, or fits a pattern (`test_a*.py`)."""
        return any(fnmatch(self.file, path) or self.file.startswith(f"{path}/") for path in paths)


def suite_test(item: pytest.Item) -> SuiteTest:
    """Returns a collected item as a value."""
    source = item.nodeid
    if isinstance(item, pytest.Function):
        path = Path(inspect.getsourcefile(inspect.unwrap(item.function)) or item.path)
        source = f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}::{item.originalname}"
    return SuiteTest(item.nodeid, source, any(map(item.get_closest_marker, FOREIGN)))


def default_tier(
    tests: Collection[SuiteTest],
    durations: Durations,
    promises: Iterable[Collection[str]],
    smoke: Collection[str] = tuple(SMOKE.values()),
) -> set[SuiteTest]:
    """Returns the tests of the default tier; `promises` are the attackers of each, as `path` or `path::function`."""
    tier = {test for test in tests if test.id in smoke or _is_light(test, durations)}
    by_source: defaultdict[str, list[SuiteTest]] = defaultdict(list)
    for test in tests:
        by_source[test.source].append(test)
        by_source[test.source.partition("::")[0]].append(test)
    for references in promises:
        attackers = [test for reference in references for test in by_source[reference]]
        if attackers and tier.isdisjoint(attackers):
            quickest = min(attackers, key=lambda test: (durations.get(test.id, TEST_SECONDS), test.id))
            if durations.get(quickest.id, 0.0) <= PROMISE_SECONDS:
                tier.add(quickest)
    return tier


class Party(Enum):
    """A foreign party that tests need, and that their process keeps until the last of them."""

    SHARED = "the clusters of Apache RocketMQ that tests/interop shares"
    OWN = "clusters of Apache RocketMQ that a test boots for itself"
    SPARK = "a Spark session"
    NONE = "nothing foreign"


@cache
def party_of(file: str) -> Party:
    """Returns the party of a test file, by its folder, and in `tests/interop` by its fixtures."""
    if file.startswith("tests/spark/"):
        return Party.SPARK
    if not file.startswith("tests/interop/"):
        return Party.NONE
    return Party.SHARED if SHARED_FIXTURES.search((ROOT / file).read_text()) else Party.OWN


def next_file(files: Iterable[str], process: str) -> str:
    """Returns the first file for a process of xdist.

    Each of three processes begins with one party, and takes files of none before those of another: what two processes
    need is booted twice, and each idle broker of Apache's takes 4 to 7 % of a processor.
    """
    own = list(Party)[int(process.removeprefix("gw")) % 3]
    parties = [own, Party.NONE, *(party for party in (Party.OWN, Party.SHARED, Party.SPARK) if party is not own)]
    return min(files, key=lambda file: parties.index(party_of(file)))


def seconds_of(tier: Iterable[SuiteTest], durations: Durations) -> float:
    """Returns the recorded seconds of a tier: of whole files that are light, of single tests in others."""
    light_files = set()
    seconds = 0.0
    for test in tier:
        if _is_light(test, durations):
            light_files.add(test.file)
        else:
            seconds += durations.get(test.id, TEST_SECONDS)
    return seconds + sum(durations.get(file, 0.0) for file in light_files)


def _is_light(test: SuiteTest, durations: Durations) -> bool:
    return not test.foreign and (test.file in STYLE or durations.get(test.file, 0.0) <= FILE_SECONDS)


def promised_tests(page: str) -> list[list[str]]:
    """Returns the tests that each table row of the page on guarantees names, as `path` or `path::function`."""
    rows = [re.findall(r"`([\w/]+\.py)(::\w+)?`", line) for line in page.splitlines() if line.startswith("| ")]
    return [
        [(path if "/" in path else f"tests/spark/{path}") + function for path, function in row] for row in rows if row
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
