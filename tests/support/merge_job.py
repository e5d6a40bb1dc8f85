"""Changes merged into a table of Iceberg or Delta Lake, in a process of its own that ends once in the midst of a batch.

python -m tests.support.merge_job iceberg|delta DIRECTORY JARS

DIRECTORY/steps has a line of each step that differs from what it should be, DIRECTORY/rows the rows of the stream's
table. The process ends with DEATH between the merge and its positions, unless DIRECTORY/died is there; a second process
goes on with the stream.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyrmq_spark import cdc
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.source_table import DDL, Change, SourceTable, canal_message, canal_messages

DEATH = 9
COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"
UNCHANGED = "__debezium_unavailable_value"
SETTINGS = {
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "file://{directory}/lake",
        "spark.sql.defaultCatalog": "lake",
    },
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": "{directory}/lake",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
}
# The session's start is most of its life, and a merge of few rows is mostly the compiling of its plan.
FAST = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={directory}",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
}


class Job:
    """The tables of a session, and the steps that went wrong."""

    def __init__(self, kind: str, directory: Path, jars: str) -> None:
        builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
        for name, value in {**FAST, **SETTINGS[kind]}.items():
            builder = builder.config(name, value.format(directory=directory))
        self.spark = builder.getOrCreate()
        self.spark.sql("CREATE DATABASE IF NOT EXISTS shop")
        if kind == "delta":  # the session's own catalog is in the memory of the process that died
            for table in directory.glob("lake/shop.db/*"):
                self.spark.sql(f"CREATE TABLE shop.{table.name} USING delta LOCATION '{table}'")
        self.directory = directory
        self.faults: list[str] = []

    def batch(self, first: int, bodies: Iterable[str]) -> DataFrame:
        rows = [("t", "b", 0, first + number, bytearray(body.encode())) for number, body in enumerate(bodies)]
        return self.spark.createDataFrame(rows, COLUMNS)

    def keep(self, name: str, frame: DataFrame, **other: Any) -> list[tuple[object, ...]]:
        """Applies a batch, and returns the rows of the table."""
        options = {"tool": "canal", "schema": DDL, "key": "id", "table": "shop.customers"} | other
        cdc.apply(frame, f"shop.{name}", merge=True, positions=self.positions(name), **options)
        return self.rows(name)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        rows = cdc.table(self.spark, f"shop.{name}", merge=True).collect()
        return sorted(tuple(None if value is None else str(value) for value in row) for row in rows)

    def positions(self, name: str) -> str:
        return f"{self.directory}/{name}_positions"

    def check(self, step: str, seen: object, expected: object) -> None:
        if seen != expected:
            self.faults.append(f"{step}: {seen!r} is not {expected!r}")

    def refused(self, step: str, condition: str, name: str, frame: DataFrame, **other: Any) -> None:
        before = self.rows(name)
        try:
            self.keep(name, frame, **other)
        except (RocketMQSparkError, PySparkException, Py4JJavaError) as error:
            self.check(step, condition in str(error) or str(error), True)
        else:
            self.faults.append(f"{step}: was not refused")
        self.check(f"{step}, the table", self.rows(name), before)


def of_source(source: SourceTable) -> list[tuple[object, ...]]:
    return sorted(tuple(None if value is None else str(value) for value in row) for row in source.rows())


def lives(job: Job) -> None:
    """Merges random work of a database, in batches that come again, also as after an end before the positions."""
    source, offset, done = SourceTable(), 0, 0
    for seed in (1, 2):
        source.live(30, seed)
        bodies = list(canal_messages(source.changes()[done:], first=done))
        frame = job.batch(offset, bodies)
        saved = Path(f"{job.positions('lives')}_saved")
        shutil.rmtree(saved, ignore_errors=True)
        if seed > 1:
            shutil.copytree(job.positions("lives"), saved)
        job.check(f"life {seed}", job.keep("lives", frame), of_source(source))
        job.check(f"life {seed} again", job.keep("lives", frame), of_source(source))
        offset, done = offset + len(bodies), len(source.changes())
    put_back(job, "lives", saved)
    job.check("merged without positions", job.keep("lives", frame), of_source(source))
    insertion: list[Change] = [("c", None, {"id": 900, "name": "x", "amount": "1.00", "note": None})]
    job.refused("a gap", "RMQ_MISSING_CHANGES", "lives", job.batch(offset + 1, [canal_message(insertion)]))
    truncation = {"isDdl": True, "type": "TRUNCATE", "database": "shop", "table": "customers"}
    bodies = [json.dumps(truncation | {"sql": "TRUNCATE TABLE customers", "es": 9}), canal_message(insertion)]
    job.check("a truncation", job.keep("lives", job.batch(offset, bodies)), [("900", "x", "1.00", None)])


def unavailable(job: Job) -> None:
    """Checks that long values which PostgreSQL did not send stay those of the table."""
    options = {"tool": "debezium", "schema": "id bigint, city string, life string", "table": "public.t"}

    def envelope(op: str, read: int, key: int, city: str, life: str | None) -> str:
        row = {"id": key, "city": city, "life": life}
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "lsn": read}
        images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
        return json.dumps(images | {"op": op, "source": source | {"snapshot": None}, "ts_ns": read})

    first = [envelope("r", 1, 1, "Bern", "long"), envelope("r", 2, 2, "Chur", "longer")]
    rows = [("1", "Bern", "long"), ("2", "Chur", "longer")]
    job.check("a snapshot", job.keep("t", job.batch(0, first), **options), rows)
    more = [envelope("u", 3, 1, "Basel", UNCHANGED), envelope("d", 4, 2, "", None)]
    job.check("an unchanged value", job.keep("t", job.batch(2, more), **options), [("1", "Basel", "long")])
    lacking = job.batch(4, [envelope("u", 5, 3, "x", UNCHANGED)])
    job.refused("a value that nobody has", "RMQ_LACKING_COLUMN", "t", lacking, **options)


def stream(job: Job, batches: Sequence[Sequence[str]]) -> None:
    """Runs a stream of files, a batch each, whose process ends once between a merge and its positions."""
    files, died = job.directory / "files", job.directory / "died"
    if not files.exists():
        offset = 0
        for number, bodies in enumerate(batches):
            job.batch(offset, bodies).coalesce(1).write.parquet(f"{files}/{number}")
            offset += len(bodies)

    def merge(batch: DataFrame, number: int) -> None:
        saved = Path(f"{job.positions('streamed')}_saved")
        if number == 1 and not died.exists():
            shutil.copytree(job.positions("streamed"), saved)
        job.keep("streamed", batch)
        if number == 1 and not died.exists():
            put_back(job, "streamed", saved)
            died.touch()
            os._exit(DEATH)

    reader = job.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).option("recursiveFileLookup", "true")
    query = reader.parquet(str(files)).writeStream.foreachBatch(merge).trigger(availableNow=True)
    query.option("checkpointLocation", str(job.directory / "checkpoint")).start().awaitTermination()
    (job.directory / "rows").write_text(json.dumps(job.rows("streamed")))


def put_back(job: Job, name: str, saved: Path) -> None:
    """Makes the positions those of before the merge."""
    shutil.rmtree(job.positions(name))
    shutil.copytree(saved, job.positions(name))


def main(kind: str, folder: str, jars: str) -> None:
    job = Job(kind, Path(folder), jars)
    source, batches, done = SourceTable(), [], 0
    for seed in (3, 4, 5):
        source.live(20, seed)
        batches.append(list(canal_messages(source.changes()[done:], first=done)))
        done = len(source.changes())
    if not (job.directory / "died").exists():
        lives(job)
        unavailable(job)
        (job.directory / "steps").write_text("\n".join(job.faults))
    (job.directory / "expected").write_text(json.dumps(of_source(source)))
    stream(job, batches)


if __name__ == "__main__":
    main(*sys.argv[1:])
