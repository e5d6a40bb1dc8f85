"""`paced`: a wrapper for the stream of a web server, which closes it when the peer reads too slowly.

The web server is Hypercorn. It shields its sends from cancellation, so a send to a peer that does not read would never
end. After a peer has closed its connection, Hypercorn still answers the requests that it received, and then waits for
another one until a time limit. With this wrapper, the first failed send ends the connection, and `on_end` can end the
wait for another request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

# The time limit of a send: this time, and a further second for each `LEAST_BYTES_A_SECOND` to send.
SEND_SECONDS: Final = 10.0
LEAST_BYTES_A_SECOND: Final = 32 * 1024


class PacedStream:
    """A wrapper for a trio stream. It closes the socket if one `send_all` takes over 10 s plus 1 s for each 32 KiB.

    It then cancels `scope`, and also if a send fails since the peer is gone. It calls `on_end` when nothing more can be
    received.
    """

    def __init__(
        self, stream: trio.SocketStream, scope: trio.CancelScope, on_end: Callable[[], Awaitable[None]]
    ) -> None:
        self._stream = stream
        self._scope = scope
        self._on_end = on_end
        self.socket = stream.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with trio.move_on_after(SEND_SECONDS + len(data) / LEAST_BYTES_A_SECOND):
            try:
                await self._stream.send_all(data)
            except trio.BrokenResourceError:
                self._scope.cancel()
                raise
            return
        self.socket.close()
        self._scope.cancel()
        raise trio.ClosedResourceError

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data: bytes | bytearray = b""
        try:
            data = await self._stream.receive_some(max_bytes)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._on_end()
            raise
        if not data:
            await self._on_end()
        return data

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def paced(
    stream: trio.SocketStream, on_end: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
) -> AsyncIterator[PacedStream]:
    """Yields a `PacedStream` over `stream`, which cancels the block if the peer reads too slowly or is gone.

    When the block is cancelled from outside, closes the socket at once, which also ends a send that is shielded from
    cancellation. Calls `on_end` when nothing more can be received.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_close_at_the_end, stream)
        yield PacedStream(stream, nursery.cancel_scope, on_end)
        nursery.cancel_scope.cancel()


async def _close_at_the_end(stream: trio.SocketStream) -> None:
    try:
        await trio.sleep_forever()
    finally:
        stream.socket.close()
