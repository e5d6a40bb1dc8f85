"""Whole columns against our own servers: the same tests as against RocketMQ's."""

from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.arrow_jobs import ArrowJobs, made_topic
from tests.support.client_jobs import client, consumer, producer, topic

__all__ = ["client", "consumer", "made_topic", "producer", "topic"]


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster.nameserver


class TestArrowJobs(ArrowJobs):
    """The jobs on columns, in this process."""
