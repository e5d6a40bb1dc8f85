"""Single sends beside others, on a real Apache RocketMQ 5.4.0: librocketmq, the Java client, plain blocking sockets.

Each row is a pair, run A B B A. The verdict is the median of the pairs' ratios with its spread. `CPU` is the processor
time of this process for one send of ours, and the Java client's for one of its own: the firmer figure where others use
the machine. Messages are those of `user_rows`, of 100 bytes in the mean. librocketmq is the one inside
`rocketmq==0.4.4`. Its rows are left out where that cannot be installed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.network_calls import blocking as plain_sockets
from benchmarks.support import sends
from benchmarks.support.brokers import PATIENT, one_broker
from benchmarks.support.pairs import Pairs
from benchmarks.support.sends import Sent
from benchmarks.support.user_rows import EQUAL, SMALL, Case, lines_of
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
HEADING = f"{'':46} {'ours':>10} {'theirs':>10} {'ratio':>6}  {'spread':16} {'CPU':>9} {'theirs':>9}"


def main(*, quick: bool) -> None:
    with one_broker({"mappedFileSizeCommitLog": str(1 << 28), **PATIENT}) as cluster:
        with Admin(nameserver=cluster.nameserver.address) as admin:
            for topic in ("sends", PLAIN_TOPIC):
                admin.create_topic(topic, queues=QUEUES)
        bench = Bench(cluster, pairs=1 if quick else 5, share=20 if quick else 1)
        print(HEADING)
        bench.beside_librocketmq()
        bench.beside_java()
        bench.beside_sockets()
        bench.asyncio_beside_threads()
        bench.at_rest(seconds=1 if quick else 60, count=20_000 if quick else 1_000_000)


class Bench:
    """The rows of the table. `share` divides the number of messages that each run sends."""

    def __init__(self, cluster: ApacheCluster, *, pairs: int, share: int) -> None:
        self._cluster = cluster
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
        rows: list[tuple[str, Callable[[int], Sent], str, int, int]] = [
            (
                f"send_soon, {WINDOW} under way, /s; Java async",
                lambda count: sends.send_soon(self._nameserver, "sends", WINDOW, count),
                "async",
                100_000,
                WINDOW,
            ),
            (
                "send_soon with batching, /s; Java auto-batch",
                lambda count: sends.send_soon(self._nameserver, "sends", BATCHING_WINDOW, count, batching=True),
                "autobatch",
                400_000,
                BATCHING_WINDOW,
            ),
            (
                "send_batch of 100,000, /s; Java, near 1 MiB",
                lambda _: sends.send_batch(self._nameserver, "sends", LIST_MESSAGES),
                "batch",
                LIST_MESSAGES,
                0,
            ),
        ]
        for name, ours, mode, count, window in rows:
            messages = count if mode == "batch" else count // self._share
            self._row(name, partial(ours, messages), partial(self._java, mode, messages, window))
        self._row(
            "the same with equal rows",
            lambda: sends.send_batch(self._nameserver, "sends", LIST_MESSAGES, EQUAL),
            partial(self._java, "batch", LIST_MESSAGES, 0, EQUAL),
        )

    def beside_sockets(self) -> None:
        count = 40_000 // self._share
        self._row(
            "send, 256 tasks, /s; plain sockets, pipelined",
            lambda: sends.callers(self._nameserver, "sends", 256, count),
            lambda: plain_sockets(self._broker_port, 256, count).rate,
        )
        self._row(
            "send, one task, p50 us; plain sockets",
            lambda: sends.callers(self._nameserver, "sends", 1, count // 4),
            lambda: plain_sockets(self._broker_port, 1, count // 4).p50_us,
            value=lambda sent: sent.p50_us,
        )

    def asyncio_beside_threads(self) -> None:
        """Compares costs: both columns and the ratio are processor microseconds a message of our own two faces."""
        count = 40_000 // self._share
        rows: list[tuple[str, Callable[..., Sent], Callable[..., Sent], int]] = [
            (
                f"asyncio send_soon, {WINDOW} under way, CPU us; blocking",
                sends.asyncio_send_soon,
                sends.blocking_send_soon,
                WINDOW,
            ),
            ("asyncio send, 64 tasks, CPU us; 64 threads", sends.asyncio_callers, sends.blocking, 64),
            ("asyncio send, one task, CPU us; one thread", sends.asyncio_callers, sends.blocking, 1),
        ]
        for name, ours, theirs, width in rows:
            messages = count // 8 if width == 1 else count
            arguments = (self._nameserver, "sends", width, messages)
            self._row(
                name,
                partial(ours, *arguments),
                partial(cost, partial(theirs, *arguments)),
                value=lambda sent: sent.cpu_us,
            )

    def at_rest(self, *, seconds: int, count: int) -> None:
        share = alone(sys.executable, "-m", "benchmarks.support.sends", "idle", self._nameserver, "sends", str(seconds))
        print(f"{f'an idle producer over {seconds} s, % of a core':46} {share:>10.3f}")
        size = alone(sys.executable, "-m", "benchmarks.support.sends", "million", self._nameserver, "sends", str(count))
        print(f"{f'resident after {count:,} send_soon, MB':46} {size:>10.0f}")

    def _row(
        self,
        name: str,
        ours: Callable[[], Sent],
        theirs: Callable[[], float | Sent],
        value: Callable[[Sent], float] = lambda sent: sent.rate,
    ) -> None:
        pairs, cpu, their_cpu = Pairs(), [], []

        def run() -> float:
            sent = ours()
            cpu.append(sent.cpu_us)
            return value(sent)

        def run_theirs() -> float:
            sent = theirs()
            if not isinstance(sent, Sent):
                return sent
            their_cpu.append(sent.cpu_us)
            return sent.rate

        for _ in range(self._pairs):
            pairs.run(run, run_theirs)
        ratios = pairs.ratios
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"{name:46} {statistics.median(pairs.ours):>10,.0f} {statistics.median(pairs.theirs):>10,.0f} "
            f"{statistics.median(ratios):>6.2f}  {spread:16} {statistics.median(cpu):>6.1f} us"
            + (f" {statistics.median(their_cpu):>6.1f} us" if their_cpu else ""),
            flush=True,
        )

    def _java(self, mode: str, count: int, window: int, rows: Case = SMALL) -> Sent:
        source = HERE / "java" / "SendRates.java"
        with lines_of(rows) as file:
            arguments = self._nameserver, "sends", mode, str(count), str(window), str(file)
            output = self._cluster.run_java(source, *arguments, timeout=300)
        return Sent(rate_in(output), figure_in(output, "cpu"))

    def _librocketmq(self, threads: int, count: int) -> float:
        script = HERE / "peers" / "librocketmq_sends.py"
        return alone(str(PEER_PYTHON), str(script), self._nameserver, "sends", str(threads), str(count))


def cost(run: Callable[[], Sent]) -> float:
    return run().cpu_us


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
    return rate_in(done.stdout)


def rate_in(output: str) -> float:
    return figure_in(output, "rate")


def figure_in(output: str, name: str) -> float:
    return next(float(line.split()[1]) for line in output.splitlines() if line.startswith(f"{name} "))
