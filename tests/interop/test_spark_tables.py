"""Topics of Apache RocketMQ as tables, and a database from its change messages."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.table_jobs import TableJobs

__all__ = ["spark", "topic"]

pytestmark = pytest.mark.spark


class TestTableJobs(TableJobs):
    """All jobs, on the newest release: they need from a broker what every read does."""

    @pytest.fixture
    def nameserver(self, apache_5: ApacheCluster) -> str:
        return apache_5.nameserver.address
