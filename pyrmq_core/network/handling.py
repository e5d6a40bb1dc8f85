"""What answers requests: the handler's form, the peer it is told of, and what becomes of its failures."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from pyrmq_core.network.addresses import parse_address
from pyrmq_core.protocol.codes import ResponseCode, request_name
from pyrmq_core.protocol.command import Command, refusal

if TYPE_CHECKING:
    from pyrmq_core.network.connection import Connection

log = logging.getLogger(__name__)


class Peer:
    """The other end of a connection, as a handler sees it; equal only to itself.

    `address` is `ip:port`; `connection` serves to call back and to answer later.
    """

    __slots__ = ("__weakref__", "address", "connection", "local_address")

    def __init__(self, connection: Connection, address: str, local_address: str) -> None:
        self.connection = connection
        self.address = address
        self.local_address = local_address

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


async def ask(handler: Handler, request: Command, peer: Peer) -> Command | None:
    """The handler's answer, whichever of the two forms it has; for those that wrap a handler."""
    answer = handler(request, peer)
    return answer if answer is None or isinstance(answer, Command) else await answer


def refuse_unsupported(request: Command, _: Peer) -> Command:
    """The handler of an end that serves nothing (NettyRemotingAbstract.processRequestCommand)."""
    return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported")


def failure_answer(request: Command, peer: Peer, error: Exception) -> Command:
    """What a handler that raised answers; the failure itself is the log's."""
    log.error("%s from %s failed: %s: %s", request_name(request.code), peer.address, type(error).__name__, error)
    log.debug("where it failed", exc_info=error)
    return refusal(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}, {error}")
