"""The random faults of `tests/chaos` on brokers of Apache RocketMQ, and on a cluster of one of theirs and one of ours.

`PYRMQ_CHAOS_SEED=7 make soak ARGS=tests/interop/test_random_faults.py` runs the plans from a seed on.
"""

from __future__ import annotations

import pytest

from tests.chaos.clusters import OLD_RELEASE, RELEASE, ClusterKind
from tests.chaos.test_runs import FEW_SECONDS, FEW_STEPS, FIRST_SEED, KILLED_AFTER_SECONDS, SHORT_SEED, goes_well
from tests.support.maven import ApacheUnavailable, jars

KINDS = (ClusterKind.APACHE, ClusterKind.MIXED)
SEEDS = 20
# A seed that upgrades both brokers among its first steps.
SHORT_SEED_OF_UPGRADES = 28


@pytest.fixture(autouse=True)
def release() -> None:
    """Skips where Apache's servers cannot run."""
    try:
        jars(RELEASE)
        jars(OLD_RELEASE)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.soak
@pytest.mark.parametrize("kind", [ClusterKind.APACHE, ClusterKind.MIXED])
def test_some_seconds_of_random_faults(kind: ClusterKind) -> None:
    goes_well(SHORT_SEED, FEW_STEPS, FEW_SECONDS, kind)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
def test_some_seconds_of_random_faults_while_brokers_are_upgraded() -> None:
    """Brokers of 4.9.7 become brokers of 5.4.0, one behind the other, on their files."""
    goes_well(SHORT_SEED_OF_UPGRADES, FEW_STEPS, FEW_SECONDS, ClusterKind.UPGRADED)


@pytest.mark.soak
@pytest.mark.timeout(KILLED_AFTER_SECONDS)
@pytest.mark.parametrize("number", range(SEEDS))
@pytest.mark.parametrize("kind", [*KINDS, ClusterKind.GUARDED_APACHE, ClusterKind.UPGRADED])
def test_many_seeds(kind: ClusterKind, number: int) -> None:
    goes_well(FIRST_SEED + number, kind=kind)
