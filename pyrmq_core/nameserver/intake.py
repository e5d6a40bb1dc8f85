"""Takes registrations in: short ones at once, long ones in turn and in slices, so that nobody else waits for them.

A broker with 10,000 topics sends 2 MB every 30 s, mostly the same as before: then a digest tells, and nothing is read.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.codes import ResponseCode
from pyrmq_core.protocol.command import Command, refusal
from pyrmq_core.protocol.registration import RegistrationBody, lasting_parts, registration_steps
from pyrmq_core.protocol.requests.register_broker import RegisterBroker, RegistrationHeader

# About 200 topics, which take a millisecond.
SHORT_BODY_BYTES: Final = 32 * 1024
# What may wait for its turn: a broker has one registration under way, or two when a topic is created meanwhile.
WAITING_OF_PEER: Final = 4
WAITING_BYTES: Final = 512 * 1024 * 1024

# Applies a registration and answers it; body None stands for the one that the digest is of and the tables know.
Apply = Callable[[RegisterBroker, RegistrationBody | None, bytes | None, Peer], Command]


class RegistrationIntake:
    """Registrations of one broker name are applied in the order in which they came.

    Places in line are given when a request comes, not when its task first runs: the loop starts tasks in any order.
    """

    def __init__(self, apply: Apply, knows: Callable[[RegistrationHeader, bytes], bool]) -> None:
        self._apply = apply
        self._knows = knows
        self._line: deque[trio.Event] = deque()  # the first one is set: it is its turn
        self._names: Counter[str] = Counter()
        self._peers: Counter[Peer] = Counter()
        self._bytes = 0

    def take(self, asked: RegisterBroker, peer: Peer) -> Command | Awaitable[Command]:
        """The answer, or what will give it and has to be awaited; `BodyError` when the body cannot be read."""
        header = asked.header
        is_short = len(asked.raw_body) <= SHORT_BODY_BYTES and not header.compressed
        if is_short and header.broker_name not in self._names:
            return self._apply(asked, asked.body(), None, peer)
        if self._peers[peer] >= WAITING_OF_PEER or self._bytes + len(asked.raw_body) > WAITING_BYTES:
            return refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{self._peers[peer]} registrations of this connection and {self._bytes} bytes of all wait already; "
                "register again later",
            )
        turn = trio.Event()
        self._line.append(turn)
        self._line[0].set()
        self._count(asked, peer, 1)
        return self._take_in_turn(asked, peer, turn)

    async def _take_in_turn(self, asked: RegisterBroker, peer: Peer, turn: trio.Event) -> Command:
        try:
            await turn.wait()
            digest = _digest(asked.raw_body)
            if self._knows(asked.header, digest):
                return self._apply(asked, None, digest, peer)
            return self._apply(asked, await _read_in_slices(asked), digest, peer)
        finally:
            self._line.remove(turn)
            if self._line:
                self._line[0].set()
            self._count(asked, peer, -1)

    def _count(self, asked: RegisterBroker, peer: Peer, one: int) -> None:
        self._bytes += one * len(asked.raw_body)
        self._names[asked.header.broker_name] += one
        self._peers[peer] += one
        if one < 0:  # what is back at 0 is not kept
            self._names, self._peers = +self._names, +self._peers


async def _read_in_slices(asked: RegisterBroker) -> RegistrationBody:
    steps = registration_steps(asked.raw_body, version=asked.version, compressed=asked.header.compressed)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            body: RegistrationBody = end.value
            return body
        await trio.lowlevel.checkpoint()


def _digest(body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in lasting_parts(body):
        digest.update(part)
    return digest.digest()
