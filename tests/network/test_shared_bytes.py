"""Memory that all connections of a server share: what is freed first, which of them end, and which never do."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from pyrmq_core.network import Peer, ServerBounds
from pyrmq_core.network.connection.outbox import FULL_BYTES, TIGHT_FULL_BYTES
from pyrmq_core.network.connection.shared_bytes import KEPT_PART, SharedBytes
from pyrmq_core.protocol.framing.command import Command, success
from tests.network.ends import Recorder, dialled, echo, serving, until

MIB = 1024 * 1024


class Holding:
    """A connection that holds bytes, some of which it can do without."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.spare = self.bytes = 0
        self.is_closed = False

    def close(self, reason: str) -> None:
        assert reason
        self.is_closed = True

    def free(self) -> int:
        self.bytes -= self.spare
        self.spare = 0
        return self.bytes


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60), st.integers(0, 60))), st.booleans())
def test_no_more_is_held_than_the_bound_and_the_smallest_stay(notes: list[tuple[int, int, int]], frees: bool) -> None:
    shared = SharedBytes[Holding](100, what="bytes", setting="most", held=Holding.free if frees else None)
    holders = [Holding(f"here:{number}") for number in range(10)]
    for number, count, spare in notes:
        holder = holders[number]
        if holder.is_closed:
            holders[number] = holder = Holding(holder.address)
        holder.bytes, holder.spare = count, min(count, spare)
        before = {held: held.is_closed for held in holders}
        shared.note(holder, count)
        ended = [held for held in holders if held.is_closed and not before[held]]
        left = [held for held in holders if not held.is_closed]
        assert shared.used <= 100
        if ended:
            assert shared.used <= KEPT_PART * 100
            assert min(held.bytes for held in ended) >= max((held.bytes for held in left), default=0)
    for holder in holders:
        shared.forget(holder)
    assert shared.used == 0


class Linked(Holding):
    """A connection whose end changes the number of bytes that another one holds."""

    def __init__(self, address: str, change_other: Callable[[], None]) -> None:
        super().__init__(address)
        self._change_other = change_other

    def close(self, reason: str) -> None:
        super().close(reason)
        self._change_other()


@pytest.mark.parametrize("count", [0, 10, 200])
def test_the_end_of_a_connection_may_change_the_bytes_of_another(count: int) -> None:
    shared = SharedBytes[Holding](100, what="bytes", setting="most", held=None)
    other, *rest = (Holding(f"here:{number}") for number in range(10))
    for holder in (other, *rest):
        shared.note(holder, 10)
    linked = Linked("linked:1", lambda: shared.note(other, count))
    shared.note(linked, 50)
    assert shared.used == 70
    assert linked.is_closed
    assert other.is_closed is (count > 0)


async def test_unfinished_frames_of_all_connections_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(serving(echo, bounds=ServerBounds(received_bytes=8 * MIB)))
        honest = await stack.enter_async_context(dialled(listening))
        strangers = [await stack.enter_async_context(dialled(listening)) for _ in range(12)]
        await until(lambda: len(listening.connections) == 13)
        for stranger in strangers:
            await stranger.send_bytes(struct.pack(">II", 8 * MIB, 100) + bytes(900_000))
            await wait_all_tasks_blocked()
            await honest.send(Command(1, opaque=1, body=b"small"))
            answer = await honest.receive()
            assert answer is not None
            assert sum(connection._decoder.held_bytes for connection in listening.connections) < 8.5 * MIB
        ended = caplog.text.count("serverMaxReceivedBytes=8388608")
        assert ended
        await until(lambda: len(listening.connections) == 13 - ended)


async def test_buffers_between_frames_are_given_back_before_any_connection_ends() -> None:
    async with AsyncExitStack() as stack:
        listening = await stack.enter_async_context(serving(echo, bounds=ServerBounds(received_bytes=8 * MIB)))
        ends = [await stack.enter_async_context(dialled(listening)) for _ in range(12)]
        for end in ends:
            await end.send(Command(1, opaque=1, body=bytes(1_500_000)))  # its buffer of 2 MiB is kept
            assert await end.receive() is not None
        assert len(listening.connections) == 12
        assert sum(connection._decoder.held_bytes for connection in listening.connections) < 8.5 * MIB


async def test_requests_under_way_count_with_their_bodies() -> None:
    recorder = Recorder()
    async with AsyncExitStack() as stack:
        bounds = ServerBounds(received_bytes=8 * MIB)
        listening = await stack.enter_async_context(serving(recorder.held, bounds=bounds))
        ends = [await stack.enter_async_context(dialled(listening)) for _ in range(3)]
        await until(lambda: len(listening.connections) == 3)
        for number in range(9):
            for end in ends[: 1 if number else 3]:
                with suppress(BrokenPipeError, ConnectionResetError):  # the first is closed in the end
                    await end.send(Command(1, opaque=number, body=bytes(MIB)))
                await wait_all_tasks_blocked()
        await until(lambda: len(listening.connections) == 2)
        recorder.gate.set()
        for end in ends[1:]:
            assert await end.receive() is not None


async def test_unread_answers_are_bounded_over_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: Command, _: Peer) -> Command:
        return success(body=bytes(MIB if request.code == 2 else 10))

    async with AsyncExitStack() as stack:
        bounds = ServerBounds(waiting_bytes=2 * FULL_BYTES)
        listening = await stack.enter_async_context(serving(answer, bounds=bounds))
        honest = await stack.enter_async_context(dialled(listening))
        for _ in range(48):
            stranger = await stack.enter_async_context(dialled(listening))
            await stranger.send(Command(1))
            assert await stranger.receive() is not None  # it is accepted: a server takes so many in a second
            # In one segment: of several small ones the kernel holds back all but the first until that is acknowledged.
            await stranger.send(*(Command(2, opaque=opaque) for opaque in range(40)))
            await wait_all_tasks_blocked()
            await honest.send(Command(1, opaque=1))
            assert await honest.receive() is not None
            queued = [
                connection._outbox.queued_bytes for connection in listening.connections if not connection.is_closed
            ]
            assert sum(queued) <= 2 * FULL_BYTES + 2 * MIB
        assert sorted(queued)[len(queued) // 2] < TIGHT_FULL_BYTES + 2 * MIB
        assert "serverMaxWaitingBytes" in caplog.text
