"""A slave as plain bytes: it reports, and keeps what a master sends."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from pyrmq_core.network import format_address, parse_address
from pyrmq_core.servers.broker import RunningBroker

REPORT = struct.Struct(">q")
HEAD = struct.Struct(">qi")


class Follower:
    """One connection to a master's HA port; `log` is what it sent, from `start` on."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.address = format_address(*stream.socket.getsockname()[:2])
        self.log = b""
        self.start = 0
        self._received = b""

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    async def report(self, offset: int) -> None:
        await self.stream.send_all(REPORT.pack(offset))

    async def block(self) -> tuple[int, bytes]:
        """Returns the next block, which may be a heartbeat; raises `trio.EndOfChannel` if the master closed."""
        with trio.fail_after(60):
            offset, size = HEAD.unpack(await self._take(HEAD.size))
            return offset, await self._take(size)

    async def follow(self, end: int) -> None:
        """Takes blocks up to an offset, and reports each."""
        while self.end < end or not self.log:
            offset, body = await self.block()
            if not self.log:
                self.start = offset
            assert offset == self.end
            self.log += body
            if body:
                await self.report(self.end)

    async def is_closed(self) -> bool:
        """Returns True if the master closes the connection without another block."""
        try:
            await self.block()
        except trio.EndOfChannel:
            return True
        return False

    async def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise trio.EndOfChannel
            self._received += data
        chunk, self._received = self._received[:size], self._received[size:]
        return chunk


@asynccontextmanager
async def follower(running: RunningBroker) -> AsyncIterator[Follower]:
    """Yields a connection to the HA port that the broker registers."""
    async with await trio.open_tcp_stream(*parse_address(running.ha_address)) as stream:
        yield Follower(stream)
