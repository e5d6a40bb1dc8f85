"""A session, and a cluster of our own in this process."""

import uuid
from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.support.spark import interpreted, spark

__all__ = ["interpreted", "spark"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers, which evaluate SQL."""
    with EmbeddedCluster(brokers=2, settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture
def nameserver(cluster: EmbeddedCluster) -> str:
    return cluster.nameserver


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(nameserver=cluster.nameserver) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(cluster: EmbeddedCluster) -> Iterator[Producer]:
    with Producer("setup", nameserver=cluster.nameserver) as producer:
        yield producer


@pytest.fixture
def topic(admin: Admin) -> str:
    """One queue on each broker."""
    name = f"t_{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, queues=1)
    return name
