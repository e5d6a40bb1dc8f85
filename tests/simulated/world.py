"""A world without sockets, threads or time of its own: what happens in it follows from its seed.

The clock of trio jumps, and the clocks of the system follow it. Tasks that may run at the same time run in an order
that the seed draws, what is sent arrives after a time that it draws, and work for a thread is done at once. Everything
else is the real code: connections and their frames, servers, clients.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import math
import random
import signal
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import pytest
import trio
import trio.testing
from trio._core import _run as scheduling

from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.errors import ConnectFailed
from pyrmq_core.network import Handler, Listening, Peer, parse_address, pool
from pyrmq_core.network.connection.calls import DeadlineSweeper
from pyrmq_core.network.connection.connection import Connection
from pyrmq_core.network.connection.wire import Chunk
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.servers.broker import server as broker_server
from pyrmq_core.servers.nameserver import server as nameserver_server

T = TypeVar("T")

EPOCH_SECONDS: Final = 1_700_000_000
NANOSECONDS: Final = 1_000_000_000
# What is sent arrives at one of the next beats, so that much happens at the same time: its order is then drawn. The
# times of beats are exact, as those of no other part of a second are.
BEAT_SECONDS: Final = 1 / 128
LATENCIES: Final = (0, 0, 1, 1, 1, 2)
SLOW: Final = (5, 30, 100)
MOST_CHECKPOINTS: Final = 3
IS_SLOW: Final = 0.003
# No step of a task computes for so long; one that does turns in a loop.
SPIN_SECONDS: Final = 1.0
MOST_TURNS_A_SECOND: Final = 10_000


PROCESS: Final = ContextVar("PROCESS", default="")


class Spins(BaseException):
    """The world stands: a task never waits, or tasks wake each other for ever while no time passes."""


class Wire:
    """One end of a connection: what the other end sends arrives in its order, each piece after a time."""

    def __init__(self, world: World, address: str, local_address: str, way: tuple[str, str], process: str) -> None:
        self.address = address
        self.local_address = local_address
        self.way = way  # that of what arrives here: the server's address, and up or down
        self.process = process
        self.other: Wire = self
        self.is_open = True
        self._world = world
        self._arriving: deque[tuple[float, bytes]] = deque()
        self._arrived = trio.Event()
        self._last_due = 0.0

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        if not self.is_open:
            raise ConnectionResetError(104, "Connection reset by peer")
        data = b"".join(chunks)
        self.other.arrive(data)
        return len(data)

    async def wait_sendable(self) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    async def send_all(self, data: Chunk) -> None:
        await trio.lowlevel.checkpoint()
        self.send_nowait([data])

    async def receive(self, decoder: FrameDecoder) -> int:
        await self._arrived.wait()
        while self.is_open:
            if self._arriving and self._arriving[0][0] <= trio.current_time() and self.way not in self._world.stalled:
                for _ in range(self._world.draw.randrange(MOST_CHECKPOINTS)):
                    await trio.lowlevel.checkpoint()
                data = self._arriving.popleft()[1]
                decoder.feed(memoryview(data))
                return len(data)
            self._arrived = trio.Event()
            await self._arrived.wait()
        raise ConnectionResetError(104, "Connection reset by peer")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.is_open:
            self.is_open = False
            self.other.arrive(b"")

    def cut(self) -> None:
        """Ends the connection at both ends; what is under way is lost."""
        for end in (self, self.other):
            end.is_open = False
            end.look()

    def arrive(self, data: bytes) -> None:
        """Has something arrive, behind what is under way already; or the connection end, and both be lost."""
        if self._world.loses(self.way[0]):
            self.cut()
            return
        self._last_due = max(self._last_due, self._world.due_time())
        self._arriving.append((self._last_due, data))
        self._world.look_at(self._last_due, self)

    def look(self) -> None:
        """Has the receiver look again whether it may read, and what."""
        self._arrived.set()


class Way:
    """The way to one server, as a run treats it."""

    def __init__(self, world: World, address: str) -> None:
        self._world = world
        self._address = address

    def cut(self) -> None:
        """Ends the connections to the server, and loses what is under way."""
        for wire in self._world.wires:
            if wire.way[0] == self._address:
                wire.cut()

    def stall(self, *ways: str) -> None:
        """Holds what goes to the server (`up`) and what comes from it (`down`); nothing of a way that is not named."""
        self._world.stalled = {way for way in self._world.stalled if way[0] != self._address}
        self._world.stalled |= {(self._address, way) for way in ways}
        for wire in self._world.wires:
            wire.look()
            wire.other.look()


class World:
    """The network of a simulation, and what the seed draws for it; a task belongs to the `PROCESS` of its context."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.loss = 0.0  # the share of pieces in whose place a connection ends
        self.lost: list[tuple[float, str]] = []  # the times of these ends, and the servers' addresses
        self.stalled: set[tuple[str, str]] = set()
        self._doors: dict[str, Callable[[Wire], None]] = {}
        self._wires: list[Wire] = []
        self._ports = iter(range(20_000, 60_000))
        self._ended: set[str] = set()
        self._due: list[tuple[float, int, Wire]] = []
        self._numbers = itertools.count()
        self._is_earlier = trio.Event()

    @property
    def wires(self) -> list[Wire]:
        """The connections that are open, by the ends that dialled."""
        self._wires = [wire for wire in self._wires if wire.is_open or wire.other.is_open]
        return self._wires

    def due_time(self) -> float:
        """Returns when the next piece arrives: now, or at one of the next beats."""
        now, beats = trio.current_time(), self.draw.choice(SLOW if self.draw.random() < IS_SLOW else LATENCIES)
        return now if beats == 0 else (math.floor(now / BEAT_SECONDS) + beats) * BEAT_SECONDS

    def loses(self, address: str) -> bool:
        """Returns whether the connection to a server ends in place of the next piece."""
        if self.loss == 0 or self.draw.random() >= self.loss:
            return False
        self.lost.append((time.monotonic(), address))
        return True

    def look_at(self, due: float, wire: Wire) -> None:
        """Has a wire look at a time for what arrived."""
        if due <= trio.current_time():
            wire.look()
        else:
            is_next = not self._due or due < self._due[0][0]
            heapq.heappush(self._due, (due, next(self._numbers), wire))
            if is_next:
                self._is_earlier.set()

    async def run(self) -> None:
        """Has each wire look when its next piece is due."""
        while True:
            while self._due and self._due[0][0] <= trio.current_time():
                heapq.heappop(self._due)[2].look()
            self._is_earlier = trio.Event()
            with trio.move_on_at(self._due[0][0] if self._due else math.inf):
                await self._is_earlier.wait()

    def end_process(self, name: str) -> None:
        """Ends the connections of a process that is killed, and lets it open no more."""
        self._ended.add(name)
        for wire in self.wires:
            if wire.process == name:
                wire.cut()

    async def open_wire(self, address: str, *, tls: ssl.SSLContext | None, timeout: float) -> Wire:
        """Takes the place of dialling."""
        parse_address(address)
        await trio.sleep_until(self.due_time())
        door, process = self._doors.get(address), PROCESS.get()
        if door is None or process in self._ended:
            raise ConnectFailed(f"no connection to {address}: connection refused", address=address)
        own = f"127.0.0.1:{next(self._ports)}"
        near = Wire(self, address, own, (address, "down"), process)
        far = Wire(self, own, address, (address, "up"), process)
        near.other, far.other = far, near
        self._wires.append(near)
        door(far)
        return near

    async def serve(
        self,
        handler: Handler,
        host: str,
        port: int,
        *,
        on_close: Callable[[Peer], None] | None = None,
        task_status: trio.TaskStatus[Listening] = trio.TASK_STATUS_IGNORED,
        **_: object,
    ) -> None:
        """Takes the place of listening, on a port that is given."""
        address, sweeper, listening = f"{host}:{port}", DeadlineSweeper(), None
        try:
            async with trio.open_nursery() as nursery:
                listening = Listening(host, port, nursery.cancel_scope, on_close)
                nursery.start_soon(sweeper.run)

                def connect(wire: Wire) -> None:
                    connection = Connection(wire, sweeper=sweeper, handler=handler, on_close=listening._forget)
                    listening._open[connection] = None
                    nursery.start_soon(connection.run)

                self._doors[address] = connect
                task_status.started(listening)
                try:
                    await trio.sleep_forever()
                finally:
                    del self._doors[address]  # before the nursery ends: none can connect from now on
        finally:
            if listening is not None:
                listening._closed.set()


class _Watch(trio.abc.Instrument):
    """Ends a world that stands: by a timer of processor time, and by the turns while hardly any time passes."""

    def __init__(self, clock: trio.testing.MockClock) -> None:
        self.scope = trio.CancelScope()
        self.reason = ""
        self._clock = clock
        self._turns = 0
        self._second, self._turns_before = -1, 0
        self._looked_at = -1

    def before_io_wait(self, timeout: float) -> None:
        self._turns += 1
        second = int(self._clock.current_time())
        if second != self._second:
            self._second, self._turns_before = second, self._turns
        elif self._turns - self._turns_before > MOST_TURNS_A_SECOND and not self.reason:
            self.reason = f"the loop took {MOST_TURNS_A_SECOND} turns while no second passed"
            self.scope.cancel()

    def look(self, *_: object) -> None:
        """Raises `Spins` in a turn of the loop that was under way at the last look as well."""
        if self._turns == self._looked_at:
            self.reason = self.reason or f"a task computed for {SPIN_SECONDS:g} s without one turn of its loop"
            raise Spins(self.reason)
        self._looked_at = self._turns


def simulate(seed: int, live: Callable[[World], Awaitable[T]]) -> T:
    """Returns what `live` returns in the world of a seed; raises `Spins` if the world stands."""
    unique_ids(1)  # what a process draws once
    clock = trio.testing.MockClock(autojump_threshold=0)
    watch, kept = _Watch(clock), random.getstate()

    async def main(world: World) -> T:
        with watch.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.run)
                result = await live(world)
                nursery.cancel_scope.cancel()
            return result
        raise Spins(watch.reason)

    random.seed(seed)
    gc.disable()  # what it would run, and when, depends on what ran before
    with pytest.MonkeyPatch.context() as patch, _timer(watch.look):
        world = World(random.Random(f"world {seed}"))
        patch.setattr(scheduling, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        patch.setattr(scheduling, "_r", random.Random(seed))
        patch.setattr(pool, "open_wire", world.open_wire)
        patch.setattr(broker_server, "serve", world.serve)
        patch.setattr(nameserver_server, "serve", world.serve)
        patch.setattr(broker_server, "open_ha_port", _no_port)
        patch.setattr(trio.to_thread, "run_sync", _at_once)
        _stop_clocks(patch, clock)
        try:
            return trio.run(main, world, clock=clock, instruments=[watch])
        except BaseException as error:
            if watch.reason:
                raise Spins(watch.reason) from error
            raise
        finally:
            random.setstate(kept)
            gc.enable()


def _stop_clocks(patch: pytest.MonkeyPatch, clock: trio.testing.MockClock) -> None:
    def seconds() -> float:
        return EPOCH_SECONDS + clock.current_time()

    def nanoseconds() -> int:
        return round(seconds() * NANOSECONDS)

    for name in ("time", "monotonic", "perf_counter"):
        patch.setattr(time, name, seconds)
        patch.setattr(time, f"{name}_ns", nanoseconds)
    patch.setattr(time, "thread_time", lambda: 0.0)


async def _at_once(function: Callable[..., Any], *arguments: object, **_: object) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


async def _no_port(*_: object) -> int:
    await trio.lowlevel.checkpoint()
    return 0


@contextmanager
def _timer(look: Callable[..., None]) -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, SPIN_SECONDS, SPIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
