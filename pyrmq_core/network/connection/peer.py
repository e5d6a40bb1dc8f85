"""`Peer`, the other end of a connection for a handler, and the types of handlers and late answers."""

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

    `address` is `ip:port`. `connection` serves to call back and to answer later. `failure_line` limits the log lines
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


class LateAnswer(ABC):
    """An answer that can be made only later, and has no task until then, since thousands may wait on one connection.

    The connection calls `wait` once. When `ready` is called, it awaits `make` in a task, and sends the answer. A
    handler that wraps another one may await the `LateAnswer` itself.
    """

    __slots__ = ()

    @abstractmethod
    def wait(self, ready: Callable[[LateAnswer], None]) -> None:
        """Begins to wait until the answer can be made. Calls `ready` then, on the loop, unless `drop` was called.

        `ready` receives this object, once.
        """

    @abstractmethod
    async def make(self) -> Command | None:
        """Returns the answer, or None to send none, once `ready` was called. It may be slow, since it has a task."""

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


# A plain function answers at once and costs no task; an async function may wait, and so may a `LateAnswer`, which
# costs a task at its end alone. On None nothing is sent;
# `peer.connection.answer(request, answer)` may send the answer later.
Handler: TypeAlias = Callable[[Command, Peer], "Command | Awaitable[Command | None] | None"]


class CutConnection(Exception):
    """Raised by a handler to close the connection at once, without an answer."""
