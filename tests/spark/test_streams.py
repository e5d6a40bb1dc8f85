"""Streams read from our own cluster."""

import pytest

from tests.support.spark_batches import topic
from tests.support.spark_streams import StreamJobs, sender, sent
from tests.support.spark_stress import StressJobs
from tests.support.spark_unions import UnionJobs

__all__ = ["sender", "sent", "topic"]

pytestmark = pytest.mark.spark


class TestStreamJobs(StreamJobs):
    """The jobs of streams, on two brokers of ours."""


class TestUnionJobs(UnionJobs):
    """The jobs of queries with several streams."""


class TestStressJobs(StressJobs):
    """The jobs over topics that change at random."""
