"""A query and its brokers are killed at random, and every row arrives exactly once."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support.killing import Position, arrived, killed_at_random, stored
from tests.support.our_cluster import boot_our_cluster

pytestmark = pytest.mark.spark


def check(tmp_path: Path, kills: int, seed: int) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    print(f"seed {seed}")  # noqa: T201 - shown when it fails, and by `make soak`
    with boot_our_cluster() as cluster:
        sent = killed_at_random(cluster, tmp_path, kills, random.Random(seed))
        there = stored(cluster.nameserver.address)
    check_rows(arrived(tmp_path), there, sent.acknowledged)
    assert len({position[0] for position in there}) == 2
    print(f"{len(there)} rows, each once, over {kills} kills; {sent.failures} sends failed")  # noqa: T201


def check_rows(rows: Counter[tuple[Position, str]], there: dict[Position, str], acknowledged: set[int]) -> None:
    """Checks that each stored row arrived exactly once, and that every acknowledged row is stored."""
    assert [row for row, times in rows.items() if times > 1] == [], "rows came twice"
    assert set(rows) == set(there.items()), "what arrived is not what is stored"
    assert acknowledged <= {int(body) for body in there.values()}, "acknowledged rows are not stored"


@pytest.mark.parametrize(
    ("arrived_bodies", "acknowledged", "fault"),
    [
        ([0, 1, 2, 1], {0, 1, 2}, "rows came twice"),
        ([0, 2], {0, 1, 2}, "what arrived is not what is stored"),
        ([0, 1, 2, 3], {0, 1, 2}, "what arrived is not what is stored"),
        ([0, 1, 2], {0, 1, 2, 3}, "acknowledged rows are not stored"),
    ],
)
def test_the_check_fails(arrived_bodies: list[int], acknowledged: set[int], fault: str) -> None:
    there = {("orders", "broker-a", 0, number): f"{number}" for number in range(3)}
    rows = Counter((("orders", "broker-a", 0, number), f"{number}") for number in arrived_bodies)
    with pytest.raises(AssertionError, match=fault):
        check_rows(rows, there, acknowledged)


def test_the_check_passes_what_is_right() -> None:
    """A send that failed may be stored all the same."""
    there = {("orders", "broker-a", 0, number): f"{number}" for number in range(3)}
    check_rows(Counter(there.items()), there, {0, 2})


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_row_once_over_3_kills(tmp_path: Path) -> None:
    check(tmp_path, 3, 20261121)


@pytest.mark.soak
@pytest.mark.timeout(6000)
def test_every_row_once_over_50_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PYRMQ_SEED repeats a run."""
    with capsys.disabled():
        check(tmp_path, 50, int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32)))
