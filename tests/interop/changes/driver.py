"""The driver of a stream that keeps a table, as a process: `ways.by_killed_driver` kills it and starts it again.

Prints "begins" before each batch and "applied" behind it.
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pyrmq_spark import cdc, session_settings


def main(source: dict[str, str], folder: str, arguments: dict[str, Any]) -> None:
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
    spark = SparkSession.builder.master("local[2]").config(map={**settings, **session_settings()}).getOrCreate()

    def upsert(batch: DataFrame, number: int) -> None:
        print("begins", flush=True)  # noqa: T201
        cdc.apply(batch, f"{folder}/table", **arguments)
        print("applied", flush=True)  # noqa: T201

    messages = spark.readStream.format("rocketmq").options(**source).load()
    query = messages.writeStream.foreachBatch(upsert).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
