"""The module by which pytest finds the fixture `rocketmq_cluster`: a RocketMQ in the test's own process.

pytest loads it in every run of a Python that has pyrmq installed. So it imports nothing of pyrmq until a test uses the
fixture. The names that such tests need are in `pyrmq_core.testing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyrmq_core.blocking import EmbeddedCluster

MARK = "rocketmq_cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark, for runs with `--strict-markers`."""
    config.addinivalue_line("markers", f"{MARK}(**arguments): arguments of the fixture's EmbeddedCluster, as brokers=2")


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A NameServer and one broker, new for each test. `@pytest.mark.rocketmq_cluster(brokers=2)` sets other arguments.

    It is the blocking `EmbeddedCluster`, which tests can use with or without an event loop.
    """
    from pyrmq_core.blocking import EmbeddedCluster

    mark = request.node.get_closest_marker(MARK)
    with EmbeddedCluster(*mark.args, **mark.kwargs) if mark else EmbeddedCluster() as cluster:
        yield cluster
