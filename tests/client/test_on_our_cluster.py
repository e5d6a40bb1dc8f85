"""The client against our own servers: the same tests as against RocketMQ's."""

from collections.abc import Iterator, Sequence

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.client_jobs import ClientJobs, client, consumer, producer, topic

__all__ = ["client", "consumer", "producer", "topic"]


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster.nameserver


@pytest.fixture
def nothing_committed() -> Sequence[int | None]:
    return (None,)


class TestClientJobs(ClientJobs):
    """All of them, in this process."""
