"""Broken or hostile input harms only the peer that sent it: a client's requests are answered meanwhile."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import trio

from pyrmq_core.network import parse_address
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import MAX_FRAME_BYTES, encode_frame
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.servers.nameserver import RunningNameServer
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import MAX_INFLATED_BYTES
from tests.servers.nameserver.desk import registration
from tests.servers.nameserver.serving import TIMEOUT, Caller, nameserver

QUESTION = encode_frame(GetRouteInfo("T").to_command())


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def connect(stack: ExitStack, running: RunningNameServer) -> socket.socket:
    host, port = parse_address(running.address)
    raw = stack.enter_context(socket.create_connection((host, port)))
    raw.setblocking(False)
    return raw


async def closed_by_server(raw: socket.socket) -> bool:
    with trio.move_on_after(TIMEOUT):
        while True:
            await trio.lowlevel.wait_readable(raw)
            try:
                if not raw.recv(65536):
                    return True
            except ConnectionResetError:
                return True
    return False


async def still_serves(client: Caller) -> None:
    route = await client.route("T")
    assert route is not None


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        bytes(64),
        b"\xff" * 64,
        struct.pack(">II", 2**31 - 1, 20),
        struct.pack(">II", MAX_FRAME_BYTES, 20),
        struct.pack(">II", 8, 1 << 20),
        struct.pack(">II", 6, 2) + b"{}",
        struct.pack(">II", 7, 3) + b"[1]",
        struct.pack(">II", 8, 2 << 24 | 4) + b"abcd",
        struct.pack(">II", 8, 1 << 24 | 4) + b"abcd",
    ],
    ids=[
        "http",
        "tls",
        "zeros",
        "ones",
        "2GiB",
        "above-limit",
        "header-beyond",
        "empty",
        "list",
        "encoding-2",
        "short",
    ],
)
async def test_garbage_ends_its_own_connection_at_most(stack: ExitStack, garbage: bytes) -> None:
    async with nameserver() as (running, caller):
        await caller().register(registration(topics=["T", "U"]))
        raw = connect(stack, running)
        raw.send(garbage)
        if garbage[8:] != b"{}":  # a command without a code is answered as a request for code 0
            assert await closed_by_server(raw)
        await still_serves(caller())


async def test_half_a_frame_holds_up_no_other(stack: ExitStack) -> None:
    async with nameserver() as (running, caller):
        await caller().register(registration(topics=["T", "U"]))
        for cut in range(1, len(QUESTION), 7):
            connect(stack, running).send(QUESTION[:cut])
        connect(stack, running).send(struct.pack(">II", MAX_FRAME_BYTES - 4, 100) + bytes(1000))
        await still_serves(caller())


async def test_a_frame_byte_by_byte_is_a_frame(stack: ExitStack) -> None:
    async with nameserver() as (running, caller):
        await caller().register(registration(topics=["T", "U"]))
        raw = connect(stack, running)
        for byte in QUESTION:
            raw.send(bytes([byte]))
            await trio.lowlevel.checkpoint()
        with trio.fail_after(TIMEOUT):
            await trio.lowlevel.wait_readable(raw)
        assert b'"code":0' in raw.recv(65536)


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_registration_that_lies_about_its_sum_or_form(compressed: bool) -> None:
    async with nameserver() as (running, caller):
        broker = caller()
        await caller().register(registration(topics=["T", "U"]))
        honest = registration("liar", "127.0.0.1:2", topics=["V", "W"], compressed=compressed).to_command()
        sums = (Command(103, {**honest.ext, "bodyCrc32": "7"}, honest.body), "crc32 not match")
        form = {**honest.ext, "compressed": "false" if compressed else "true"}
        forms = (Command(103, form, honest.body), "BodyError, registration: ")
        for command, remark in (sums, forms):
            answer = await broker.call(command)
            assert answer.code == 1
            assert (answer.remark or "").startswith(remark)
        assert "liar" not in running.tables.broker_addr_table
        assert (await broker.call(honest)).code == 0


async def test_a_compressed_bomb_is_refused_while_others_are_answered() -> None:
    bomb = zlib.compress(bytes(4 * MAX_INFLATED_BYTES), 9)
    header = RegistrationHeader("C", "127.0.0.1:2", "bomb", 0, compressed=True)
    answers: list[str] = []
    async with nameserver() as (running, caller):
        client, broker = caller(), caller()
        await client.register(registration(topics=["T", "U"]))

        async def explode() -> None:
            answer = await broker.call(RegisterBroker(header, bomb).to_command())
            assert answer.code == 1
            assert "swell to more than" in (answer.remark or "")
            answers.append("bomb")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(explode)
            await still_serves(client)
            answers.append("route")
        assert answers == ["route", "bomb"]
        assert "bomb" not in running.tables.broker_addr_table


def as_many_topics_as_fit(size_bytes: int, prefix: str) -> bytes:
    topics: list[str] = []
    size = 1_200
    while size < size_bytes:
        name = f"{prefix}{len(topics):x}"
        topics.append(f'"{name}":{{"topicName":"{name}"}}')
        size += len(topics[-1]) + 1
    return ('{"topicConfigSerializeWrapper":{"topicConfigTable":{' + ",".join(topics) + "}}}").encode()


async def many_topics(size_bytes: int, registrations: int = 1) -> None:
    """Registers as many topics as fit into so many bytes, so many times, and removes them again."""
    bodies = [as_many_topics_as_fit(size_bytes, "abcdefgh"[number]) for number in range(registrations)]
    header = RegistrationHeader("C", "127.0.0.1:2", "many", 0)
    done = trio.Event()
    answered_meanwhile = 0
    async with nameserver() as (running, caller):
        client, broker = caller(), caller()
        await client.register(registration(topics=["T", "U"]))

        async def register_many() -> None:
            for body in bodies:
                answer = await broker.pool.call(broker.address, RegisterBroker(header, body).to_command(), timeout=120)
                assert answer.code == 0
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(register_many)
            while not done.is_set():
                await still_serves(client)
                answered_meanwhile += 1
        assert len(running.tables.topic_queue_table) > registrations * size_bytes // 48
        broker.hang_up()
        with trio.fail_after(TIMEOUT * registrations):
            while len(running.tables.topic_queue_table) > 2:
                await still_serves(client)
    assert answered_meanwhile > 50 * registrations


async def test_very_many_topics_do_not_stop_the_others() -> None:
    await many_topics(MAX_FRAME_BYTES // 8)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_a_million_topics_do_not_stop_the_others() -> None:
    """A frame holds some 400,000."""
    await many_topics(MAX_FRAME_BYTES, 3)


async def test_a_clock_set_back_or_on_removes_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's time has no effect: liveness goes by a monotonic clock."""
    async with nameserver() as (running, caller):
        await caller().register(registration(topics=["T", "U"]))
        for days in (-30, 30, 10_000):
            monkeypatch.setattr(time, "time", lambda days=days: 1_700_000_000.0 + days * 86_400)
            monkeypatch.setattr(time, "time_ns", lambda days=days: (1_700_000_000 + days * 86_400) * 10**9)
            running.server.scan()
            assert await caller().route("T") is not None


async def idle_connections(count: int) -> None:
    with ExitStack() as stack:
        async with nameserver() as (running, caller):
            client = caller()
            await client.register(registration(topics=["T", "U"]))
            for number in range(count):
                connect(stack, running)
                if number % 100 == 0:
                    await still_serves(client)
            with trio.fail_after(TIMEOUT):
                while len(running.listening.connections) < count:
                    await still_serves(client)
            stack.close()
            with trio.fail_after(5 * TIMEOUT):
                while len(running.listening.connections) > 1:
                    await still_serves(client)


async def test_idle_connections_cost_no_other_an_answer() -> None:
    await idle_connections(400)  # two descriptors each, and many systems give a process 1,024


HOLDS_CONNECTIONS = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = [socket.create_connection((host, port)) for _ in range(count)]
print("held", flush=True)
sys.stdin.read()
"""


def hold_connections(stack: ExitStack, host: str, port: int, count: int) -> None:
    command = [sys.executable, "-c", HOLDS_CONNECTIONS, host, str(port), str(count)]
    stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))


@pytest.mark.soak
async def test_ten_thousand_idle_connections_cost_no_other_an_answer() -> None:
    """Their other ends are processes of their own, as one process may have too few descriptors for both."""
    async with nameserver() as (running, caller):
        client = caller()
        await client.register(registration(topics=["T", "U"]))
        host, port = parse_address(running.address)
        with ExitStack() as stack:
            for _ in range(4):
                hold_connections(stack, host, port, 2_500)
            with trio.fail_after(60):
                while len(running.listening.connections) < 10_001:
                    await still_serves(client)
            began = trio.current_time()
            for _ in range(200):
                await still_serves(client)
            assert trio.current_time() - began < 20
            stack.pop_all().close()
        with trio.fail_after(60):
            while len(running.listening.connections) > 1:
                await still_serves(client)
