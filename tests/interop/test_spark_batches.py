"""Spark writes to Apache RocketMQ and reads back."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import BatchJobs, topic

__all__ = ["spark", "topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestBatchJobs(BatchJobs):
    """All of them, on each release."""

    ROWS = 100_000
