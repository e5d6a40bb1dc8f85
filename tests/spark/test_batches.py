"""Spark writes to our own cluster and reads back."""

import time

import pytest
from pyspark.sql import SparkSession

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.protocol.requests.broker.send_message import SendMessage
from tests.support.apache import ask
from tests.support.spark import read, wait_readable
from tests.support.spark_batches import BatchJobs, RefusedJobs, topic

__all__ = ["topic"]

pytestmark = pytest.mark.spark


class TestBatchJobs(BatchJobs):
    """The batch jobs, on two brokers of ours."""


class TestRefusedJobs(RefusedJobs):
    """The jobs that every cluster refuses."""


def test_the_host_of_a_producer_behind_a_proxy(spark: SparkSession, cluster: EmbeddedCluster, topic: str) -> None:
    """A proxy sends for its clients, with the host of each among the properties."""
    now_ms = time.time_ns() // 1_000_000
    for properties in ("__BORNHOST\x01worker-7\x02", "a\x01b\x02"):
        request = SendMessage("proxy", topic, "TBW102", 1, 0, 0, now_ms, 0, properties, body=b"x")
        assert ask(next(iter(cluster.brokers.values())), request.to_command()).code == 0
    wait_readable(cluster.nameserver, topic, 2)
    frame = read(spark, cluster.nameserver, "queueOffset long, producerHost string, bornHost string", topic=topic)
    first, second = frame.orderBy("queueOffset").collect()
    assert (first.producerHost, second.producerHost) == ("worker-7", None)
    assert first.bornHost.startswith("127.0.0.1:")
