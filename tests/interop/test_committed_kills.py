"""Committed streams over kills at named points, on Apache RocketMQ: each number once."""

import os
from pathlib import Path

import pytest

from tests.support.apache import VERSIONS, boot_cluster
from tests.support.committed_kills import LOCAL, drawn, killed_at_points, seeded

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_number_once_over_many_kills(version: str, tmp_path: Path) -> None:
    """PYRMQ_SEED repeats a run's choices, though not its moments; PYRMQ_KILLS has more of them."""
    draw, count = seeded(), int(os.environ.get("PYRMQ_KILLS") or 20)
    with boot_cluster(version, ("broker-a", "broker-b")) as cluster:
        report = killed_at_points(cluster, tmp_path, drawn(draw, count, LOCAL), draw, LOCAL, "rocketmq")
    assert report.acts.total() == count
