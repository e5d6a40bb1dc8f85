"""The client against Apache RocketMQ, and the same against our own servers as processes."""

from collections.abc import Iterator, Sequence

import pytest

from tests.support.apache import NEWEST_AND_LONG_OLDER
from tests.support.client_jobs import ClientJobs, client, consumer, producer, topic
from tests.support.our_cluster import boot_our_cluster

__all__ = ["client", "consumer", "producer", "topic"]


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with boot_our_cluster() as cluster:
        yield cluster.nameserver.address


@pytest.fixture(params=("ours", *NEWEST_AND_LONG_OLDER))
def make(request: pytest.FixtureRequest) -> str:
    """The maker of the servers: ours, or a release of RocketMQ's."""
    return str(request.param)


@pytest.fixture
def nameserver(request: pytest.FixtureRequest, make: str) -> str:
    if make == "ours":
        return str(request.getfixturevalue("ours"))
    return str(request.getfixturevalue(f"apache_{make[0]}").nameserver.address)


@pytest.fixture
def nothing_committed(make: str) -> Sequence[int | None]:
    """The answers for a group without commits; 4.9.7 has no code for it and answers 0."""
    return (0,) if make == "4.9.7" else (None,)


class TestClientJobs(ClientJobs):
    """The client's jobs, on each make."""
