"""Look-ups of routes from 8 connections, our NameServer beside Apache's 5.4.0, in short turns: A B B A, and again.

    python -m benchmarks.route_lookups [--quick] [--pairs N]

The client is a process of its own with questions encoded beforehand, so that the servers are measured. Beside the rates
stands the server's processor time for a look-up, which other load on the machine moves far less.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.nameserver_load import Bodies, Load, connect, our_nameserver, receive_success
from benchmarks.support.asking import TOPICS
from tests.support.apache import ApacheNameServer
from tests.support.java_programs import temporary_directory
from tests.support.maven import ApacheUnavailable

TURN_SECONDS = 0.5
WARMING_SECONDS = 6.0  # Java compiles hot code as it runs
UNDER_WAY = (1, 16)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Server:
    """The address and the process of a NameServer."""

    address: str
    process_id: int

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


@dataclass(frozen=True, slots=True)
class Turn:
    """The figures of one turn at a server."""

    answers: int
    seconds: float
    processor_seconds: float

    @property
    def rate(self) -> float:
        return self.answers / self.seconds

    @property
    def cost_us(self) -> float:
        return 1e6 * self.processor_seconds / self.answers


def ask(server: Server, seconds: float, under_way: int) -> Turn:
    command = [sys.executable, "-m", "benchmarks.support.asking", server.address, str(seconds), str(under_way)]
    before = server.processor_seconds()
    answers, took = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return Turn(int(answers), float(took), server.processor_seconds() - before)


def joined(turns: Sequence[Turn]) -> Turn:
    return Turn(
        *(sum(numbers) for numbers in zip(*((t.answers, t.seconds, t.processor_seconds) for t in turns), strict=True))
    )


def measure(ours: Server, java: Server, pairs: int, under_way: int) -> None:
    """Prints one line of the table; a pair is A B B A."""
    mine: list[Turn] = []
    theirs: list[Turn] = []
    for _ in range(pairs):
        first = ask(ours, TURN_SECONDS, under_way)
        theirs.append(joined([ask(java, TURN_SECONDS, under_way) for _ in range(2)]))
        mine.append(joined([first, ask(ours, TURN_SECONDS, under_way)]))
    ratios = sorted(a.rate / b.rate for a, b in zip(mine, theirs, strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    our_cost, java_cost = (joined(turns).cost_us for turns in (mine, theirs))
    rates = [statistics.median(turn.rate for turn in turns) for turns in (mine, theirs)]
    print(
        f"| {under_way} | {rates[0]:,.0f} | {rates[1]:,.0f} | {statistics.median(ratios):.2f} "
        f"({low:.2f} to {high:.2f}; all {ratios[0]:.2f} to {ratios[-1]:.2f}) | {our_cost:.0f} | {java_cost:.0f} |",
        flush=True,
    )


def main(quick: bool = False, *, pairs: int = 15) -> None:
    load = Load(1, TOPICS, 1.0)
    with contextlib.ExitStack() as stack:
        ours = Server(*stack.enter_context(our_nameserver()))
        try:
            home = stack.enter_context(temporary_directory("5.4.0"))
            apache = ApacheNameServer("5.4.0", home / "namesrv", {}, ())
            stack.callback(apache.kill)
            apache.start()
        except ApacheUnavailable as reason:
            print(f"Apache's NameServer does not run here: {reason}")
            return
        java = Server(apache.address, apache.process.pid or 0)
        for server in (ours, java):
            broker = stack.enter_context(connect(server.address))
            broker.sendall(Bodies(load).frame(0, 1))
            receive_success(broker)
            for under_way in UNDER_WAY:
                ask(server, 1.0 if quick else WARMING_SECONDS, under_way)
        print(
            "| under way on each | ours a second | Apache's a second | ratio, middle half | ours, us | Apache's, us |"
        )
        print("|---|---|---|---|---|---|")
        for under_way in UNDER_WAY:
            measure(ours, java, 1 if quick else pairs, under_way)
    print("\nThe last two columns: processor time of the server for one look-up, all its threads.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.route_lookups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--pairs", type=int, default=15, help="how many times A B B A")
    options = parser.parse_args()
    main(options.quick, pairs=options.pairs)
