"""Apache RocketMQ's releases as fixtures: one cluster each with two brokers, booted at first use.

They end behind the last test of this folder: an idle broker takes 3 to 10 % of a processor from what comes then.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster, boot_cluster
from tests.support.guarded import CLUSTERS, Guarded
from tests.support.maven import ApacheUnavailable

HERE = Path(__file__).parent
BROKERS = ("broker-a", "broker-b")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests below this folder `interop`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@contextmanager
def cluster_or_skip(version: str, brokers: tuple[str, ...] = BROKERS, **options: Any) -> Iterator[ApacheCluster]:
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(boot_cluster(version, brokers, **options))
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
        yield cluster


@pytest.fixture(scope="package")
def apache_5() -> Iterator[ApacheCluster]:
    """Apache RocketMQ 5.4.0."""
    with cluster_or_skip("5.4.0") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def apache_4() -> Iterator[ApacheCluster]:
    """Apache RocketMQ 4.9.7."""
    with cluster_or_skip("4.9.7") as cluster:
        yield cluster


@pytest.fixture(scope="package", params=CLUSTERS)
def guarded(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    """A cluster with access control: ours and Apache's, in both forms."""
    try:
        with CLUSTERS[request.param]() as cluster:
            yield cluster
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=NEWEST_AND_LONG_OLDER)
def apache(request: pytest.FixtureRequest) -> ApacheCluster:
    """Each release in turn."""
    cluster: ApacheCluster = request.getfixturevalue(f"apache_{request.param[0]}")
    return cluster
