"""Attacks on servers, one a function, run in a process of its own: raw sockets on this machine alone.

    python -m benchmarks.support.attacks NAME ADDRESS SECONDS

An attack is repeated for so many seconds. Then only the state that the server keeps is left of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, cast

from tests.support.stranger import Stranger, frame, request

FRAME_BYTES: Final = 15_700_000
# Just below Python's limit of recursion: a header so deep can be read, but not written again.
DEPTH: Final = 940
BARE_NAMES: Final = 40_000
GROUPS: Final = 1_000
PRODUCER_GROUPS: Final = 400_000
PULLS: Final = 1_000
PULLING_CONNECTIONS: Final = 100
FLOODING_CONNECTIONS: Final = 8
FLOOD_REQUESTS: Final = 2_000
FALSE_SLAVES: Final = 200
PARTIAL_FRAMES: Final = 50
GIANTS: Final = 16
GIANT_TOPICS: Final = 10_000
CONNECTIONS: Final = 10_000
BROKERS: Final = 2_000
# The heartbeat timeout with which each silent broker registers.
SILENCE_MS: Final = 1_000
TOPIC: Final = "hostile"


def nested_header(address: str) -> None:
    nested = b'{"code":105,"extFields":{"a":' + b"[" * DEPTH + b"]" * DEPTH + b'},"flag":0,"language":"JAVA"}'
    with Stranger(address, timeout=2.0) as stranger:
        stranger.send(frame(nested))
        stranger.read()


def bare_names(address: str) -> None:
    """Sends a registration whose topics have bare integers for names, as fastjson reads them."""
    topics = ",".join(f'{number}:{{1:"x"}}' for number in range(BARE_NAMES))
    table = f'{{"T":{{"topicName":"T","x":{{{topics}}}}}}}'
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{table}}}}}'.encode()
    with Stranger(address, timeout=10.0) as stranger:
        stranger.ask(103, _broker(0), body)


def group_heartbeat(address: str) -> None:
    """Sends a heartbeat of 1,000 consumer groups that the broker does not know."""
    stamp = time.time_ns()
    groups = [
        {
            "groupName": f"g{stamp}-{number}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": False,
        }
        for number in range(GROUPS)
    ]
    body = json.dumps({"clientID": "stranger", "consumerDataSet": groups, "producerDataSet": []}).encode()
    with Stranger(address, timeout=10.0) as stranger:
        stranger.ask(34, {}, body)


def held_pulls(address: str) -> None:
    """Sends pulls that wait for a message, on a connection that is not read, then one message of a megabyte."""
    with Stranger(address, timeout=10.0) as stranger, Stranger(address, timeout=10.0) as sender:
        stranger.send(pulls_at_the_end(stranger, queue_id=0))
        sender.ask(10, send_fields(), bytes(1 << 20))


def many_held_pulls(address: str) -> None:
    """Sends 100,000 pulls over 100 connections, which wait at a queue without messages until these close."""
    with ExitStack() as stack:
        strangers = [stack.enter_context(Stranger(address, timeout=10.0)) for _ in range(PULLING_CONNECTIONS)]
        pulls = pulls_at_the_end(strangers[0], queue_id=1)
        for stranger in strangers:
            stranger.send(pulls)
        time.sleep(1.0)


def pulls_at_the_end(stranger: Stranger, *, queue_id: int) -> bytes:
    """Returns the frames of 1,000 pulls that wait for the next message of a queue."""
    fields = {"consumerGroup": "g", "topic": TOPIC, "queueId": queue_id, "queueOffset": 0, "maxMsgNums": 32}
    fields |= {"commitOffset": 0, "suspendTimeoutMillis": 15_000, "subscription": "*", "subVersion": 0, "sysFlag": 6}
    newest = stranger.ask(30, {"topic": TOPIC, "queueId": queue_id})
    if newest is not None and newest.code == 0:
        fields["queueOffset"] = cast("dict[str, object]", newest.header["extFields"])["offset"]
    return b"".join(request(11, fields, opaque=number) for number in range(PULLS))


def flood_of_questions(address: str) -> None:
    """Asks for a route 2,000 times over each of eight connections, whose answers are not read."""
    _flood(address, b"".join(request(105, {"topic": "TBW102"}, opaque=number) for number in range(FLOOD_REQUESTS)))


def flood_of_sends(address: str) -> None:
    """Sends 2,000 small messages over each of eight connections, whose answers are not read."""
    fields = {**send_fields(), "queueId": 2}
    _flood(address, b"".join(request(10, fields, b"flood", opaque=number) for number in range(FLOOD_REQUESTS)))


def _flood(address: str, requests: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(FLOODING_CONNECTIONS):
            stack.enter_context(Stranger(address, timeout=5.0)).send(requests)


def false_slaves(address: str) -> None:
    """Poses as 200 slaves that have nothing yet, and reads nothing of the log that the master sends them."""
    with Stranger(address, timeout=10.0) as stranger, ExitStack() as stack:
        answer = stranger.ask(26)
        settings = dict(line.partition("=")[::2] for line in (answer.body if answer else b"").decode().split("\n"))
        ha_address = f"{address.rpartition(':')[0]}:{settings['haListenPort']}"
        for _ in range(FALSE_SLAVES):
            stack.enter_context(Stranger(ha_address, timeout=5.0)).send(bytes(8))
        time.sleep(1.0)


def producer_groups(address: str) -> None:
    """Sends a heartbeat of 400,000 producer groups, over a connection that then closes."""
    groups = ",".join(f'{{"groupName":"p{number}"}}' for number in range(PRODUCER_GROUPS))
    body = f'{{"clientID":"stranger","consumerDataSet":[],"producerDataSet":[{groups}]}}'.encode()
    with Stranger(address, timeout=10.0) as stranger:
        stranger.ask(34, {}, body)


def connection_flood(address: str) -> None:
    """Connects as fast as two processes can."""
    other = os.fork()
    try:
        host, _, port = address.rpartition(":")
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2.0):
                pass
    finally:
        if other == 0:
            os._exit(0)
        os.waitpid(other, 0)


def giant_registrations(address: str) -> None:
    """Registers sixteen brokers of 10,000 topics each, all at once."""
    member = '"{0}":{{"topicName":"{0}","readQueueNums":8,"writeQueueNums":8,"perm":6,"attributes":{{}}}}'
    with ExitStack() as stack:
        strangers = [stack.enter_context(Stranger(address, timeout=30.0)) for _ in range(GIANTS)]
        for number, stranger in enumerate(strangers):
            topics = ",".join(member.format(f"giant-{number}-{topic}") for topic in range(GIANT_TOPICS))
            body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}}}}}}'.encode()
            stranger.send(request(103, _broker(number), body))
        for stranger in strangers:
            stranger.read()


def partial_frames(address: str) -> None:
    """Sends a frame of 15.7 MB without its end from 50 connections, which then close."""
    part = frame(b"{}", bytes(FRAME_BYTES))[: FRAME_BYTES - 1]
    with ExitStack() as stack:
        strangers = [stack.enter_context(Stranger(address, timeout=5.0)) for _ in range(PARTIAL_FRAMES)]
        for stranger in strangers:
            with contextlib.suppress(OSError):  # a server may have closed the connection
                stranger.send(part)


def kv_fill(address: str) -> None:
    with Stranger(address, timeout=10.0) as stranger:
        for _ in range(20):
            stranger.ask(100, {"namespace": "N", "key": time.time_ns(), "value": "x" * 14_000_000})


def long_header(address: str) -> None:
    members = ",".join(f'"{number}":""' for number in range(1_200_000))
    with Stranger(address, timeout=10.0) as stranger:
        stranger.send(frame(f'{{"code":105,"extFields":{{{members}}},"flag":0,"language":"JAVA"}}'.encode()))
        stranger.read()


def idle_connections(address: str) -> None:
    """Opens 10,000, or as many as this process's descriptors allow. They send nothing."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        for _ in range(min(CONNECTIONS, hard - 50)):
            stack.enter_context(Stranger(address, timeout=1.0))
        time.sleep(1.0)


def silent_brokers(address: str) -> None:
    """Registers brokers over one connection that all fall silent at once, and waits until they are removed."""
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'
    with Stranger(address, timeout=10.0) as stranger:
        for number in range(BROKERS):
            stranger.ask(103, {**_broker(number), "heartbeatTimeoutMillis": SILENCE_MS}, body)
        with contextlib.suppress(OSError):
            stranger.socket.settimeout(4.0)  # a server closes the connection of a silent broker
            stranger.read()


NAMESERVER_ATTACKS: Final[dict[str, Callable[[str], None]]] = {
    "nested header": nested_header,
    "bare-name registration": bare_names,
    "connection flood": connection_flood,
    "giant registrations": giant_registrations,
    "partial frames of 15.7 MB": partial_frames,
    "KV fill": kv_fill,
    "16 MB header": long_header,
    "idle connections": idle_connections,
    "silent brokers' expiry": silent_brokers,
    "flood of questions": flood_of_questions,
}
BROKER_ATTACKS: Final[dict[str, Callable[[str], None]]] = {
    "1,000-group heartbeat": group_heartbeat,
    "400,000 producer groups": producer_groups,
    "held pulls, 1 MB message": held_pulls,
    "100,000 held pulls": many_held_pulls,
    "idle connections of a broker": idle_connections,
    "flood of sends": flood_of_sends,
    "false slaves at the HA port": false_slaves,
}


def send_fields() -> dict[str, object]:
    """Returns the header of a small send to a topic that the broker creates at the first message."""
    fields: dict[str, object] = {"producerGroup": "p", "topic": TOPIC, "defaultTopic": "TBW102", "queueId": 0}
    fields |= {"defaultTopicQueueNums": 4, "sysFlag": 0, "bornTimestamp": time.time_ns() // 1_000_000, "flag": 0}
    return fields | {"properties": "", "reconsumeTimes": 0, "unitMode": "false"}


def _broker(number: int) -> dict[str, object]:
    address = f"127.0.0.1:{1 + number % 60_000}"
    return {"clusterName": "S", "brokerName": f"s{number}", "brokerAddr": address, "brokerId": 0, "haServerAddr": ""}


def _seconds(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    yield
    while time.monotonic() < end:
        yield


def main(name: str, address: str, seconds: float) -> None:
    attack = {**NAMESERVER_ATTACKS, **BROKER_ATTACKS}[name]
    for _ in _seconds(seconds):
        with contextlib.suppress(OSError, ValueError):  # `hostile` measures the server
            attack(address)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
