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
from contextlib import ExitStack
from functools import partial

from pyspark.sql import SparkSession

from benchmarks.support import java_clients, raw
from benchmarks.support.brokers import BROKER_SETTINGS, PATIENT, new_topic
from benchmarks.support.pairs import Figure, heading, pairs_of, table_line
from benchmarks.support.spark_jobs import QUEUES, spark_session, write_frame
from benchmarks.support.user_rows import EQUAL, SMALL, Case
from tests.support.apache import boot_cluster
from tests.support.our_cluster import boot_our_cluster

CONNECTIONS = 16
PAIRS = 5
MILLION = 1_000_000
PAUSE_SECONDS = 0.01
LARGE_LOG = {"mappedFileSizeCommitLog": str(256 << 20), "maxStoreBytes": str(16 << 30)}


def main(*, quick: bool) -> None:
    share, pairs = (20, 1) if quick else (1, PAIRS)
    with (
        boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as ours,
        boot_cluster("5.4.0", ("broker-a",), broker_settings={**BROKER_SETTINGS, **PATIENT}) as theirs,
    ):
        places = [(cluster.nameserver.address, cluster.brokers["broker-a"].address) for cluster in (ours, theirs)]
        print(heading("ours, /s", "Apache, /s"))
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
        rates = pairs_of(pairs, *(partial(rate, *place) for place in places))
        print(table_line(name, [(Figure(ours), Figure(theirs)) for ours, theirs in rates]), flush=True)


def batches(nameserver: str, address: str, *, messages: int, batched: bool = False, case: Case = SMALL) -> float:
    topic = new_topic(nameserver, batch=batched)
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
    requests = [raw.single(topic, number % QUEUES, SMALL, number) for number in range(CONNECTIONS)]
    with ExitStack() as stack:
        lines = [stack.enter_context(raw.Line(address)) for _ in range(CONNECTIONS)]
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


def java_batches(nameserver: str, _: str, *, mode: str, messages: int) -> float:
    return java_clients.sends(nameserver, new_topic(nameserver), mode, messages).rate


def spark_write(spark: SparkSession, nameserver: str, address: str, *, rows: int) -> float:
    topic = new_topic(nameserver)
    began = time.perf_counter()
    write_frame(spark, nameserver, topic, rows, SMALL)
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
