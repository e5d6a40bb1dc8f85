"""Requests of 1,000 to 10,000 messages to a plain topic, on real RocketMQ 5.4.0 and 4.9.7.

    python -m benchmarks.request_sizes [--quick]

Sizes are run in turn, every second round in the reverse order. `client` and `broker` are microseconds of processor time
a message; a run ends when all is readable. A task of Spark has one request under way; `send_arrow` has four.
"""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from benchmarks.connector import arrow_rows
from benchmarks.support import raw
from benchmarks.support.brokers import BROKER_SETTINGS, PATIENT
from pyrmq_core import AnyQueue, unique_id_runs
from pyrmq_core.blocking import Admin, Producer
from pyrmq_core.columnar import BatchLimit, encode_batches
from tests.support.apache import ApacheBroker, ApacheCluster, boot_cluster

SIZES: Final = (1000, 2000, 3000, 4000, 5000, 10_000)
VERSIONS: Final = ("5.4.0", "4.9.7")
BODY_BYTES: Final = (10, 100)
UNDER_WAY: Final = (1, 4)
ARROW_ROWS: Final = 10_000
QUEUES: Final = 4
# The largest request that a broker takes by default, less the room of its header.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024 - 4096
CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Run:
    """The rate of one run, and the processor time of client and broker a message, in microseconds."""

    rate: float
    client: float
    broker: float


def main(*, quick: bool = False) -> None:
    rows, rounds = (20_000, 1) if quick else (400_000, 6)
    for version in VERSIONS:
        with boot_cluster(version, broker_settings={**BROKER_SETTINGS, **PATIENT}) as cluster:
            for _ in range(1 if quick else 3):
                measure(cluster, "warm", rows, 100, 1000, 4)
            for body_bytes in BODY_BYTES:
                for under_way in UNDER_WAY:
                    compare(cluster, rows, rounds, body_bytes, under_way)


def compare(cluster: ApacheCluster, rows: int, rounds: int, body_bytes: int, under_way: int) -> None:
    print(f"{cluster.version}, bodies of {body_bytes} B, {under_way} request(s) under way, {rounds} rounds", flush=True)
    runs: dict[int, list[Run]] = {size: [] for size in SIZES}
    for number in range(rounds):
        for size in SIZES[:: -1 if number % 2 else 1]:
            topic = f"t-{body_bytes}-{under_way}-{size}-{number}"
            runs[size].append(measure(cluster, topic, rows, body_bytes, size, under_way))
    print(f"{'messages':>10} {'rate /s':>10} {'ratio to 1,000 (spread)':>26} {'client us':>10} {'broker us':>10}")
    for size, found in runs.items():
        ratios = [run.rate / first.rate for run, first in zip(found, runs[SIZES[0]], strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rate, client, broker = (
            statistics.median(values)
            for values in zip(*((run.rate, run.client, run.broker) for run in found), strict=True)
        )
        print(f"{size:>10,} {rate:>10,.0f} {spread:>26} {client:>10.2f} {broker:>10.2f}", flush=True)


def measure(cluster: ApacheCluster, topic: str, rows: int, body_bytes: int, size: int, under_way: int) -> Run:
    """Sends the rows in requests of `size` messages to one queue after another."""
    nameserver, broker = cluster.nameserver.address, cluster.brokers["broker-a"]
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
    batch = arrow_rows(body_bytes, ARROW_ROWS)
    encode = partial(encode_batches, limit=BatchLimit(size, MAX_REQUEST_BYTES), checked=True)
    with Producer("sizes", nameserver=nameserver) as producer, raw.Line(broker.address) as line:
        producer.publish_info(topic)
        began, client, server = perf_counter(), process_time(), processor_seconds(broker)
        with producer.open_window(max_requests=under_way) as window:
            for _ in range(rows // batch.num_rows):
                for payload in encode(batch, topic, unique_id_runs):
                    window.put(payload, AnyQueue())
            window.drain()
        sent = process_time() - client
        raw.wait_readable(line, topic, QUEUES, rows)
        seconds = perf_counter() - began
    return Run(rows / seconds, sent * 1e6 / rows, (processor_seconds(broker) - server) * 1e6 / rows)


def processor_seconds(broker: ApacheBroker) -> float:
    fields = (Path("/proc") / str(broker.process.pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
