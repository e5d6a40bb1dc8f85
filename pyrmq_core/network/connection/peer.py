"""`Peer`, by which a handler sees the other end of a connection, and the types of handlers and late answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeAlias

import trio

from pyrmq_core.network.addresses import parse_address
from pyrmq_core.network.connection.calls import Done
from pyrmq_core.network.rare_lines import RareLine
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.framing.frame import Request


class PeerConnection(Protocol):
    @property
    def is_full(self) -> bool: ...

    def answer(self, request: Command, answer: Command) -> None: ...

    async def wait_answer_turn(self) -> None: ...

    async def call(self, request: Command, *, timeout: float) -> Command: ...

    def post(self, command: Request, *, timeout: float, done: Done) -> Callable[[], None]: ...

    async def send_oneway(self, request: Command, *, timeout: float) -> None: ...

    def close(self, reason: str = ...) -> None: ...


class Peer:
    """The other end of a connection, as passed to the handler of its requests. It is equal only to itself.

    `address` is `ip:port`. By `connection` a handler sends its own requests, or answers later. `failure_line` limits
    the log lines about failing requests.
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
        """The other end's port number."""
        return parse_address(self.address)[1]


class LateAnswer(ABC):
    """An answer that a handler can make only later. It needs no task until then, since thousands may wait.

    The connection calls `wait` with a callback `ready`. When `ready` is called, the connection awaits `make` in a new
    task, and sends the answer. A handler that calls another handler may also await its `LateAnswer`.
    """

    __slots__ = ()

    @abstractmethod
    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        """Begins to wait, and returns. Calls `ready` with this object when the answer can be made.

        It calls `ready` once, on the loop, and not after `drop`.
        """

    @abstractmethod
    async def make(self) -> Command | None:
        """Returns the answer, or None to send none. It is called after `ready`, in its own task, and may be slow."""

    @abstractmethod
    def drop(self) -> None: ...

    def __await__(self) -> Generator[Any, Any, Command | None]:
        return self._wait_and_make().__await__()

    async def _wait_and_make(self) -> Command | None:
        ended = trio.Event()
        self.wait(lambda _: ended.set())
        try:
            await ended.wait()
        except BaseException:
            self.drop()
            raise
        return await self.make()


# A handler of requests. Only an async handler, or a `LateAnswer` that is ready, gets a task. If a handler returns None,
# nothing is sent, and `peer.connection.answer(request, answer)` may send the answer later.
Handler: TypeAlias = Callable[[Command, Peer], "Command | Awaitable[Command | None] | None"]


class CutConnection(Exception):
    """An exception that a handler raises to close the connection at once, without an answer."""
