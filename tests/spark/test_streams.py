"""Streams read from our own cluster."""

import pytest

from tests.support.spark_batches import topic
from tests.support.spark_streams import StreamJobs, sender, sent

__all__ = ["sender", "sent", "topic"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


class TestStreamJobs(StreamJobs):
    """All of them, on two brokers of ours."""
