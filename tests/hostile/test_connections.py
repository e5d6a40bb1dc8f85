"""Strangers' connections and their costs for a server process: memory, descriptors, the time of others."""

from __future__ import annotations

import contextlib
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.stranger import ServerProcess, Stranger, broker_process, nameserver_process

MIB = 1024 * 1024
Start: TypeAlias = Callable[..., contextlib.AbstractContextManager[ServerProcess]]
servers = pytest.mark.parametrize("start", [nameserver_process, broker_process], ids=["nameserver", "broker"])
FRAME_BYTES = 15 * MIB + 700_000


def wait_for_files(server: ServerProcess, most: int, seconds: float = 30.0) -> None:
    """Returns when the server has so few descriptors open; fails after the time."""
    deadline = time.monotonic() + seconds
    while server.open_files > most:
        assert time.monotonic() < deadline, f"{server.open_files} descriptors are open"
        time.sleep(0.01)


def send_unfinished(server: ServerProcess, frame_bytes: int, sent_bytes: int) -> None:
    """Sends the first part of a frame and closes."""
    with server.stranger() as stranger:
        stranger.send(struct.pack(">II", frame_bytes, 100) + bytes(sent_bytes))


def test_memory_of_connections_that_ended_is_given_back(tmp_path: Path) -> None:
    with nameserver_process(tmp_path) as server:
        files = server.open_files
        used = []
        for _ in range(4):
            for _ in range(10):
                send_unfinished(server, FRAME_BYTES + 100, FRAME_BYTES)
            wait_for_files(server, files)
            used.append(server.memory_bytes // MIB)
        assert used[-1] - used[0] < 40, f"MiB after each round: {used}"
        assert used[-1] < 150, f"MiB after each round: {used}"


def test_unfinished_frames_take_bounded_memory_and_others_are_answered(tmp_path: Path) -> None:
    with nameserver_process(tmp_path, serverMaxReceivedBytes=64 * MIB) as server:
        honest, before = server.stranger(), server.memory_bytes
        for _ in range(40):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may be closed while it sends
                server.stranger().send(struct.pack(">II", FRAME_BYTES + 100, 100) + bytes(FRAME_BYTES))
            answer = honest.ask(105, {"topic": "nosuch"})
            assert answer is not None
            assert answer.code == 17
            assert server.memory_bytes - before < 64 * MIB + 80 * MIB
        assert "serverMaxReceivedBytes=67108864" in server.output()


@servers
def test_connections_stay_below_the_limit_of_descriptors(
    tmp_path: Path, start: Callable[..., contextlib.AbstractContextManager[ServerProcess]]
) -> None:
    with start(tmp_path, file_limit=256) as server:
        honest = server.stranger()
        assert honest.ask(105, {"topic": "nosuch"}) is not None
        for _ in range(400):
            server.stranger()
        refused = server.stranger()
        assert refused.ask(105, {"topic": "nosuch"}) is None
        assert server.open_files < 256 - 32
        assert honest.ask(105, {"topic": "nosuch"}) is not None
        assert server.output().count("more are refused") == 1
        assert "the limit of open files leaves no room for more" in server.output()
        assert server.stop() == 0


@servers
def test_a_server_takes_the_descriptors_that_it_may_have(tmp_path: Path, start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        starting = start(tmp_path)
        server = starting.__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with contextlib.ExitStack() as stack:
        stack.push(starting)
        strangers = [server.stranger() for _ in range(300)]
        assert strangers[-1].ask(105, {"topic": "nosuch"}) is not None


def test_the_number_of_connections_is_a_setting(tmp_path: Path) -> None:
    with nameserver_process(tmp_path, serverMaxConnections=3) as server:
        held = [server.stranger() for _ in range(3)]
        assert all(stranger.ask(105, {"topic": "nosuch"}) is not None for stranger in held)
        assert server.stranger().ask(105, {"topic": "nosuch"}) is None
        assert "3 connections, its limit; more are refused (serverMaxConnections)" in server.output()


FLOOD = """
import socket, struct, sys
host, port = sys.argv[1].rsplit(":", 1)
print(flush=True)
while True:
    ends = [socket.socket() for _ in range(50)]
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.connect_ex((host, int(port)))
    for end in ends:
        end.close()
"""


@contextlib.contextmanager
def flood_of_connections(server: ServerProcess) -> Iterator[None]:
    command = [sys.executable, "-c", FLOOD, server.address]
    floods = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for flood in floods:
            assert flood.stdout is not None
            flood.stdout.readline()
        yield
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()


def median_seconds(server: ServerProcess, stranger: Stranger, count: int) -> float:
    """Returns the server's processor time between a request and its answer."""
    seconds = []
    for _ in range(count):
        begun = server.processor_seconds
        assert stranger.ask(105, {"topic": "nosuch"}) is not None
        seconds.append(server.processor_seconds - begun)
    return sorted(seconds)[count // 2]


def test_a_flood_of_connections_leaves_others_their_turn(tmp_path: Path) -> None:
    with nameserver_process(tmp_path) as server:
        honest = server.stranger()
        with flood_of_connections(server):
            assert median_seconds(server, honest, 30) < 1.0  # as many connections as come before it took seconds


def test_a_frame_with_a_huge_header_ends_its_connection_by_its_declared_length(tmp_path: Path) -> None:
    with nameserver_process(tmp_path, serverMaxHeaderBytes=1000) as server:
        stranger = server.stranger()
        stranger.send(struct.pack(">II", 5000, 1001))
        assert stranger.read() is None
        assert "serverMaxHeaderBytes" in server.output()
