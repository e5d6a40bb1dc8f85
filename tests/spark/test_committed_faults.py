"""A committed stream under the random faults of `tests/chaos`: each row sent counts once for both committed readers.

`PYRMQ_CHAOS_SEED=7 make soak ARGS=tests/spark/test_committed_faults.py` runs the plans from a seed on.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.chaos.clusters import RELEASE, ClusterKind
from tests.chaos.planted import VARIABLE
from tests.chaos.test_planted import OF_STREAMS
from tests.chaos.test_planted import SEEDS as SEEDS_OF_PLANTS
from tests.chaos.test_runs import FIRST_SEED, KILLED_AFTER_SECONDS, run
from tests.support.maven import ApacheUnavailable, jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(KILLED_AFTER_SECONDS)]

# A seed whose steps are all different: a kill of a broker and one of the driver, a cut, a stall and a pause.
SHORT_SEED, FEW_STEPS = 187, 5
STEPS, SECONDS, SEEDS = 20, 40, 20


@pytest.fixture(autouse=True)
def java() -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")


def goes_well(seed: int, steps: int, kind: ClusterKind = ClusterKind.OURS) -> None:
    ended = run(seed, "--committed", "--cluster", kind, "--steps", steps, "--seconds", SECONDS)
    print(ended.stdout)  # noqa: T201 - shown when it fails, and by `make soak`
    assert ended.returncode == 0, f"PYRMQ_CHAOS_SEED={seed} does it again\n{ended.stdout}"
    assert ended.stdout.count(" rows\n") == 3


@pytest.mark.soak
def test_each_row_counts_once_over_some_seconds_of_random_faults() -> None:
    goes_well(SHORT_SEED, FEW_STEPS)


@pytest.mark.soak
def test_a_read_of_what_no_record_lists_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is killed amid a batch, whose rows are stored again; a moment decides whether some were stored."""
    monkeypatch.setenv(VARIABLE, OF_STREAMS)
    for seed in SEEDS_OF_PLANTS:
        ended = run(seed, "--committed", "--steps", STEPS, "--kinds", "kill_driver,pause", "--seconds", SECONDS)
        if ended.returncode == 1:
            break
    assert "a pull consumer: " in ended.stdout
    assert "rows are repeated" in ended.stdout, ended.stdout


@pytest.mark.soak
@pytest.mark.parametrize("number", range(SEEDS))
def test_each_row_counts_once_over_many_seeds(number: int) -> None:
    goes_well(FIRST_SEED + number, STEPS)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(SEEDS))
def test_each_row_counts_once_over_many_seeds_on_apaches_brokers(number: int) -> None:
    try:
        jars(RELEASE)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    goes_well(FIRST_SEED + number, STEPS, ClusterKind.APACHE)
