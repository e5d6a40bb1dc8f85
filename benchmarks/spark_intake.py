"""Processor time that Spark takes for ready-made columns of a read: the part that no Python source can save.

    python -m benchmarks.spark_intake [--quick] [--rounds N] [--java OPTIONS]

A source without a network yields one record batch over and over. Printed are processor seconds for a million rows, of
Java and of Python, for several sets of columns: the median and, in brackets, the least and most of the rounds. The sets
run in turn, every second round in the reverse order; two rounds before only warm up. `--java` adds options of the JVM.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.support.ready_table import ReadyTable
from benchmarks.support.session_process import session_cpu
from benchmarks.support.side_by_side import Spread
from benchmarks.support.spark_jobs import spark_session

WITHOUT_PROPERTIES: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
    "body binary, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)
SETS: Final[Mapping[str, str]] = {
    "all 12 columns": WITHOUT_PROPERTIES + ", properties map<string,string>",
    "without properties": WITHOUT_PROPERTIES,
    "those of Kafka's connector": "keys string, body binary, topic string, queueId int, queueOffset bigint, "
    "bornTimestamp timestamp, reconsumeTimes int",
    "properties": "properties map<string,string>",
    "five columns of text": "topic string, brokerName string, msgId string, tags string, keys string",
    "body": "body binary",
    "queueOffset": "queueOffset bigint",
}
# Bytes of a body, rows, and rows of a batch, as a read of ours has them.
SIZES: Final = ((100, 1_000_000, 12_500), (1024, 250_000, 3_125))
KINDS: Final = ("java", "python")
WARM_ROUNDS: Final = 2
ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds for a million rows."""

    java: float
    python: float


def measured(spark: SparkSession, columns: str, body_bytes: int, rows: int, batch_rows: int) -> Cost:
    options = {"rows": rows, "batchRows": batch_rows, "bodyBytes": body_bytes}
    frame = spark.read.format(ReadyTable.name()).schema(columns).options(**options).load()
    before = session_cpu(os.getpid())
    frame.write.format("noop").mode("overwrite").save()
    after = session_cpu(os.getpid())
    python = after.workers - before.workers
    return Cost((after.all - before.all - python) * 1e6 / rows, python * 1e6 / rows)


def main(*, quick: bool = False, rounds: int = ROUNDS, java: Sequence[str] = ()) -> None:
    """Prints the table."""
    rounds, warm, share = (1, 0, 10) if quick else (rounds, WARM_ROUNDS, 1)
    names = list(SETS)[:1] if quick else list(SETS)
    print(f"{'processor s a million rows':28} {'body':>7}  {'Java':22} {'Python':22}", flush=True)
    with spark_session("1g" if quick else "3g", java=java) as spark:
        spark.dataSource.register(ReadyTable)
        for body_bytes, rows, batch_rows in SIZES:
            found: dict[str, list[Cost]] = {name: [] for name in names}
            for number in range(warm + rounds):
                for name in names[:: 1 if number % 2 else -1]:
                    found[name].append(measured(spark, SETS[name], body_bytes, rows // share, batch_rows // share))
            for name, costs in found.items():
                kept = costs[warm:]
                java_cost, python_cost = (Spread.of([getattr(one, kind) for one in kept]) for kind in KINDS)
                print(f"{name:28} {body_bytes:5} B  {java_cost!s:22} {python_cost!s:22}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--java", nargs="+", default=(), metavar="OPTION", help="further options of the JVM")
    chosen = parser.parse_args()
    main(quick=chosen.quick, rounds=chosen.rounds, java=chosen.java)
