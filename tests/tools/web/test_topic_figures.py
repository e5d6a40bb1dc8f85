"""Figures of lists of topics: looked up while a list is viewed, its rows first, at a rate that no number exceeds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from pyrmq_core import MessageQueue
from pyrmq_core.client.admin.values import GroupList, GroupSummary, QueueStats, TopicStats
from pyrmq_core.errors import NoRoute, RocketMQError
from pyrmq_core.tools.web import topic_figures
from pyrmq_core.tools.web.look_up_queue import TooManyLookUps
from pyrmq_core.tools.web.topic_figures import (
    FIGURE_FRESH_SECONDS,
    PATIENCE_SECONDS,
    ROUND_SECONDS,
    TOPICS_A_ROUND,
    VIEWED_SECONDS,
    TopicFigures,
)

NAMES = [f"topic-{number:03}" for number in range(500)]


class Brokers:
    """The answers about topics and groups, by the topics that were queried."""

    def __init__(self, *, end: int = 7, rate: float | None = 2.5) -> None:
        self.queried: list[str] = []
        self.lists = 0
        self.end, self.rate = end, rate
        self.failure: Exception | None = None
        self.silent: dict[str, RocketMQError] = {}

    async def stats(self, topic: str) -> TopicStats:
        await trio.sleep(0.01)
        self.queried.append(topic)
        if self.failure is not None:
            raise self.failure
        return TopicStats({MessageQueue(topic, "a", 0): QueueStats(2, self.end, None)}, self.rate, self.silent)

    async def groups(self) -> GroupList:
        self.lists += 1
        lags = ({"topic-001": 3, "topic-002": 0}, {"topic-001": 4})
        rows = [
            GroupSummary(f"G{n}", 0, None, None, sum(by.values()), tuple(by), (), lags=by) for n, by in enumerate(lags)
        ]
        return GroupList(tuple(rows), {})


@asynccontextmanager
async def looked_up(brokers: Brokers) -> AsyncIterator[TopicFigures]:
    figures = TopicFigures(brokers.stats, brokers.groups)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(figures.look_up)
        yield figures
        nursery.cancel_scope.cancel()


async def test_a_short_list_has_its_figures_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with looked_up(Brokers()) as figures:
        await figures.view(NAMES[:5], NAMES[:5])
        assert trio.current_time() < 0.1
        figure = figures.get("topic-001")
        assert figure is not None
        assert (figure.messages, figure.stored, figure.rate, figure.is_whole) == (5, 7, 2.5, True)
        assert (figures.lags.lags["topic-001"], figures.lags.groups["topic-001"]) == (7, 2)
        assert (figures.lags.lags["topic-002"], figures.lags.groups.get("topic-003", 0)) == (0, 0)


async def test_a_long_list_is_looked_up_at_a_rate_its_rows_first(autojump_clock: trio.testing.MockClock) -> None:
    brokers, rows = Brokers(), NAMES[200:220]
    async with looked_up(brokers) as figures:
        await figures.view(NAMES, rows)
        assert trio.current_time() <= PATIENCE_SECONDS
        assert sorted(brokers.queried) == rows
        for _ in range(20):  # further viewers cost no more
            await figures.view(NAMES, rows)
        await trio.sleep_until(10 * ROUND_SECONDS)
        assert 10 * TOPICS_A_ROUND <= len(brokers.queried) <= 11 * TOPICS_A_ROUND
        while trio.current_time() < 60:
            await figures.view(NAMES, rows)
            await trio.sleep(5)
        assert all(figures.get(name) is not None for name in NAMES)
        assert len(brokers.queried) <= TOPICS_A_ROUND * (trio.current_time() / ROUND_SECONDS + 1)
        assert brokers.lists <= 6


async def test_nothing_is_looked_up_without_a_viewer(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers()
    async with looked_up(brokers) as figures:
        await trio.sleep(100)
        assert (brokers.queried, brokers.lists) == ([], 0)
        await figures.view(NAMES[:3], NAMES[:3])
        await trio.sleep(VIEWED_SECONDS + ROUND_SECONDS)
        queried, lists = len(brokers.queried), brokers.lists
        assert queried == 3 * 2 == 3 * round(VIEWED_SECONDS / FIGURE_FRESH_SECONDS)
        await trio.sleep(1000)
        assert len(brokers.queried) == queried
        assert brokers.lists <= lists + 1
        assert figures.get(NAMES[0]) is not None


async def test_a_rate_without_the_brokers_own(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(rate=None)
    async with looked_up(brokers) as figures:
        await figures.view(["T"], ["T"])
        figure = figures.get("T")
        assert figure is not None
        assert figure.rate is None
        brokers.end += 60
        await trio.sleep(FIGURE_FRESH_SECONDS + ROUND_SECONDS)
        figure = figures.get("T")
        assert figure is not None
        assert figure.rate is not None
        assert 60 / (FIGURE_FRESH_SECONDS + 1) <= figure.rate <= 60 / FIGURE_FRESH_SECONDS


async def test_no_rate_is_made_of_figures_that_lack_a_broker(autojump_clock: trio.testing.MockClock) -> None:
    """Neither when its answer is missing, nor when it is back: all of its messages would seem gone, or new."""
    brokers, rates = Brokers(rate=None), []
    failure: dict[str, RocketMQError] = {"b": NoRoute("no answer", topic="T")}
    async with looked_up(brokers) as figures:
        for brokers.end, brokers.silent in ((1000, {}), (7, failure), (1060, {}), (1090, {})):
            figures.refresh()
            await figures.view(["T"], ["T"])
            await trio.sleep(2 * ROUND_SECONDS)
            figure = figures.get("T")
            assert figure is not None
            rates.append(figure.rate)
    assert rates[:3] == [None, None, None]
    assert rates[3] is not None
    assert 0 < rates[3] <= 30 / ROUND_SECONDS


async def test_a_topic_without_an_answer_has_no_figures_and_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = Brokers()
    brokers.failure = NoRoute("there is none", topic="T")
    async with looked_up(brokers) as figures:
        await figures.view(["T"], ["T"])
        figure = figures.get("T")
        assert figure is not None
        assert figure.messages is None
        assert trio.current_time() < 0.1
        brokers.failure, brokers.silent = None, {"b": NoRoute("no answer", topic="T")}
        figures.refresh()
        await trio.sleep(2 * ROUND_SECONDS)
        figure = figures.get("T")
        assert figure is not None
        assert (figure.messages, figure.is_whole) == (5, False)
        brokers.failure = TooManyLookUps()
        await trio.sleep(VIEWED_SECONDS)
        assert figures.get("T") is figure


async def test_a_row_that_could_not_be_looked_up_is_tried_in_the_next_round(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brokers = Brokers()
    brokers.failure = TooManyLookUps()
    async with looked_up(brokers) as figures:
        await figures.view(["T"], ["T"])
        brokers.failure = None
        await trio.sleep(2 * ROUND_SECONDS)
        assert figures.get("T") is not None


async def test_figures_take_bounded_room(autojump_clock: trio.testing.MockClock) -> None:
    bound = topic_figures.MAX_FIGURES
    assert bound <= 20_000
    brokers = Brokers()
    async with looked_up(brokers) as figures:
        topic_figures.MAX_FIGURES = 15  # type: ignore[misc]
        try:
            await figures.view(NAMES[:40], NAMES[:5])
            await trio.sleep(10)
        finally:
            topic_figures.MAX_FIGURES = bound  # type: ignore[misc]
        assert sum(figures.get(name) is not None for name in NAMES) == 15
