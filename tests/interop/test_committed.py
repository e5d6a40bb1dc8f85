"""Committed writes to Apache RocketMQ, and committed reads of them."""

import pytest

from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.committed_jobs import CommittedJobs
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.spark_streams import sender, sent

__all__ = ["sender", "sent", "spark", "topic"]

pytestmark = pytest.mark.spark


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


@pytest.mark.parametrize("apache", NEWEST_AND_LONG_OLDER, indirect=True)
class TestCommittedJobs(CommittedJobs):
    """The jobs; 4.9.7 has no batch topics, and does the others in the long tests."""


@pytest.mark.parametrize("apache", ["4.9.7"], indirect=True)
class TestCommittedJobsOfTheOlder:
    """The job that needs most of a broker in the least time."""

    test_a_batch_is_read_once = CommittedJobs.test_a_batch_is_read_once
