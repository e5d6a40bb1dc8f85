"""Committed writes to our own cluster, and committed reads of them."""

import pytest

from tests.support.committed_jobs import CommittedJobs
from tests.support.spark_streams import sender, sent

__all__ = ["sender", "sent"]

pytestmark = pytest.mark.spark


class TestCommittedJobs(CommittedJobs):
    """The jobs, on two brokers of ours."""
