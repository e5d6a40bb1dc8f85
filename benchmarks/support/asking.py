"""A process that asks a NameServer for routes as fast as it answers: raw sockets, questions encoded beforehand.

    python -m benchmarks.support.asking ADDRESS SECONDS UNDER_WAY

Eight connections, so many questions under way on each. It prints how many were answered and in how many seconds. All
answers have the same length (the topics' names and the numbers of the questions do), so bytes are counted, not frames.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from collections.abc import Sequence

CONNECTIONS = 8
TOPICS = 200
FIRST_NUMBER = 100_000


def topic(number: int) -> str:
    return f"topic_of_the_cluster_{number:06d}"


def questions() -> list[bytes]:
    """Returns the requests as Java's client of 5.4.0 writes them."""
    requests = []
    for number in range(TOPICS):
        header = {
            "code": 105,
            "extFields": {"topic": topic(number)},
            "flag": 0,
            "language": "JAVA",
            "opaque": FIRST_NUMBER + number,
            "serializeTypeCurrentRPC": "JSON",
            "version": 493,
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        requests.append((4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text)
    return requests


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connected = socket.create_connection((host, int(port)), 10)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def answer_bytes(connected: socket.socket, requests: Sequence[bytes]) -> int:
    """Returns the length of every answer.

    Raises `ValueError` if lengths differ, `RuntimeError` if an answer is not a route.
    """
    lengths = set()
    for question in requests:
        connected.sendall(question)
        received = connected.recv(65_536)
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += connected.recv(65_536)
        if b'"code":0,' not in received:
            raise RuntimeError(f"a question was answered {received[8:200]!r}")
        lengths.add(len(received))
    (length,) = lengths
    return length


def ask(address: str, seconds: float, under_way: int) -> tuple[int, float]:
    requests = questions()
    connections = {connected.fileno(): connected for connected in (connect(address) for _ in range(CONNECTIONS))}
    size = answer_bytes(next(iter(connections.values())), requests)
    joined = [b"".join(requests[:count]) for count in range(under_way + 1)]
    poll = select.epoll()
    rest = dict.fromkeys(connections, 0)
    answers = 0
    started = time.perf_counter()
    for number, connected in connections.items():
        poll.register(number, select.EPOLLIN)
        connected.sendall(joined[under_way])
    while (now := time.perf_counter()) < started + seconds:
        for number, _ in poll.poll():
            received = len(connections[number].recv(1 << 20))
            if not received:
                raise ConnectionResetError(f"{address} closed the connection")
            whole, rest[number] = divmod(rest[number] + received, size)
            answers += whole
            if whole == 1:
                connections[number].sendall(requests[answers % TOPICS])
            elif whole:
                connections[number].sendall(joined[whole])
    return answers, now - started


if __name__ == "__main__":
    print(*ask(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
