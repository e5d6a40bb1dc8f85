"""Log lines of the source in Spark's workers, read by SQL, and of Spark in the reports of these tests."""

import json

import pytest
from pyspark.errors import AnalysisException
from pyspark.logger.logger import JSONFormatter
from pyspark.sql import SparkSession

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.support.spark import read, wait_readable

pytestmark = pytest.mark.spark


def test_skipped_offsets_stand_in_the_workers_logs(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin, Producer("setup", nameserver=cluster.nameserver) as producer:
        admin.create_topic("logged", queues=1)
        producer.send(Message("logged", b"row"), queue=MessageQueue("logged", "broker-a", 0))
    wait_readable(cluster.nameserver, "logged", 1)
    start = {"logged": {"broker-a": {"0": 70}, "broker-b": {"0": 0}}}
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        options = {"topic": "logged", "startingOffsets": json.dumps(start), "failOnDataLoss": "false"}
        assert read(spark, cluster.nameserver, None, **options).collect() == []
        lines = [row.msg for row in spark.tvf.python_worker_logs().collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert any("the start of logged/broker-a/0 is offset 70, but its broker keeps 0 to 1" in line for line in lines)


@pytest.fixture
def logged_error(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        spark.sql("select missing")


@pytest.mark.usefixtures("logged_error")
def test_a_logged_error_of_sql_leaves_later_logs_as_text(caplog: pytest.LogCaptureFixture) -> None:
    assert not isinstance(caplog.handler.formatter, JSONFormatter)
