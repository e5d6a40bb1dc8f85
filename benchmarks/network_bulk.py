"""The cost of large frames: connections of `pyrmq_core.network` beside plain blocking sockets, both directions.

    python -m benchmarks.network_bulk [--quick] [--pairs N] [--megabytes N]

A plain process at the other end receives large requests and sends small answers, or the reverse, as a broker does for
batches and pulls. Their lengths vary around the size, or are equal. Four are under way at once. Each row is a pair, run
A B B A. The verdict is the median of the pairs' ratios, its spread beside it. `s/GB` is the CPU of this process for a
gigabyte of bodies.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import socket
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice

import trio

from benchmarks.support.user_rows import lengths
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.framing.headers import encode_header

OPAQUE = re.compile(rb'"opaque":(\d+)')
WINDOW = 4
# Frames of so many lengths are sent in turn.
LENGTHS = 8
KIB = 1024
MIB = KIB * KIB


@dataclass(frozen=True, slots=True)
class Figure:
    """One run: megabytes of bodies a second, and CPU seconds for a gigabyte."""

    rate: float
    cpu: float


class PlainPeer:
    """Whole frames over a blocking socket, each received into one reused buffer."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self._buffer = bytearray(17 * MIB)
        self._start = self._end = 0

    def receive(self) -> tuple[bytes, memoryview] | None:
        """Returns the next frame's opaque, in digits, and its body, or None once the connection is closed."""
        if not self._fill(8):
            return None
        length, word = struct.unpack_from(">II", self._buffer, self._start)
        self._fill(4 + length)
        view = memoryview(self._buffer)[self._start : self._start + 4 + length]
        self._start += 4 + length
        header = bytes(view[8 : 8 + (word & 0xFFFFFF)])
        match = OPAQUE.search(header)
        assert match is not None
        return match[1], view[8 + len(header) :]

    def _fill(self, count: int) -> bool:
        if self._end - self._start < count and self._start:
            rest = self._buffer[self._start : self._end]
            self._buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        while self._end - self._start < count:
            received = self.connection.recv_into(memoryview(self._buffer)[self._end :])
            if not received:
                return False
            self._end += received
        return True

    def send(self, head: bytes, opaque: bytes, tail: bytes, body: bytes) -> None:
        header = head + opaque + tail
        prefix = struct.pack(">II", 4 + len(header) + len(body), len(header))
        count = self.connection.sendmsg([prefix, header, body])
        if count < len(prefix) + len(header) + len(body):
            self.connection.sendall(memoryview(prefix + header + body)[count:])


def bodies_of(mean: int, *, equal: bool) -> list[bytes]:
    """Returns the bodies that are sent in turn, whose mean is about this."""
    return [bytes(length) for length in ((mean,) if equal or not mean else lengths(mean)[:LENGTHS])]


def serve_plain(listener: socket.socket, answer_bytes: int, *, equal: bool = False) -> None:
    head, tail = around_opaque(1, success({"queueId": "1"}))
    bodies = bodies_of(answer_bytes, equal=equal)
    while True:
        connection, _ = listener.accept()
        peer, turn = PlainPeer(connection), cycle(bodies)
        while frame := peer.receive():
            peer.send(head, frame[0], tail, next(turn))


def around_opaque(flag: int, command: Command) -> tuple[bytes, bytes]:
    head, _, tail = encode_header(replace(command, flag=flag, opaque=987654321)).partition(b"987654321")
    return head, tail


def blocking(port: int, request_bytes: int, body_bytes: int, count: int, *, equal: bool = False) -> Figure:
    head, tail = around_opaque(0, Command(320, {"b": "T"}))
    turn = cycle(bodies_of(request_bytes, equal=equal))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        peer = PlainPeer(connection)
        started, cpu = time.perf_counter(), time.process_time()
        for number in range(WINDOW):
            peer.send(head, b"%d" % number, tail, next(turn))
        for number in range(WINDOW, count + WINDOW):
            assert peer.receive() is not None
            if number < count:
                peer.send(head, b"%d" % number, tail, next(turn))
        return figure(all_bytes(body_bytes, count, equal=equal), started, cpu)


def ours(port: int, request_bytes: int, body_bytes: int, count: int, *, equal: bool = False) -> Figure:
    turn = cycle(bodies_of(request_bytes, equal=equal))

    async def caller(pool: ConnectionPool, calls: int) -> None:
        for _ in range(calls):
            await pool.call(f"127.0.0.1:{port}", Command(320, {"b": "T"}, next(turn)), timeout=30)

    async def main() -> Figure:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await caller(pool, 1)
            started, cpu = time.perf_counter(), time.process_time()
            async with trio.open_nursery() as callers:
                for _ in range(WINDOW):
                    callers.start_soon(caller, pool, count // WINDOW)
            result = figure(all_bytes(body_bytes, count // WINDOW * WINDOW, equal=equal), started, cpu)
            await pool.aclose()
        return result

    return trio.run(main)


def all_bytes(mean: int, count: int, *, equal: bool) -> int:
    bodies = bodies_of(mean, equal=equal)
    return sum(map(len, islice(cycle(bodies), count)))


def figure(body_bytes: int, started: float, cpu: float) -> Figure:
    seconds, spent = time.perf_counter() - started, time.process_time() - cpu
    return Figure(body_bytes / 1e6 / seconds, spent * 1e9 / body_bytes)


def pairs(count: int, first: Callable[[], Figure], second: Callable[[], Figure]) -> list[tuple[Figure, Figure]]:
    """Runs `count` pairs, every second one in the other order: A B B A."""
    figure_pairs = []
    for number in range(count):
        if number % 2:
            b = second()
            figure_pairs.append((first(), b))
        else:
            a = first()
            figure_pairs.append((a, second()))
    return figure_pairs


def main(*, quick: bool = False, count: int = 5, megabytes: int = 500) -> None:
    if quick:
        count, megabytes = 2, 100
    context = multiprocessing.get_context("fork")
    print(f"{'':34} {'blocking':>9} {'ours':>9} {'ratio':>6} {'(spread)':11} {'s/GB':>6} {'s/GB':>6}")
    for direction in ("send", "receive"):
        for size, equal in ((9 * KIB, False), (100 * KIB, False), (MIB, False), (MIB, True), (4 * MIB, False)):
            request_size, answer_size = (size, 0) if direction == "send" else (0, size)
            with socket.create_server(("127.0.0.1", 0)) as listener:
                server = context.Process(
                    target=serve_plain, args=(listener, answer_size), kwargs={"equal": equal}, daemon=True
                )
                server.start()
                try:
                    arguments = listener.getsockname()[1], request_size, size, megabytes * 1_000_000 // size
                    figure_pairs = pairs(count, *(partial(way, *arguments, equal=equal) for way in (blocking, ours)))
                finally:
                    server.kill()
                    server.join()
            report(f"{direction} {size // KIB} KiB{', equal' if equal else ''}, MB/s", figure_pairs)


def report(name: str, figure_pairs: list[tuple[Figure, Figure]]) -> None:
    ratios = sorted(mine.rate / plain.rate for plain, mine in figure_pairs)
    rates = [statistics.median(pair[side].rate for pair in figure_pairs) for side in (0, 1)]
    cpu = [statistics.median(pair[side].cpu for pair in figure_pairs) for side in (0, 1)]
    print(
        f"{name:34} {rates[0]:9,.0f} {rates[1]:9,.0f} {statistics.median(ratios):6.2f} "
        f"({ratios[0]:.2f}-{ratios[-1]:.2f}) {cpu[0]:6.2f} {cpu[1]:6.2f}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=500)
    chosen = parser.parse_args()
    main(quick=chosen.quick, count=chosen.pairs, megabytes=chosen.megabytes)
