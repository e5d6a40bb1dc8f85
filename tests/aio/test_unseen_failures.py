"""Failures of asyncio futures that no task looks at: reported when dropped, and counted at the producer's end."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

from pyrmq_core import Message, SendFailed
from pyrmq_core.aio import Producer
from pyrmq_core.protocol.framing.codes import ResponseCode
from tests.support.scripted import BATCH, SEND, refuse
from tests.support.stage import Stage

Lines = Callable[[], list[str]]


@pytest.fixture
def full(stage: Stage) -> Stage:
    """Brokers that store nothing."""
    for server in stage.brokers.values():
        for code in (SEND, BATCH):
            server.always(code, refuse(ResponseCode.SYSTEM_ERROR, "disk full"))
    return stage


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    """The library's warnings so far."""

    def warnings() -> list[str]:
        gc.collect()
        return [
            record.getMessage()
            for record in caplog.records
            if record.levelno >= logging.WARNING and record.name.startswith("pyrmq_core")
        ]

    return warnings


@pytest.mark.parametrize("batching", [False, True])
def test_a_program_that_looks_at_nothing_hears_of_it(full: Stage, lines: Lines, batching: bool) -> None:
    handled: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: handled.append(context["exception"]))
        async with Producer("shop", nameserver=full.nameserver.address, batching=batching) as producer:
            for number in range(50):
                await producer.send_soon(Message("orders", b"%d" % number))
        gc.collect()

    asyncio.run(main())
    dropped, last = sorted(lines())
    assert dropped.startswith("a background send of producer shop failed, and its result was dropped unseen: ")
    assert last.startswith("producer shop ends, and the program has not looked at the failures of 50 of its background")
    assert [type(error) for error in handled] == [SendFailed] * 50  # asyncio's own reports


def test_the_end_counts_what_the_program_still_has(full: Stage, lines: Lines) -> None:
    async def main() -> None:
        async with Producer("shop", nameserver=full.nameserver.address) as producer:
            futures: list[asyncio.Future[Any]] = [
                await producer.send_soon(Message("orders", b"x")),
                await producer.send_batch_soon([Message("orders", b"x")]),
                await producer.send_soon(Message("orders", b"x"), select=lambda queues, _: queues[0]),
                await producer.send_soon(Message("orders", b"x")),
            ]
            with pytest.raises(SendFailed):
                await futures[-1]
        (line,) = lines()
        assert "failures of 3 of its background sends" in line
        assert all(isinstance(future.exception(), SendFailed) for future in futures)

    asyncio.run(main())
    assert len(lines()) == 1


def test_failures_that_were_looked_at_leave_no_line(full: Stage, lines: Lines) -> None:
    async def main() -> None:
        async with Producer("shop", nameserver=full.nameserver.address) as producer:
            for _ in range(5):
                with pytest.raises(SendFailed):
                    await (await producer.send_soon(Message("orders", b"x")))
            futures = [await producer.send_soon(Message("orders", b"x")) for _ in range(5)]
            ends = await asyncio.gather(*futures, return_exceptions=True)
            assert [type(end) for end in ends] == [SendFailed] * 5
            with pytest.raises(SendFailed):
                await producer.send(Message("orders", b"x"))

    asyncio.run(main())
    assert lines() == []


def test_a_task_that_waits_at_the_end_looks_at_it(full: Stage, lines: Lines) -> None:
    async def waited(future: asyncio.Future[Any]) -> None:
        with pytest.raises(SendFailed):
            await future

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks, Producer("shop", nameserver=full.nameserver.address) as producer:
            for _ in range(20):
                tasks.create_task(waited(await producer.send_soon(Message("orders", b"x"))))

    asyncio.run(main())
    assert lines() == []
