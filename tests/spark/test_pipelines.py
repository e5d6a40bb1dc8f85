"""Spark's Declarative Pipelines: the example reads a topic into a table, and writes another topic from it."""

import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.connect import connect_client
from tests.support.maven import ApacheUnavailable
from tests.support.sink import messages
from tests.support.spark import CONNECT_SETTING, wait_readable
from tests.support.standalone import job_environment

ROOT = Path(__file__).parent.parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 840

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


def test_the_example_fills_its_table_and_its_sink(tmp_path: Path) -> None:
    try:
        client = connect_client()  # a pipeline is a client of Spark Connect
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    directory = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", directory)
    spec = directory / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/pyrmq-pipeline" in text
    spec.write_text(text.replace("/tmp/pyrmq-pipeline", str(tmp_path / "storage")))
    with EmbeddedCluster(topics={"payments": 2, "euros": 1}) as cluster:
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            for number in range(10):
                tags = "EUR" if number % 2 else "USD"
                producer.send(Message("payments", f"{number}.50".encode(), tags=tags))
        wait_readable(cluster.nameserver, "payments", 10)
        environment = job_environment(ROOT, client) | {
            "NAMESRV_ADDR": cluster.nameserver,
            "SPARK_HOME": str(SPARK_HOME),
        }
        settings = ["--conf", "spark.ui.enabled=false", "--conf", "=".join(CONNECT_SETTING)]
        command = ["/bin/bash", str(SPARK_HOME / "bin" / "spark-pipelines"), "run", *settings]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        wait_readable(cluster.nameserver, "euros", 5)
        sent = messages(cluster, "euros")
        assert sorted(message.body for message in sent) == [b"1.50", b"3.50", b"5.50", b"7.50", b"9.50"]
        assert {message.tags for message in sent} == {"EUR"}
