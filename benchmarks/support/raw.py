"""The raw path: bytes prepared beforehand over plain blocking sockets, as fast as a broker takes and gives them.

Frozen, so that figures of different days compare: one connection, batches of 1,000 with 4 under way, pulls of 32 with
64 under way. The messages are those of `user_rows`.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence

from benchmarks.support.user_rows import Case

BATCH = 1000
BATCHES_UNDER_WAY = 4
PULL = 32
PULLS_UNDER_WAY = 64
PULLS_AT_ONCE = 16
PREFIX = struct.Struct(">II")
OPAQUE_DIGITS = 9


def frame(code: int, ext: dict[str, str], body: bytes = b"") -> bytearray:
    """Returns a request whose opaque is `OPAQUE_DIGITS` nines."""
    header = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "language": "PYTHON",
        "opaque": int("9" * OPAQUE_DIGITS),
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    return bytearray(PREFIX.pack(4 + len(text) + len(body), len(text)) + text + body)


def batch_body(count: int, case: Case) -> bytes:
    parts = []
    for number in range(count):
        body, properties = case.body(number), case.property_text(number).encode()
        total = 22 + len(body) + len(properties)
        parts.append(struct.pack(">iiiii", total, 0, 0, 0, len(body)) + body)
        parts.append(struct.pack(">h", len(properties)) + properties)
    return b"".join(parts)


class Line:
    """One blocking connection that counts the answers to what it wrote."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb", buffering=4 * 1024 * 1024)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def write(self, data: bytes | bytearray) -> None:
        self._socket.sendall(data)

    def read(self) -> tuple[bytes, bytes]:
        """Reads the next answer's header and body, unparsed."""
        length, word = PREFIX.unpack(self._reader.read(PREFIX.size))
        rest = self._reader.read(length - 4)
        header_bytes = word & 0xFFFFFF
        return rest[:header_bytes], rest[header_bytes:]

    def ask(self, code: int, ext: dict[str, str]) -> dict[str, str]:
        self.write(frame(code, ext))
        header = json.loads(self.read()[0])
        if header["code"]:
            raise RuntimeError(f"request {code} was answered {header}")
        return dict(header.get("extFields") or {})


def single(topic: str, queue: int, case: Case, number: int = 0) -> bytearray:
    """Returns a request for the case's message of this number."""
    fields = {
        **_send_fields(topic, queue),
        "i": case.property_text(number),
        "m": "false",
    }
    return frame(310, fields, case.body(number))


def write(address: str, topic: str, queues: int, count: int, case: Case, *, properties: str = "") -> float:
    """Writes batches to the queues in turn, and returns the seconds until their messages are readable.

    `properties` are the batches' own. The topic was empty.
    """
    body = batch_body(BATCH, case)
    requests = [frame(320, {**_send_fields(topic, queue), "i": properties}, body) for queue in range(queues)]
    with Line(address) as line:
        began = time.perf_counter()
        under_way = 0
        for number in range(count // BATCH):
            if under_way == BATCHES_UNDER_WAY:
                acknowledged(line)
                under_way -= 1
            line.write(requests[number % queues])
            under_way += 1
        for _ in range(under_way):
            acknowledged(line)
        wait_readable(line, topic, queues, count // BATCH * BATCH)
        return time.perf_counter() - began


def read(address: str, topic: str, queues: int) -> tuple[float, float]:
    """Pulls everything that is there, and drops it. Returns the seconds, and those of this process's CPU.

    The requests are prepared before the time runs, and those that follow the answers of one receipt leave together.
    """
    with Line(address) as line:
        waiting = _pulls(topic, [_max_offset(line, topic, queue) for queue in range(queues)])
        began, cpu = time.perf_counter(), time.process_time()
        line.write(b"".join(waiting[:PULLS_UNDER_WAY]))
        posted = PULLS_UNDER_WAY
        for first in range(0, len(waiting), PULLS_AT_ONCE):
            answered = waiting[first : first + PULLS_AT_ONCE]
            for _ in answered:
                _pulled(line)
            line.write(b"".join(waiting[posted : posted + len(answered)]))
            posted += len(answered)
        return time.perf_counter() - began, time.process_time() - cpu


def wait_readable(line: Line, topic: str, queues: int, count: int) -> None:
    """Waits, asking every 20 ms: an acknowledged message is not yet readable."""
    while sum(_max_offset(line, topic, queue) for queue in range(queues)) < count:
        time.sleep(0.02)


def _send_fields(topic: str, queue: int) -> dict[str, str]:
    return {
        "a": "raw", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1700000000000", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "true",
    }  # fmt: skip


def _pulls(topic: str, ends: Sequence[int]) -> list[bytearray]:
    """Returns the requests for all of the queues. They share one opaque, and a broker answers them in order."""
    requests = []
    for queue, end in enumerate(ends):
        for offset in range(0, end, PULL):
            fields = {
                "consumerGroup": "raw", "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
                "maxMsgNums": str(PULL), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                "subscription": "*", "subVersion": "0", "expressionType": "TAG",
            }  # fmt: skip
            requests.append(frame(11, fields))
    return requests


def _max_offset(line: Line, topic: str, queue: int) -> int:
    return int(line.ask(30, {"topic": topic, "queueId": str(queue)})["offset"])


def acknowledged(line: Line) -> None:
    header, _ = line.read()
    if not header.startswith(b'{"code":0,'):
        raise RuntimeError(f"a send was answered {header[:200]!r}")


def _pulled(line: Line) -> None:
    header, body = line.read()
    if not header.startswith(b'{"code":0,') or not body:
        raise RuntimeError(f"a pull was answered {header[:200]!r}")
