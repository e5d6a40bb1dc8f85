"""Queries with several streams in them, on every cluster: subclassed where a fixture names a NameServer."""

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_streams import SECONDS, Topic, bodies, run, stream


def rows_by_source(query: StreamingQuery) -> list[list[int]]:
    """Rows of each source in each batch that had some."""
    return [
        [source["numInputRows"] for source in progress["sources"]]
        for progress in (json.loads(progress.json) for progress in query.recentProgress)
        if progress["numInputRows"]
    ]


class UnionJobs:
    """Each test has topics of its own."""

    def test_each_of_two_capped_sources_keeps_its_rate_when_the_other_has_run_dry(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        other = sent.another("b")
        sent.send(0, 12, sent.queues()[0])
        other.send(100, 120, other.queues()[0])
        few = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest", maxOffsetsPerTrigger=8)
        many = stream(spark, sent.nameserver, topic=other.name, startingOffsets="earliest", maxOffsetsPerTrigger=5)
        query = run(few.union(many), tmp_path)
        assert rows_by_source(query) == [[8, 5], [4, 5], [0, 5], [0, 5]]
        sent.send(12, 22, sent.queues()[0])
        query = run(few.union(many), tmp_path)
        assert rows_by_source(query) == [[8, 0], [2, 0]]
        assert bodies(spark, tmp_path) == [*range(22), *range(100, 120)]

    def test_a_source_that_has_run_dry_is_not_read_again_when_its_batch_is(
        self, spark: SparkSession, sent: Topic, tmp_path: Path
    ) -> None:
        """Its offset, which says where its last batch began, stands in the log of the batch that fails, too."""
        other = sent.another("b")
        sent.send(0, 5, sent.queues()[0])
        other.send(100, 110, other.queues()[0])
        got: list[list[int]] = []

        def failing(batch: DataFrame, number: int) -> None:
            got.append(sorted(int(row.body) for row in batch.selectExpr("cast(body as string) as body").collect()))
            if len(got) == 2:
                raise ValueError("the sink fails")

        def query() -> StreamingQuery:
            options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 5}
            frames = [stream(spark, sent.nameserver, topic=topic.name, **options) for topic in (sent, other)]
            writer = frames[0].union(frames[1]).writeStream.foreachBatch(failing)
            return writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

        with pytest.raises(StreamingQueryException, match="the sink fails"):
            query().awaitTermination(SECONDS)
        assert query().awaitTermination(SECONDS)
        assert got == [[*range(5), *range(100, 105)], [*range(105, 110)], [*range(105, 110)]]

    @pytest.mark.parametrize("reuse", [True, False])
    def test_a_stream_joined_with_itself_has_one_offset(
        self, spark: SparkSession, sent: Topic, tmp_path: Path, reuse: bool
    ) -> None:
        """Both sides name the same columns of one reader: read once where Spark reuses the exchange, else twice."""
        sent.send(0, 30)
        frame = stream(spark, sent.nameserver, topic=sent.name, startingOffsets="earliest")
        numbers = frame.selectExpr("cast(cast(body as string) as int) as n")
        writer = numbers.join(numbers, "n").writeStream.format("memory").queryName(f"joined_{reuse}")
        before = spark.conf.get("spark.sql.exchange.reuse") or "true"
        spark.conf.set("spark.sql.exchange.reuse", str(reuse).lower())
        try:
            query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            assert query.awaitTermination(SECONDS)
        finally:
            spark.conf.set("spark.sql.exchange.reuse", before)
        assert sorted(row.n for row in spark.table(f"joined_{reuse}").collect()) == list(range(30))
        assert rows_by_source(query) == [[30 if reuse else 60]]
        assert len(set((tmp_path / "offsets" / "0").read_text().splitlines()[2:])) == 1
