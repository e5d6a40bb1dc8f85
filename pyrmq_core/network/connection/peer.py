"""The other end of a connection as a handler sees it, and the form of a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.connection.calls import Done
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import Request


class PeerConnection(Protocol):
    """The part of a `Connection` that handlers use; its methods are described there."""

    @property
    def is_full(self) -> bool: ...

    def answer(self, request: Command, answer: Command) -> None: ...

    async def wait_answer_turn(self) -> None: ...

    async def call(self, request: Command, *, timeout: float) -> Command: ...

    def post(self, command: Request, *, timeout: float, done: Done) -> Callable[[], None]: ...

    async def send_oneway(self, request: Command, *, timeout: float) -> None: ...

    def close(self, reason: str = ...) -> None: ...


class Peer:
    """The other end of a connection, as a handler sees it; equal only to itself.

    `address` is `ip:port`; `connection` serves to call back and to answer later. `failure_line` keeps its failing
    requests from filling the log.
    """

    __slots__ = ("__weakref__", "address", "connection", "failure_line", "local_address")

    def __init__(self, connection: PeerConnection, address: str, local_address: str) -> None:
        self.connection = connection
        self.address = address
        self.local_address = local_address
        self.failure_line = RareLine()

    def __repr__(self) -> str:
        return f"<Peer {self.address}>"

    @property
    def ip(self) -> str:
        return parse_address(self.address)[0]

    @property
    def port(self) -> int:
        return parse_address(self.address)[1]


# Answers at once (a plain function, for what never waits: it costs no task) or later (an async function). None: nothing
# is sent now; `peer.connection.answer(request, answer)` may do it later.
Handler: TypeAlias = Callable[[Command, Peer], "Command | Awaitable[Command | None] | None"]


class CutConnection(Exception):
    """Raised by a handler: the connection is closed at once and nothing is answered."""
