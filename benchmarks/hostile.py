"""The waits of an honest client during attacks, ours beside Apache's 5.4.0: look-ups and small sends.

    python -m benchmarks hostile [--quick]

Each attack runs for a few seconds in a process of its own, on this machine alone. The client asks one question after
the other (a route of the NameServer, or a small send to the broker) before, during and after it. A server that ended,
or no longer answers, is booted again for the next attack.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final, Generic, TypeVar

from benchmarks.support.attacks import BROKER_ATTACKS, NAMESERVER_ATTACKS, send_fields
from benchmarks.support.processes import figures_of
from tests.support.apache import ApacheCluster, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import OurCluster, boot_our_cluster
from tests.support.stranger import Stranger

OURS: Final = "ours"
APACHES: Final = "5.4.0"
# Both scan often, so that silent brokers are removed while the client is measured.
SETTINGS: Final = {"scanNotActiveBrokerInterval": "2000"}
ANSWER_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.003
WARMING_SECONDS: Final = 3.0  # Java compiles hot code as it runs
# A smaller difference comes from the machine.
NOTICEABLE_SECONDS: Final = 0.010
WORSE: Final = 1.5

LineT = TypeVar("LineT", Stranger, HTTPConnection)


@dataclass(slots=True)
class Seen:
    """The honest client's waits in one phase, in seconds. `failed` questions had no answer, or a code other than 0."""

    waits: list[float] = field(default_factory=list)
    failed: int = 0

    def p(self, share: float) -> float:
        ordered = sorted(self.waits)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else ANSWER_SECONDS

    def __str__(self) -> str:
        text = f"{self.p(0.5) * 1e3:.1f} / {self.p(0.99) * 1e3:.1f}"
        return f"{text}, {self.failed} failed" if self.failed else text


@dataclass(slots=True)
class Row:
    attack: str
    server: str
    before: Seen
    during: Seen
    after: Seen
    memory: tuple[float, float, float]
    descriptors: tuple[int, int, int]
    ended: str

    def __str__(self) -> str:
        memory = " > ".join(f"{mib:.0f}" for mib in self.memory)
        descriptors = " > ".join(map(str, self.descriptors))
        return (
            f"| {self.attack} | {self.server} | {self.before} | {self.during} | {max(self.during.waits, default=0):.2f}"
            f" | {self.after} | {memory} | {descriptors} | {self.ended or 'lives'} |"
        )


class Asker(ABC, Generic[LineT]):
    """Asks one question after the other over a connection that is opened again after a loss."""

    _line: LineT | None = None

    def ask_while(self, goes_on: Callable[[], bool], look: Callable[[], None] = lambda: None) -> Seen:
        """Returns the waits for answers, and calls `look` after each."""
        seen = Seen()
        while goes_on() or not (seen.waits or seen.failed):
            began = time.perf_counter()
            if self._is_answered():
                seen.waits.append(time.perf_counter() - began)
            else:
                seen.failed += 1
                time.sleep(0.05)
            look()
            time.sleep(PAUSE_SECONDS)
        return seen

    def _is_answered(self) -> bool:
        try:
            if self._line is None:
                self._line = self._connected()
            answer = self._asked(self._line)
        except (OSError, HTTPException):
            answer = None
        if answer is None:
            self.close()
        return answer is not None and answer

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    @abstractmethod
    def _connected(self) -> LineT: ...

    @abstractmethod
    def _asked(self, line: LineT) -> bool | None:
        """Returns whether the answer is a good one, or None if there was none."""


class Client(Asker[Stranger]):
    def __init__(self, address: str, question: Callable[[], tuple[int, dict[str, object], bytes]]) -> None:
        self._address = address
        self._question = question

    def _connected(self) -> Stranger:
        return Stranger(self._address, timeout=ANSWER_SECONDS)

    def _asked(self, line: Stranger) -> bool | None:
        answer = line.ask(*self._question())
        return None if answer is None else answer.code == 0


class Usage:
    """Memory (MiB) and descriptors of a process: the first, the current and the largest figures."""

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self.first = self.most = self.now()

    def now(self) -> tuple[float, int]:
        try:
            figures = figures_of(self._process_id)
        except (OSError, KeyError):  # it has ended
            return 0.0, 0
        return figures["resident MiB"], int(figures["handles"])

    def look(self) -> None:
        memory, descriptors = self.now()
        self.most = max(self.most[0], memory), max(self.most[1], descriptors)


def route() -> tuple[int, dict[str, object], bytes]:
    return 105, {"topic": "TBW102"}, b""


def small_send() -> tuple[int, dict[str, object], bytes]:
    return 10, send_fields(), b"honest"


def attack_row(kind: str, attack: str, address: str, process_id: int, seconds: float, calm_seconds: float) -> Row:
    client = Client(address, small_send if attack in BROKER_ATTACKS else route)
    usage = Usage(process_id)

    with contextlib.closing(client):
        before = client.ask_while(for_seconds(calm_seconds), usage.look)
        with attack_of("attacks", attack, address, seconds) as goes_on:
            during = client.ask_while(lambda: goes_on() and _lives(process_id), usage.look)
        after = client.ask_while(for_seconds(calm_seconds), usage.look)
    last = usage.now()
    (first_memory, first_files), (most_memory, most_files) = usage.first, usage.most
    return Row(
        attack,
        kind,
        before,
        during,
        after,
        (first_memory, most_memory, last[0]),
        (first_files, most_files, last[1]),
        _end(process_id, after),
    )


def for_seconds(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


@contextlib.contextmanager
def attack_of(module: str, attack: str, address: str, seconds: float) -> Iterator[Callable[[], bool]]:
    """Runs an attack in a process of its own. Yields a function that returns whether it still goes on."""
    command = [sys.executable, "-m", f"benchmarks.support.{module}", attack, address, str(seconds)]
    in_time = for_seconds(seconds + 2 * ANSWER_SECONDS)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as attacker:
        try:
            yield lambda: attacker.poll() is None and in_time()
        finally:
            attacker.kill()


def rows(kind: str, seconds: float, calm_seconds: float) -> Iterator[Row]:
    """Yields a row for each attack. Boots the cluster again when a server ended or no longer answers."""
    waiting = [*NAMESERVER_ATTACKS, *BROKER_ATTACKS]
    while waiting:
        booted: AbstractContextManager[OurCluster | ApacheCluster] = (
            boot_our_cluster(("broker-a",), nameserver_settings=SETTINGS)
            if kind == OURS
            else boot_cluster(kind, ("broker-a",), nameserver_settings=SETTINGS)
        )
        with booted as cluster:
            nameserver, broker = cluster.nameserver, cluster.brokers["broker-a"]
            for server, question in ((nameserver, route), (broker, small_send)):
                with contextlib.closing(Client(server.address, question)) as client:
                    client.ask_while(for_seconds(min(WARMING_SECONDS, 4 * calm_seconds)))
            ended = ""
            while waiting and not ended:
                attack = waiting.pop(0)
                server = broker if attack in BROKER_ATTACKS else nameserver
                row = attack_row(kind, attack, server.address, server.process.pid or 0, seconds, calm_seconds)
                ended = row.ended
                yield row


def worse(ours: Sequence[Row], theirs: Sequence[Row]) -> list[str]:
    """Returns a line for each figure in which an honest client is worse off with ours."""
    lines = []
    for mine, other in zip(ours, theirs, strict=True):
        for phase, a, b in (("during", mine.during, other.during), ("after", mine.after, other.after)):
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                if a.p(share) > WORSE * b.p(share) and a.p(share) - b.p(share) > NOTICEABLE_SECONDS:
                    lines.append(
                        f"{mine.attack}, {phase}: {name} {a.p(share) * 1e3:.1f} ms beside {b.p(share) * 1e3:.1f}"
                    )
            if a.failed > b.failed:
                lines.append(f"{mine.attack}, {phase}: {a.failed} questions failed beside {b.failed}")
        if mine.ended and not other.ended:
            lines.append(f"{mine.attack}: ours {mine.ended}")
    return lines


def _end(process_id: int, after: Seen) -> str:
    if not _lives(process_id):
        return "ended"
    return "" if after.waits else "answers no more"


def _lives(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main(quick: bool = False) -> None:
    seconds, calm_seconds = (0.5, 0.3) if quick else (5.0, 2.0)
    print("| attack | server | before, p50 / p99 ms | during | longest, s | after | MiB | descriptors | process |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    measured: dict[str, list[Row]] = {}
    for kind in (OURS, APACHES):
        measured[kind] = []
        try:
            for row in rows(kind, seconds, calm_seconds):
                measured[kind].append(row)
                print(row, flush=True)
        except ApacheUnavailable as reason:
            print(f"Apache's servers do not run here: {reason}")
            return
    lines = worse(measured[OURS], measured[APACHES])
    medians = {
        kind: 1e3 * statistics.median(row.during.p(0.99) for row in kind_rows) for kind, kind_rows in measured.items()
    }
    print(f"\np99 during an attack, median of all: ours {medians[OURS]:.1f} ms, Apache's {medians[APACHES]:.1f}")
    print(
        "\n".join(["An honest client is worse off with ours:", *lines] if lines else ["Nowhere worse off with ours."])
    )
