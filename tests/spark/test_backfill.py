"""A stream reads an old topic in a thousand batches, and its processes need no more memory at the end than early on."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.spark.backfill_job import A_BATCH
from tests.support.standalone import job_environment

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(7200)]

ROOT = Path(__file__).parent.parent.parent
BATCHES = 1000
SECONDS = 7000
# 10 kB a batch would be 8 MiB. The heap is that of Spark, which keeps some of each query's past.
MOST_MIB = {"heap": 32.0}
MOST_MIB_OF_PYTHON = 8.0


def growth(looks: list[dict[str, float]]) -> dict[str, float]:
    """Returns by how many MiB each process is larger in the end than behind the first looks, which warm up."""
    early, late = looks[1], looks[-1]
    return {kind: late[kind] - early[kind] for kind in late if kind in early and kind != "batches"}


def leaks(looks: list[dict[str, float]]) -> dict[str, float]:
    return {kind: more for kind, more in growth(looks).items() if more > MOST_MIB.get(kind, MOST_MIB_OF_PYTHON)}


def test_memory_stays_flat_over_a_thousand_batches(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("no Java here; install a JDK 17 or 21")
    filled(cluster.nameserver)
    job = [sys.executable, "-m", "tests.spark.backfill_job", cluster.nameserver, str(BATCHES), str(tmp_path)]
    done = subprocess.run(job, cwd=tmp_path, env=job_environment(ROOT), capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(seen["looks"][1], seen["looks"][-1])  # noqa: T201 - shown when it fails, and by `make soak`
    assert seen["batches"] >= BATCHES
    assert seen["rows"] == [BATCHES * A_BATCH] * 2
    assert {"driver", "daemon"} < seen["looks"][-1].keys()
    assert leaks(seen["looks"]) == {}, seen["looks"]


def filled(nameserver: str) -> None:
    with Admin(nameserver=nameserver) as admin, Producer("setup", nameserver=nameserver) as producer:
        for topic in ("old", "copied"):
            admin.create_topic(topic, queues=1)
        for first in range(0, BATCHES * A_BATCH, 100):
            producer.send_batch([Message("old", b"%d" % number) for number in range(first, first + 100)])
