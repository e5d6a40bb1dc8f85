"""A proxy before a broker, which cuts its connections, or holds what they carry in one direction or both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

# Brokers listen at the one address and announce the other, where the proxy listens at the same port.
BEHIND, BEFORE = "127.0.0.1", "127.0.0.2"
CHUNK_BYTES = 65_536


class Proxy:
    """The way to one broker; `stalled` holds the directions (`up`, `down`) that stand still."""

    def __init__(self) -> None:
        self._stalled: frozenset[str] = frozenset()
        self._goes_on = trio.Event()
        self._pairs: set[trio.CancelScope] = set()

    def cut(self) -> None:
        for scope in self._pairs:
            scope.cancel()

    def stall(self, *ways: str) -> None:
        """Holds these directions from now on, and no others."""
        self._stalled = frozenset(ways)
        self._goes_on.set()
        self._goes_on = trio.Event()

    async def serve(self, port: int, near: trio.SocketStream) -> None:
        """Serves one connection to a port of the broker to its end."""
        async with near:
            try:
                far = await trio.open_tcp_stream(BEHIND, port)
            except OSError:
                return
            async with far, trio.open_nursery() as nursery:
                self._pairs.add(nursery.cancel_scope)
                try:
                    nursery.start_soon(self._carry, near, far, "up", nursery.cancel_scope)
                    await self._carry(far, near, "down", nursery.cancel_scope)
                finally:
                    self._pairs.discard(nursery.cancel_scope)

    async def _carry(self, source: trio.SocketStream, to: trio.SocketStream, way: str, pair: trio.CancelScope) -> None:
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                while way in self._stalled:
                    await self._goes_on.wait()
                await to.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        pair.cancel()


@asynccontextmanager
async def proxies(ports: Mapping[str, Sequence[int]]) -> AsyncIterator[dict[str, Proxy]]:
    """Yields a running proxy before the ports of each broker, by the brokers' names."""
    by_name = {name: Proxy() for name in ports}
    async with trio.open_nursery() as nursery:
        for name, proxy in by_name.items():
            for port in ports[name]:
                await nursery.start(partial(trio.serve_tcp, partial(proxy.serve, port), port, host=BEFORE))
        yield by_name
        nursery.cancel_scope.cancel()
