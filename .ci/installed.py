"""Tries an installed distribution as a user would: `installed.py [EXTRAS]`, run outside the checkout."""

import subprocess
import sys
from pathlib import Path

import pyrmq_core
from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer

extras = sys.argv[1].strip("[]").split(",")
program = Path(sys.executable).parent / "pyrmq"


def run(*words: str) -> str:
    """Returns the output of the installed command."""
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=True).stdout


assert "site-packages" in pyrmq_core.__file__, pyrmq_core.__file__
assert (Path(pyrmq_core.__file__).parent / "py.typed").exists()
with EmbeddedCluster(brokers=1) as cluster:
    with Producer("installed", nameserver=cluster.nameserver) as producer:
        result = producer.send(Message("orders", b"tea" * 2000, keys="42"))
    with PullConsumer("installed", nameserver=cluster.nameserver) as consumer:
        pulled = consumer.pull(result.message_queue, result.queue_offset, wait=5)
    assert [message.body for message in pulled.messages] == [b"tea" * 2000]
    heavy = {"pyspark", "pyarrow", "numpy", "click", "starlette"} & set(sys.modules)
    assert not heavy, heavy
    if "cli" in extras:
        assert pyrmq_core.__version__ in run("--version")
        assert "orders" in run("topic", "list", "-n", cluster.nameserver)
    if "web" in extras:
        from pyrmq_core.tools.web.rendering import STATIC, TEMPLATES

        assert (STATIC / "page.css").exists()
        assert (TEMPLATES / "base.html").exists()
    if "spark" in extras:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        source = spark.read.format("rocketmq").option("nameServer", cluster.nameserver).option("topic", "orders")
        assert source.load().count() == 1
        spark.stop()
if extras == [""]:
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert 'pip install "pyrmq-spark[cli]"' in done.stderr
