"""Our broker beside Apache RocketMQ 5.4.0, each a process of its own, under the same bytes from plain sockets.

    python -m benchmarks broker_rates [--quick]

Messages of 100 B, whose lengths vary as `user_rows` says: batches of 1,000 on one connection, four under way, until
they are readable, on a plain topic and on a batch topic; pulls of 32 messages, 64 under way; single sends over 16
connections; the Java client's batches near 1 MiB, until they are acknowledged; Spark's write, until it is readable; one
send each 10 ms, for its times. Each row is a pair, run A B B A, with the median of the ratios and their spread. Then
ours alone: the rate of batches with the index of keys and without; the time of a start on 1 GB after a kill; memory
while 10 million messages come.
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
from benchmarks.support.user_rows import EQUAL, LARGE, SMALL, Case, lines_of
from pyrmq_core.blocking import Admin
from tests.support.apache import boot_cluster
from tests.support.java_programs import run_java
from tests.support.our_cluster import OurCluster, boot_our_cluster

SEND_RATES = Path(__file__).parent / "java" / "SendRates.java"
QUEUES = 4
CONNECTIONS = 16
PAIRS = 5
MILLION = 1_000_000
START_MESSAGES = MILLION
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
    index_costs(share, pairs)
    start(share)
    memory(share)


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


def index_costs(share: int, pairs: int) -> None:
    """Prints the rate of batches with the index of keys, until all is readable, beside the rate without."""
    without = {**LARGE_LOG, "messageIndexEnable": "false"}
    with (
        boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as first,
        boot_our_cluster(["broker-a"], broker_settings=without) as second,
    ):
        measured = Pairs()
        for _ in range(pairs):
            measured.run(
                *(
                    partial(
                        batches,
                        cluster.nameserver.address,
                        cluster.brokers["broker-a"].address,
                        messages=400_000 // share,
                    )
                    for cluster in (first, second)
                )
            )
        print(measured.line("batches of 1,000, ours: with index; without"), flush=True)


def start(share: int) -> None:
    """Prints the seconds of a start after a kill, from the process's start to its first answers."""
    with boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as cluster:
        broker, messages = cluster.brokers["broker-a"], START_MESSAGES // share
        topic = new_topic(cluster.nameserver.address)
        raw.write(broker.address, topic, QUEUES, messages, LARGE)
        broker.kill()
        began = time.perf_counter()
        broker.start()
        wait_answered(broker.address, topic)
        print(f"{'start after a kill, 1 GB of messages, s':44} {time.perf_counter() - began:.2f}", flush=True)


def wait_answered(address: str, topic: str) -> None:
    """Returns when the broker answers for the topic's queues."""
    while True:
        try:
            with raw.Line(address) as line:
                raw.wait_readable(line, topic, QUEUES, 1)
                return
        except OSError:
            time.sleep(PAUSE_SECONDS)


def memory(share: int) -> None:
    """Prints the resident memory of the broker, at each tenth of 10 million messages."""
    settings = {**LARGE_LOG, "maxStoreBytes": str(1 << 30), "mappedFileSizeCommitLog": str(64 << 20)}
    with boot_our_cluster(["broker-a"], broker_settings=settings) as cluster:
        topic, megabytes = new_topic(cluster.nameserver.address), []
        address = cluster.brokers["broker-a"].address
        for part in range(1, 11):
            messages = MILLION // share
            raw.write(address, topic, QUEUES, messages, SMALL, before=(part - 1) * messages)
            megabytes.append(own_megabytes(cluster))
        print(
            f"{'memory at each tenth of 10 million, MiB':44} {' '.join(f'{size:.0f}' for size in megabytes)}",
            flush=True,
        )


def own_megabytes(cluster: OurCluster) -> float:
    """Returns the broker's resident memory without the pages of its files."""
    pid = cluster.brokers["broker-a"].process.pid
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    anonymous = next(line for line in lines if line.startswith("RssAnon"))
    return int(anonymous.split()[1]) * 1024 / (1 << 20)
