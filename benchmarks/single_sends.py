"""Single sends beside others, on a real Apache RocketMQ 5.4.0: librocketmq, the Java client, plain blocking sockets.

Each row is a pair, run A B B A. The verdict is the median of the pairs' ratios with its spread. `CPU us` is the
processor time of this process for one send of ours, and the other's for one of its own: the firmer figure where others
use the machine. Messages are those of `user_rows`, of 100 bytes in the mean. librocketmq is the one inside
`rocketmq==0.4.4`. Its rows are left out where that cannot be installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.network_calls import blocking as plain_sockets
from benchmarks.support import java_clients, sends
from benchmarks.support.brokers import PATIENT, one_broker
from benchmarks.support.java_clients import figure_in
from benchmarks.support.pairs import Figure, heading, pairs_of, table_line
from benchmarks.support.user_rows import EQUAL
from pyrmq_core.blocking import Admin
from tests.support.apache import ApacheCluster
from tests.support.java_programs import temporary_directory

HERE = Path(__file__).parent
QUEUES = 4
LIST_MESSAGES = 100_000
WINDOW = 1000
BATCHING_WINDOW = 20_000
# The topic that `network_calls` writes into its requests.
PLAIN_TOPIC = "TopicTest"
PEER = "rocketmq==0.4.4"
PEER_PYTHON = Path.home() / ".cache" / "pyrmq" / "librocketmq" / "bin" / "python"


def main(*, quick: bool) -> None:
    with one_broker({"mappedFileSizeCommitLog": str(1 << 28), **PATIENT}) as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            for topic in ("sends", PLAIN_TOPIC):
                admin.create_topic(topic, queues=QUEUES)
        bench = Bench(cluster, pairs=1 if quick else 5, share=20 if quick else 1)
        print(heading("ours", "theirs"))
        bench.beside_librocketmq()
        bench.beside_java()
        bench.beside_sockets()
        bench.asyncio_beside_threads()
        bench.at_rest(seconds=1 if quick else 60, count=20_000 if quick else 1_000_000)


class Bench:
    """The rows of the table. `share` divides the number of messages that each run sends."""

    def __init__(self, cluster: ApacheCluster, *, pairs: int, share: int) -> None:
        self._nameserver = cluster.nameserver.address
        self._broker_port = cluster.brokers["broker-a"].port
        self._pairs = pairs
        self._share = share

    def beside_librocketmq(self) -> None:
        if not has_peer():
            print(f"{PEER} cannot be installed here: its rows are left out")
            return
        for threads, count in ((1, 10_000), (64, 32_000)):
            messages = count // self._share
            self._row(
                f"blocking send, {threads} caller(s), /s; librocketmq",
                partial(sends.blocking, self._nameserver, "sends", threads, messages),
                partial(self._librocketmq, threads, messages),
            )

    def beside_java(self) -> None:
        soon = partial(sends.send_soon, self._nameserver, "sends")
        batch = partial(sends.send_batch, self._nameserver, "sends", LIST_MESSAGES)
        java = partial(java_clients.sends, self._nameserver, "sends")
        count, more = 100_000 // self._share, 400_000 // self._share
        self._row(
            f"send_soon, {WINDOW} under way, /s; Java async",
            partial(soon, WINDOW, count),
            partial(java, "async", count, WINDOW),
        )
        self._row(
            "send_soon with batching, /s; Java auto-batch",
            partial(soon, BATCHING_WINDOW, more, batching=True),
            partial(java, "autobatch", more, BATCHING_WINDOW),
        )
        self._row("send_batch of 100,000, /s; Java, near 1 MiB", batch, partial(java, "batch", LIST_MESSAGES))
        equal = partial(java, "batch", LIST_MESSAGES, case=EQUAL)
        self._row("the same with equal rows", partial(batch, EQUAL), equal)

    def beside_sockets(self) -> None:
        callers = partial(sends.callers, self._nameserver, "sends")
        sockets = partial(plain_sockets, self._broker_port)
        for name, window, count, value in (
            ("send, 256 tasks, /s; plain sockets, pipelined", 256, 40_000 // self._share, "rate"),
            ("send, one task, p50 us; plain sockets", 1, 10_000 // self._share, "p50_us"),
        ):
            self._row(name, partial(callers, window, count), partial(sockets, window, count), value)

    def asyncio_beside_threads(self) -> None:
        """Compares costs: both columns and the ratio are processor microseconds a message of our own two faces."""
        count, asyncio_soon, soon = 40_000 // self._share, sends.asyncio_send_soon, sends.blocking_send_soon
        for name, ours, theirs, width, messages in (
            (f"asyncio send_soon, {WINDOW} under way, CPU us; blocking", asyncio_soon, soon, WINDOW, count),
            ("asyncio send, 64 tasks, CPU us; 64 threads", sends.asyncio_callers, sends.blocking, 64, count),
            ("asyncio send, one task, CPU us; one thread", sends.asyncio_callers, sends.blocking, 1, count // 8),
        ):
            arguments = (self._nameserver, "sends", width, messages)
            self._row(name, partial(ours, *arguments), partial(theirs, *arguments), "cpu_us")

    def at_rest(self, *, seconds: int, count: int) -> None:
        share = alone(sys.executable, "-m", "benchmarks.support.sends", "idle", self._nameserver, "sends", str(seconds))
        print(f"{f'an idle producer over {seconds} s, % of a core':46} {share:>10.3f}")
        size = alone(sys.executable, "-m", "benchmarks.support.sends", "million", self._nameserver, "sends", str(count))
        print(f"{f'resident after {count:,} send_soon, MB':46} {size:>10.0f}")

    def _row(self, name: str, ours: Callable[[], Figure], theirs: Callable[[], Figure], value: str = "rate") -> None:
        print(table_line(name, pairs_of(self._pairs, ours, theirs), attrgetter(value)), flush=True)

    def _librocketmq(self, threads: int, count: int) -> Figure:
        script = HERE / "peers" / "librocketmq_sends.py"
        return Figure(alone(str(PEER_PYTHON), str(script), self._nameserver, "sends", str(threads), str(count)))


def has_peer() -> bool:
    """Returns whether librocketmq works in an environment of its own, into which it is installed if need be."""
    return (PEER_PYTHON.exists() and _works(PEER_PYTHON, "-c", "import rocketmq.client")) or (
        _works(Path(sys.executable), "-m", "venv", "--clear", str(PEER_PYTHON.parent.parent))
        and _works(PEER_PYTHON, "-m", "pip", "install", "--quiet", PEER)
        and _works(PEER_PYTHON, "-c", "import rocketmq.client")
    )


def _works(python: Path, *arguments: str) -> bool:
    with temporary_directory("peer") as home:  # librocketmq writes logs under the user's home
        environment = {**os.environ, "HOME": str(home)}
        done = subprocess.run([python, *arguments], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def alone(*command: str) -> float:
    """Returns the figure that a process of its own prints. Its writes under the user's home are thrown away."""
    with temporary_directory("peer") as home:
        environment = {**os.environ, "HOME": str(home)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[-5:])} ended with {done.returncode}: {done.stderr[-2000:]}")
    return figure_in(done.stdout, "rate")
