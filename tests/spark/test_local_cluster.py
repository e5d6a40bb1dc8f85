"""The same job where driver and executors share nothing but the network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROWS = 5000

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_job_on_executors_of_their_own(nameserver: str, tmp_path: Path) -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    job = [sys.executable, "-m", "tests.spark.local_cluster_job", nameserver, "shipped", str(ROWS)]
    done = subprocess.run(job, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["found"] == [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    assert result["partitions"] >= 6
