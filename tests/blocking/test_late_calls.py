"""Calls that come just as the loop ends: each raises or ends with an error, and nothing of them runs without a loop."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import trio

from pyrmq_core import Message
from pyrmq_core import aio as asyncio_face
from pyrmq_core.blocking import Producer
from pyrmq_core.loop_thread import portal as portals
from pyrmq_core.loop_thread.loop_errors import LoopEnded
from pyrmq_core.loop_thread.portal import Portal
from tests.support.stage import Stage

SECONDS = 30


class EndingLoop:
    """The library's loop for one test: it ends just before a call; its thread waits at its last step for `go_on`."""

    def __init__(self, loop: Portal) -> None:
        self.loop = loop
        self.call_has_come = threading.Event()
        self._has_run, self._go_on = threading.Event(), threading.Event()
        end = loop._loop_lock.end

        def held_end() -> None:
            end()
            self._has_run.set()
            assert self._go_on.wait(SECONDS)

        loop._loop_lock.end = held_end  # type: ignore[method-assign]

    def end(self) -> None:
        assert self.loop._nursery is not None
        self.loop.soon(self.loop._nursery.cancel_scope.cancel)
        assert self._has_run.wait(SECONDS)

    def end_before_the_next_call(self, *, another_wakes: bool) -> None:
        """With `another_wakes`, another thread has marked the loop as woken and is about to see that it ended."""
        loop = self.loop
        soon = loop.soon

        def late(function: Callable[..., object], *args: object, **keywords: Any) -> None:
            loop.soon = soon  # type: ignore[method-assign]
            self.end()
            loop._woken = another_wakes
            try:
                soon(function, *args, **keywords)
            finally:
                self.call_has_come.set()

        loop.run_if_idle = lambda *_: False  # type: ignore[method-assign]
        loop.soon = late  # type: ignore[method-assign]

    def go_on(self) -> None:
        self._go_on.set()
        self.loop._thread.join(SECONDS)
        assert not self.loop._thread.is_alive()


@pytest.fixture
def ending(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndingLoop]:
    monkeypatch.setattr(portals, "_portal", None)
    ending = EndingLoop(portals.portal())
    yield ending
    ending.go_on()


def the_blocking_send(producer: Producer) -> object:
    return producer.send(Message("orders", b"x"))


def the_send_in_the_background(producer: Producer) -> object:
    return producer.send_soon(Message("orders", b"x")).result(SECONDS)


def the_call_of_any_other_kind(producer: Producer) -> object:
    return producer.send_batch([Message("orders", b"x")])


BLOCKING = [the_blocking_send, the_send_in_the_background, the_call_of_any_other_kind]


@pytest.mark.parametrize("call", BLOCKING)
@pytest.mark.parametrize("another_wakes", [False, True])
def test_a_blocking_call_that_comes_too_late_ends(
    ending: EndingLoop,
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    call: Callable[[Producer], object],
    another_wakes: bool,
) -> None:
    producer = Producer("g", nameserver=stage.nameserver.address).open()
    ending.end_before_the_next_call(another_wakes=another_wakes)
    end = end_of_thread(lambda: call(producer))
    assert ending.call_has_come.wait(SECONDS)
    with caplog.at_level(logging.INFO):
        ending.go_on()
    assert isinstance(end.exception(SECONDS), LoopEnded)
    assert caplog.messages == []
    assert stage.sends() == []


@pytest.mark.parametrize("another_wakes", [False, True])
@pytest.mark.parametrize("background", [False, True])
def test_an_asyncio_send_that_comes_too_late_ends(
    ending: EndingLoop, stage: Stage, caplog: pytest.LogCaptureFixture, background: bool, another_wakes: bool
) -> None:
    async def main() -> None:
        producer = await asyncio_face.Producer("g", nameserver=stage.nameserver.address).open()
        if background:
            await (await producer.send_soon(Message("orders", b"first")))
        caplog.clear()
        ending.end_before_the_next_call(another_wakes=another_wakes)

        async def send() -> None:
            if background:
                await (await producer.send_soon(Message("orders", b"x")))
            else:
                await producer.send(Message("orders", b"x"))

        sending = asyncio.create_task(send())
        await asyncio.to_thread(ending.call_has_come.wait, SECONDS)
        with caplog.at_level(logging.INFO):
            ending.go_on()
        with pytest.raises(LoopEnded):
            await asyncio.wait_for(sending, SECONDS)

    asyncio.run(main())
    assert caplog.messages == []


def test_a_call_behind_a_thread_that_fails_to_wake_the_loop_ends(ending: EndingLoop) -> None:
    """The other thread has marked the loop as woken, and is about to see that it ended; this one relies on its wake."""
    ending.end()
    loop, behind = ending.loop, list[Future[None]]()
    assert loop._token is not None
    wake = loop._token.run_sync_soon

    class Token:
        def run_sync_soon(self, function: Callable[..., object]) -> None:
            if not behind:
                behind.append(loop.submit(trio.sleep_forever))
            wake(function)

    ending.go_on()
    loop._token = Token()  # type: ignore[assignment]
    for late in (loop.submit(trio.sleep_forever), behind[0]):
        assert isinstance(late.exception(SECONDS), LoopEnded)
    assert not loop._started


def end_of_thread(call: Callable[[], object]) -> Future[object]:
    """Returns the future of a call in a thread of its own."""
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return ended
