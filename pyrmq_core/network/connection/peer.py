"""The other end of a connection as a handler sees it, and the type of a handler."""

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

    `address` is `ip:port`; `connection` serves to call back and to answer later. `failure_line` limits the log lines
    about failing requests.
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
        """The other end's IP address, without brackets."""
        return parse_address(self.address)[0]

    @property
    def port(self) -> int:
        """The other end's port."""
        return parse_address(self.address)[1]


# A plain function answers at once and costs no task; an async function may wait. On None nothing is sent;
# `peer.connection.answer(request, answer)` may send the answer later.
Handler: TypeAlias = Callable[[Command, Peer], "Command | Awaitable[Command | None] | None"]


class CutConnection(Exception):
    """An exception with which a handler closes the connection at once, without an answer."""
