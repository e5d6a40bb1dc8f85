"""The answers that viewers share: one look-up for all of them, and a rate that no number of viewers exceeds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from pyrmq_core.errors import NoRoute
from pyrmq_core.tools.web import shared_answers
from pyrmq_core.tools.web.look_up_queue import BURST, LOOK_UPS_A_SECOND, TooManyLookUps
from pyrmq_core.tools.web.shared_answers import FRESH_SECONDS, SharedAnswers


class Source:
    """An answer that takes a second, and counts how often it was asked for."""

    def __init__(self) -> None:
        self.times: list[float] = []

    async def look_up(self) -> int:
        self.times.append(trio.current_time())
        await trio.sleep(1)
        return len(self.times)


async def test_viewers_share_one_look_up(autojump_clock: trio.testing.MockClock) -> None:
    shared, source, answers = SharedAnswers(), Source(), list[int]()

    async def view() -> None:
        answers.append(await shared.get("key", source.look_up))

    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(view)
    assert (answers, len(source.times)) == ([1] * 100, 1)


async def test_an_answer_is_fresh_for_a_while(autojump_clock: trio.testing.MockClock) -> None:
    shared, source = SharedAnswers(), Source()
    assert await shared.get("key", source.look_up) == 1
    await trio.sleep(FRESH_SECONDS - 0.1)
    assert await shared.get("key", source.look_up) == 1
    await trio.sleep(0.2)
    assert await shared.get("key", source.look_up) == 2
    shared.forget()
    assert await shared.get("key", source.look_up) == 3


async def test_an_error_is_shared_and_forgotten(autojump_clock: trio.testing.MockClock) -> None:
    shared, calls = SharedAnswers(), list[int]()

    async def fails() -> int:
        calls.append(1)
        raise NoRoute("there is none", topic="T")

    for _ in range(3):
        with pytest.raises(NoRoute):
            await shared.get("key", fails)
    await trio.sleep(FRESH_SECONDS + 0.1)
    with pytest.raises(NoRoute):
        await shared.get("key", fails)
    assert len(calls) == 2


async def test_a_viewer_that_goes_leaves_the_others_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    shared, source, answers = SharedAnswers(), Source(), list[int]()

    async def view(scope: trio.CancelScope) -> None:
        with scope:
            answers.append(await shared.get("key", source.look_up))

    first = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view, first)
        await trio.sleep(0.5)
        nursery.start_soon(view, trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        first.cancel()
    assert (answers, len(source.times)) == ([2], 2)


async def in_parallel(shared: SharedAnswers, calls: int, look_up: Callable[[], Awaitable[int]]) -> int:
    """Makes calls of different keys at once; returns how many were refused."""
    refused = 0

    async def view(key: int) -> None:
        nonlocal refused
        try:
            await shared.get(key, look_up)
        except TooManyLookUps:
            refused += 1

    async with trio.open_nursery() as nursery:
        for key in range(calls):
            nursery.start_soon(view, key)
    return refused


async def test_look_ups_keep_to_their_rate(autojump_clock: trio.testing.MockClock) -> None:
    shared, times = SharedAnswers(), list[float]()

    async def look_up() -> int:
        times.append(trio.current_time())
        return 0

    await trio.sleep(10)
    began = trio.current_time()
    refused = await in_parallel(shared, 1000, look_up)
    assert refused == 1000 - len(times)
    assert refused > 0
    for second in range(1, 7):
        begun = sum(1 for at in times if at < began + second)
        assert begun <= BURST + second * LOOK_UPS_A_SECOND + 1
    await trio.sleep(60)
    assert await in_parallel(shared, BURST, look_up) == 0


async def test_a_viewer_of_the_same_key_waits_for_no_longer_than_its_own_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    shared, begun = SharedAnswers(), list[int]()

    async def view(key: int, address: str) -> None:
        async def look_up() -> None:
            begun.append(key)

        await shared.get(key, look_up, address=address)

    async with trio.open_nursery() as nursery:
        last = BURST + 60
        for key in range(last):
            nursery.start_soon(view, key, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(view, last, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        place = len(begun)
        await view(last, "reader")
        assert begun.index(last) <= place + 1
    assert begun.count(last) == 1


async def test_answers_take_bounded_room(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "MAX_ANSWERS", 10)
    shared, source = SharedAnswers(), Source()
    for key in range(30):
        await shared.get(key, source.look_up)
    assert len(shared._slots) <= 11


async def test_large_answers_take_bounded_room(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_answers, "MAX_ANSWERS_BYTES", 100)
    shared, sources = SharedAnswers(), [Source() for _ in range(3)]
    for number, source in enumerate(sources):
        await shared.get(number, source.look_up, 60.0, size_of=lambda _: 40)
    await shared.get(1, sources[1].look_up, 60.0)
    await shared.get(0, sources[0].look_up, 60.0)
    assert [len(source.times) for source in sources] == [2, 1, 1]
    assert await shared.get("alone", sources[2].look_up, 60.0, size_of=lambda _: 101) == 2
    assert sum(slot.size_bytes for slot in shared._slots.values()) <= 100


async def test_answers_that_are_not_fresh_are_dropped(autojump_clock: trio.testing.MockClock) -> None:
    shared, source = SharedAnswers(), Source()
    for number in range(5):
        await shared.get(number, source.look_up)
        await trio.sleep(FRESH_SECONDS)
    assert len(shared._slots) <= 2


async def test_an_answer_of_once_is_not_kept_and_has_its_turn(autojump_clock: trio.testing.MockClock) -> None:
    shared, source = SharedAnswers(), Source()
    async with trio.open_nursery() as nursery:
        for _ in range(2 * BURST):
            nursery.start_soon(shared.once, source.look_up)
        await trio.sleep(2)
        assert len(source.times) <= BURST
        nursery.cancel_scope.cancel()
    assert not shared._slots
