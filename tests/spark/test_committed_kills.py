"""Committed streams over kills at named points, on our servers: each number once, for a stream and a pull consumer."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support.committed_kills import LOCAL, WITH_EXECUTORS, check_rows, killed_at_points
from tests.support.our_cluster import boot_our_cluster

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("rows", "fault"),
    [(["0", "2"], r"1 of 3 rows are lost: \['1'\]"), (["0", "1", "1", "2"], r"1 rows are repeated: \['1'\]")],
)
def test_the_check_fails(rows: list[str], fault: str) -> None:
    with pytest.raises(AssertionError, match=fault):
        check_rows("a reader", Counter(rows), Counter("012"))


def run(directory: Path, rounds: int, master: str) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    seed = int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32))
    with boot_our_cluster() as cluster:
        report = killed_at_points(cluster, directory, rounds, seed, master)
    assert report.acts.total() == rounds


@pytest.mark.timeout(600)
def test_each_number_once_over_three_kills(tmp_path: Path) -> None:
    run(tmp_path, 3, LOCAL)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("master", [LOCAL, WITH_EXECUTORS])
def test_each_number_once_over_many_kills(tmp_path: Path, master: str) -> None:
    """PYRMQ_SEED repeats a run's choices, though not its moments; PYRMQ_KILLS has more of them."""
    run(tmp_path, int(os.environ.get("PYRMQ_KILLS") or 20), master)
