"""Held pulls: the ones that a message wakes, the messages they take, and that no trace of them stays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker.clients.held_pulls import (
    TICKS_A_SECOND,
    WOKEN_AT_ONCE,
    HeldLimits,
    HeldPulls,
    held_bytes,
)
from pyrmq_core.servers.broker.store.formats import ENTRY
from tests.servers.broker.test_tables import A, B

KEY = ("T", 0)
LIMITS = HeldLimits(pulls=1000, pulls_of_connection=900, held_bytes=10_000, bytes_of_connection=5_000)


@asynccontextmanager
async def running(held: HeldPulls) -> AsyncIterator[trio.Nursery]:
    """Runs the task of held pulls, and yields a nursery of tasks that end before it."""
    async with trio.open_nursery() as services:
        services.start_soon(held.run)
        async with trio.open_nursery() as nursery:
            yield nursery
        services.cancel_scope.cancel()


def entry(code: int) -> bytes:
    return ENTRY.pack(0, 100, code)


async def test_pulls_are_woken_by_their_tags_alone_and_each_once(autojump_clock: trio.testing.MockClock) -> None:
    held, woken = HeldPulls(LIMITS), list[str]()

    async def wait(name: str, codes: frozenset[int] | None) -> None:
        await held.wait(KEY, codes, 60_000, A, 1)
        woken.append(name)

    async with running(held) as nursery:
        for name, codes in (
            ("any", None),
            ("one", frozenset({1})),
            ("two", frozenset({1, 2})),
            ("three", frozenset({3})),
        ):
            nursery.start_soon(wait, name, codes)
        await trio.testing.wait_all_tasks_blocked()
        held.wake(KEY, entry(2) + entry(2))
        held.wake(KEY, entry(2))
        held.wake(("T", 1), entry(3))
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(woken), held.count) == (["any", "two"], 2)
        held.wake(KEY, entry(1))
        await trio.testing.wait_all_tasks_blocked()
        assert (woken[2:], trio.current_time() < 60) == (["one"], True)
    assert (woken[3:], held.count, held._queues, held._of_peers) == (["three"], 0, {}, {})


async def test_many_are_woken_in_turns(autojump_clock: trio.testing.MockClock) -> None:
    held, woken = HeldPulls(LIMITS), list[int]()

    async def wait(number: int) -> None:
        await held.wait(KEY, None, 60_000, A, 1)
        woken.append(number)

    async with running(held) as nursery:
        for number in range(5 * WOKEN_AT_ONCE):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        held.wake(KEY, entry(1))
        turns = 0
        while len(woken) < 5 * WOKEN_AT_ONCE:
            before = len(woken)
            await trio.lowlevel.checkpoint()
            assert len(woken) - before <= 2 * WOKEN_AT_ONCE
            turns += 1
        assert turns >= 4
        assert (held.count, held._queues) == (0, {})


async def test_pulls_of_a_group_are_woken_whatever_they_want(autojump_clock: trio.testing.MockClock) -> None:
    held, woken = HeldPulls(LIMITS), list[str]()

    async def wait(name: str, group: str, codes: frozenset[int] | None, queue_id: int = 0) -> None:
        await held.wait(("T", queue_id), codes, 60_000, A, 1, group)
        woken.append(name)

    async with running(held) as nursery:
        nursery.start_soon(wait, "tags", "g", frozenset({1, 2}))
        nursery.start_soon(wait, "any", "g", None)
        nursery.start_soon(wait, "other group", "h", None)
        nursery.start_soon(wait, "other queue", "g", None, 1)
        await trio.testing.wait_all_tasks_blocked()
        held.wake_group(KEY, "g")
        held.wake_group(KEY, "g")
        held.wake_group(("U", 0), "g")
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(woken), held.count) == (["any", "tags"], 2)
        assert trio.current_time() < 60
    assert (held.count, held._queues, held._of_peers) == (0, {}, {})


@pytest.mark.parametrize("timeout_ms", [-(2**63), 0, 1, 2**63 - 1])
async def test_any_time_is_borne(autojump_clock: trio.testing.MockClock, timeout_ms: int) -> None:
    held = HeldPulls(LIMITS)
    with trio.fail_after(4_000):
        async with running(held):
            await held.wait(KEY, None, timeout_ms, A, 1)


async def test_pulls_end_in_the_order_of_their_times(
    autojump_clock: trio.testing.MockClock,
) -> None:
    held, ended = HeldPulls(LIMITS), dict[int, float]()

    async def wait(timeout_ms: int) -> None:
        await held.wait(KEY, None, timeout_ms, A, 1)
        ended[timeout_ms] = trio.current_time()

    async with running(held) as nursery:
        began = trio.current_time()
        for timeout_ms in (20_000, 23, 15_000, 3, 15_020, 20_020):
            nursery.start_soon(wait, timeout_ms)
            await trio.testing.wait_all_tasks_blocked()
    assert list(ended) == sorted(ended)
    for timeout_ms, at in ended.items():
        assert 0 <= at - began - timeout_ms / 1000 <= 1.01 / TICKS_A_SECOND
    assert (held.count, held._queues, held._of_peers, held._deadlines._of_tick) == (0, {}, {}, {})


async def test_a_dropped_pull_is_not_woken_and_leaves_no_trace(autojump_clock: trio.testing.MockClock) -> None:
    held, woken = HeldPulls(LIMITS), list[int]()
    async with running(held):
        pulls = [
            held.add(KEY, None, 100 * number, A, 1, "g", partial(woken.append, number))
            for number in range(3 * WOKEN_AT_ONCE)
        ]
        held.drop(pulls[0])
        held.wake(KEY, entry(1))
        for pull in pulls:  # the last of them have not had their turn
            held.drop(pull)
        assert woken == list(range(1, WOKEN_AT_ONCE + 1))
        await trio.sleep(100)
    assert woken == list(range(1, WOKEN_AT_ONCE + 1))
    assert (held.count, held._queues, held._of_peers, held._deadlines._of_tick) == (0, {}, {}, {})


async def test_pulls_whose_time_ends_as_they_wait_for_their_turn_are_woken_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    held, woken = HeldPulls(LIMITS), list[int]()
    count = 3 * WOKEN_AT_ONCE
    for number in range(count):
        held.add(KEY, None if number % 2 else frozenset({1, 2}), 0, A, 1, "g", partial(woken.append, number))
    held.wake(KEY, entry(1))
    held.wake_group(KEY, "g")
    assert (len(woken), held.count, held._queues) == (WOKEN_AT_ONCE, count - WOKEN_AT_ONCE, {})
    async with running(held):
        await trio.sleep(1)
    assert sorted(woken) == list(range(count))
    assert (held.count, held._queues, held._of_peers, held._deadlines._of_tick) == (0, {}, {}, {})


async def test_number_and_bytes_are_bounded_for_all_and_for_each_connection() -> None:
    held = HeldPulls(HeldLimits(pulls=3, pulls_of_connection=2, held_bytes=100, bytes_of_connection=60))
    assert (held.has_room(A, 60), held.has_room(A, 61)) == (True, False)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(held.wait, KEY, None, 60_000, A, 20)
        await trio.testing.wait_all_tasks_blocked()
        assert (held.has_room(A, 1), held.has_room(B, 60), held.has_room(B, 61)) == (False, True, False)
        nursery.start_soon(held.wait, KEY, None, 60_000, B, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert not held.has_room(B, 1)
        nursery.cancel_scope.cancel()
    assert (held.count, held.has_room(A, 60)) == (0, True)


def test_a_connection_that_may_hold_none_holds_no_first_one() -> None:
    held = HeldPulls(HeldLimits(pulls=3, pulls_of_connection=0, held_bytes=100, bytes_of_connection=60))
    assert not held.has_room(A, 1)


def test_a_held_request_counts_with_all_it_brings() -> None:
    bare = held_bytes(Command(11), None)
    assert held_bytes(Command(11, {"subscription": "x" * 1000}), None) >= bare + 1000
    assert held_bytes(Command(11, body=b"x" * 5000), None) == bare + 5000
    assert held_bytes(Command(11), frozenset(range(1000))) > bare + 50_000
