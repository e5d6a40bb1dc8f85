"""Groups that consume batch topics of our own servers: what they give back is one message of a batch."""

from collections.abc import Iterator

import pytest

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.batch_group_jobs import BatchGroupJobs


@pytest.fixture(scope="module")
def nameserver() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.nameserver


class TestBatchGroupJobs(BatchGroupJobs):
    """All of them, in this process."""
