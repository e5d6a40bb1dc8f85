"""Receives that are cancelled or interrupted when messages are on their way to them: these come again at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import pytest
import trio

from pyrmq_core import PopConsumer, aio, blocking
from pyrmq_core.loop_thread.portal import portal
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.pop.settle import ChangeInvisibleTime
from tests.blocking.test_interrupts import interrupted_at
from tests.consuming.test_pop import GROUP, SECONDS, TOPIC, Scene, scene
from tests.support.waiting import until

CHANGE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME


def given_back(at: Scene) -> list[int]:
    """Returns the offsets of the messages that are visible again."""
    changes = map(ChangeInvisibleTime.from_command, at.of(CHANGE))
    return [change.offset for change in changes if change.invisible_ms == 1]


def settings_of(at: Scene) -> dict[str, Any]:
    return {"nameserver": at.consumer._settings.nameserver}


async def test_a_consumer_that_closes_ends_giving_back_what_a_cancelled_receive_got() -> None:
    async with scene() as at:
        async with PopConsumer(GROUP, **settings_of(at)) as consumer:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.receive, TOPIC, 2, 60.0)
                await at.server.wait_seen(RequestCode.POP_MESSAGE)
                nursery.cancel_scope.cancel()
            at.broker.add(b"one", b"two")
            await at.server.wait_seen(CHANGE)
        assert sorted(given_back(at)) == [0, 1]


class CancelBefore(trio.abc.Instrument):
    """Cancels a scope before a step of the task that pops, so that both tasks run in the same turn of the loop."""

    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self._left = step
        self._scope = scope

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name.endswith("._run_pop"):
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def test_a_receive_that_is_cancelled_at_any_step_of_its_pop_loses_no_message() -> None:
    async with scene() as at:
        assert await at.consumer.receive(TOPIC, wait=0) == []  # later pops need no look-up, and have two or three steps
        received: set[int] = set()
        for step in 30 * (1, 2, 3, 4):
            at.broker.add(b"one")
            with trio.CancelScope() as scope:
                instrument = CancelBefore(step, scope)
                trio.lowlevel.add_instrument(instrument)
                try:
                    deliveries = await at.consumer.receive(TOPIC, 32, wait=0)
                    received.update(delivery.message.queue_offset for delivery in deliveries)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
        assert received
        with trio.fail_after(SECONDS):
            await until(lambda: set(range(at.broker.offset)) <= {*given_back(at), *received})


async def test_messages_that_an_asyncio_task_was_cancelled_before_it_got_are_given_back() -> None:
    """The task has no turn between the end of its call on the library's loop and its cancellation."""

    async def work(settings: dict[str, Any]) -> None:
        async with aio.PopConsumer(GROUP, **settings) as consumer:
            before = set(portal()._started)
            task = asyncio.create_task(consumer.receive(TOPIC, 2))
            await asyncio.sleep(0)
            concurrent.futures.wait(set(portal()._started) - before)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    async with scene() as at:
        at.broker.add(b"one", b"two")
        with trio.fail_after(SECONDS):
            await trio.to_thread.run_sync(lambda: asyncio.run(work(settings_of(at))))
        assert sorted(given_back(at)) == [0, 1]


async def test_an_interrupted_blocking_receive_loses_no_message() -> None:
    """Interrupted at each of its steps in turn. At the last one its messages are already those of the caller."""
    async with scene() as at:

        def work() -> None:
            with blocking.PopConsumer(GROUP, **settings_of(at)) as consumer:
                popped = [0]
                while True:
                    trio.from_thread.run_sync(at.broker.add, b"one")
                    if not interrupted_at(len(popped), lambda: consumer.receive(TOPIC, 32, wait=0)):
                        break
                    popped.append(at.broker.offset)
                assert popped[-2] > 0
                trio.from_thread.run(until, lambda: set(given_back(at)) >= set(range(popped[-2])))

        with trio.fail_after(SECONDS):
            await trio.to_thread.run_sync(work)
