"""The cost of a call: connections of `pyrmq_core.network` beside plain blocking sockets, against one echo server.

    python -m benchmarks network_calls [--quick]

The echo server is a process of its own and answers as a broker answers a send. It spends 15 microseconds of CPU on each
request (a real broker about 18), or none. `serve` is our own server with a handler that answers at once. Each row is a
pair, run A B B A. The verdict is the median of the pairs' ratios, its spread beside it. `CPU us` is the CPU of this
process for a call: the firmer figure where others use the machine. `ours` sends a new `SendMessage` each time, `form`
the same header written once but for two fields.
"""

from __future__ import annotations

import multiprocessing
import re
import socket
import struct
import time
from dataclasses import replace
from functools import partial
from operator import attrgetter

import trio

from benchmarks.support.pairs import Clock, Figure, heading, pairs_of, table_line
from pyrmq_core.network import ConnectionPool, Peer, serve
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.headers import encode_header
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage

OPAQUE = re.compile(rb'"opaque":(\d+)')
ANSWER = MessageStored("7F00000100002A9F0000000000001A0C", 2, 5, "7F0000010001000000000000000A0001")
RECEIVE_BYTES = 256 * 1024
SERVER_US = 15.0
PROPERTIES = "UNIQ_KEY\x017F0000010001000000000000000A0001\x02KEYS\x01k1\x02TAGS\x01TagA\x02WAIT\x01true\x02"
SEND = SendMessage("PG", "TopicTest", "TBW102", 4, 2, 0, 1_700_000_000_000, 0, PROPERTIES, body=b"x" * 100)


def plain_echo(listener: socket.socket, server_us: float = 0.0) -> None:
    """Answers every frame. Reads and writes are joined, and only the opaque is parsed."""
    head, tail = around_opaque(1, ANSWER.to_command())
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        while data := connection.recv(RECEIVE_BYTES):
            frames, received = _frames(received + data)
            spent = time.process_time() + len(frames) * server_us / 1e6
            while time.process_time() < spent:
                pass
            answers = [head + OPAQUE.search(frame)[1] + tail for frame in frames]  # type: ignore[index]
            connection.sendall(
                b"".join(struct.pack(">II", 4 + len(answer), len(answer)) + answer for answer in answers)
            )


def served_echo(ports: multiprocessing.SimpleQueue[int]) -> None:
    """Gives the same answer by `serve`, and puts its port into `ports`."""
    answer = ANSWER.to_command()

    def handle(request: Command, peer: Peer) -> Command:
        return answer

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listening = await nursery.start(partial(serve, handle, "127.0.0.1", 0))
            ports.put(listening.port)

    trio.run(main)


def around_opaque(flag: int, command: Command) -> tuple[bytes, bytes]:
    """Returns the parts of a header before and behind its opaque."""
    head, _, tail = encode_header(replace(command, flag=flag, opaque=987654321)).partition(b"987654321")
    return head, tail


def _frames(data: bytes) -> tuple[list[bytes], bytes]:
    frames, position = [], 0
    while len(data) - position >= 4:
        (length,) = struct.unpack_from(">I", data, position)
        if len(data) - position - 4 < length:
            break
        frames.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return frames, data[position:]


def blocking(port: int, window: int, calls: int) -> Figure:
    """Measures a plain socket: headers from a template, `window` calls under way, joined writes, opaques parsed."""
    head, tail = around_opaque(0, SEND.to_command())
    body = bytes(SEND.body)
    opaque = 0

    def request() -> bytes:
        nonlocal opaque
        opaque += 1
        header = head + b"%d" % opaque + tail
        return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body

    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clock, times = Clock(), list[float]()
        connection.sendall(b"".join(request() for _ in range(window)))
        received, answered, begun = b"", 0, time.perf_counter()
        while answered < calls:
            frames, received = _frames(received + connection.recv(RECEIVE_BYTES))
            for frame in frames:
                int(OPAQUE.search(frame)[1])  # type: ignore[index]
            answered += len(frames)
            more = min(len(frames), calls - opaque)
            if window == 1:
                now = time.perf_counter()
                times.append(now - begun)
                begun = now
            if more:
                connection.sendall(b"".join(request() for _ in range(more)))
        return clock.figure(calls, times)


def ours(port: int, window: int, calls: int, *, form: bool = False) -> Figure:
    """Measures a pool's calls from `window` tasks."""
    times: list[float] = []
    written = SEND.to_form()

    address = f"127.0.0.1:{port}"

    async def caller(pool: ConnectionPool, count: int) -> None:
        for _ in range(count):
            begun = time.perf_counter()
            if form:
                connection = await pool.connection(address, timeout=30)
                request = written.request((SEND.born_timestamp_ms,), PROPERTIES, SEND.body)
                await connection.begin(request, trio.current_time() + 30, 30).wait()
            else:
                await pool.call(address, replace(SEND, queue_id=3).to_command(), timeout=30)
            if window == 1:
                times.append(time.perf_counter() - begun)

    async def main() -> Figure:
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await caller(pool, 1)
            times.clear()
            clock = Clock()
            async with trio.open_nursery() as callers:
                for _ in range(window):
                    callers.start_soon(caller, pool, calls // window)
            figure = clock.figure(calls // window * window, times)
            await pool.aclose()
        return figure

    return trio.run(main)


def main(*, quick: bool) -> None:
    context = multiprocessing.get_context("fork")
    ports: multiprocessing.SimpleQueue[int] = context.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as busy, socket.create_server(("127.0.0.1", 0)) as idle:
        servers = [
            context.Process(target=plain_echo, args=(busy, SERVER_US), daemon=True),
            context.Process(target=plain_echo, args=(idle,), daemon=True),
            context.Process(target=served_echo, args=(ports,), daemon=True),
        ]
        for server in servers:
            server.start()
        places = {
            f"echo of {SERVER_US:g} us": busy.getsockname()[1],
            "echo of 0 us": idle.getsockname()[1],
            "serve": ports.get(),
        }
        try:
            table(places, *((1, 5_000) if quick else (5, 40_000)))
        finally:
            for server in servers:
                server.kill()
                server.join()


def table(places: dict[str, int], count: int, calls: int) -> None:
    print(heading("ours", "blocking"))
    for where, port in places.items():
        for window in (1, 16, 256):
            arguments = port, window, calls // 8 if window == 1 else calls
            for form in (False, True):
                pairs = pairs_of(count, partial(ours, *arguments, form=form), partial(blocking, *arguments))
                what = "one caller, p50 us" if window == 1 else f"{window} callers, calls/s"
                name = f"{where}, {what}{', form' if form else ''}"
                print(table_line(name, pairs, attrgetter("p50_us" if window == 1 else "rate")), flush=True)
