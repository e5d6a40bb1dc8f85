"""The frames that a connection has to write, in order.

A frame can be withdrawn until its first byte is written. After that it is always completed, since half a frame would
end the connection for all its calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from pyrmq_core.network.connection.wire import Chunk, Wire

# Bodies from this size on are not joined with their header: passing two buffers to one write costs less than the copy.
APART_FROM_BYTES: Final = 32 * 1024
# The most bytes of several frames in one write: enough to save system calls, few enough that joining them is cheap.
JOIN_BYTES: Final = 256 * 1024
JOIN_CHUNKS: Final = 512
# While more than this is queued, new calls wait and requests are not read.
FULL_BYTES: Final = 16 * 1024 * 1024
# While answers fill the queue, their total size is computed again each time this many bytes are written.
SUMMED_AFTER_BYTES: Final = FULL_BYTES // 16
# The growth of the queue after which its size is reported, and the limit that replaces `FULL_BYTES` while the server's
# memory is short.
NOTE_BYTES: Final = 16 * 1024
TIGHT_FULL_BYTES: Final = 1024 * 1024
WOKEN_AT_ONCE: Final = 64
# While this many bytes are queued, handlers wait before they make large answers. Then `TURNS_AT_ONCE` of them continue.
TURN_BYTES: Final = JOIN_BYTES
TURNS_AT_ONCE: Final = 16


class Outgoing:
    """A frame to write.

    `started` is True once a byte of it may have reached the peer. `chunks` has the bytes that are not written yet, and
    is None after the frame was written or withdrawn.
    """

    __slots__ = ("chunks", "size_bytes", "started")

    chunks: tuple[Chunk, ...] | None
    size_bytes: int
    started: bool

    def set_frame(self, head: bytes, body: Chunk) -> None:
        """Sets the bytes to write. It has to be called first, since the class has no `__init__` (see `Call`)."""
        body_bytes = len(body)
        self.started = False
        self.size_bytes = len(head) + body_bytes
        self.chunks = (head + body,) if body_bytes < APART_FROM_BYTES else (head, body)

    def written(self) -> None: ...

    def wake(self) -> bool:
        return False


class Answer(Outgoing):
    """The frame of an answer. The connection stops reading while too many bytes of answers are queued."""

    __slots__ = ()


class Outbox:
    """The frames of one connection that are not written yet.

    A frame is written at once if nothing is queued. A writer task, `run`, writes the queue. `start_writer` starts it
    when it is first needed. After a frame sent with `alone=False`, further frames are queued until the writer runs, and
    are then written together. `note` receives the number of queued bytes from time to time. If it returns True, memory
    is short, and the outbox is full at a smaller number.
    """

    def __init__(self, wire: Wire, start_writer: Callable[[], None], note: Callable[[int], bool] | None = None) -> None:
        self.wire = wire
        self.queued_bytes = 0
        self.written_bytes = 0
        self._queue: deque[Outgoing] = deque()
        self._waiting: deque[Outgoing] = deque()
        self._start_writer = start_writer
        self._writer: trio.lowlevel.Task | None = None
        self._writer_runs = False
        self._held = False
        self._drained = trio.Event()
        self._full_bytes = FULL_BYTES
        self._note = note
        self._noted_bytes = 0
        self._note_at: float = math.inf if note is None else NOTE_BYTES
        self._turns: trio.lowlevel.ParkingLot | None = None  # made when first needed: most connections need none

    @property
    def is_full(self) -> bool:
        return self.queued_bytes >= self._full_bytes

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._writer_runs and not self._held

    def send(self, frame: Outgoing, *, alone: bool) -> None:
        if not self._queue and self.is_idle and self._write(frame):
            if not alone:
                self._wake_writer()
            return
        self._queue.append(frame)
        self.queued_bytes += frame.size_bytes
        if self.queued_bytes >= self._note_at:
            self._report_queued()
        if not self._held and not self._writer_runs:
            self._wake_writer()

    def write_from_thread(self, frame: Outgoing, soon: Callable[[Callable[[], None]], None]) -> bool:
        """Writes a frame from another thread while the loop waits for I/O. Returns False if no byte can be sent.

        The outbox must be idle. If only a part is sent, `soon` schedules the writer task on the loop, to send the rest.
        """
        if not self._write(frame):
            if not frame.started:
                frame.chunks = None
                return False
            self._queue.append(frame)
            self.queued_bytes += frame.size_bytes
            soon(self._wake_writer)
        return True

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._queue and not self._writer_runs and (chunks := self._next_chunks()):
            self._sent(self.wire.send_nowait(chunks))
        if self._queue:
            self._wake_writer()

    def _report_queued(self) -> None:
        if self._note is None:
            return
        self._noted_bytes = self.queued_bytes
        self._note_at = self._noted_bytes + NOTE_BYTES
        is_tight = self._note(self._noted_bytes)
        self._full_bytes = TIGHT_FULL_BYTES if is_tight else FULL_BYTES

    def withdraw(self, frame: Outgoing) -> None:
        if not frame.started and frame.chunks is not None:
            frame.chunks = None
            self.queued_bytes -= frame.size_bytes

    def await_room(self, frame: Outgoing) -> None:
        self._waiting.append(frame)

    def wake_senders(self) -> None:
        """Wakes up to 64 senders that wait for room in the outbox, and handlers that wait in `wait_turn`."""
        if self._noted_bytes:
            self._report_queued()
        self._drained.set()
        woken = 0
        while self._waiting and woken < WOKEN_AT_ONCE and not self.is_full:
            woken += self._waiting.popleft().wake()
        if self._turns is not None and self.queued_bytes < TURN_BYTES:
            self._turns.unpark(count=TURNS_AT_ONCE)

    async def wait_answers_drained(self) -> None:
        while self.is_full and self._answer_bytes() >= self._full_bytes:
            written_bytes = self.written_bytes
            while self.written_bytes < written_bytes + SUMMED_AFTER_BYTES and self.is_full:
                self._drained = trio.Event()
                await self._drained.wait()

    async def wait_turn(self) -> None:
        """Waits until less than `TURN_BYTES` are queued. Returns without a trio checkpoint if that is the case."""
        while self.queued_bytes >= TURN_BYTES:
            if self._turns is None:
                self._turns = trio.lowlevel.ParkingLot()
            await self._turns.park()

    def drop(self) -> None:
        self._queue.clear()
        self._waiting.clear()
        self._start_writer = _ended
        self._writer = self._note = None
        self._noted_bytes, self._note_at = 0, math.inf

    async def run(self) -> None:
        self._writer = trio.lowlevel.current_task()
        while True:
            if chunks := self._next_chunks():
                if count := self.wire.send_nowait(chunks):
                    self._sent(count)
                elif not await self.wire.wait_sendable():
                    await self._send_whole()
            else:
                self._writer_runs = False
                if self._waiting or self._turns is not None:  # tasks wait for room, and no write follows to wake them
                    self.wake_senders()
                await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._writer_runs = True
        return trio.lowlevel.Abort.SUCCEEDED

    def _write(self, frame: Outgoing) -> bool:
        if not frame.chunks:
            return False
        count = self.wire.send_nowait(frame.chunks)
        self.written_bytes += count
        if count == frame.size_bytes:
            frame.started, frame.chunks = True, None
            frame.written()
            return True
        if count:
            _shorten(frame, count)
        return False

    def _wake_writer(self) -> None:
        if not self._writer_runs:
            self._writer_runs = True
            if self._writer is None:
                self._start_writer()
            else:
                trio.lowlevel.reschedule(self._writer)

    def _next_chunks(self) -> list[Chunk]:
        queue = self._queue
        while queue and queue[0].chunks is None:
            queue.popleft()
        chunks: list[Chunk] = []
        size = 0
        for frame in queue:
            if frame.chunks is None:
                continue
            if chunks and (size + frame.size_bytes > JOIN_BYTES or len(chunks) >= JOIN_CHUNKS):
                break
            chunks += frame.chunks
            size += frame.size_bytes
        return [b"".join(chunks)] if len(chunks) > 2 else chunks

    def _sent(self, count: int) -> None:
        queue = self._queue
        self.written_bytes += count
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
        self.wake_senders()

    async def _send_whole(self) -> None:
        """Writes to a wire that does not report partial writes (TLS). Sets `started` of the frames before the write."""
        data = b"".join(self._next_chunks())
        collected: list[Outgoing] = []
        size = 0
        while size < len(data):
            frame = self._queue.popleft()
            if frame.chunks is not None:
                frame.started, frame.chunks = True, None
                size += frame.size_bytes
                collected.append(frame)
        await self.wire.send_all(data)
        self.written_bytes += size
        self.queued_bytes -= size
        for frame in collected:
            frame.written()
        self.wake_senders()

    def _answer_bytes(self) -> int:
        return sum(frame.size_bytes for frame in self._queue if isinstance(frame, Answer) and frame.chunks)


def _ended() -> None: ...


def _shorten(frame: Outgoing, count: int) -> None:
    frame.started = True
    frame.size_bytes -= count
    unwritten: list[Chunk] = []
    for chunk in frame.chunks or ():
        if count >= len(chunk):
            count -= len(chunk)
        else:
            unwritten.append(memoryview(chunk)[count:] if count else chunk)
            count = 0
    frame.chunks = tuple(unwritten)
