"""Our broker beside Apache RocketMQ 5.4.0, each a process of its own, under the same bytes from plain sockets.

    python -m benchmarks broker_rates [--quick]

Messages of 100 B, whose lengths vary as `user_rows` says: batches of 1,000 on one connection, four under way, until
they are readable, on a plain topic and on a batch topic; pulls of 32 messages, 64 under way; single sends over 16
connections; the Java client's batches near 1 MiB, until they are acknowledged; Spark's write, until it is readable; one
send each 10 ms, for its times. Each row is a pair, run A B B A, with the median of the ratios and their spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.support import raw
from benchmarks.support.brokers import BROKER_SETTINGS, PATIENT
from benchmarks.support.pairs import Pairs
from benchmarks.support.spark_jobs import spark_session, write_frame
from benchmarks.support.user_rows import EQUAL, SMALL, Case, lines_of
from pyrmq_core.blocking import Admin
from tests.support.apache import boot_cluster
from tests.support.java_programs import run_java
from tests.support.our_cluster import boot_our_cluster

SEND_RATES = Path(__file__).parent / "java" / "SendRates.java"
QUEUES = 4
CONNECTIONS = 16
PAIRS = 5
MILLION = 1_000_000
PAUSE_SECONDS = 0.01
JAVA_SECONDS = 300
HEADING = f"{'':44} {'ours, /s':>12} {'Apache, /s':>12} {'ratio':>7}"
TOPICS = count(1)
LARGE_LOG = {"mappedFileSizeCommitLog": str(256 << 20), "maxStoreBytes": str(16 << 30)}


def main(*, quick: bool) -> None:
    share, pairs = (20, 1) if quick else (1, PAIRS)
    with (
        boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as ours,
        boot_cluster("5.4.0", ("broker-a",), broker_settings={**BROKER_SETTINGS, **PATIENT}) as theirs,
    ):
        places = [(cluster.nameserver.address, cluster.brokers["broker-a"].address) for cluster in (ours, theirs)]
        print(HEADING)
        rows: list[tuple[str, Callable[[str, str], float]]] = [
            ("batches of 1,000", partial(batches, messages=400_000 // share)),
            ("the same, equal rows", partial(batches, messages=400_000 // share, case=EQUAL)),
            ("batches of 1,000, batch topic", partial(batches, messages=MILLION // share, batched=True)),
            ("pulls of 32", partial(pulls, messages=400_000 // share)),
            (f"single sends, {CONNECTIONS} connections", partial(singles, sends=40_000 // share)),
            ("Java's batches near 1 MiB, keys", partial(java_batches, mode="batch", messages=400_000 // share)),
            ("the same without keys", partial(java_batches, mode="keyless", messages=400_000 // share)),
        ]
        compare(rows, places, pairs)
        with spark_session("1g") as spark:
            write = partial(spark_write, spark, rows=2_000_000 // share)
            for place in places:
                write(*place)  # the first writes of a session are slower, and so is a young broker
            compare([("Spark's write", write)], places, pairs)
        for name, place in zip(("ours", "Apache"), places, strict=True):
            p50, p99 = times(*place, sends=1000 // share)
            print(f"{f'one send each 10 ms, {name}':44} p50 {p50:.2f} ms, p99 {p99:.2f} ms", flush=True)


def compare(
    rows: Sequence[tuple[str, Callable[[str, str], float]]], places: Sequence[tuple[str, str]], pairs: int
) -> None:
    """Prints a line for each row, a function that returns the rate with the NameServer and broker given to it."""
    for name, rate in rows:
        measured = Pairs()
        for _ in range(pairs):
            measured.run(*(partial(rate, *place) for place in places))
        print(measured.line(name), flush=True)


def new_topic(nameserver: str, *, batched: bool = False) -> str:
    topic = f"rates-{next(TOPICS)}"
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES, batch=batched)
    return topic


def batches(nameserver: str, address: str, *, messages: int, batched: bool = False, case: Case = SMALL) -> float:
    topic = new_topic(nameserver, batched=batched)
    properties = "UNIQ_KEY\x01U\x02" if batched else ""
    return messages / raw.write(address, topic, QUEUES, messages, case, properties=properties)


def pulls(nameserver: str, address: str, *, messages: int) -> float:
    """Returns the rate of the second of two reads, when the broker's memory is warm."""
    topic = new_topic(nameserver)
    raw.write(address, topic, QUEUES, messages, SMALL)
    raw.read(address, topic, QUEUES)
    return messages / raw.read(address, topic, QUEUES)[0]


def singles(nameserver: str, address: str, *, sends: int) -> float:
    """Returns the rate with one send under way on each connection."""
    topic = new_topic(nameserver)
    lines = [raw.Line(address) for _ in range(CONNECTIONS)]
    requests = [raw.single(topic, number % QUEUES, SMALL, number) for number in range(CONNECTIONS)]
    try:
        began = time.perf_counter()
        for line, request in zip(lines, requests, strict=True):
            line.write(request)
        for _ in range(sends // CONNECTIONS - 1):
            for line, request in zip(lines, requests, strict=True):
                raw.acknowledged(line)
                line.write(request)
        for line in lines:
            raw.acknowledged(line)
        return sends // CONNECTIONS * CONNECTIONS / (time.perf_counter() - began)
    finally:
        for line in lines:
            line.__exit__(None, None, None)


def java_batches(nameserver: str, _: str, *, mode: str, messages: int) -> float:
    """Returns the rate of the second of two runs in one process, when Java's machine has compiled its code."""
    with lines_of(SMALL) as file:
        arguments = (nameserver, new_topic(nameserver), mode, str(messages), "0", str(file))
        output = run_java("5.4.0", SEND_RATES, *arguments, timeout=JAVA_SECONDS)
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith("rate "))


def spark_write(spark: SparkSession, nameserver: str, address: str, *, rows: int) -> float:
    topic = new_topic(nameserver)
    began = time.perf_counter()
    write_frame(spark, nameserver, topic, rows, SMALL, QUEUES)
    with raw.Line(address) as line:
        raw.wait_readable(line, topic, QUEUES, rows)
    return rows / (time.perf_counter() - began)


def times(nameserver: str, address: str, *, sends: int) -> tuple[float, float]:
    """Returns p50 and p99 of a send on an idle broker, in milliseconds."""
    request = raw.single(new_topic(nameserver), 0, SMALL)
    spent = []
    with raw.Line(address) as line:
        for _ in range(sends):
            time.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            line.write(request)
            raw.acknowledged(line)
            spent.append((time.perf_counter() - began) * 1000)
    return statistics.median(spent), sorted(spent)[len(spent) * 99 // 100]
