"""The queue of registrations: short ones are applied at once, long ones after a thread has decoded them.

A broker with 10,000 topics sends 2 MB every 30 s. A body is not decoded again if its digest is that of the last one.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.servers.protocol.register_broker import RegisterBroker, RegistrationHeader
from pyrmq_core.servers.protocol.registration import RegistrationBody, lasting_parts

# Registrations up to this size, about 200 topics, are applied at once, in a millisecond.
SHORT_BODY_BYTES: Final = 32 * 1024
# The most waiting registrations of one connection (a broker has one or two), and the most bytes of all connections.
WAITING_OF_PEER: Final = 4
WAITING_BYTES: Final = 512 * 1024 * 1024
# Half of `WAITING_BYTES` is reserved for bodies up to this size (20,000 topics).
ORDINARY_BODY_BYTES: Final = 4 * 1024 * 1024

# Applies a registration and returns the answer, from request, body, digest and peer. The body is None if the tables
# already have the content of a body with this digest.
Apply = Callable[[RegisterBroker, RegistrationBody | None, bytes | None, Peer], Command]


class RegistrationQueue:
    """The registrations that wait for decoding. Those of one broker name are applied in the order of their arrival."""

    def __init__(
        self,
        apply: Apply,
        knows: Callable[[RegistrationHeader, bytes], bool],
    ) -> None:
        self._apply = apply
        self._knows = knows
        self._decoding = trio.CapacityLimiter(1)  # decoding holds Python's lock, so a second thread would gain nothing
        self._lines: dict[str, deque[trio.Event]] = {}  # waiting registrations by broker name; the first is set
        self._peers: Counter[Peer] = Counter()
        self._bytes = {True: 0, False: 0}  # True: the bytes of ordinary bodies; False: of larger bodies

    def take(self, register: RegisterBroker, peer: Peer) -> Command | Awaitable[Command]:
        """Applies a registration at once and returns the answer, or queues it and returns an awaitable of the answer.

        Raises `BodyError` for an invalid body. The answer is SYSTEM_BUSY if too many registrations wait already.
        """
        header, size = register.header, len(register.raw_body)
        is_short = size <= SHORT_BODY_BYTES and not header.compressed
        if is_short and header.broker_name not in self._lines:
            return self._apply(register, register.body(), None, peer)
        waiting = self._bytes[size <= ORDINARY_BODY_BYTES]
        if self._peers[peer] >= WAITING_OF_PEER or waiting + size > WAITING_BYTES // 2:
            return refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{self._peers[peer]} registrations of this connection and {waiting} bytes of all wait already; "
                "register again later",
            )
        turn = trio.Event()
        line = self._lines.setdefault(header.broker_name, deque())
        line.append(turn)
        line[0].set()
        self._count(register, peer, 1)
        return self._take_in_turn(register, peer, turn)

    async def _take_in_turn(self, register: RegisterBroker, peer: Peer, turn: trio.Event) -> Command:
        line = self._lines[register.header.broker_name]
        try:
            await turn.wait()
            digest = await trio.to_thread.run_sync(_digest, register.raw_body)
            if self._knows(register.header, digest):
                return self._apply(register, None, digest, peer)
            body = await trio.to_thread.run_sync(register.body, limiter=self._decoding)
            return self._apply(register, body, digest, peer)
        finally:
            line.remove(turn)
            if line:
                line[0].set()
            else:
                del self._lines[register.header.broker_name]
            self._count(register, peer, -1)

    def _count(self, register: RegisterBroker, peer: Peer, sign: int) -> None:
        size = len(register.raw_body)
        self._bytes[size <= ORDINARY_BODY_BYTES] += sign * size
        self._peers[peer] += sign
        if not self._peers[peer]:  # a Counter would otherwise keep every past connection
            del self._peers[peer]


def _digest(body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in lasting_parts(body):
        digest.update(part)
    return digest.digest()
