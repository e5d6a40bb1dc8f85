"""The behaviour of PySpark that the connector relies on, seen at sources of PySpark alone.

A release that changes it is known here. `make matrix` runs these on every release, and where releases differ the test
says from which one on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from pyrmq_spark.pyspark_releases import has_admission_control
from tests.support import plain_sources
from tests.support.plain_sources import calls

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
COMPARES_TYPES = RELEASE >= (4, 2)  # before, the names of the columns alone
ZONED = pa.timestamp("us", tz="UTC")


@pytest.fixture(scope="module")
def truths(spark: SparkSession) -> SparkSession:
    """The session with the sources."""
    for source in (plain_sources.Batches, plain_sources.Sink, plain_sources.Stream):
        spark.dataSource.register(source)
    return spark


def batches(truths: SparkSession, folder: Path, schema: str, *given: pa.RecordBatch) -> DataFrame:
    """Returns a frame whose reader yields these batches."""
    for number, batch in enumerate(given):
        with pa.ipc.new_stream(folder / f"{number}.arrow", batch.schema) as file:
            file.write_batch(batch)
    (folder / "calls").touch()
    return truths.read.format("truth_batches").option("folder", str(folder)).schema(schema).load()


def array(value: Any, kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array([value], kind)})


@pytest.mark.parametrize(
    ("spark_type", "right", "wrong"),
    [
        ("timestamp", ZONED, (pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("us", "Asia/Tokyo"))),
        ("timestamp_ntz", pa.timestamp("us"), (ZONED,)),
        ("string", pa.string(), (pa.large_string(), pa.string_view())),
        ("bigint", pa.int64(), (pa.int32(),)),
    ],
)
def test_a_readers_first_batch_has_the_one_arrow_type_of_each_column(
    truths: SparkSession, tmp_path: Path, spark_type: str, right: pa.DataType, wrong: tuple[pa.DataType, ...]
) -> None:
    for number, kind in enumerate((right, *wrong)):
        folder = tmp_path / str(number)
        folder.mkdir()
        frame = batches(truths, folder, f"a {spark_type}", array(None, kind))
        if kind == right:
            assert [row.a for row in frame.collect()] == [None]
        elif COMPARES_TYPES:
            with pytest.raises(PySparkException, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
                frame.collect()


def test_a_column_that_may_be_null_is_not_one_that_may_not(truths: SparkSession, tmp_path: Path) -> None:
    never = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    given = pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], schema=never)
    if COMPARES_TYPES:
        with pytest.raises(PySparkException, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
            batches(truths, tmp_path, "a bigint", given).collect()
    (tmp_path / "right").mkdir()
    assert batches(truths, tmp_path / "right", "a bigint NOT NULL", given).collect() == [(1,)]


def test_only_the_first_batch_is_compared(truths: SparkSession, tmp_path: Path) -> None:
    """A later batch with other names ends the task by a line of Arrow's, which names no column."""
    given, later = array(1, pa.int64()), pa.record_batch({"b": pa.array([2, 3], pa.int64())})
    with pytest.raises(PySparkException, match="different schema") as caught:
        batches(truths, tmp_path, "a bigint", given, later).collect()
    assert "DATA_SOURCE_RETURN_SCHEMA_MISMATCH" not in str(caught.value)
    first = tmp_path / "first"
    first.mkdir()
    with pytest.raises(PySparkException, match="DATA_SOURCE_RETURN_SCHEMA_MISMATCH"):
        batches(truths, first, "a bigint", later).collect()


def test_a_reader_is_asked_for_all_columns_and_a_frame_or_view_is_planned_once(
    truths: SparkSession, tmp_path: Path
) -> None:
    given = pa.record_batch({"a": pa.array([1, 2], pa.int64()), "b": pa.array([3, 4], pa.int64())})
    frame = batches(truths, tmp_path, "a bigint, b bigint", given)
    frame.createOrReplaceTempView("planned")
    assert [row.a for row in frame.select("a").collect()] == [1, 2]
    assert frame.where("b > 3").count() == 1
    assert truths.sql("SELECT max(b) FROM planned").first() == (4,)
    assert set(calls(tmp_path)) == {"reader a b", "partitions"}
    assert calls(tmp_path).count("partitions") == (1 if RELEASE >= (4, 1) else 3)
    again = truths.read.format("truth_batches").option("folder", str(tmp_path)).schema("a bigint, b bigint").load()
    assert again.count() == 2
    assert calls(tmp_path).count("partitions") == (2 if RELEASE >= (4, 1) else 4)


def overwrites(folder: Path) -> list[str]:
    return [line.removeprefix("writer ") for line in calls(folder) if line.startswith("writer ")]


def test_which_statements_overwrite(truths: SparkSession, tmp_path: Path) -> None:
    """CREATE OR REPLACE does, too. A CREATE keeps no options, not even for its own AS SELECT: a use names them."""
    options = f"(folder '{tmp_path}')"
    for create, overwrite in (("CREATE", False), ("CREATE OR REPLACE", True)):
        with pytest.raises(PySparkException, match=rf"\[SINK_OPTIONS\] overwrite={overwrite} options=\[\]"):
            truths.sql(f"{create} TABLE truths_selected USING truth_sink OPTIONS {options} AS SELECT 1L AS a")
    try:
        truths.sql(f"CREATE TABLE truths_made USING truth_sink OPTIONS {options}")
        with pytest.raises(PySparkException, match=r"\[SINK_OPTIONS\] overwrite=False options=\[\]"):
            truths.sql("INSERT INTO truths_made SELECT 2L")
        truths.sql(f"INSERT INTO truths_made WITH {options} SELECT 2L")
        truths.sql(f"INSERT OVERWRITE truths_made WITH {options} SELECT 3L")
    finally:
        for name in ("truths_made", "truths_selected"):
            truths.sql(f"DROP TABLE IF EXISTS {name}")
    assert overwrites(tmp_path) == ["False", "True"]


def written(frame: DataFrame, folder: Path, **options: Any) -> list[str]:
    """Writes a frame, and returns what the writer noted."""
    (folder / "calls").touch()
    frame.write.format("truth_sink").option("folder", str(folder)).options(**options).mode("append").save()
    return calls(folder)


def test_an_abort_has_none_for_a_task_that_did_not_end(truths: SparkSession, tmp_path: Path) -> None:
    """They are in the order of partitions. The third task begins when the first one has ended."""
    with pytest.raises(PySparkException, match=r"\[SINK_REFUSED\] this task fails"):
        written(truths.range(0, 9, 1, 3), tmp_path, fails=1)
    (abort,) = (line for line in calls(tmp_path) if line.startswith("abort "))
    first, second, third = abort.split()[1:]
    assert (first, second) == ("0:1", "None")
    assert third in ("2:1", "None")
    assert not any(line.startswith("commit") for line in calls(tmp_path))


def test_an_empty_frame_has_one_task_without_a_batch(truths: SparkSession, tmp_path: Path) -> None:
    assert written(truths.range(0).selectExpr("id AS a"), tmp_path) == ["writer False", "commit 0:0"]


def test_what_a_writer_gets(truths: SparkSession, tmp_path: Path) -> None:
    """Batches of `maxRecordsPerBatch` rows, and times in the session's zone where a reader has to give UTC."""
    rows = truths.range(0, 25, 1, 1).selectExpr("cast(id AS string) AS a", "timestamp_seconds(id) AS t")
    zone, size = "spark.sql.session.timeZone", "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = truths.conf.get(zone)
    truths.conf.set(zone, "Asia/Tokyo")
    truths.conf.set(size, "10")
    try:
        _, types, commit = written(rows, tmp_path)
    finally:
        truths.conf.set(zone, str(before))
        truths.conf.unset(size)
    assert types == "types a=string t=timestamp[us,tz=Asia/Tokyo]"
    assert commit == "commit 0:3"


def stream(truths: SparkSession, folder: Path) -> Any:
    (folder / "calls").touch()
    frame = truths.readStream.format("truth_stream").option("folder", str(folder)).load()
    sink = frame.writeStream.format("truth_stream").option("folder", str(folder))
    return sink.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def test_a_batch_is_committed_when_the_next_one_is_planned(truths: SparkSession, tmp_path: Path) -> None:
    """So the last one never is. Limits, and with them two batches, come with 4.2."""
    query = stream(truths, tmp_path)
    query.awaitTermination()
    seen = calls(tmp_path)
    limited = has_admission_control()
    planned = ["partitions 0 4", "partitions 4 8"] if limited else ["partitions 0 8"]
    assert [line for line in seen if line.startswith("partitions")] == planned
    assert [line for line in seen if line.startswith("commit")] == (["commit 4"] if limited else [])
    assert ("prepare" in seen) is limited
    # The sink's object is made before the tasks, and once more before its commit.
    assert seen.count("streamWriter") == 2 * len(planned)


def test_a_stream_ends_whose_process_needs_ten_seconds_to_connect(truths: SparkSession, tmp_path: Path) -> None:
    """No setting changes it, though `spark.python.authenticate.socketTimeout` reads as if it did."""
    began = time.monotonic()
    with late_processes(truths, tmp_path):
        frame = truths.readStream.format("truth_late").option("folder", str(tmp_path)).load()
        sink = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        with pytest.raises(StreamingQueryException, match=r"Python worker failed to connect back"):
            sink.start().awaitTermination()
    assert 10 <= time.monotonic() - began < 60


@contextmanager
def late_processes(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Holds each process of a stream of the source `truth_late` before its first step, until the block ends."""

    class Late(plain_sources.Stream):
        @classmethod
        def name(cls) -> str:
            return "truth_late"

    held, python = folder / "held", folder / "python"
    os.mkfifo(held)
    wait = f'case "$*" in *python_streaming_source_runner*) read _ < {held} ;; esac'
    python.write_text(f'#!/bin/sh\n{wait}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    context: Any = spark.sparkContext
    before, context.pythonExec = context.pythonExec, str(python)
    try:
        (folder / "calls").touch()
        spark.dataSource.register(Late)
        yield
    finally:
        context.pythonExec = before
        end = os.open(held, os.O_RDWR)  # for both directions: it does not wait for a reader
        os.write(end, b"go\n")
        os.close(end)
