"""`pyrmq send` with lines from a pipe, into our broker and Apache RocketMQ 5.4.0, each a process of its own.

    python -m benchmarks piped_lines [--quick]

Plain lines of 100 B; JSON lines of about as much body with tags, keys and two properties; with a result printed for
each, and with `-q`. Each row is a pair, run A B B A: ours beside Apache's. `us a line` is the processor time of the
command itself, without its start, which is measured by a pipe of one line: the firmer figure where others use the
machine. Then the command's own cost, JSON lines beside plain ones.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count

from benchmarks.support.brokers import BROKER_SETTINGS, PATIENT
from benchmarks.support.pairs import Pairs
from pyrmq_core.blocking import Admin
from tests.support.apache import boot_cluster
from tests.support.our_cluster import boot_our_cluster

LINES = 400_000
PAIRS = 5
QUEUES = 4
BODY_BYTES = 100
FORMS: dict[str, tuple[str, ...]] = {"plain": (), "json": ("--input", "json")}
TOPICS = count(1)
LARGE_LOG = {"mappedFileSizeCommitLog": str(256 << 20), "maxStoreBytes": str(16 << 30)}
HEADING = (
    f"{'':24} {'ours, /s':>10} {'Apache, /s':>10} {'ratio':>6} {'spread':14} us a line, ours and Apache (least to most)"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """The figures of one command: its seconds, and its processor seconds."""

    seconds: float
    cpu: float


def main(*, quick: bool) -> None:
    lines, pairs = (LINES // 20, 1) if quick else (LINES, PAIRS)
    inputs = {"plain": joined(plain_lines(lines)), "json": joined(json_lines(lines))}
    with (
        boot_our_cluster(["broker-a"], broker_settings=LARGE_LOG) as ours,
        boot_cluster("5.4.0", ("broker-a",), broker_settings={**BROKER_SETTINGS, **PATIENT}) as theirs,
    ):
        nameservers = [one.nameserver.address for one in (ours, theirs)]
        for nameserver in nameservers:  # the first writes of a broker are slow
            send(nameserver, "plain", inputs["plain"])
        print(HEADING)
        for form, content in inputs.items():
            for options in ((), ("-q",)):
                measure(f"{form} {' '.join(options)}", form, content, options, nameservers, pairs)
        compare_forms(nameservers[0], inputs, pairs)


def measure(name: str, form: str, content: bytes, options: tuple[str, ...], nameservers: list[str], pairs: int) -> None:
    """Prints the rates of one form of lines at both brokers, and the command's processor time a line."""
    lines, measured = content.count(b"\n"), Pairs()
    costs: tuple[list[float], list[float]] = ([], [])
    start = min(send(nameserver, form, first_line(content), *options).cpu for nameserver in nameservers for _ in "12")

    def rate(place: int) -> float:
        found = send(nameservers[place], form, content, *options)
        costs[place].append((found.cpu - start) / lines * 1e6)
        return lines / found.seconds

    for _ in range(pairs):
        measured.run(partial(rate, 0), partial(rate, 1))
    ratios = measured.ratios
    print(
        f"{name:24} {statistics.median(measured.ours):>10,.0f} {statistics.median(measured.theirs):>10,.0f} "
        f"{statistics.median(ratios):>6.2f} {f'{min(ratios):.2f} to {max(ratios):.2f}':14} "
        + ", ".join(f"{statistics.median(some):.2f} ({min(some):.2f} to {max(some):.2f})" for some in costs)
        + f"; start {start:.2f} s",
        flush=True,
    )


def compare_forms(nameserver: str, inputs: dict[str, bytes], pairs: int) -> None:
    """Prints how many times the processor time of plain lines JSON lines take, the start included."""
    measured = Pairs()
    for _ in range(pairs):
        measured.run(*(partial(cost, nameserver, form, inputs[form]) for form in ("json", "plain")))
    ratios = measured.ratios
    print(f"processor time, JSON / plain: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def cost(nameserver: str, form: str, content: bytes) -> float:
    return send(nameserver, form, content, "-q").cpu


def send(nameserver: str, form: str, content: bytes, *options: str) -> Ended:
    """Runs the command once, on a topic of its own, and feeds it from a thread."""
    topic = f"lines-{next(TOPICS)}"
    with Admin(nameserver=nameserver) as admin:
        admin.create_topic(topic, queues=QUEUES)
    command = [sys.executable, "-m", "pyrmq_core.cli", "send", topic, "-n", nameserver, *FORMS[form], *options]
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        feeder = threading.Thread(target=feed, args=(process.stdin.fileno(), content))
        feeder.start()
        feeder.join()
        process.stdin.close()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} ended with {process.returncode}")
    return Ended(time.perf_counter() - began, used.ru_utime + used.ru_stime)


def feed(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def plain_lines(lines: int) -> Iterable[bytes]:
    return (b"%0*d" % (BODY_BYTES, number) for number in range(lines))


def json_lines(lines: int) -> Iterable[bytes]:
    for number in range(lines):
        properties = {"region": "eu", "number": str(number)}
        members = {
            "body": f"{number:0{BODY_BYTES}}",
            "tags": "paid",
            "keys": f"order-{number}",
            "properties": properties,
        }
        yield json.dumps(members).encode()


def joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def first_line(content: bytes) -> bytes:
    return content[: content.index(b"\n") + 1]
