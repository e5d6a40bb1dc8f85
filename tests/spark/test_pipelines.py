"""Spark's Declarative Pipelines: the example reads a topic into a table, and writes another topic from it."""

import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from pyrmq_core import Message, MessageExt
from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.connect import connect_client
from tests.support.maven import ApacheUnavailable
from tests.support.sink import messages
from tests.support.spark import CONNECT_SETTING, NOT_CONNECTED, wait_readable
from tests.support.standalone import job_environment

ROOT = Path(__file__).parent.parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 1200  # the end of a run that hangs
SENT = [(f"{number}.50".encode(), "EUR" if number % 2 else "USD") for number in range(10)]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2600)]


def test_the_example_fills_its_table_and_its_sink(tmp_path: Path) -> None:
    try:
        client = connect_client()  # a pipeline is a client of Spark Connect
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    done, sent = ran(tmp_path / "first", client)
    if done.returncode and NOT_CONNECTED.search(done.stdout + done.stderr):
        done, sent = ran(tmp_path / "second", client)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert sorted((message.body, message.tags) for message in sent) == [row for row in SENT if row[1] == "EUR"]


def ran(home: Path, client: Path) -> tuple[subprocess.CompletedProcess[str], list[MessageExt]]:
    """Runs the example on a cluster and with files of its own; returns its end, and what its sink wrote."""
    directory = home / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", directory)
    spec = directory / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/pyrmq-pipeline" in text
    spec.write_text(text.replace("/tmp/pyrmq-pipeline", str(home / "storage")))
    with EmbeddedCluster(topics={"payments": 2, "euros": 1}) as cluster:
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            for body, tags in SENT:
                producer.send(Message("payments", body, tags=tags))
        wait_readable(cluster.nameserver, "payments", len(SENT))
        environment = job_environment(ROOT, client) | {
            "NAMESRV_ADDR": cluster.nameserver,
            "SPARK_HOME": str(SPARK_HOME),
        }
        settings = ["--conf", "spark.ui.enabled=false", "--conf", "=".join(CONNECT_SETTING)]
        command = ["/bin/bash", str(SPARK_HOME / "bin" / "spark-pipelines"), "run", *settings]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode:
            return done, []
        wait_readable(cluster.nameserver, "euros", len(SENT) // 2)
        return done, messages(cluster, "euros")
