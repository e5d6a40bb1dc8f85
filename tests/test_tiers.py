"""The tiers of the suite: what the default one holds, and that it stays within its time."""

import subprocess

import pytest

from conftest import DEFAULT_SECONDS, MISSING_SMOKE
from tests.support import tiers

PAGE = """
| promise | condition | attacked by |
|---|---|---|
| Rows stay. | always | `test_writes.py::test_kill`; `tests/consuming/test_kills.py` |
| Nothing is named here. | always | by hand |
"""


def test_the_default_tests_fit_in_their_time(pytestconfig: pytest.Config) -> None:
    seconds = pytestconfig.stash[DEFAULT_SECONDS]
    assert seconds <= tiers.BUDGET_SECONDS, (
        f"the default tests take {seconds:.0f} s in one process, more than {tiers.BUDGET_SECONDS:.0f} s: "
        "make the slowest files of tests/durations.json that are below the limit for a file quicker"
    )


def test_each_file_on_record_is_there() -> None:
    files = {*tiers.STYLE, *(name.partition("::")[0] for name in tiers.read_durations())}
    assert files
    assert [file for file in sorted(files) if not (tiers.ROOT / file).exists()] == []


def test_references_of_a_page() -> None:
    assert tiers.promised_tests(PAGE) == [["tests/spark/test_writes.py::test_kill", "tests/consuming/test_kills.py"]]


def test_a_run_replaces_what_changed() -> None:
    old = {"a.py": 9.0, "a.py::long": 9.0, "b.py": 3.0, "gone.py": 3.0}
    run = {"a.py::short": 0.25, "a.py::other": 1.5, "b.py::test": 3.9}
    assert tiers.merge_durations(old, run) == {"a.py": 1.8, "a.py::other": 1.5, "b.py": 3.0, "b.py::test": 3.9}


LIGHT, LONG, NEW, STYLE = "tests/test_light.py", "tests/test_long.py", "tests/test_new.py", tiers.STYLE[0]
DURATIONS = {
    LIGHT: 9.0,
    LONG: 11.0,
    STYLE: 58.0,
    f"{LONG}::attack": 6.0,
    f"{LONG}::quick_attack": 2.0,
    f"{LONG}::slow_attack": tiers.PROMISE_SECONDS + 1,
    f"{LONG}::smoke": 1.5,
}


def suite(*names: str, foreign: bool = False) -> dict[str, tiers.SuiteTest]:
    return {name: tiers.SuiteTest(name, name, foreign) for name in names}


def ids_of_default_tier(tests: dict[str, tiers.SuiteTest], *promise: str) -> set[str]:
    tier = tiers.default_tier(tests.values(), DURATIONS, [promise], smoke=[f"{LONG}::smoke"])
    return {test.id for test in tier}


def test_light_and_new_files_style_and_smoke_tests_are_in_the_default_tier() -> None:
    ours = suite(f"{LIGHT}::one", f"{NEW}::two", f"{STYLE}::rule", f"{LONG}::three", f"{LONG}::smoke")
    foreign = suite(f"{LIGHT}::foreign", f"{NEW}::foreign", foreign=True)
    assert ids_of_default_tier(ours | foreign) == {f"{LIGHT}::one", f"{NEW}::two", f"{STYLE}::rule", f"{LONG}::smoke"}


def test_a_promise_without_a_light_attacker_has_its_quickest_if_it_is_short() -> None:
    attackers = suite(f"{LONG}::attack", f"{LONG}::quick_attack", foreign=True)
    assert ids_of_default_tier(attackers, LONG) == {f"{LONG}::quick_attack"}
    slow = suite(f"{LONG}::slow_attack", foreign=True)
    assert ids_of_default_tier(slow, LONG) == set()
    with_light = attackers | suite(f"{LIGHT}::one")
    assert ids_of_default_tier(with_light, LONG, f"{LIGHT}::one") == {f"{LIGHT}::one"}


def test_what_other_parts_of_the_suite_run_is_left_out_by_path() -> None:
    test = tiers.SuiteTest("tests/servers/broker/test_store_files.py::one", "")
    for path in (
        "tests/servers/broker",
        "tests/servers/broker/test_store_*.py",
        "tests/servers/broker/test_store_files.py",
    ):
        assert test.is_below(["tests/client", path])
    assert not test.is_below(["tests/brok", "tests/client", "test_store_files.py"])


def test_the_other_tier_is_chosen_from_one_collection() -> None:
    """A promise has its quickest attacker in the default tier: a run that knows a folder alone would choose another."""
    rest = next(line for line in (tiers.ROOT / "Makefile").read_text().splitlines() if "--tier rest" in line)
    assert "--ignore" not in rest
    assert rest.count("tests/") == 0


def test_each_process_begins_with_the_files_of_one_party() -> None:
    ours, spark = "tests/client/test_a.py", "tests/spark/test_c.py"
    shared, own = "tests/interop/test_consumers.py", "tests/interop/test_slaves.py"
    files = [ours, "tests/tools/web/test_d.py", spark, own, shared]
    assert [tiers.next_file(files, f"gw{number}") for number in range(4)] == [shared, own, spark, shared]
    assert [tiers.next_file([spark, shared, ours], process) for process in ("gw1", "gw2")] == [ours, spark]
    assert [tiers.next_file([spark, shared], "gw1"), tiers.next_file([own, ours], "gw2")] == [shared, ours]
    assert [tiers.next_file([shared, own], "gw2"), tiers.next_file([own, spark], "gw0")] == [own, own]


def test_the_clusters_that_a_file_shares_are_seen_in_its_fixtures() -> None:
    shared = {path.name for path in (tiers.ROOT / "tests" / "interop").glob("test_*.py")}
    shared = {name for name in shared if tiers.party_of(f"tests/interop/{name}") is tiers.Party.SHARED}
    assert {"test_client.py", "test_arrow.py", "test_security.py", "test_spark_streams.py"} <= shared
    assert shared.isdisjoint({"test_our_slaves.py", "test_store_files.py", "test_proxy.py", "test_releases.py"})


def test_seconds_are_those_of_light_files_and_of_single_tests_elsewhere() -> None:
    tests = suite(f"{LIGHT}::one", f"{LIGHT}::other", f"{LONG}::smoke", f"{LONG}::short")
    assert tiers.seconds_of(tests.values(), DURATIONS) == 9.0 + 1.5 + tiers.TEST_SECONDS


def test_each_smoke_test_is_there(pytestconfig: pytest.Config) -> None:
    """A smoke test that was renamed would leave the default tier without a word."""
    assert pytestconfig.stash[MISSING_SMOKE] == []


def test_make_pure_names_files_that_exist() -> None:
    """A name of a file that is gone ends pytest before any test."""
    dry = subprocess.run(["make", "--dry-run", "pure"], cwd=tiers.ROOT, capture_output=True, text=True, check=True)
    paths = [word for word in dry.stdout.split() if word.startswith("tests/")]
    assert len(paths) > 20
    assert [path for path in paths if not any(tiers.ROOT.glob(path))] == []
