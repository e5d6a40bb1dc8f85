"""A stream that copies a topic in many small batches, and prints the memory of its processes meanwhile.

python -m tests.spark.backfill_job NAMESERVER BATCHES DIRECTORY     prints batches, rows, and MiB by process, as JSON
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.spark.soak_job import session
from tests.support.spark import read
from tests.support.worker_processes import python_workers

A_BATCH = 10
LOOKS = 10
MIB = 2**20


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def memory(spark: SparkSession) -> dict[str, float]:
    """Returns what the largest process of each kind holds, and the JVM's heap without garbage."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    held = {"heap": (runtime.totalMemory() - runtime.freeMemory()) / MIB, "driver": resident(os.getpid())}
    for pid, process in python_workers(jvm.java.lang.ProcessHandle.current().pid()).items():
        kind = process.command.partition("-m pyspark.")[2].split()[0]
        try:
            held[kind] = max(held.get(kind, 0.0), resident(pid))
        except OSError:  # it has ended meanwhile
            continue
    return held


def main(nameserver: str, batches: int, directory: Path) -> None:
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    source = {"nameServer": nameserver, "topic": "old", "startingOffsets": "earliest"}
    frame = spark.readStream.format("rocketmq").options(**source, maxOffsetsPerTrigger=str(A_BATCH)).load()
    writer = frame.drop("brokerName", "queueId").writeStream.format("rocketmq").options(**{**source, "topic": "copied"})
    query = writer.option("checkpointLocation", str(directory)).trigger(availableNow=True).start()
    looks: list[dict[str, float]] = []
    while not query.awaitTermination(1):
        done = 0 if query.lastProgress is None else query.lastProgress.batchId + 1
        if done >= batches * (len(looks) + 1) / LOOKS and done < batches:
            looks.append({"batches": done} | memory(spark))
            print(looks[-1], file=sys.stderr, flush=True)  # noqa: T201 - shown when it fails
    last = query.lastProgress
    done = 0 if last is None else last.batchId + 1
    rows = read(spark, nameserver, "body string", topic="copied").selectExpr("count(*)", "count(distinct body)").first()
    print(json.dumps({"batches": done, "rows": list(rows or ()), "looks": looks}))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
