"""Failures of background sends that the program does not look at: reported when dropped, and at the producer's end."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio

from pyrmq_core import Message, Producer, SendFailed
from pyrmq_core.client.producer.bulk.pending_sends import Pending
from pyrmq_core.protocol.framing.codes import ResponseCode
from tests.support.scripted import BATCH, SEND, refuse, silence
from tests.support.stage import Stage

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The warnings so far."""

    def warnings() -> list[str]:
        gc.collect()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    return warnings


@pytest.fixture
def full(stage: Stage) -> Stage:
    """Brokers that store nothing."""
    for server in stage.brokers.values():
        for code in (SEND, BATCH):
            server.always(code, refuse(ResponseCode.SYSTEM_ERROR, "disk full"))
    return stage


@pytest.fixture(params=[False, True], ids=["alone", "batching"])
async def producer(full: Stage, request: pytest.FixtureRequest) -> AsyncIterator[Producer]:
    async with Producer("shop", nameserver=full.nameserver.address, batching=request.param) as producer:
        yield producer


async def ended(pending: Pending[Any]) -> None:
    """Waits until the send has ended, without a look at its end."""
    event = trio.Event()
    pending.add_done_callback(lambda _: event.set())
    await event.wait()


async def test_a_dropped_failure_is_reported(producer: Producer, lines: Lines) -> None:
    pending = await producer.send_soon(Message("orders", b"secret"))
    await ended(pending)
    assert lines() == []
    del pending
    (line,) = lines()
    assert line.startswith(
        "a background send of producer shop failed, and its result was dropped unseen: Send [1] times"
    )
    assert "disk full" in line
    assert "secret" not in line


async def test_a_dropped_list_is_reported(producer: Producer, lines: Lines) -> None:
    pending = await producer.send_batch_soon([Message("orders", b"x"), Message("orders", b"y")])
    await ended(pending)
    del pending
    (line,) = lines()
    assert "dropped unseen" in line


async def test_many_dropped_failures_are_one_line_and_a_count_at_the_end(full: Stage, lines: Lines) -> None:
    async with Producer("shop", nameserver=full.nameserver.address) as producer:
        for _ in range(50):
            await producer.send_soon(Message("orders", b"x"))
    dropped, last = sorted(lines())
    assert "dropped unseen" in dropped
    assert last.startswith(
        "producer shop ends, and the program has not looked at the failures of 50 of its background sends; "
        "wait for the result of each. The first: Send [1] times"
    )


async def test_the_end_counts_what_the_program_still_has(full: Stage, lines: Lines) -> None:
    async with Producer("shop", nameserver=full.nameserver.address) as producer:
        pendings = [await producer.send_soon(Message("orders", b"x")) for _ in range(5)]
        for pending in pendings[:2]:
            with pytest.raises(SendFailed):
                await pending.wait()
    (line,) = lines()
    assert "failures of 3 of its background sends" in line
    for pending in pendings:
        assert isinstance(pending.error, SendFailed)
    del pending, pendings
    assert lines() == [line]  # looked at in the end


async def waited(pending: Pending[Any]) -> None:
    with pytest.raises(SendFailed):
        await pending.wait()


async def read_error(pending: Pending[Any]) -> None:
    await ended(pending)
    assert isinstance(pending.error, SendFailed)


async def read_result(pending: Pending[Any]) -> None:
    await ended(pending)
    with pytest.raises(SendFailed):
        _ = pending.result


async def read_in_callback(pending: Pending[Any]) -> None:
    errors: list[object] = []
    pending.add_done_callback(lambda it: errors.append(it.error))
    await ended(pending)
    assert errors


@pytest.mark.parametrize("look", [waited, read_error, read_result, read_in_callback])
async def test_a_failure_that_was_looked_at_is_not_reported(
    full: Stage, lines: Lines, look: Callable[[Pending[Any]], Awaitable[None]]
) -> None:
    async with Producer("shop", nameserver=full.nameserver.address) as producer:
        pending: Pending[Any] = await producer.send_soon(Message("orders", b"x"))
        await look(pending)
        del pending
    assert lines() == []


async def test_a_task_that_waits_at_the_end_looks_at_it(full: Stage, lines: Lines) -> None:
    async with trio.open_nursery() as nursery, Producer("shop", nameserver=full.nameserver.address) as producer:
        for _ in range(20):
            nursery.start_soon(waited, await producer.send_soon(Message("orders", b"x")))
    assert lines() == []


async def test_a_wait_that_was_cancelled_is_no_look(full: Stage, lines: Lines) -> None:
    async with Producer("shop", nameserver=full.nameserver.address) as producer:
        pending = await producer.send_soon(Message("orders", b"x"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await pending.wait()
        await ended(pending)
        del pending
    assert sorted(line.partition(",")[0] for line in lines()) == [
        "a background send of producer shop failed",
        "producer shop ends",
    ]


async def test_a_block_that_ends_with_an_error_says_what_it_gave_up(stage: Stage, lines: Lines) -> None:
    for server in stage.brokers.values():
        server.always(SEND, silence)
    pendings = []

    async def broken() -> None:
        async with Producer("shop", nameserver=stage.nameserver.address) as producer:
            pendings.append(await producer.send_soon(Message("orders", b"x")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await broken()
    (line,) = lines()
    assert "failures of 1 of its background sends" in line
    assert "the producer was closed while a message for orders was under way" in line
    assert pendings[0].error is not None


async def test_sends_that_are_waited_for_leave_no_line(producer: Producer, lines: Lines) -> None:
    with pytest.raises(SendFailed):
        await producer.send(Message("orders", b"x"))
    with pytest.raises(SendFailed):
        await producer.send_batch([Message("orders", b"x")])
    with trio.CancelScope() as scope:
        scope.cancel()
        await producer.send(Message("orders", b"x"))
    assert lines() == []


async def test_stored_sends_leave_no_line(stage: Stage, lines: Lines) -> None:
    async with Producer("shop", nameserver=stage.nameserver.address) as producer:
        for _ in range(20):
            await producer.send_soon(Message("orders", b"x"))
    assert lines() == []
