"""Committed writes to Apache RocketMQ, and committed reads of them."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.committed_jobs import CommittedJobs
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.spark_streams import sender, sent

__all__ = ["sender", "sent", "spark", "topic"]

pytestmark = pytest.mark.spark


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


@pytest.mark.soak
class TestCommittedJobs(CommittedJobs):
    """The jobs; 4.9.7 has no batch topics. `tests/spark` has all of them on our brokers at each landing."""


class TestCommittedJobsInLittleTime:
    """The job that needs most of a broker in the least time."""

    test_a_batch_is_read_once = CommittedJobs.test_a_batch_is_read_once


@pytest.mark.parametrize("apache", ["5.4.0"], indirect=True)
class TestCommittedJobsOfTheNewer:
    """The job with the broker's own batches."""

    test_a_batch_topic = CommittedJobs.test_a_batch_topic
