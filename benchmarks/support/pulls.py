"""Pulls of whole queues over one plain blocking socket, whose messages are dropped undecoded: the floor of a read."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.support import raw

# A broker answers with fewer, by its own limits; one of a batch topic answers with one whole batch.
MESSAGES_A_PULL: Final = 1024
MESSAGES_UNDER_WAY: Final = 4096
LEAST_UNDER_WAY: Final = 2
BUFFER_BYTES: Final = 1024 * 1024
FOUND: Final = b'{"code":0,'
ANSWER: Final = re.compile(rb'"nextBeginOffset":"(\d+)".*"opaque":(\d+)')
# What a request's template holds where its offset and its opaque stand.
OFFSET: Final = b"9" * 12
OPAQUE: Final = b"9" * raw.OPAQUE_DIGITS
FIRST_OPAQUE: Final = 10 ** (raw.OPAQUE_DIGITS - 1)


def pulled(address: str, topic: str, queues: Sequence[int]) -> Iterator[int]:
    """Pulls every message of the queues, one queue behind another; yields the number of messages of each receipt."""
    with raw.Line(address) as line:
        ends = [int(line.ask(30, {"topic": topic, "queueId": str(queue)})["offset"]) for queue in queues]
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = Answers(connection)
        for queue, end in zip(queues, ends, strict=True):
            if end:
                yield from _pulled(connection, answers, Requests(topic, queue), end)


def _pulled(connection: socket.socket, answers: Answers, requests: Requests, end: int) -> Iterator[int]:
    """Pulls one queue in lanes: parts of it, in each of which the next pull begins where the last answer ended.

    A lane that begins within a batch gets that batch whole, as the lane before it does.
    """
    connection.sendall(requests.pull(0, 0))
    while not (first := answers.receive()):
        pass
    _, step = first[0]
    lanes = max(LEAST_UNDER_WAY, MESSAGES_UNDER_WAY // step)
    length = -(-end // (lanes * step)) * step
    reached = [min(lane * length, end) for lane in range(lanes)]
    stops = [*reached[1:], end]
    answered = first
    wanted = [requests.pull(lane, reached[lane]) for lane in range(1, lanes) if reached[lane] < stops[lane]]
    under_way = 1 + len(wanted)
    while under_way:
        messages = 0
        for lane, following in answered:
            before, reached[lane] = reached[lane], min(following, stops[lane])
            messages += reached[lane] - before
            if reached[lane] < stops[lane]:
                wanted.append(requests.pull(lane, reached[lane]))
            else:
                under_way -= 1
        connection.sendall(b"".join(wanted))
        if messages:
            yield messages
        wanted, answered = [], answers.receive() if under_way else []


class Requests:
    """The pulls of one queue, which differ in their offset and in the opaque, by which their answers are known."""

    def __init__(self, topic: str, queue: int) -> None:
        fields = {
            "consumerGroup": "raw", "topic": topic, "queueId": str(queue), "queueOffset": OFFSET.decode(),
            "maxMsgNums": str(MESSAGES_A_PULL), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        self._before, rest = bytes(raw.frame(11, fields)).split(OFFSET)
        self._between, self._behind = rest.split(OPAQUE)

    def pull(self, lane: int, offset: int) -> bytes:
        opaque = FIRST_OPAQUE + lane
        return b"%s%0*d%s%d%s" % (self._before, len(OFFSET), offset, self._between, opaque, self._behind)


class Answers:
    """The answers that a connection receives: of each only its header is looked at, its body is overwritten."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._kept = 0  # bytes of a header that is not complete
        self._left = 0  # bytes of a body that are still to come
        self._answer: tuple[int, int] | None = None  # the one whose body comes

    def receive(self) -> list[tuple[int, int]]:
        """Receives once; returns the lane and the next offset of each answer that is complete now."""
        received = self._connection.recv_into(self._buffer[self._kept :])
        if not received:
            raise ConnectionResetError("the broker closed the connection")
        end, at, answers = self._kept + received, 0, []
        while True:
            skipped = min(self._left, end - at)
            at, self._left = at + skipped, self._left - skipped
            if self._left:
                break
            if self._answer is not None:
                answers.append(self._answer)
                self._answer = None
            if end - at < raw.PREFIX.size:
                break
            length, word = raw.PREFIX.unpack_from(self._buffer, at)
            header_bytes = word & 0xFFFFFF
            body_at = at + raw.PREFIX.size + header_bytes
            if body_at > end:
                break
            self._answer = lane_and_offset(bytes(self._buffer[at + raw.PREFIX.size : body_at]))
            self._left, at = length - 4 - header_bytes, body_at
        self._kept = end - at
        self._buffer[: self._kept] = self._buffer[at:end]
        return answers


def lane_and_offset(header: bytes) -> tuple[int, int]:
    """Returns the lane of an answer, and the offset behind its messages; raises `RuntimeError` if it has none."""
    match = ANSWER.search(header)
    if not header.startswith(FOUND) or match is None:
        raise RuntimeError(f"a pull was answered {header[:200]!r}")
    return int(match[2]) - FIRST_OPAQUE, int(match[1])
