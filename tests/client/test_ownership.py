"""Ownership of errors: errors of users and of sends come out of every `async with` as they are, ungrouped."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from pyrmq_core import AnyQueue, Client, Message, MessageQueue, Producer, PullConsumer, SendFailed
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.payload import encode_one
from tests.support.scripted import SEND, refuse
from tests.support.stage import Stage

BlockingFace = Callable[[Stage], AbstractAsyncContextManager[object]]


@asynccontextmanager
async def a_window(stage: Stage) -> AsyncIterator[object]:
    async with Producer("g", nameserver=stage.nameserver.address) as producer, producer.open_window() as window:
        await window.put(encode_one(Message("orders", b"x"), "1"), AnyQueue())
        yield window


@asynccontextmanager
async def a_read(stage: Stage) -> AsyncIterator[object]:
    for _ in range(100):
        stage.stores["broker-a"].put("orders", 0, b"x")
    async with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
        await consumer.message_queues("orders")
        async with consumer.read(MessageQueue("orders", "broker-a", 0), 0, 100) as pulls:
            await anext(pulls)
            yield pulls


@asynccontextmanager
async def a_busy_producer(stage: Stage) -> AsyncIterator[object]:
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        for _ in range(10):
            await producer.send_soon(Message("orders", b"x"))
        yield producer


OPENINGS: dict[str, BlockingFace] = {
    "a client": lambda stage: Client(nameserver=stage.nameserver.address),
    "a producer": lambda stage: Producer("g", nameserver=stage.nameserver.address),
    "a busy producer": a_busy_producer,
    "a consumer": lambda stage: PullConsumer("g", nameserver=stage.nameserver.address),
    "a window": a_window,
    "a read": a_read,
    "a nursery": lambda stage: open_owned_nursery(),
}


class MyOwnError(BaseException):
    """Not even an Exception, as KeyboardInterrupt and SystemExit are not."""


@pytest.mark.parametrize("what", OPENINGS)
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), SystemExit(3), MyOwnError("mine")])
async def test_a_users_error_comes_out_as_it_is(stage: Stage, what: str, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with OPENINGS[what](stage):
            raise error
    assert caught.value is error


@pytest.mark.parametrize("what", OPENINGS)
async def test_a_cancelled_block_ends_quietly(stage: Stage, what: str) -> None:
    with trio.fail_after(60), trio.CancelScope() as scope:
        async with OPENINGS[what](stage):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


@pytest.mark.parametrize("what", OPENINGS)
async def test_a_block_cancelled_before_it_begins_ends_quietly(stage: Stage, what: str) -> None:
    with trio.fail_after(60), trio.CancelScope() as scope:
        scope.cancel()
        async with OPENINGS[what](stage):
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught


async def test_except_send_failed_works_around_the_producer(stage: Stage) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(14))
    failures = []
    try:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            await producer.send(Message("orders", b"x"))
    except SendFailed as error:
        failures.append(error)
    assert len(failures) == 1


async def test_a_crashed_task_of_the_owner_ends_the_block() -> None:
    """A defect of ours is no user's error: it is not hidden, and the block does not go on without its task."""

    async def crash() -> None:
        raise ZeroDivisionError

    async def owner() -> None:
        async with open_owned_nursery() as nursery:
            nursery.start_soon(crash)
            await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await owner()
    assert caught.value.subgroup(ZeroDivisionError) is not None


async def test_tasks_end_with_the_block() -> None:
    ended = trio.Event()

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with open_owned_nursery() as nursery:
        nursery.start_soon(work)
        await trio.testing.wait_all_tasks_blocked()
    assert ended.is_set()


def test_ctrl_c_ends_a_program_at_once() -> None:
    """SIGINT during a send: trio.run raises KeyboardInterrupt alone, not in a group."""

    async def main() -> None:
        async with Producer("g", nameserver="127.0.0.1:1") as producer:
            signal.raise_signal(signal.SIGINT)
            await producer.send(Message("orders", b"x"), timeout=30)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            trio.run(main)
    finally:
        signal.signal(signal.SIGINT, before)
