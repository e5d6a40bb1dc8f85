"""One job on executors of their own: Spark's small cluster, a standalone cluster, and Spark Connect."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq_core.columnar.decoding.compiled import VERSION
from tests.spark.connect_job import MORE
from tests.support.connect import connect_client
from tests.support.maven import ApacheUnavailable
from tests.support.native_build import built_site
from tests.support.standalone import boot_standalone, job_environment

ROOT = Path(__file__).parent.parent.parent
ROWS = 5000
SECONDS = 1200  # the end of a job that hangs: on a busy machine its six processes take minutes to start

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1300)]


@pytest.fixture(autouse=True)
def java() -> None:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")


def check(master: str, nameserver: str, directory: Path, environment: dict[str, str]) -> list[str]:
    """Checks that a batch and a stream read every row, and returns the decoders of the executors."""
    topic = f"shipped_{master.partition('[')[0].partition(':')[0].replace('-', '_')}"
    job = [sys.executable, "-m", "tests.spark.shipped_job", master, nameserver, topic, str(ROWS), str(directory)]
    done = subprocess.run(job, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["batch"] == results["stream"] == [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    assert results["partitions"] >= 6
    decoders: list[str] = results["decoders"]
    return decoders


@pytest.mark.soak
def test_on_sparks_small_cluster(nameserver: str, tmp_path: Path) -> None:
    environment = job_environment(ROOT) | {"SPARK_WORKER_DIR": str(tmp_path / "work")}
    check("local-cluster[1,2,1024]", nameserver, tmp_path, environment)


@pytest.mark.soak
def test_with_the_compiled_decoder_on_executors(nameserver: str, tmp_path: Path) -> None:
    site = built_site()
    if site is None:
        pytest.skip("no compiled decoder here: make native")
    environment = job_environment(ROOT, site) | {"SPARK_WORKER_DIR": str(tmp_path / "work"), "PYRMQ_NATIVE": "1"}
    assert check("local-cluster[1,2,1024]", nameserver, tmp_path, environment) == [f"pyrmq-native {VERSION}"]


@pytest.mark.soak
def test_on_a_standalone_cluster(nameserver: str, tmp_path: Path) -> None:
    environment = job_environment(ROOT)
    with boot_standalone(tmp_path, environment) as spark:
        check(spark.master, nameserver, tmp_path, environment)


@pytest.fixture
def connect_environment() -> dict[str, str]:
    """The environment of a client of Spark Connect."""
    try:
        client = connect_client()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    return job_environment(ROOT, client) | {"PYRMQ_SERVER_PATH": str(ROOT)}


@pytest.mark.soak  # a pipeline is a client of Spark Connect, too (`test_pipelines.py`)
def test_from_spark_connect(nameserver: str, tmp_path: Path, connect_environment: dict[str, str]) -> None:
    check("connect", nameserver, tmp_path, connect_environment)


@pytest.mark.soak
def test_all_of_it_from_spark_connect(nameserver: str, tmp_path: Path, connect_environment: dict[str, str]) -> None:
    job = [sys.executable, "-m", "tests.spark.connect_job", nameserver, str(ROWS), str(tmp_path)]
    done = subprocess.run(
        job, cwd=tmp_path, env=connect_environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["equal"]
    assert seen["tables"] == {"database": True, "views": [1, 2]}
    stream, after = seen["stream"], ROWS + MORE
    assert stream["batches"][0] >= 4
    assert (stream["read"], stream["copied"], stream["listened"]) == ([ROWS, MORE], after, after)
    assert (stream["offset"], stream["behind"], stream["published"], stream["page"]) == (after, 0, after, True)
    assert stream["groups"] == {"streaming": ROWS, "published": after, "listened": after}
    for name, text in {
        "option": "minPartition",
        "topic": "missing",
        "column": "colour",
        "row": "body",
        "stream": "missing",
    }.items():
        assert text in seen["errors"][name]
