"""Batch topics on our own cluster, written and read by Spark."""

import pytest

from tests.support.batch_topic_jobs import BatchTopicJobs, topic

__all__ = ["topic"]

pytestmark = pytest.mark.spark


class TestBatchTopicJobs(BatchTopicJobs):
    """The jobs on batch topics, on two brokers of ours."""
