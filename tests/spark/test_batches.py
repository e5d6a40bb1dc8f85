"""Spark writes to our own cluster and reads back."""

import pytest

from tests.support.spark_batches import BatchJobs, RefusedJobs, topic

__all__ = ["topic"]

pytestmark = pytest.mark.spark


class TestBatchJobs(BatchJobs):
    """The batch jobs, on two brokers of ours."""


class TestRefusedJobs(RefusedJobs):
    """The jobs that every cluster refuses."""
