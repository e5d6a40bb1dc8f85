"""Committed streams over kills at named points, on Apache RocketMQ: each number once."""

import os
import random
from pathlib import Path

import pytest

from tests.support.apache import VERSIONS, boot_cluster
from tests.support.committed_kills import LOCAL, killed_at_points

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_number_once_over_many_kills(version: str, tmp_path: Path) -> None:
    """PYRMQ_SEED repeats a run's choices, though not its moments; PYRMQ_KILLS has more of them."""
    rounds = int(os.environ.get("PYRMQ_KILLS") or 20)
    seed = int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32))
    with boot_cluster(version, ("broker-a", "broker-b")) as cluster:
        report = killed_at_points(cluster, tmp_path, rounds, seed, LOCAL)
    assert report.acts.total() == rounds
