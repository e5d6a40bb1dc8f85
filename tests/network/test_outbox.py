"""Writes of an outbox: at once or joined, their order, and the rest after a wire that takes a part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.network.connection.outbox import APART_FROM_BYTES, JOIN_BYTES, JOIN_CHUNKS, Outbox, Outgoing
from pyrmq_core.network.connection.wire import Chunk
from pyrmq_core.protocol.framing.frame import FrameDecoder


class RecordingWire:
    """Takes `room` bytes, then none until more room is given; notes every write."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.address = self.local_address = "here:1"
        self.room = room
        self.writes: list[bytes] = []
        self.pieces: list[int] = []
        self._more = trio.Event()

    def send_nowait(self, chunks: Sequence[Chunk]) -> int:
        data = b"".join(chunks)[: self.room]
        self.room -= len(data)
        if data:
            self.writes.append(data)
            self.pieces.append(len(chunks))
        return len(data)

    async def wait_sendable(self) -> bool:
        await self._more.wait()
        return True

    def give_room(self, count: int) -> None:
        self.room += count
        self._more.set()
        self._more = trio.Event()

    async def send_all(self, data: Chunk) -> None:
        raise NotImplementedError

    async def receive(self, decoder: FrameDecoder) -> int:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


@asynccontextmanager
async def outbox_on(wire: RecordingWire) -> AsyncIterator[Outbox]:
    async with trio.open_nursery() as nursery:
        outbox = Outbox(wire, lambda: nursery.start_soon(outbox.run))
        yield outbox
        nursery.cancel_scope.cancel()


def frame(head: bytes, body: Chunk = b"") -> Outgoing:
    outgoing = Outgoing()
    outgoing.set_frame(head, body)
    return outgoing


async def test_a_frame_that_is_alone_is_written_at_once_and_wakes_no_task() -> None:
    wire = RecordingWire()
    async with outbox_on(wire) as outbox:
        for mark in (b"a", b"b", b"c"):
            outbox.send(frame(mark), alone=True)
        assert wire.writes == [b"a", b"b", b"c"]
        assert outbox._writer is None


async def test_what_is_sent_together_is_joined_behind_the_first() -> None:
    wire = RecordingWire()
    async with outbox_on(wire) as outbox:
        for _ in range(3):
            for mark in (b"a", b"b", b"c", b"d"):
                outbox.send(frame(mark), alone=False)
            await wait_all_tasks_blocked()
        assert wire.writes == [b"a", b"bcd"] * 3
        outbox.send(frame(b"e"), alone=True)
        assert wire.writes[-1] == b"e"


async def test_what_is_held_is_written_in_one_go() -> None:
    wire = RecordingWire()
    async with outbox_on(wire) as outbox:
        outbox.hold()
        for mark in (b"a", b"b", b"c"):
            outbox.send(frame(mark), alone=True)
        assert wire.writes == []
        outbox.release()
        assert wire.writes == [b"abc"]


async def test_the_order_is_kept_from_any_writer() -> None:
    wire = RecordingWire(room=5)
    async with outbox_on(wire) as outbox:
        sent = b""
        for number in range(200):
            mark = b"%d," % number
            sent += mark
            if number % 7 == 0:
                outbox.hold()
            outbox.send(frame(mark), alone=number % 3 == 0)
            if number % 7 == 3:
                outbox.release()
            if number % 5 == 0:
                wire.give_room(number % 11)
            if number % 13 == 0:
                await trio.lowlevel.checkpoint()
        outbox.release()
        wire.give_room(10_000)
        await wait_all_tasks_blocked()
        assert b"".join(wire.writes) == sent
        assert outbox.queued_bytes == 0


async def test_withdrawn_frames_are_passed_over() -> None:
    wire = RecordingWire(room=1)
    async with outbox_on(wire) as outbox:
        frames = [frame(mark * 4) for mark in (b"a", b"b", b"c", b"d")]
        for outgoing in frames:
            outbox.send(outgoing, alone=True)
        for outgoing in frames[:3]:
            outbox.withdraw(outgoing)
        assert outbox.queued_bytes == 7
        wire.give_room(100)
        await wait_all_tasks_blocked()
        assert b"".join(wire.writes) == b"aaaadddd"
        assert [outgoing.started for outgoing in frames] == [True, False, False, True]
        assert outbox.queued_bytes == 0
        outbox.send(frame(b"e"), alone=True)
        assert wire.writes[-1] == b"e"


async def test_one_write_is_bounded_in_bytes_and_in_pieces() -> None:
    wire = RecordingWire()
    async with outbox_on(wire) as outbox:
        outbox.hold()
        for _ in range(40):
            outbox.send(frame(b"x" * 20_000), alone=True)
        for _ in range(2 * JOIN_CHUNKS):
            outbox.send(frame(b"y"), alone=True)
        outbox.release()
        await wait_all_tasks_blocked()
        assert max(map(len, wire.writes)) <= JOIN_BYTES
        assert sum(map(len, wire.writes)) == 40 * 20_000 + 2 * JOIN_CHUNKS
        assert len(wire.writes) < 10


async def test_a_large_body_is_not_copied_behind_its_head() -> None:
    wire = RecordingWire()
    async with outbox_on(wire) as outbox:
        outbox.send(frame(b"head", bytes(APART_FROM_BYTES - 1)), alone=True)
        outbox.send(frame(b"head", memoryview(bytes(APART_FROM_BYTES))), alone=True)
        assert wire.pieces == [1, 2]
        assert [len(data) for data in wire.writes] == [APART_FROM_BYTES + 3, APART_FROM_BYTES + 4]


async def test_a_writer_that_was_cancelled_is_not_woken() -> None:
    """A connection that ends cancels its tasks one after another: frames may be sent before it counts as closed."""
    async with trio.open_nursery() as nursery:
        outbox = Outbox(RecordingWire(), lambda: nursery.start_soon(outbox.run))
        outbox.send(frame(b"a"), alone=False)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        outbox.send(frame(b"b"), alone=False)  # while it is about to end
    outbox.send(frame(b"c"), alone=False)  # after its end
    outbox.release()
