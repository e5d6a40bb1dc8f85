"""`Bodies`: reads the complete body of a request before the request is handled, with limits of rate and size.

A peer that sends slowly occupies only its own connection. Its request does not count as in progress, and its bytes are
dropped when other requests need the memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import trio

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]

# The most bytes of a request's body: a message has at most 4 MiB, and a form's percent-encoding can triple each byte.
MAX_BODY_BYTES: Final = 13 << 20
MAX_BODIES_BYTES: Final = 5 * MAX_BODY_BYTES
BODY_SECONDS: Final = 5.0
LEAST_BYTES_A_SECOND: Final = 32 * 1024
PIECE_BYTES: Final = 64 * 1024
SLOW: Final = f"the request came slower than {LEAST_BYTES_A_SECOND} bytes a second, or gave way to others"


class BodyRefused(Exception):
    """Raised if a body is refused before all of it was read, with the HTTP status of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class PeerGone(Exception):
    """Raised if the peer ends the connection before the body's end."""


@dataclass(eq=False, slots=True)
class Body:
    """The body of a request. `receive` returns it once, in pieces, and then further messages of `peer`."""

    peer: Receive
    data: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    given: int = 0

    async def receive(self) -> AsgiMessage:
        """Returns the next piece as an ASGI message, and after the last piece the peer's next message."""
        if self.given > len(self.data):
            return await self.peer()
        await trio.lowlevel.checkpoint()
        piece = bytes(self.data[self.given : self.given + PIECE_BYTES])
        self.given += PIECE_BYTES
        return {"type": "http.request", "body": piece, "more_body": self.given <= len(self.data)}


class Bodies:
    """The request bodies in memory, the oldest first."""

    def __init__(self) -> None:
        self._held: dict[Body, None] = {}
        self._bytes = 0

    async def read(self, receive: Receive) -> Body:
        """Reads a request's body, which stays in memory until the caller calls `release`.

        Raises `BodyRefused` if the body is too large or too slow, and `PeerGone`.
        """
        body = Body(receive)
        body.scope.deadline = trio.current_time() + BODY_SECONDS
        self._held[body] = None
        try:
            with body.scope:
                await self._read(body, receive)
            if not body.is_whole:
                raise BodyRefused(408, SLOW)
        except BaseException:
            self.release(body)
            raise
        return body

    async def _read(self, body: Body, receive: Receive) -> None:
        while not body.is_whole:
            message = await receive()
            if message["type"] != "http.request":
                raise PeerGone
            piece = message.get("body", b"")
            if len(body.data) + len(piece) > MAX_BODY_BYTES:
                raise BodyRefused(413, f"the request is larger than {MAX_BODY_BYTES} bytes")
            body.scope.deadline += len(piece) / LEAST_BYTES_A_SECOND
            self._make_room(body, len(piece))
            body.data += piece
            body.is_whole = not message.get("more_body", False)

    def release(self, body: Body) -> None:
        if body in self._held:
            del self._held[body]
            self._bytes -= len(body.data)

    def _make_room(self, body: Body, length: int) -> None:
        """Drops the oldest incomplete bodies until `length` more bytes fit in."""
        while self._bytes + length > MAX_BODIES_BYTES:
            oldest = next((held for held in self._held if not held.is_whole and held is not body), None)
            if oldest is None:
                raise BodyRefused(503, "large requests are under way; try again in a moment")
            self.release(oldest)
            oldest.scope.cancel()
        self._bytes += length
