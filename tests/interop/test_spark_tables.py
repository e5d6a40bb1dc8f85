"""Topics of Apache RocketMQ as tables, and a database from its change messages."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.table_jobs import TableJobs

__all__ = ["spark", "topic"]

# The jobs need from a broker what every read does, and `test_spark_batches.py` has that of 5.4.0.
pytestmark = [pytest.mark.spark, pytest.mark.soak]


class TestTableJobs(TableJobs):
    """All jobs, on 5.4.0."""

    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address
