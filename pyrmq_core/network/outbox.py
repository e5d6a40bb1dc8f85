"""`Outbox`: what a connection has to write, in order; joins what is queued, and writes at once what is alone.

A frame is either not begun, and can still be withdrawn without a trace, or begun, and then goes out whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.network.wire import Chunk, Wire

# What one system call is given at most: enough to spare calls, too little to hold frames that could still be withdrawn.
JOIN_BYTES: Final = 256 * 1024
JOIN_FRAMES: Final = 512


class Outgoing:
    """A frame on its way out.

    `started` once a byte of it may have reached the peer; `chunks` None when it is out whole or was withdrawn.
    """

    __slots__ = ("chunks", "size_bytes", "started")

    def __init__(self) -> None:
        self.chunks: tuple[Chunk, ...] | None = None
        self.size_bytes = 0
        self.started = False

    def load(self, chunks: tuple[Chunk, ...]) -> None:
        self.chunks = chunks
        self.size_bytes = sum(map(len, chunks))

    def written(self) -> None:
        """The frame is out whole."""


class Answer(Outgoing):
    """A frame of which too many make the reader wait: who does not read answers may not ask more."""

    __slots__ = ()


class Outbox:
    """The frames of one connection that are not written yet.

    `send` writes at once when nothing waits; everything else is `run`'s, the connection's only writer task, started by
    `start_writer` when it is first needed (an idle connection has none).
    """

    def __init__(self, wire: Wire, start_writer: Callable[[], None]) -> None:
        self.queued_bytes = 0
        self.progress = 0  # grows with each write, so that a stalled peer can be told from a slow one
        self.expect_many = False  # several callers were just woken: what they send next is better joined
        self._wire = wire
        self._held = False
        self._queue: deque[Outgoing] = deque()
        self._start_writer = start_writer
        self._writer: trio.lowlevel.Task | None = None
        self._writer_asked = False
        self._writer_parked = False
        self._room = trio.Event()

    def send(self, frame: Outgoing) -> None:
        """Writes at once when nothing is queued, as far as the wire takes it; raises one of `WIRE_ERRORS`."""
        if not self._queue and not self.expect_many and not self._held and frame.chunks:
            count = self._wire.send_nowait(frame.chunks)
            if count == frame.size_bytes:
                self.progress += 1
                frame.started, frame.chunks = True, None
                frame.written()
                return
            if count:
                _shorten(frame, count)
        self._queue.append(frame)
        self.queued_bytes += frame.size_bytes
        if not self._held:
            self._wake_writer()

    def hold(self) -> None:
        """What is sent until `release` is queued only."""
        self._held = True

    def release(self) -> None:
        """Writes what was held, joined, as far as the wire takes it; the rest is the writer's."""
        self._held = False
        if self._queue and (chunks := self._next_chunks()):
            self._sent(self._wire.send_nowait(chunks))
        if self._queue:
            self._wake_writer()

    def withdraw(self, frame: Outgoing) -> None:
        """Takes back a frame that is not begun; without effect on one that is."""
        if not frame.started and frame.chunks is not None:
            frame.chunks = None
            self.queued_bytes -= frame.size_bytes

    async def wait_answers_below(self, limit_bytes: int) -> None:
        """Returns when fewer bytes of answers wait."""
        while self.queued_bytes >= limit_bytes and self._answer_bytes() >= limit_bytes:
            if self._room.is_set():
                self._room = trio.Event()
            await self._room.wait()

    async def run(self) -> None:
        """Writes what is queued, for the life of the connection; raises one of `WIRE_ERRORS`."""
        self._writer = trio.lowlevel.current_task()
        while True:
            self.expect_many = False
            if not self._queue:
                self._writer_parked = True
                await trio.lowlevel.wait_task_rescheduled(self._abort_park)
            elif chunks := self._next_chunks():
                if count := self._wire.send_nowait(chunks):
                    self._sent(count)
                elif not await self._wire.wait_sendable():
                    await self._send_whole()

    def _wake_writer(self) -> None:
        if self._writer_parked and self._writer is not None:
            self._writer_parked = False
            trio.lowlevel.reschedule(self._writer)
        elif not self._writer_asked:
            self._writer_asked = True
            self._start_writer()

    def _answer_bytes(self) -> int:
        return sum(frame.size_bytes for frame in self._queue if isinstance(frame, Answer))

    def _abort_park(self, _: object) -> trio.lowlevel.Abort:
        self._writer_parked = False
        return trio.lowlevel.Abort.SUCCEEDED

    def _next_chunks(self) -> list[Chunk]:
        """What the next write takes: one frame at least, small ones joined; empty when all were withdrawn."""
        queue = self._queue
        while queue and queue[0].chunks is None:
            queue.popleft()
        chunks: list[Chunk] = []
        size = 0
        for frame in queue:
            if frame.chunks is None:
                continue
            if chunks and (size + frame.size_bytes > JOIN_BYTES or len(chunks) >= JOIN_FRAMES):
                break
            chunks += frame.chunks
            size += frame.size_bytes
        return [b"".join(chunks)] if len(chunks) > 2 else chunks

    def _sent(self, count: int) -> None:
        """The first `count` bytes of the queue are out."""
        queue = self._queue
        self.progress += count
        self.queued_bytes -= count
        while count:
            frame = queue[0]
            if frame.chunks is not None and frame.size_bytes > count:
                _shorten(frame, count)
                break
            queue.popleft()
            if frame.chunks is not None:
                count -= frame.size_bytes
                frame.started, frame.chunks = True, None
                frame.written()
        self._room.set()

    async def _send_whole(self) -> None:
        """For a wire that takes all or tells nothing: what it is given counts as begun before it is."""
        data = b"".join(self._next_chunks())
        given: list[Outgoing] = []
        size = 0
        while size < len(data):
            frame = self._queue.popleft()
            if frame.chunks is not None:
                frame.started, frame.chunks = True, None
                size += frame.size_bytes
                given.append(frame)
        await self._wire.send_all(data)
        self.progress += size
        self.queued_bytes -= size
        for frame in given:
            frame.written()
        self._room.set()


def _shorten(frame: Outgoing, count: int) -> None:
    """Drops the frame's first `count` bytes, which are out."""
    frame.started = True
    frame.size_bytes -= count
    rest: list[Chunk] = []
    for chunk in frame.chunks or ():
        if count >= len(chunk):
            count -= len(chunk)
        else:
            rest.append(memoryview(chunk)[count:] if count else chunk)
            count = 0
    frame.chunks = tuple(rest)
