"""Bodies of requests: a least rate, and a bound that all of them have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from pyrmq_core.tools.web import bodies
from pyrmq_core.tools.web.bodies import AsgiMessage, Bodies, BodyRefused, PeerGone


def pieces(*sent: bytes) -> Callable[[], Awaitable[AsgiMessage]]:
    """Returns what gives out the pieces of a body, and waits for ever when they end with an unfinished one."""
    left = list(sent)

    async def receive() -> AsgiMessage:
        if not left:
            await trio.sleep_forever()
        piece = left.pop(0)
        return {"type": "http.request", "body": piece.rstrip(b"."), "more_body": not piece.endswith(b".")}

    return receive


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 25])
async def test_a_body_is_given_out_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PIECE_BYTES", 10)
    body = await Bodies().read(pieces(b"x" * (size // 2), b"x" * (size - size // 2) + b"."))
    messages = [await body.receive()]
    while messages[-1]["more_body"]:
        messages.append(await body.receive())
    assert b"".join(message["body"] for message in messages) == b"x" * size
    assert [message["more_body"] for message in messages] == [True] * (len(messages) - 1) + [False]


async def test_the_peers_end_comes_behind_the_body_when_it_does(autojump_clock: trio.testing.MockClock) -> None:
    """An answer under way is given up when the peer is gone, and not before."""
    ends = trio.Event()
    left = list[AsgiMessage]([{"type": "http.request", "body": b"x"}])

    async def receive() -> AsgiMessage:
        if left:
            return left.pop()
        await ends.wait()
        return {"type": "http.disconnect"}

    body = await Bodies().read(receive)
    assert (await body.receive())["body"] == b"x"
    with trio.move_on_after(60):
        raise AssertionError(await body.receive())
    ends.set()
    assert await body.receive() == {"type": "http.disconnect"}


async def test_a_byte_a_second_is_too_slow(mock_clock: trio.testing.MockClock) -> None:
    reads = 0

    async def receive() -> AsgiMessage:
        nonlocal reads
        await trio.lowlevel.checkpoint()
        mock_clock.jump(1)
        reads += 1
        return {"type": "http.request", "body": b"x", "more_body": True}

    with pytest.raises(BodyRefused, match="slower than 32768 bytes a second") as refused:
        await Bodies().read(receive)
    assert (refused.value.status, reads) == (408, 6)


async def test_the_least_rate_is_enough(mock_clock: trio.testing.MockClock) -> None:
    left = iter(range(99, -1, -1))

    async def receive() -> AsgiMessage:
        await trio.lowlevel.checkpoint()
        mock_clock.jump(2)
        return {"type": "http.request", "body": bytes(2 * bodies.LEAST_BYTES_A_SECOND), "more_body": next(left) > 0}

    assert len((await Bodies().read(receive)).data) == 200 * bodies.LEAST_BYTES_A_SECOND


async def test_a_peer_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODIES_BYTES", 10)
    held, left = Bodies(), [{"type": "http.request", "body": b"x" * 10, "more_body": True}]

    async def gone() -> AsgiMessage:
        return left.pop() if left else {"type": "http.disconnect"}

    with pytest.raises(PeerGone):
        await held.read(gone)
    await held.read(pieces(b"y" * 10 + b"."))  # what it had sent is forgotten


async def test_the_oldest_unfinished_one_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_BODIES_BYTES", 10)
    held, refused = Bodies(), list[str]()

    async def slow(name: str) -> None:
        try:
            await held.read(pieces(b"xxxx"))
        except BodyRefused as error:
            refused.append(f"{name} {error.status}")

    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            nursery.start_soon(slow, name)
            await trio.testing.wait_all_tasks_blocked()
        body = await held.read(pieces(b"yyy", b"yyy."))
        await trio.testing.wait_all_tasks_blocked()
        assert refused == ["first 408"]
        with pytest.raises(BodyRefused, match="try again in a moment") as full:  # 6 of the 10 bytes are a whole one's
            await held.read(pieces(b"zzzzz."))
        assert full.value.status == 503
        await trio.testing.wait_all_tasks_blocked()
        assert refused == ["first 408", "second 408"]
        held.release(body)
        held.release(body)
        await held.read(pieces(b"z" * 10 + b"."))
        nursery.cancel_scope.cancel()
