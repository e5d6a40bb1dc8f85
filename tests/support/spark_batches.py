"""Batch jobs for every cluster, ours and RocketMQ's own; subclasses supply the NameServer fixture."""

import json
import uuid

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from pyrmq_core.blocking import Admin
from tests.support.proxies import administered, topic_attributes
from tests.support.spark import read, wait_readable, write


@pytest.fixture
def topic() -> str:
    """A topic that no test has used."""
    return f"t_{uuid.uuid4().hex[:12]}"


def some_rows(spark: SparkSession, rows: int, partitions: int) -> DataFrame:
    """Returns numbered rows with every kind of column; row n of the frame has body `row n`."""
    return spark.range(0, rows, 1, partitions).selectExpr(
        "concat('row ', id) as body",
        "if(id % 5 = 0, null, concat('tag', id % 3)) as tags",
        "if(id % 7 = 0, null, array(concat('key', id), 'every')) as keys",
        "map('number', cast(id as string), 'é', 'ü') as properties",
    )


class BatchJobs:
    """Each test writes to a topic of its own."""

    ROWS = 10_000

    def test_rows_come_back_as_they_went(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, self.ROWS, 4), nameserver, topic=topic)
        wait_readable(nameserver, topic, self.ROWS)
        rows = read(spark, nameserver, topic=topic).collect()
        assert len(rows) == self.ROWS
        by_number = {int(row.properties["number"]): row for row in rows}
        assert sorted(by_number) == list(range(self.ROWS))
        for number, row in by_number.items():
            assert bytes(row.body).decode() == f"row {number}"
            assert row.topic == topic
            assert row.tags == (None if number % 5 == 0 else f"tag{number % 3}")
            assert row.keys == (None if number % 7 == 0 else f"key{number} every")
            assert row.properties["é"] == "ü"
            assert row.properties.keys() == {"number", "é"}
            assert row.bornTimestamp <= row.storeTimestamp
        assert len({row.msgId for row in rows}) == self.ROWS
        assert len({(row.brokerName, row.queueId, row.queueOffset) for row in rows}) == self.ROWS

    def test_a_partition_keeps_one_queue_and_its_order(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 12_000, 3), nameserver, topic=topic, maxBatchBytes=20_000)
        wait_readable(nameserver, topic, 12_000)
        rows = read(spark, nameserver, "body string, brokerName string, queueId int, queueOffset long", topic=topic)
        queues: dict[int, set[tuple[str, int]]] = {}
        for partition in range(3):
            numbered = sorted(
                (row.queueOffset, int(row.body.removeprefix("row ")), row.brokerName, row.queueId)
                for row in rows.collect()
                if int(row.body.removeprefix("row ")) // 4000 == partition
            )
            queues[partition] = {(broker, queue) for _, _, broker, queue in numbered}
            assert [number for _, number, _, _ in numbered] == list(range(partition * 4000, (partition + 1) * 4000))
        assert all(len(used) == 1 for used in queues.values())

    def test_a_topic_is_copied_by_a_read_and_a_write(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        copy = f"{topic}_copy"
        with Admin(nameserver=administered(nameserver), timeout=20) as admin:
            for name in (topic, copy):
                admin.create_topic(name, queues=3, attributes=topic_attributes(nameserver))
        keyed = some_rows(spark, 2000, 4).withColumn("shardingKey", expr("if(body < 'row 3', tags, null)"))
        write(keyed, nameserver, topic=topic)
        wait_readable(nameserver, topic, 2000)
        write(read(spark, nameserver, topic=topic), nameserver, topic=copy)
        wait_readable(nameserver, copy, 2000)
        columns = "brokerName string, queueId int, queueOffset long, tags string, keys string, body binary, "
        columns += "shardingKey string, properties map<string,string>"
        first, second = (sorted(read(spark, nameserver, columns, topic=name).collect()) for name in (topic, copy))
        assert first == second
        assert {row.shardingKey for row in first} >= {None, "tag1", "tag2"}
        own = read(spark, nameserver, "systemProperties map<string,string>, msgId string", topic=copy).first()
        assert own is not None
        assert own.systemProperties["UNIQ_KEY"] == own.msgId

    def test_requests_take_queue_after_queue(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 10, 1), nameserver, topic=topic)  # from here on the topic has all its queues
        write(some_rows(spark, 4000, 1), nameserver, topic=topic, queueSelection="request", maxBatchBytes=20_000)
        wait_readable(nameserver, topic, 4010)
        used = read(spark, nameserver, "queueId int, brokerName string", topic=topic).distinct().count()
        assert used >= 4

    def test_topics_come_from_the_column(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        frame = spark.range(0, 300, 1, 2).selectExpr(
            f"concat('{topic}_', id % 3) as topic", "cast(id as string) as value"
        )
        write(frame, nameserver)
        for number in range(3):
            wait_readable(nameserver, f"{topic}_{number}", 100)
        rows = read(spark, nameserver, "topic string, body string", topic=f"{topic}_0, {topic}_1,{topic}_2")
        assert_df_equality(rows.withColumnRenamed("body", "value"), frame, ignore_row_order=True, ignore_nullable=True)

    def test_tags_are_filtered_at_the_broker_and_again(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 3000, 2), nameserver, topic=topic)
        wait_readable(nameserver, topic, 3000)
        rows = read(spark, nameserver, "body string, tags string", topic=topic, tags="tag1 || tag2").collect()
        expected = [n for n in range(3000) if n % 5 and n % 3]
        assert sorted(int(row.body.removeprefix("row ")) for row in rows) == expected

    def test_ranges_are_cut_without_loss(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 3000, 3), nameserver, topic=topic)
        wait_readable(nameserver, topic, 3000)
        columns = "brokerName", "queueId", "queueOffset", "msgId", "body"
        whole = read(spark, nameserver, topic=topic).select(*columns)
        for option, value in (("minPartitions", 11), ("maxRecordsPerPartition", 170)):
            cut = read(spark, nameserver, None, **{"topic": topic, option: value})
            assert cut.rdd.getNumPartitions() >= 11
            assert_df_equality(cut.select(*columns), whole, ignore_row_order=True)

    def test_offsets_bound_what_is_read(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 400, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 400)
        rows = read(spark, nameserver, topic=topic).collect()
        used = (rows[0].brokerName, rows[0].queueId)
        queues = self.queues(nameserver, topic)
        start: dict[str, dict[str, int]] = {}
        end: dict[str, dict[str, int]] = {}
        for broker, queue in queues:
            start.setdefault(broker, {})[str(queue)] = 10 if (broker, queue) == used else -2
            end.setdefault(broker, {})[str(queue)] = 25 if (broker, queue) == used else -1
        part = read(
            spark,
            nameserver,
            topic=topic,
            startingOffsets=json.dumps({topic: start}),
            endingOffsets=json.dumps({topic: end}),
        )
        assert sorted(row.queueOffset for row in part.collect()) == list(range(10, 25))
        with pytest.raises(PySparkException, match=r"RMQ_INVALID_OFFSETS.*leaves out"):
            read(spark, nameserver, topic=topic, startingOffsets=f'{{"{topic}":{{"{used[0]}":{{"0":0}}}}}}').count()

    def queues(self, nameserver: str, topic: str) -> list[tuple[str, int]]:
        from pyrmq_core.blocking import PullConsumer

        with PullConsumer("pyrmq-tests", nameserver=nameserver, timeout=20) as consumer:
            return [(queue.broker_name, queue.queue_id) for queue in consumer.message_queues(topic)]

    def test_times_bound_what_is_read(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 100, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 100)
        first = read(spark, nameserver, topic=topic).collect()
        boundary = max(row.storeTimestamp for row in first).timestamp()
        cut = round(boundary * 1000) + 1
        write(some_rows(spark, 50, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 150)
        late = read(spark, nameserver, topic=topic, startingTimestamp=cut, startingOffsetsByTimestampStrategy="latest")
        early = read(spark, nameserver, topic=topic, endingTimestamp=cut)
        assert (late.count(), early.count()) == (50, 100)

    def test_large_and_compressed_bodies(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        frame = spark.range(0, 6, 1, 1).selectExpr(
            "cast(repeat(cast(id as string), cast(pow(8, id) as int)) as binary) as body"
        )
        for compression in ("none", "zlib", "lz4", "zstd"):
            write(frame, nameserver, topic=topic, compression=compression, compressBodyOverBytes=500)
        wait_readable(nameserver, topic, 24)
        rows = read(spark, nameserver, "body string, sysFlag int", topic=topic).collect()
        assert sorted(row.body for row in rows) == sorted(str(n) * 8**n for n in range(6) for _ in range(4))
        assert len({row.sysFlag & 0x701 for row in rows}) == 4

    def test_a_view_takes_inserts(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        spark.sql(
            f"CREATE TEMPORARY VIEW {topic} (body STRING, tags STRING) USING rocketmq "
            f"OPTIONS (nameServer '{nameserver}', topic '{topic}')"
        )
        spark.sql(f"INSERT INTO {topic} VALUES ('a', 'x'), ('b', NULL)")
        wait_readable(nameserver, topic, 2)
        assert sorted(map(tuple, spark.sql(f"SELECT body, tags FROM {topic}").collect())) == [("a", "x"), ("b", None)]

    def test_a_frame_is_read_again_from_the_same_offsets(
        self, spark: SparkSession, nameserver: str, topic: str
    ) -> None:
        write(some_rows(spark, 100, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 100)
        frame = read(spark, nameserver, topic=topic)
        assert frame.count() == 100
        write(some_rows(spark, 100, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 200)
        assert frame.count() == 100
        assert frame.union(frame).count() == 200
        assert read(spark, nameserver, topic=topic).count() == 200

    def test_a_limit_reads_and_leaves(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 20_000, 1), nameserver, topic=topic)
        wait_readable(nameserver, topic, 20_000)
        assert len(read(spark, nameserver, topic=topic).limit(3).collect()) == 3
        assert read(spark, nameserver, topic=topic).count() == 20_000

    def test_frames_without_rows(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        write(some_rows(spark, 5, 1), nameserver, topic=topic)
        write(some_rows(spark, 0, 2), nameserver, topic=topic)
        wait_readable(nameserver, topic, 5)
        nothing = read(spark, nameserver, topic=topic, tags="nobody")
        assert nothing.collect() == []


class RefusedJobs:
    """Rows and topics that no cluster takes: refused before any part of the request is sent."""

    @pytest.mark.parametrize(
        ("column", "reason"),
        [
            ("if(id = 7, null, 'x') as body", "column body: it is null"),
            ("if(id = 7, '', 'x') as body", "column body: it is empty"),
            ("if(id = 7, 'a\\u0001', 'a') as tags", r"column tags: it holds U\+0001"),
            ("if(id = 7, array('a b'), array('c')) as keys", "column keys: .* holds a space"),
            ("if(id = 7, map('KEYS', 'a'), map('b', 'c')) as properties", "column properties: it sets KEYS"),
        ],
    )
    def test_a_wrong_row_fails_the_write_by_name(
        self, spark: SparkSession, nameserver: str, topic: str, column: str, reason: str
    ) -> None:
        columns = [column] if column.endswith("body") else [column, "'x' as body"]
        frame = spark.range(0, 10, 1, 1).selectExpr(*columns)
        with pytest.raises(PySparkException, match=rf"\[RMQ_INVALID_ROW\] partition 0: row 7, {reason}"):
            write(frame, nameserver, topic=topic)

    def test_a_null_topic_fails_the_write_by_name(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        frame = spark.range(0, 5, 1, 1).selectExpr(f"if(id = 1, null, '{topic}') as topic", "'x' as body")
        with pytest.raises(PySparkException, match=r"\[RMQ_INVALID_ROW\] partition 0: row 1, column topic: it is null"):
            write(frame, nameserver)

    def test_a_body_above_the_limit_fails_before_it_is_sent(
        self, spark: SparkSession, nameserver: str, topic: str
    ) -> None:
        frame = spark.range(0, 2, 1, 1).selectExpr("repeat('x', cast(4194304 + id as int)) as body")
        with pytest.raises(PySparkException, match=r"row 1, column body: it is larger than 4194304 bytes"):
            write(frame, nameserver, topic=topic)

    def test_an_unknown_topic(self, spark: SparkSession, nameserver: str, topic: str) -> None:
        with pytest.raises(PySparkException, match=rf"\[RMQ_TOPIC_NOT_FOUND\] .*{topic}"):
            read(spark, nameserver, topic=topic).count()
