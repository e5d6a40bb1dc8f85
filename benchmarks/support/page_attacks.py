"""Attacks on the page in the browser and the page of metrics, one a function, run in a process of its own.

    python -m benchmarks.support.page_attacks NAME ADDRESS SECONDS

The attackers come from 127.0.0.2, other viewers from 127.0.0.1: both pages tell addresses apart.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

ATTACKER: Final = "127.0.0.2"
IDLE_CONNECTIONS: Final = 3_000
SLOW_CONNECTIONS: Final = 500
FLOODING_CONNECTIONS: Final = 16
REQUESTS: Final = 200
FORMS: Final = 16
FORM_BYTES: Final = 13_000_000
TIMEOUT_SECONDS: Final = 5.0
# Pages that ask brokers, and that no two requests share.
DEAR_PATHS: Final = ("/topics?find=t{0}", "/groups?find=g{0}", "/messages?topic=hostile&key=k{0}", "/?n={0}")


def idle_connections(address: str, end: float) -> None:
    """Opens 3,000 connections that send nothing, then closes them."""
    with ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            with contextlib.suppress(OSError):
                stack.enter_context(_connected(address))
            if time.monotonic() > end:
                return


def slow_heads(address: str, end: float) -> None:
    """Sends the head of a request on 500 connections, a byte of each in turn, and opens closed ones again."""
    head = _get("/", address)[:-4] + b"\r\nA: " + b"a" * 1_000_000
    connections: dict[int, tuple[socket.socket, int]] = {}
    try:
        while time.monotonic() < end:
            for number in range(SLOW_CONNECTIONS):
                with contextlib.suppress(OSError):
                    connection, sent = connections.get(number) or (_connected(address), 0)
                    connections[number] = connection, sent + 1
                    try:
                        connection.send(head[sent : sent + 1])
                    except OSError:
                        connection.close()
                        del connections[number]
    finally:
        for connection, _ in connections.values():
            connection.close()


def flood_of_requests(address: str, end: float) -> None:
    """Asks for dear pages over sixteen connections, 200 requests written at once, and reads all answers."""
    _flood(address, end, reads=True)


def unread_answers(address: str, end: float) -> None:
    """Does the same, and reads no answer."""
    _flood(address, end, reads=False)


def _flood(address: str, end: float, *, reads: bool) -> None:
    with ExitStack() as stack:
        connections: list[socket.socket] = []
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                while len(connections) < FLOODING_CONNECTIONS:
                    connections.append(stack.enter_context(_connected(address)))
                    connections[-1].settimeout(0.01)
            for connection in list(connections):
                requests = [
                    _get(DEAR_PATHS[n % len(DEAR_PATHS)].format(time.time_ns()), address) for n in range(REQUESTS)
                ]
                try:
                    connection.sendall(b"".join(requests))
                except TimeoutError:
                    pass
                except OSError:
                    connections.remove(connection)
                    continue
                if reads:
                    _read(connection, connections)


def _read(connection: socket.socket, connections: list[socket.socket]) -> None:
    """Reads what has come, and forgets a connection that has ended."""
    try:
        while connection.recv(1 << 20):
            pass
        connections.remove(connection)
    except TimeoutError:
        pass
    except OSError:
        connections.remove(connection)


def new_connections(address: str, end: float) -> None:
    """Opens a connection for each request, as fast as one process can, and closes it unanswered."""
    while time.monotonic() < end:
        with contextlib.suppress(OSError), _connected(address) as connection:
            connection.sendall(_get("/", address))


def large_forms(address: str, end: float) -> None:
    """Sends sixteen forms of 13 MB at a time, without this page's token."""
    head = (
        f"POST /send HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {FORM_BYTES}\r\n\r\n"
    ).encode()
    body = b"body=" + b"%41" * ((FORM_BYTES - 5) // 3)
    body += b"x" * (FORM_BYTES - len(body))
    while time.monotonic() < end:
        with ExitStack() as stack:
            connections = []
            for _ in range(FORMS):
                with contextlib.suppress(OSError):
                    connections.append(stack.enter_context(_connected(address)))
            for connection in connections:
                with contextlib.suppress(OSError):
                    connection.sendall(head + body)


ATTACKS: Final[dict[str, Callable[[str, float], None]]] = {
    "3,000 idle connections": idle_connections,
    "500 slow heads": slow_heads,
    "flood of new connections": new_connections,
    "flood of requests": flood_of_requests,
    "flood, answers not read": unread_answers,
    "forms of 13 MB": large_forms,
}


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_SECONDS, (ATTACKER, 0))


def _get(path: str, address: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()


def main(name: str, address: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ATTACKS[name](address, end)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
