"""Topics as tables and change data, for every cluster, ours and RocketMQ's own; subclasses supply the NameServer."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, Producer
from pyrmq_spark import topics
from pyrmq_spark.cdc import canal
from tests.support.source_table import DDL, OPS, SourceTable, canal_messages
from tests.support.spark import wait_readable


def final_table(changes: DataFrame) -> list[tuple[object, ...]]:
    """Returns the rows of the table after all changes."""
    latest = Window.partitionBy("key").orderBy(F.col("sequence").desc())
    rows = changes.withColumn("rank", F.row_number().over(latest)).where("rank = 1 AND op <> 'delete'")
    return sorted(tuple(row) for row in rows.select("after.*").collect())


def rows_in_source(source: SourceTable) -> list[tuple[object, ...]]:
    """Returns the rows of the database in the types of Spark."""
    return [(key, name, Decimal(str(amount)), note) for key, name, amount, note in source.rows()]


class TableJobs:
    """Each test has topics of its own."""

    def test_a_database_comes_back_from_the_view_of_its_topic(
        self, spark: SparkSession, nameserver: str, topic: str
    ) -> None:
        empty, source = f"{topic}_empty", SourceTable()
        source.live(60, seed=3)
        sent = list(canal_messages(source.changes()))
        with Admin(nameserver=nameserver, timeout=20) as admin:
            for name in (topic, empty):
                admin.create_topic(name, queues=1)
        with Producer("canal", nameserver=nameserver) as producer:
            queue = producer.message_queues(topic)[0]  # changes of several queues have no order among them
            for body in sent:
                producer.send(Message(topic, body.encode()), queue=queue)
        wait_readable(nameserver, topic, len(sent))

        views = topics(spark, nameServer=nameserver, pattern=f"{topic}.*")
        assert set(views) == {topic, empty}
        assert spark.sql(f"SELECT * FROM {views[empty]}").collect() == []
        kinds = spark.sql(f"SELECT type, data, _corrupt FROM {views[topic]}").collect()
        assert all(row._corrupt is None for row in kinds)
        counts = Counter(row.type for row in kinds for _ in row.data)
        assert counts == Counter(OPS[op] for op, _, _ in source.changes())
        changes = canal(spark.table(views[topic]), DDL, key="id", table="shop.customers")
        assert final_table(changes) == rows_in_source(source) != []
