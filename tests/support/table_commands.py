"""Every command that prints a table, with arguments for a cluster that has many of what it shows.

A command that click knows is in `TABLES` or in `NO_TABLE`: a new one fails a test until it is.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyrmq_core import Command
from pyrmq_core.protocol.framing.frame import FrameDecoder, encode_frame
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData

WIDE: Final = "wide"  # the topic with many queues and messages
LATE: Final = "late"  # the group with offsets in all of them, and dead letters
# By a command's words: the arguments behind them.
TABLES: Final = {
    "topic list": "",
    "topic route": WIDE,
    "topic stats": WIDE,
    "topic perm": WIDE,
    "topic settings": WIDE,
    "topic order": "ordered",
    "topic groups": WIDE,
    "topic clusters": WIDE,
    "cluster": "",
    "group list": "",
    "group describe": "group-0 --timeout 1",
    "group progress": LATE,
    "group reset": f"{LATE} -t {WIDE} --to earliest",
    "group seek": f"{LATE} -t {WIDE} -b broker-a -q 0 -o 0",
    "query": f"{WIDE} --key K --max 1000",
    "dlq list": LATE,
    "dlq resend": f"{LATE} --all",
    "clients": "",
    "kv list": WIDE,
    "nameserver config": "",
    "broker list": "",
    "broker config": "broker-a",
    "broker stats": "broker-a",
    "broker ha": "broker-a",
    "acl user list": "",
    "acl policy list": "",
    "acl account list": "",
    "acl account versions": "",
    "top": "--once",
}
# Lines about changes, single values, checks and messages.
NO_TABLE: Final = {
    *("topic create", "topic delete", "group clone", "group stack", "group create", "group delete"),
    *("kv get", "kv put", "kv delete", "doctor", "health", "send", "tail", "consume", "topic schema", "topic manifest"),
    *("search", "export", "import"),
    *("broker clean", "broker wipe-write-perm", "broker add-write-perm"),
    *(f"acl user {verb}" for verb in ("create", "update", "delete")),
    *(f"acl policy {verb}" for verb in ("create", "update", "delete")),
    *(f"acl account {verb}" for verb in ("put", "delete", "white-addresses")),
}


def arguments(words: str) -> list[str]:
    return [*words.split(), *TABLES[words].split()]


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """Opens a connection to a server, whose heartbeats count until it is closed."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as peer:
        yield peer


def ask_all(peer: socket.socket, requests: Iterable[Command]) -> None:
    """Sends all requests, and reads their answers, each of which must be SUCCESS."""
    frames = [encode_frame(replace(request, opaque=number)) for number, request in enumerate(requests)]
    decoder, answered = FrameDecoder(), 0
    for begin in range(0, len(frames), 100):
        peer.sendall(b"".join(frames[begin : begin + 100]))
        while answered < min(begin + 100, len(frames)):
            if (command := decoder.next_command()) is None:
                decoder.feed(peer.recv(65536))
            elif command.is_response:  # a broker also notifies members
                assert command.code == 0, command
                answered += 1


def heart_beat(client_id: str, groups: int, topics: Iterable[str]) -> Command:
    """Returns the heartbeat of a member of the groups group-0, group-1, ...; the first subscribes to the topics."""
    consumers = [
        ConsumerData(
            f"group-{number}",
            subscriptions=tuple(SubscriptionData(topic) for topic in (topics if number == 0 else (WIDE,))),
        )
        for number in range(groups)
    ]
    producers = tuple(f"producers-{number}" for number in range(groups))
    return HeartBeat(client_id, producers, tuple(consumers)).to_command()
