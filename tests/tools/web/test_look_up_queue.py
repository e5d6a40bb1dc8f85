"""Turns of look-ups: an address that asks for many waits for itself, and keeps no other waiting."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
import trio.testing

from pyrmq_core.tools.web.look_up_queue import (
    BURST,
    LONGEST_WAIT_SECONDS,
    LOOK_UPS_A_SECOND,
    LOOK_UPS_AT_ONCE,
    LookUpQueue,
    TooManyLookUps,
    WaitingLookUp,
)

BETWEEN = 1 / LOOK_UPS_A_SECOND


class Board:
    """Turns, and the addresses whose look-ups began, in that order; each look-up takes so many seconds."""

    def __init__(self, took: float = 0.0, at_once: int = LOOK_UPS_AT_ONCE) -> None:
        self.queue = LookUpQueue(at_once)
        self.took = took
        self.begun: list[str] = []
        self.refused: Counter[str] = Counter()

    async def look(self, address: str) -> None:
        try:
            async with self.queue.admitted(WaitingLookUp(), address):
                self.begun.append(address)
                await trio.sleep(self.took)
        except TooManyLookUps:
            self.refused[address] += 1

    def assert_empty(self) -> None:
        """Checks that nothing is kept of any address."""
        assert (self.queue._lines, self.queue._under_way, self.queue._paced) == ({}, {}, None)


async def test_one_greedy_address_starves_no_other(autojump_clock: trio.testing.MockClock) -> None:
    board = Board()
    async with trio.open_nursery() as nursery:
        for _ in range(BURST + 60):
            nursery.start_soon(board.look, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):  # a page has a few look-ups, one after another
            began = trio.current_time()
            await board.look("reader")
            assert trio.current_time() - began <= 2 * BETWEEN + 0.001
    assert not board.refused
    board.assert_empty()


async def test_one_at_a_time_goes_to_the_next_address(autojump_clock: trio.testing.MockClock) -> None:
    board = Board(took=1.0, at_once=1)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(board.look, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(board.look, "reader")
    assert board.begun == ["greedy", "greedy", "reader", "greedy", "greedy"]  # its turn comes behind a waiting one
    board.assert_empty()


async def test_addresses_have_the_rate_in_equal_parts(autojump_clock: trio.testing.MockClock) -> None:
    board = Board()
    await trio.sleep(60)
    async with trio.open_nursery() as nursery:
        for address, looks in (("greedy", BURST + 60), ("second", 20), ("third", 20)):
            for _ in range(looks):
                nursery.start_soon(board.look, address)
            await trio.testing.wait_all_tasks_blocked()
    assert board.begun[:BURST] == ["greedy"] * BURST
    assert Counter(board.begun[BURST : BURST + 30]) in (
        {"greedy": 10, "second": 10, "third": 10},
        {"greedy": 11, "second": 10, "third": 9},
    )
    board.assert_empty()


async def test_one_address_alone_has_the_whole_rate(autojump_clock: trio.testing.MockClock) -> None:
    board = Board()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(board.look, "proxy")
    assert len(board.begun) == 60
    assert trio.current_time() - began <= 60 * BETWEEN


async def test_slow_brokers_under_a_greedy_address_keep_others_waiting_for_one_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    board = Board(took=1.0)
    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(board.look, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        assert len(board.begun) == LOOK_UPS_AT_ONCE
        began = trio.current_time()
        await board.look("reader")
        assert board.begun.index("reader") == LOOK_UPS_AT_ONCE
        assert trio.current_time() - began == pytest.approx(2.0)
    board.assert_empty()


async def test_a_look_up_that_is_not_called_in_time_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    board = Board(took=60.0)
    async with trio.open_nursery() as nursery:
        for _ in range(LOOK_UPS_AT_ONCE + 3):
            nursery.start_soon(board.look, "viewer")
        await trio.sleep(LONGEST_WAIT_SECONDS + 0.1)
        assert board.refused == {"viewer": 3}
    board.assert_empty()


async def test_viewers_that_go_take_no_turn(autojump_clock: trio.testing.MockClock) -> None:
    board = Board(took=1.0)
    await trio.sleep(60)
    async with trio.open_nursery() as nursery:
        for _ in range(LOOK_UPS_AT_ONCE + 20):
            nursery.start_soon(board.look, "gone")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    board.assert_empty()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(LOOK_UPS_AT_ONCE):
            nursery.start_soon(board.look, "next")
    assert trio.current_time() - began == pytest.approx(1.0)
