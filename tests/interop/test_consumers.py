"""Push consumers against Apache RocketMQ: the same tests as against our own servers."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.consumer_jobs import ConsumerJobs


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestConsumerJobs(ConsumerJobs):
    """All of them, on each release."""
