"""Streams read from Apache RocketMQ."""

import pytest

from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.spark_streams import StreamJobs, sender, sent
from tests.support.spark_stress import StressJobs
from tests.support.spark_unions import UnionJobs

__all__ = ["sender", "sent", "spark", "topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestStreamJobs(StreamJobs):
    """The jobs of streams, on each release."""


@pytest.mark.parametrize("apache", NEWEST_AND_LONG_OLDER, indirect=True)
class TestUnionJobs(UnionJobs):
    """The jobs of queries with several streams."""


@pytest.mark.parametrize("apache", NEWEST_AND_LONG_OLDER, indirect=True)
class TestStressJobs(StressJobs):
    """The jobs over topics that change at random."""
