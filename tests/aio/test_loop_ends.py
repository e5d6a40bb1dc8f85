"""Asyncio loops that begin, end and are interrupted around a call, each at a moment that the test chooses."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest
import trio

from pyrmq_core import Message, MessageQueue
from pyrmq_core.aio import Client, Producer
from pyrmq_core.aio import face as faces
from pyrmq_core.aio.loop_returns import here, on_library_loop
from pyrmq_core.loop_thread.portal import portal
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
SECONDS = 60


class WatchedLock:
    """A lock that sets `contended` when a thread has to wait for it."""

    def __init__(self) -> None:
        self.contended = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.contended.set()
            assert self._lock.acquire(timeout=SECONDS)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Gate:
    """A call on the library's loop that is under way until `open`."""

    def __init__(self) -> None:
        self._opened = trio.Event()
        self.begun = threading.Event()

    async def call(self) -> str:
        self.begun.set()
        await self._opened.wait()
        return threading.current_thread().name

    def open(self) -> None:
        portal().soon(self._opened.set)


def noted_returns() -> threading.Event:
    """Returns an event that is set when a result has come back to this thread's asyncio loop, run by it or not."""
    returns, came = here(), threading.Event()
    soon = returns.soon

    def noted(function: Callable[..., object], *args: object) -> bool:
        try:
            return soon(function, *args)
        finally:
            came.set()

    returns.soon = noted  # type: ignore[method-assign]
    return came


def test_two_loops_in_two_threads_wait_at_once() -> None:
    """Each result comes back to its own loop, though both calls are under way together."""
    gates, together, outcomes = [Gate(), Gate()], threading.Barrier(2), dict[int, tuple[bool, str]]()

    def program(place: int) -> None:
        async def main() -> None:
            task = asyncio.create_task(on_library_loop(gates[place].call))
            await asyncio.to_thread(together.wait, SECONDS)
            gates[1 - place].open()  # the other's
            async with asyncio.timeout(SECONDS):
                name = await task
            outcomes[place] = threading.current_thread() is threads[place], name

        asyncio.run(main(), debug=True)

    threads = [threading.Thread(target=program, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * SECONDS)
    assert outcomes == {0: (True, "pyrmq-loop"), 1: (True, "pyrmq-loop")}


def test_two_loops_open_a_producer_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = WatchedLock()
    monkeypatch.setattr(faces, "_lock", lock)
    producer = Producer("g", nameserver=stage.nameserver.address)
    make, makes = producer._make, [0]

    async def open_it() -> None:
        await producer.open()

    second = threading.Thread(target=asyncio.run, args=(open_it(),))

    def made(client: object) -> object:
        makes[0] += 1
        if makes[0] == 1:
            second.start()
            assert lock.contended.wait(SECONDS), "the second loop did not wait"
        else:
            lock.contended.set()
        return make(client)  # type: ignore[arg-type]

    producer._make = made  # type: ignore[assignment]

    async def main() -> None:
        await producer.open()
        await asyncio.to_thread(second.join, SECONDS)
        assert (await producer.send(Message("orders", b"x"), queue=A0)).queue_offset == 0
        await producer.close()

    asyncio.run(main())
    assert makes == [1]


def test_a_call_that_is_cancelled_just_when_it_has_ended() -> None:
    problems: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        came, gate = noted_returns(), Gate()
        task = asyncio.create_task(on_library_loop(gate.call))
        await asyncio.sleep(0)
        gate.open()
        assert came.wait(SECONDS)  # the result waits for this loop, which this line holds
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other = Gate()
        other.open()
        assert await on_library_loop(other.call) == "pyrmq-loop"

    asyncio.run(main())
    assert problems == []


def test_each_program_of_a_process_has_a_client_of_its_own(stage: Stage) -> None:
    async def main() -> int:
        async with (
            asyncio.timeout(SECONDS),
            Client(nameserver=stage.nameserver.address) as client,
            Producer("g", client=client) as producer,
        ):
            await (await producer.send_soon(Message("orders", b"x"), queue=A0))
            return (await producer.send(Message("orders", b"y"), queue=A0)).queue_offset

    assert [asyncio.run(main()) for _ in range(3)] == [1, 3, 5]


def test_a_loop_that_is_closed_while_a_call_is_under_way(caplog: pytest.LogCaptureFixture) -> None:
    """The call goes on to its end, its result is dropped without a word, and the next loop of the thread works."""
    gate, loop = Gate(), asyncio.new_event_loop()

    async def begin() -> tuple[asyncio.Task[str], threading.Event]:
        came = noted_returns()
        task = asyncio.create_task(on_library_loop(gate.call))
        await asyncio.sleep(0)
        return task, came

    task, came = loop.run_until_complete(begin())
    assert gate.begun.wait(SECONDS)
    loop.close()
    with caplog.at_level(logging.WARNING):
        gate.open()
        assert came.wait(SECONDS)
        portal().run(trio.lowlevel.checkpoint)
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    other = Gate()
    other.open()
    assert asyncio.run(asyncio.wait_for(on_library_loop(other.call), SECONDS)) == "pyrmq-loop"
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_interrupt_of_the_loop_ends_the_call_first() -> None:
    """A second Ctrl-C is raised where the loop runs; the call still ends before `asyncio.run` does."""
    ends, loops = list[str](), list[asyncio.AbstractEventLoop]()

    async def call() -> None:
        try:
            loops[0].call_soon_threadsafe(interrupt)
            await trio.sleep_forever()
        finally:
            ends.append("call")

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            await on_library_loop(call)
        finally:
            ends.append("task")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert ends == ["call", "task"]
