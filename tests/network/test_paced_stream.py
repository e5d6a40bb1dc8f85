"""A stream whose peer has to read: slow peers and interrupts end what is sent to them."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pyrmq_core.network.paced_stream import LEAST_BYTES_A_SECOND, SEND_SECONDS, paced

# More than a pair of sockets holds.
MUCH = bytes(16 << 20)


def pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    left, right = trio.socket.socketpair()
    return trio.SocketStream(left), trio.SocketStream(right)


async def test_a_peer_that_reads_nothing_is_cut_off(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = pair()
    async with theirs, paced(ours) as stream:
        with pytest.raises(trio.ClosedResourceError), trio.CancelScope(shield=True):
            await stream.send_all(MUCH)
        await trio.Event().wait()  # the block ends
    assert trio.current_time() == pytest.approx(SEND_SECONDS + len(MUCH) / LEAST_BYTES_A_SECOND)


async def test_a_peer_that_reads_gets_all() -> None:
    ours, theirs = pair()
    received = 0
    async with trio.open_nursery() as nursery, theirs:

        async def send() -> None:
            async with paced(ours) as stream:
                await stream.send_all(MUCH)
                await stream.send_eof()
                assert await stream.receive_some(10) == b"thanks"
                await stream.aclose()

        nursery.start_soon(send)
        while chunk := await theirs.receive_some():
            received += len(chunk)
        await theirs.send_all(b"thanks")
    assert received == len(MUCH)


async def test_cancelling_ends_a_shielded_send() -> None:
    ours, theirs = pair()
    ended = list[str]()

    async def send() -> None:
        async with paced(ours) as stream:
            with trio.CancelScope(shield=True):
                try:
                    await stream.send_all(MUCH)
                except trio.ClosedResourceError:
                    ended.append("closed")

    with trio.fail_after(60):
        async with theirs, trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert ended == ["closed"]


async def test_a_peer_that_is_gone_ends_the_block_at_the_next_send() -> None:
    ours, theirs = pair()
    await theirs.aclose()
    async with paced(ours) as stream:
        with pytest.raises(trio.BrokenResourceError), trio.CancelScope(shield=True):
            await stream.send_all(b"x")
        await trio.Event().wait()  # the block ends
    assert ours.socket.fileno() == -1


@pytest.mark.parametrize("is_closed_here", [False, True])
async def test_the_end_of_what_a_peer_sends_calls_back_once(is_closed_here: bool) -> None:
    ends = list[str]()

    async def note_end() -> None:
        ends.append("end")

    ours, theirs = pair()
    async with theirs, paced(ours, note_end) as stream:
        await theirs.send_all(b"x")
        assert (await stream.receive_some(10), ends) == (b"x", [])
        if is_closed_here:
            await stream.aclose()
            with pytest.raises(trio.ClosedResourceError):
                await stream.receive_some(10)
        else:
            await theirs.send_eof()
            assert await stream.receive_some(10) == b""
    assert ends == ["end"]
