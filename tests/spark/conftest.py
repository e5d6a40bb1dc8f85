"""A session, and a cluster of our own in this process."""

from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.spark import spark

__all__ = ["spark"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers, which evaluate SQL."""
    with EmbeddedCluster(brokers=2, settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture
def nameserver(cluster: EmbeddedCluster) -> str:
    return cluster.nameserver
