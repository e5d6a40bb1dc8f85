"""A NameServer under load: 100 brokers with 10,000 topics register while clients ask.

    python -m benchmarks nameserver_load [--quick]

Server, brokers and clients run in processes of their own. First all brokers register, then they register again (every
30 s, spread), then each time with another DataVersion, the worst case. The figure is the time from question to answer
(request code 105).
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import time
import zlib
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from benchmarks.support.processes import peak_mib
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import encode_frame
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.protocol.routes.topic_config import DataVersion
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody
from tests.support.our_cluster import boot_our_cluster

PERIOD_SECONDS = 30.0
ASK_EVERY_SECONDS = 0.005
CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class Load:
    """The size of a load: every broker registers all `topics`, and each of the two later phases lasts `seconds`."""

    brokers: int
    topics: int
    seconds: float

    def topic(self, number: int) -> str:
        return f"topic_of_the_cluster_{number:06d}"


class Phase:
    """The events that end one phase of the processes and begin the next."""

    def __init__(self) -> None:
        self.all_registered: Event = multiprocessing.Event()
        self.changing: Event = multiprocessing.Event()
        self.stop: Event = multiprocessing.Event()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host, int(port)))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def receive_frame(connected: socket.socket) -> bytes:
    """Receives one answer. No other may be on its way."""
    received = connected.recv(65_536)
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        more = connected.recv(65_536)
        if not more:
            raise ConnectionResetError("the server closed the connection")
        received += more
    return received


# Brokers


def register_all(address: str, load: Load, phase: Phase) -> None:
    """Registers all brokers from one process: first one after the other, then each once in a period."""
    bodies = Bodies(load)
    connections = [connect(address) for _ in range(load.brokers)]
    for number, connected in enumerate(connections):
        connected.sendall(bodies.frame(number, 1))
        receive_success(connected)
    phase.all_registered.set()
    turn, version = 0, 1
    started = time.monotonic()
    while not phase.stop.is_set():
        number = turn % load.brokers
        version += 1 if phase.changing.is_set() else 0
        connections[number].sendall(bodies.frame(number, version))
        receive_success(connections[number])
        turn += 1
        phase.stop.wait(max(0.0, started + turn * PERIOD_SECONDS / load.brokers - time.monotonic()))


def receive_success(connected: socket.socket) -> None:
    answer = receive_frame(connected)
    if b'"code":0,' not in answer:
        raise RuntimeError(f"a request was answered {answer[8:200]!r}")


class Bodies:
    """The registrations of all brokers, with the same topics. Each version has its own CRC-32."""

    def __init__(self, load: Load) -> None:
        topics = tuple(TopicConfig(load.topic(number), 8, 8) for number in range(load.topics))
        body = RegistrationBody(DataVersion(1_700_000_000_000, 1), topics).to_json()
        self._before, self._after = body.split(b'"counter":1,', 1)

    def frame(self, broker: int, version: int) -> bytes:
        body = b"".join((self._before, b'"counter":%d,' % version, self._after))
        header = RegistrationHeader(
            "DefaultCluster", f"10.0.{broker // 250}.{broker % 250}:10911", f"broker-{broker}", 0, "10.0.0.1:10912"
        )
        registration = RegisterBroker(header, body).to_command()
        sums = {**registration.ext, "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF), "enableActingMaster": "false"}
        return encode_frame(Command(103, sums, body))


# Clients


def ask_steadily(
    address: str, load: Load, seconds: float | None, phase: Phase, results: multiprocessing.SimpleQueue[list[float]]
) -> None:
    """Asks for a random topic's route every few milliseconds, for `seconds` or else until all brokers are registered.

    Puts the seconds of each answer into `results`. They count from the time when the question was due, so that a delay
    also shows in the questions behind it.
    """
    connections = [connect(address) for _ in range(CONNECTIONS)]
    took: list[float] = []
    started = due = time.perf_counter()
    while not phase.all_registered.is_set() if seconds is None else due < started + seconds:
        due += ASK_EVERY_SECONDS
        time.sleep(max(0.0, due - time.perf_counter()))
        connected = connections[len(took) % CONNECTIONS]
        connected.sendall(encode_frame(GetRouteInfo(load.topic(random.randrange(load.topics))).to_command()))
        receive_frame(connected)
        took.append(time.perf_counter() - due)
    results.put(took)


# Runs


def under_load(load: Load) -> None:
    print(f"{load.brokers} brokers with {load.topics} topics each, a question every {ASK_EVERY_SECONDS * 1000:g} ms")
    print("\n| while | questions | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
    with boot_our_cluster(()) as cluster:
        address, process_id, phase = cluster.nameserver.address, cluster.nameserver.process.pid, Phase()
        assert process_id is not None
        brokers = multiprocessing.Process(target=register_all, args=(address, load, phase))
        brokers.start()
        report("all brokers come, one after the other", *latencies(address, load, None, phase))
        report("they repeat themselves every 30 s", *latencies(address, load, load.seconds, phase))
        phase.changing.set()
        report("each time with another DataVersion", *latencies(address, load, load.seconds, phase))
        phase.stop.set()
        brokers.join()
        print(f"\nThe NameServer took {peak_mib(process_id):.0f} MiB at most.\n")


def latencies(address: str, load: Load, seconds: float | None, phase: Phase) -> list[float]:
    """Returns the times of the answers in milliseconds, sorted."""
    results: multiprocessing.SimpleQueue[list[float]] = multiprocessing.SimpleQueue()
    clients = multiprocessing.Process(target=ask_steadily, args=(address, load, seconds, phase, results))
    clients.start()
    took = results.get()
    clients.join()
    return sorted(1000 * latency for latency in took)


def report(what: str, *took: float) -> None:
    p50, p99 = (took[int(len(took) * share)] for share in (0.5, 0.99))
    print(f"| {what} | {len(took)} | {p50:.1f} | {p99:.1f} | {took[-1]:.1f} |", flush=True)


def main(*, quick: bool) -> None:
    under_load(Load(10, 1_000, 3.0) if quick else Load(100, 10_000, 60.0))
