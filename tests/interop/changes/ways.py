"""Ways from the messages of a table's topic to its rows: a batch, and streams that end and are started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark import cdc
from tests.interop.changes.judge import columns_of
from tests.interop.changes.work import Table
from tests.support.spark import NOT_CONNECTED, python_path

KILLED = "the driver was killed"


def arguments_of(table: Table, tool: str) -> dict[str, Any]:
    """Returns what `cdc.apply` has to know of a table."""
    return {
        "tool": tool,
        "schema": columns_of(table),
        "key": list(table.keys),
        "table": table.full_name,
        # A life deletes no rows between its snapshots, and a connector takes several.
        "accept": ("snapshot.mode",),
        **({"timestamp_zone": "UTC"} if tool == "canal" else {}),
    }


def by_batch(messages: DataFrame, table: Table, folder: Path, tool: str) -> DataFrame:
    """Returns the table after all messages in one call."""
    into = str(folder / uuid.uuid4().hex)
    cdc.apply(messages, into, **arguments_of(table, tool))
    return cdc.table(messages.sparkSession, into)


def by_batches(
    messages: DataFrame, table: Table, folder: Path, tool: str, random: Random, batches: int = 4
) -> DataFrame:
    """Returns the table after several batches, some of which come twice, as to a stream that was killed behind one.

    A batch has messages of every queue, up to other offsets.
    """
    into = str(folder / uuid.uuid4().hex)
    last = messages.groupBy("queueId").agg(F.max("queueOffset").alias("end")).collect()
    ends = {row.queueId: row.end + 1 for row in last}
    starts = dict.fromkeys(ends, 0)
    for number in range(batches):
        is_last = number == batches - 1
        stops = {queue: end if is_last else random.randint(starts[queue], end) for queue, end in ends.items()}
        part = "(queueId = {} and queueOffset >= {} and queueOffset < {})"
        parts = [part.format(queue, starts[queue], stops[queue]) for queue in ends]
        for _ in range(random.choice((1, 2))):
            cdc.apply(messages.where(" or ".join(parts)), into, **arguments_of(table, tool))
        starts = stops
    return cdc.table(messages.sparkSession, into)


def by_stream(
    spark: SparkSession, source: Mapping[str, str], table: Table, folder: Path, tool: str, random: Random, at_once: int
) -> DataFrame:
    """Returns the table after a stream that ends before or behind some of its batches, whose offsets are not noted."""
    home = folder / uuid.uuid4().hex
    into, checkpoint = str(home / "table"), str(home / "checkpoint")
    kills = random.sample(("before 0", "behind 0", "behind 1", "before 2", "behind 3"), 2)

    def fail(moment: str) -> None:
        if moment in kills:
            kills.remove(moment)
            raise RuntimeError(KILLED)

    def upsert(batch: DataFrame, number: int) -> None:
        fail(f"before {number}")
        cdc.apply(batch, into, **arguments_of(table, tool))
        fail(f"behind {number}")

    while True:
        reader = spark.readStream.format("rocketmq").options(**source, startingOffsets="earliest")
        messages = reader.option("maxOffsetsPerTrigger", at_once).load()
        query = messages.writeStream.foreachBatch(upsert).option("checkpointLocation", checkpoint)
        try:
            query.trigger(availableNow=True).start().awaitTermination()
            return cdc.table(spark, into)
        except StreamingQueryException as error:
            if KILLED not in str(error) and not NOT_CONNECTED.search(str(error)):
                raise


def by_killed_driver(
    spark: SparkSession, source: Mapping[str, str], table: Table, folder: Path, tool: str, random: Random, at_once: int
) -> DataFrame:
    """Returns the table after a stream whose driver is killed with SIGKILL, in a batch or behind it, and one behind it.

    A driver without a batch left ends by itself.
    """
    home = folder / uuid.uuid4().hex
    options = {**source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(at_once)}
    texts = [json.dumps(options), str(home), json.dumps(arguments_of(table, tool))]
    command = [sys.executable, "-m", "tests.interop.changes.driver", *texts]
    environment = os.environ | {"PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    for lines_until_kill in (random.randint(1, 4), None):
        with (home.with_suffix(".log")).open("a") as log:
            driver = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
            )
        assert driver.stdout is not None
        lines = [line for _, line in zip(range(lines_until_kill or sys.maxsize), driver.stdout, strict=False)]
        if lines_until_kill is not None and len(lines) == lines_until_kill:
            os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    assert driver.returncode == 0, home.with_suffix(".log").read_text()[-2000:]
    return cdc.table(spark, str(home / "table"))
