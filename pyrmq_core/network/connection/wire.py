"""`Wire`: a plain socket or a trio stream (TLS, or memory streams in tests) that carries a connection's bytes.

A plain socket is used without trio's own socket class. A write is one system call without a checkpoint, which passes
to the kernel as much as it accepts. So a write cannot be cancelled in the middle.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

import trio

from pyrmq_core.network.addresses import format_address
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.frame import FrameDecoder

log = line_logger(__name__)

Chunk: TypeAlias = bytes | memoryview

CLOSE_SECONDS: Final = 1.0
# The most that is read from a stream at once: each read creates a new object of that size.
STREAM_RECEIVE_BYTES: Final = 64 * 1024

# The errors of a broken or closed wire. Only `Connection` translates them, to `ConnectionClosed`.
WIRE_ERRORS: Final = (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError)


class Wire(Protocol):
    """The local end of a connection, over which bytes are sent and received.

    At most one task may send at a time, and at most one may receive.
    """

    @property
    def address(self) -> str: ...

    @property
    def local_address(self) -> str: ...

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        """Writes as much of the chunks as the kernel accepts at once. Returns the number of these bytes, perhaps 0."""
        ...

    async def wait_sendable(self) -> bool:
        """Waits until the kernel accepts more bytes, so that `send_nowait` may succeed.

        Returns False at once if the wire can send only by `send_all`.
        """
        ...

    async def send_all(self, data: Chunk) -> None: ...

    async def receive(self, decoder: FrameDecoder) -> int:
        """Receives bytes into the decoder and returns their number, 0 if the other end closed."""
        ...

    async def aclose(self) -> None: ...


class SocketWire:
    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self.address = _address_text(connected.getpeername())
        self.local_address = _address_text(connected.getsockname())
        self._drained = True

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        try:
            return self.socket.send(chunks[0]) if len(chunks) == 1 else self.socket.sendmsg(chunks)
        except (BlockingIOError, InterruptedError):
            return 0

    async def wait_sendable(self) -> bool:
        await trio.lowlevel.wait_writable(self.socket)
        return True

    async def send_all(self, data: Chunk) -> None:
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[self.send_nowait((unsent,)) :]
            if unsent:
                await trio.lowlevel.wait_writable(self.socket)

    async def receive(self, decoder: FrameDecoder) -> int:
        if self._drained:
            await trio.lowlevel.wait_readable(self.socket)
        else:
            await trio.lowlevel.checkpoint()
        while True:
            room = decoder.room()
            try:
                count = self.socket.recv_into(room)
            except (BlockingIOError, InterruptedError):
                await trio.lowlevel.wait_readable(self.socket)
            else:
                self._drained = count < len(room)
                decoder.received(count)
                return count

    async def aclose(self) -> None:
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()


class StreamWire:
    """A wire over a trio stream, such as TLS. It sends only by `send_all`, and `send_nowait` always returns 0.

    Only the connection's writer task may call `send_all`, since a cancelled call may have sent half a frame. That task
    is cancelled only when the connection ends.
    """

    def __init__(self, stream: trio.abc.Stream, address: str, local_address: str) -> None:
        self.stream = stream
        self.address = address
        self.local_address = local_address

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        return 0

    async def wait_sendable(self) -> bool:
        return False

    async def send_all(self, data: Chunk) -> None:
        await self.stream.send_all(data)

    async def receive(self, decoder: FrameDecoder) -> int:
        data = await self.stream.receive_some(STREAM_RECEIVE_BYTES)
        decoder.feed(memoryview(data))
        return len(data)

    async def aclose(self) -> None:
        with trio.move_on_after(CLOSE_SECONDS), contextlib.suppress(*WIRE_ERRORS):
            await self.stream.aclose()


async def close_wire(wire: Wire) -> None:
    with trio.CancelScope(shield=True):
        try:
            await wire.aclose()
        except Exception:
            log.exception("the socket of the connection with %s could not be closed in order", wire.address)


def _address_text(name: object) -> str:
    return format_address(name[0], name[1]) if isinstance(name, tuple) else str(name or "local")
