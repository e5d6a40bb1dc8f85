"""Streams read from Apache RocketMQ."""

import pytest

from tests.support.apache import ApacheCluster
from tests.support.spark import spark
from tests.support.spark_batches import topic
from tests.support.spark_streams import StreamJobs, sender, sent
from tests.support.spark_stress import StressJobs
from tests.support.spark_unions import UnionJobs

__all__ = ["sender", "sent", "spark", "topic"]

pytestmark = pytest.mark.spark


@pytest.fixture
def nameserver(apache: ApacheCluster) -> str:
    return apache.nameserver.address


class TestStreamJobs:
    """Jobs in which a broker's part is larger than Spark's; `test_progress_in_mqadmin.py` has the progress."""

    test_sql_over_properties = StreamJobs.test_sql_over_properties
    test_times_start_a_stream = StreamJobs.test_times_start_a_stream
    test_everything_once_over_stops_and_starts = StreamJobs.test_everything_once_over_stops_and_starts
    test_new_queues_from_their_beginning = StreamJobs.test_new_queues_from_their_beginning
    test_a_deleted_topic_fails_the_query_by_name = StreamJobs.test_a_deleted_topic_fails_the_query_by_name


@pytest.mark.soak
class TestEveryStreamJob(StreamJobs):
    """All jobs of streams."""


@pytest.mark.soak
class TestUnionJobs(UnionJobs):
    """The jobs of queries with several streams, which plan and read as `tests/spark` does on a broker of ours."""


@pytest.mark.soak
class TestStressJobs(StressJobs):
    """The jobs over topics that change at random."""
