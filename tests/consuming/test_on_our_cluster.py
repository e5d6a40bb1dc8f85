"""Push consumers against our own servers: the same tests as against RocketMQ's."""

from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.consumer_jobs import ConsumerJobs


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster.nameserver


class TestConsumerJobs(ConsumerJobs):
    """All of them, in this process."""
