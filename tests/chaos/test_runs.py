"""Random faults for a minute: no acknowledged message is lost or doubled, no member hangs, resets are followed.

`PYRMQ_CHAOS_SEED=7 make test ARGS=tests/chaos/test_runs.py` runs the plan of a seed that was printed, and
`make soak ARGS=tests/chaos` a hundred of them, from that seed on. A slow machine does fewer steps, and what it did not
consume in time is not judged.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.chaos.clusters import ClusterKind, NoHistory, check_out

ROOT = Path(__file__).parent.parent.parent
STEPS, SECONDS, SETTLE_SECONDS = 30, 40, 120
# A seed whose first steps are all different: a kill, a burst, a reset, a pause, a stall, a join, cuts, a member's end.
SHORT_SEED, FEW_STEPS, FEW_SECONDS = 2228, 8, 15
# A seed that has each kind of our brokers, and each change of a topic, among its first steps.
SHORT_SEED_OF_OURS, STEPS_OF_OURS = 10013, 9
# On pairs, a seed that has every kind of theirs among them.
SHORT_SEED_OF_PAIRS = 15154
# With access control, a seed that has each change of it among eight different steps.
SHORT_SEED_OF_ACCESS = 16314
# A burst of still more than a member holds of each queue. The run takes a third less of a processor.
FEW_MESSAGES = ("--burst-batches", 30)
KILLED_AFTER_SECONDS = 900
LAST_CHARACTERS = 2000
SEEDS, SEEDS_OF_OTHERS = 100, 20
GIVEN_SEED = os.environ.get("PYRMQ_CHAOS_SEED")
# What every landing runs is the same each time; `make soak` looks for what is new.
SEED_OF_A_MINUTE = int(GIVEN_SEED or 7)
FIRST_SEED = int(GIVEN_SEED or random.randrange(1_000_000_000))


def run(seed: int, *options: object) -> subprocess.CompletedProcess[str]:
    """Returns the end of a run in a process of its own, with all that it printed."""
    command = [sys.executable, "-m", "tests.chaos", str(seed), *map(str, options)]
    print(" ".join(command[1:]))  # noqa: T201 - shown when it fails
    return subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=KILLED_AFTER_SECONDS,
        check=False,
    )


def goes_well(
    seed: int, steps: int = STEPS, seconds: int = SECONDS, kind: ClusterKind = ClusterKind.OURS, *options: object
) -> None:
    ended = run(seed, "--cluster", kind, "--steps", steps, "--seconds", seconds, "--settle", SETTLE_SECONDS, *options)
    print(ended.stdout)  # noqa: T201 - shown when it fails, and by `make soak`
    wrong = [line for line in ended.stdout.splitlines() if "WRONG" in line] or ended.stdout[-LAST_CHARACTERS:]
    assert ended.returncode == 0, f"{wrong}: PYRMQ_CHAOS_SEED={seed} does it again"


@pytest.mark.timeout(KILLED_AFTER_SECONDS)
def test_some_seconds_of_random_faults() -> None:
    """Attacks the promise in the default tier, which has no minute for it."""
    goes_well(SHORT_SEED_OF_OURS, STEPS_OF_OURS, FEW_SECONDS, ClusterKind.OURS, *FEW_MESSAGES)


@pytest.mark.timeout(KILLED_AFTER_SECONDS)
def test_some_seconds_of_random_faults_on_pairs() -> None:
    """Each slave is a copy of its master in the end, whichever of them, and of two NameServers, was killed."""
    goes_well(SHORT_SEED_OF_PAIRS, FEW_STEPS, FEW_SECONDS, ClusterKind.PAIRS, *FEW_MESSAGES)


@pytest.mark.timeout(KILLED_AFTER_SECONDS)
def test_some_seconds_of_random_faults_with_access_control() -> None:
    """Rights and secrets change amid other faults: what is refused says so, and all goes on when the rights return."""
    goes_well(SHORT_SEED_OF_ACCESS, FEW_STEPS, FEW_SECONDS, ClusterKind.GUARDED, *FEW_MESSAGES)


@pytest.mark.soak  # the shorter plans take a quarter of its time
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
def test_a_minute_of_random_faults() -> None:
    goes_well(SEED_OF_A_MINUTE)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("number", range(SEEDS))
def test_a_hundred_seeds(number: int) -> None:
    goes_well(FIRST_SEED + number)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("number", range(SEEDS_OF_OTHERS))
def test_many_seeds_on_pairs(number: int) -> None:
    goes_well(FIRST_SEED + number, kind=ClusterKind.PAIRS)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("number", range(SEEDS_OF_OTHERS))
def test_many_seeds_with_access_control(number: int) -> None:
    goes_well(FIRST_SEED + number, kind=ClusterKind.GUARDED)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("number", range(SEEDS_OF_OTHERS))
def test_many_seeds_on_brokers_that_are_renewed(number: int) -> None:
    """Brokers of an older commit run today's code on their files, and that one again."""
    skip_without_history()
    goes_well(FIRST_SEED + number, kind=ClusterKind.RENEWED)


def skip_without_history() -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_out(Path(folder))
        except NoHistory as reason:
            pytest.skip(str(reason))
