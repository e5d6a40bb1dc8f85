"""The cost of large frames: connections of `pyrmq_core.network` beside plain blocking sockets, both directions.

    python -m benchmarks network_bulk [--quick]

A plain process at the other end receives large requests and sends small answers, or the reverse, as a broker does for
batches and pulls. Their lengths vary around the size, or are equal. Four are under way at once. Each row is a pair, run
A B B A. The verdict is the median of the pairs' ratios, its spread beside it. `CPU us` is the CPU of this process for a
kilobyte of bodies.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
from functools import partial
from itertools import cycle, islice

import trio

from benchmarks.network_calls import OPAQUE, around_opaque
from benchmarks.support.pairs import Clock, Figure, heading, pairs_of, table_line
from benchmarks.support.user_rows import lengths
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.command import Command, success

WINDOW = 4
# Frames of so many lengths are sent in turn.
LENGTHS = 8
KIB = 1024
MIB = KIB * KIB


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


def blocking(port: int, request_bytes: int, body_bytes: int, count: int, *, equal: bool = False) -> Figure:
    head, tail = around_opaque(0, Command(320, {"b": "T"}))
    turn = cycle(bodies_of(request_bytes, equal=equal))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        peer = PlainPeer(connection)
        clock = Clock()
        for number in range(WINDOW):
            peer.send(head, b"%d" % number, tail, next(turn))
        for number in range(WINDOW, count + WINDOW):
            assert peer.receive() is not None
            if number < count:
                peer.send(head, b"%d" % number, tail, next(turn))
        return clock.figure(kilobytes(body_bytes, count, equal=equal))


def ours(port: int, request_bytes: int, body_bytes: int, count: int, *, equal: bool = False) -> Figure:
    turn = cycle(bodies_of(request_bytes, equal=equal))

    async def caller(pool: ConnectionPool, calls: int) -> None:
        for _ in range(calls):
            await pool.call(f"127.0.0.1:{port}", Command(320, {"b": "T"}, next(turn)), timeout=30)

    async def main() -> Figure:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await caller(pool, 1)
            clock = Clock()
            async with trio.open_nursery() as callers:
                for _ in range(WINDOW):
                    callers.start_soon(caller, pool, count // WINDOW)
            result = clock.figure(kilobytes(body_bytes, count // WINDOW * WINDOW, equal=equal))
            await pool.aclose()
        return result

    return trio.run(main)


def kilobytes(mean: int, count: int, *, equal: bool) -> float:
    return sum(map(len, islice(cycle(bodies_of(mean, equal=equal)), count))) / 1000


def main(*, quick: bool) -> None:
    count, megabytes = (2, 100) if quick else (5, 500)
    context = multiprocessing.get_context("fork")
    print(heading("ours", "blocking"))
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
                    pairs = pairs_of(count, *(partial(way, *arguments, equal=equal) for way in (ours, blocking)))
                finally:
                    server.kill()
                    server.join()
            name = f"{direction} {size // KIB} KiB{', equal' if equal else ''}, MB/s"
            print(table_line(name, pairs, lambda figure: figure.rate / 1000), flush=True)
