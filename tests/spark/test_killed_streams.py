"""A query and its brokers are killed at random, and every row arrives exactly once."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.support.killing import arrived, killed_at_random, stored
from tests.support.our_cluster import boot_our_cluster

pytestmark = pytest.mark.spark


def check(tmp_path: Path, kills: int, seed: int) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    print(f"seed {seed}")  # noqa: T201 - shown when it fails, and by `make soak`
    with boot_our_cluster() as cluster:
        sent = killed_at_random(cluster, tmp_path, kills, random.Random(seed))
        there = stored(cluster.nameserver.address)
    rows = arrived(tmp_path)
    assert [row for row, times in rows.items() if times > 1] == []
    assert dict(rows.keys()) == there
    assert sent.acknowledged <= {int(body) for body in there.values()}
    assert len({position[0] for position in there}) == 2
    print(f"{len(there)} rows, each once, over {kills} kills; {sent.failures} sends failed")  # noqa: T201


@pytest.mark.timeout(600)
def test_every_row_once_over_3_kills(tmp_path: Path) -> None:
    check(tmp_path, 3, 20261121)


@pytest.mark.soak
@pytest.mark.timeout(6000)
def test_every_row_once_over_50_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PYRMQ_SEED repeats a run."""
    with capsys.disabled():
        check(tmp_path, 50, int(os.environ.get("PYRMQ_SEED") or random.SystemRandom().getrandbits(32)))
