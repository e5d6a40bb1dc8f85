"""The waits of a viewer and of an honest broker client while the page or the page of metrics is attacked.

    python -m benchmarks hostile_pages [--quick]

Each attack runs for some seconds in a process of its own, from another address of this machine. The viewer asks for one
page after the other over one connection, and the client does one small send after the other, before, during and after
it. The page is a process of its own. The metrics are the broker's.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

from benchmarks.hostile import ANSWER_SECONDS, Asker, Client, Seen, Usage, attack_of, for_seconds, small_send
from benchmarks.support.page_attacks import ATTACKS
from benchmarks.support.processes import figures_of
from tests.support.apache import free_port
from tests.support.our_cluster import boot_our_cluster

# Topics, groups and messages for the pages to show.
TOPICS: Final = 300
PAGE: Final = "page"
METRICS: Final = "metrics"
# The connections of an attack that has ended are given up within this time: the page waits so long for a head.
GIVEN_BACK_SECONDS: Final = 12.0


class Viewer(Asker[HTTPConnection]):
    def __init__(self, address: str, path: str) -> None:
        self._address = address
        self._path = path

    def _connected(self) -> HTTPConnection:
        return HTTPConnection(self._address, timeout=ANSWER_SECONDS)

    def _asked(self, line: HTTPConnection) -> bool:
        line.request("GET", self._path)
        answer = line.getresponse()
        answer.read()
        return answer.status == 200


@dataclass(frozen=True, slots=True)
class Target:
    """One page: where it is, the path of its viewer, and the process that serves it."""

    name: str
    address: str
    path: str
    process_id: int
    broker: str


@dataclass(slots=True)
class Phase:
    viewer: Seen
    client: Seen


def phase(target: Target, usage: Usage, goes_on: Callable[[], bool]) -> Phase:
    viewer, client = Viewer(target.address, target.path), Client(target.broker, small_send)
    with contextlib.closing(viewer), contextlib.closing(client), ThreadPoolExecutor(1) as threads:
        viewed = threads.submit(viewer.ask_while, goes_on)
        asked = client.ask_while(goes_on, usage.look)
        return Phase(viewed.result(), asked)


def row(target: Target, attack: str, seconds: float, calm_seconds: float) -> str:
    usage = Usage(target.process_id)
    threads = threads_of(target.process_id)
    before = phase(target, usage, for_seconds(calm_seconds))
    with attack_of("page_attacks", attack, target.address, seconds) as goes_on:
        during = phase(target, usage, goes_on)
    after = phase(target, usage, for_seconds(calm_seconds))
    in_time = for_seconds(GIVEN_BACK_SECONDS)
    while usage.now()[1] > usage.first[1] and in_time():
        time.sleep(0.1)
    (first_memory, first_files), (most_memory, most_files), last = usage.first, usage.most, usage.now()
    return (
        f"| {attack} | {target.name} | {before.viewer} | {during.viewer} | {after.viewer} | {before.client} | "
        f"{during.client} | {first_memory:.0f} > {most_memory:.0f} > {last[0]:.0f} | "
        f"{first_files} > {most_files} > {last[1]} | {threads} > {threads_of(target.process_id)} |"
    )


def threads_of(process_id: int) -> int:
    """Returns the number of a process's threads. trio's worker threads end ten seconds after their last work."""
    return int(figures_of(process_id)["threads"])


@contextlib.contextmanager
def served_page(nameserver: str) -> Iterator[tuple[str, int]]:
    """Yields the address and the process id of a page that may change things."""
    command = [sys.executable, "-m", "pyrmq_core.tools.cli", "web", "-n", nameserver, "--port", "0", "--allow-changes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in iter(process.stdout.readline, "") if "http://" in line)
            yield line.partition("http://")[2].partition("/")[0], process.pid
        finally:
            process.send_signal(signal.SIGINT)


def main(quick: bool = False) -> None:
    seconds, calm_seconds = (0.5, 0.3) if quick else (5.0, 2.0)
    metrics_port = free_port((0,))
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(metrics_port)}
    with boot_our_cluster(("broker-a",), broker_settings=settings) as cluster:
        broker = cluster.brokers["broker-a"]
        make_topics(broker.address)
        with served_page(cluster.nameserver.address) as (page, page_id):
            targets = (
                Target(PAGE, page, "/", page_id, broker.address),
                Target(METRICS, f"127.0.0.1:{metrics_port}", "/metrics", broker.process.pid or 0, broker.address),
            )
            print(
                "| attack | target | viewer before, p50 / p99 ms | during | after | client before | during | MiB "
                "| descriptors | threads |"
            )
            print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
            for target in targets:
                phase(target, Usage(target.process_id), for_seconds(calm_seconds))
                for attack in ATTACKS:
                    print(row(target, attack, seconds, calm_seconds), flush=True)


def make_topics(address: str) -> None:
    client = Client(address, small_send)
    with contextlib.closing(client):
        client.ask_while(for_seconds(0.2))
    with contextlib.closing(Client(address, _small_sends(iter(range(TOPICS))))) as others:
        for _ in range(TOPICS):
            others.ask_while(lambda: False)


def _small_sends(numbers: Iterator[int]) -> Callable[[], tuple[int, dict[str, object], bytes]]:
    def question() -> tuple[int, dict[str, object], bytes]:
        code, fields, body = small_send()
        return code, {**fields, "topic": f"hostile-{next(numbers)}"}, body

    return question
