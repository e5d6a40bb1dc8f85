"""Spark writes to Apache RocketMQ and reads back."""

import pytest
from pyspark.sql import SparkSession

from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster
from tests.support.spark import read, spark, wait_readable, write
from tests.support.spark_batches import BatchJobs, some_rows, topic

__all__ = ["spark", "topic"]

pytestmark = pytest.mark.spark


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestBatchJobs:
    """Jobs in which a broker's part is larger than Spark's; `test_arrow.py` has long bodies and many topics."""

    ROWS = 5_000
    queues = BatchJobs.queues
    test_rows_come_back_as_they_went = BatchJobs.test_rows_come_back_as_they_went
    test_offsets_bound_what_is_read = BatchJobs.test_offsets_bound_what_is_read
    test_times_bound_what_is_read = BatchJobs.test_times_bound_what_is_read
    test_tags_are_filtered_at_the_broker_and_again = BatchJobs.test_tags_are_filtered_at_the_broker_and_again


@pytest.mark.soak
class TestEveryBatchJob(BatchJobs):
    """All batch jobs."""

    ROWS = 20_000


def test_ranges_that_cut_the_records_of_a_batch_topic(spark: SparkSession, apache_5: ApacheCluster, topic: str) -> None:
    """A record holds a whole request there: tasks that share one return each of its messages once.

    One of the four queues stays empty: 5.4.0 reports that it begins at -1, and fails a search by time in it.
    """
    nameserver = apache_5.nameserver.address
    with Admin(nameserver=nameserver, timeout=20) as admin:
        admin.create_topic(topic, queues=2, batch=True)
    write(some_rows(spark, 5000, 3), nameserver, topic=topic, maxBatchBytes=30_000)
    wait_readable(nameserver, topic, 5000)
    for options in ({}, {"minPartitions": 17}, {"maxRecordsPerPartition": 130}, {"startingTimestamp": 0}):
        rows = read(spark, nameserver, "body string, queueOffset long", **{"topic": topic} | options)
        assert sorted(int(row.body.removeprefix("row ")) for row in rows.collect()) == list(range(5000))
