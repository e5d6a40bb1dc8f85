"""Reads of a topic in which transactions are under way: half messages are neither rows nor losses."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyrmq_core import LocalTransactionState, Message, MessageExt
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, read_source
from pyrmq_spark.read.columns import source_schema
from pyrmq_spark.source import RocketMQReader
from tests.support.spark import wait_readable

SCHEMA = source_schema(StructType([StructField("queueOffset", LongType()), StructField("body", StringType())]))
COMMIT, ROLLBACK = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.ROLLBACK_MESSAGE


class Silent:
    """Ends nothing when it is queried."""

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"transactionTimeOut": "1", "transactionCheckInterval": "50", "transactionCheckMax": "10000"}
    with EmbeddedCluster(settings=settings) as cluster:
        yield cluster
        worker.close()


def rows(cluster: EmbeddedCluster) -> list[tuple[int, str]]:
    """Reads the whole topic; a gap in its offsets would be data loss and fail."""
    connection = ConnectionOptions(name_server=cluster.nameserver)
    reader = RocketMQReader(connection, read_source({"topic": "ledger"}), SCHEMA)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def test_rows_are_the_committed_messages(cluster: EmbeddedCluster) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("ledger", queues=1)
    with Producer("ledgers", nameserver=cluster.nameserver, transaction_listener=Silent()) as producer:
        begun = [producer.begin_transaction(Message("ledger", b"%d" % number)) for number in range(6)]
        assert rows(cluster) == []
        producer.end_transaction(begun[0], ROLLBACK)
        producer.end_transaction(begun[4], COMMIT)
        wait_readable(cluster.nameserver, "ledger", 1)
        producer.send(Message("ledger", b"plain"))
        assert rows(cluster) == [(0, "4"), (1, "plain")]
        producer.end_transaction(begun[1], COMMIT)
        wait_readable(cluster.nameserver, "ledger", 3)
        assert rows(cluster) == [(0, "4"), (1, "plain"), (2, "1")]
