"""The cost of starting: the first Spark jobs of a session beside a trivial Python data source, and the import.

Each figure comes from a driver of its own, started anew; the broker is ours, in this process. The pairs go A B, B A.
Both sources are registered by the driver; a third driver leaves it to Spark to find ours, which takes another process.
The packages are compiled beforehand, as an installer does: run from a checkout that keeps no bytecode, each of Spark's
processes would compile them anew, for 0.3 s.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.support.trivial_table import PARTITIONS, ROWS_A_PARTITION
from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer

ROOT = Path(__file__).parent.parent
PACKAGES = ("pyrmq_core", "pyrmq_spark", "benchmarks")
DRIVER_SECONDS = 180
TRIVIAL, OURS, FOUND = "trivialTable", "rocketmq", "found"
# Reads, then writes a thousand rows, and prints the seconds of each as JSON.
DRIVER = """
import json, sys, time
from pyspark.sql import SparkSession
from benchmarks.support.trivial_table import TrivialTable
from pyrmq_spark import RocketMQDataSource

source, nameserver = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
if source == "found":
    source = "rocketmq"
else:
    spark.dataSource.register(TrivialTable if source == "trivialTable" else RocketMQDataSource)
spark.range(1000).write.format("noop").mode("overwrite").save()
options = {"nameServer": nameserver, "topic": "start"} if source == "rocketmq" else {}
began = time.perf_counter()
rows = spark.read.format(source).options(**options).schema("body binary, keys string, tags string").load()
rows.write.format("noop").mode("overwrite").save()
read = time.perf_counter() - began
frame = spark.range(0, 1000, 1, 4).selectExpr("cast('x' as binary) body", "cast(id as string) keys", "'TagA' tags")
began = time.perf_counter()
frame.write.format(source).options(**options).mode("append").save()
print(json.dumps([read, time.perf_counter() - began]))
spark.stop()
"""


def installed(directory: Path) -> Mapping[str, str]:
    """Copies and compiles the packages there; returns the environment of a process that finds them."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyspark_rocketmq.py", directory)
    if not compileall.compile_dir(directory, quiet=1):
        raise RuntimeError(f"not everything in {directory} could be compiled")
    return {**os.environ, "PYTHONPATH": str(directory)}


def first_jobs(source: str, nameserver: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Returns the seconds of a new session's first read and first write."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, source, nameserver],
        cwd=environment["PYTHONPATH"],
        env=environment,
        stdout=subprocess.PIPE,
        timeout=DRIVER_SECONDS,
        check=True,
    )
    read, write = json.loads(done.stdout.splitlines()[-1])
    return read, write


def main(*, quick: bool = False) -> None:
    """Prints how much longer ours takes, in seconds."""
    with tempfile.TemporaryDirectory(prefix="pyrmq-installed-") as directory:
        compare(installed(Path(directory)), quick=quick)


def compare(environment: Mapping[str, str], *, quick: bool) -> None:
    """Compares first jobs with a trivial source's, and our import with trio's."""
    with EmbeddedCluster(brokers=1) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("start", queues=PARTITIONS)
        with Producer("benchmark", nameserver=cluster.nameserver) as producer:
            for number in range(PARTITIONS):
                queue = MessageQueue("start", "broker-a", number)
                producer.send_batch([Message("start", b"x" * 100)] * ROWS_A_PARTITION, queue=queue)
        sources = (OURS, TRIVIAL) if quick else (OURS, TRIVIAL, FOUND)
        taken: dict[str, list[tuple[float, float]]] = {source: [] for source in sources}
        for pair in range(1 if quick else 5):
            for source in sources[:: -1 if pair % 2 else 1]:
                taken[source].append(first_jobs(source, cluster.nameserver, environment))
    for place, job in enumerate(("read", "write")):
        ours, trivial = ([figures[place] for figures in taken[source]] for source in (OURS, TRIVIAL))
        report(f"first {job} of a session", ours, trivial, "trivial source", 0.30)
    if FOUND in taken:
        found, registered = ([read for read, _ in taken[source]] for source in (FOUND, OURS))
        report("first read, found by Spark", found, registered, "registered")
    imports: list[tuple[float, float]] = []
    for pair in range(3 if quick else 15):
        modules = ("pyrmq_core", "trio")[:: -1 if pair % 2 else 1]
        seconds = {module: import_seconds(module, environment) for module in modules}
        imports.append((seconds["pyrmq_core"], seconds["trio"]))
    report("import pyrmq_core", [ours for ours, _ in imports], [theirs for _, theirs in imports], "import trio", 0.15)


def report(what: str, ours: Sequence[float], theirs: Sequence[float], other: str, at_most: float | None = None) -> None:
    more = [mine - their for mine, their in zip(ours, theirs, strict=True)]
    print(
        f"{what}: {statistics.median(ours):.2f} s, {other} {statistics.median(theirs):.2f} s, more "
        f"{statistics.median(more):+.2f} s ({min(more):+.2f} to {max(more):+.2f}, {len(more)} pairs)"
        + ("" if at_most is None else f", at most {at_most:+.2f}"),
        flush=True,
    )


def import_seconds(module: str, environment: Mapping[str, str]) -> float:
    """Returns the seconds of a process that does nothing but import `module`."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}"], env=environment, timeout=DRIVER_SECONDS, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
