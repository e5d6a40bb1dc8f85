"""`TopicFigures`: messages, rates and lags of the topics in lists that pages show, queried at a limited rate.

Brokers have no request for the offsets of all topics, so each topic takes a few requests. A list shows the figures that
were already queried, and the others when they arrive. While no page shows a list, nothing is queried.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import trio

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import RocketMQError
from pyrmq_core.tools.web.look_up_queue import TooManyLookUps

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import GroupList, TopicStats

# A round queries this many topics in this many seconds: half of the queries that all viewers together may cause.
TOPICS_A_ROUND: Final = 10
ROUND_SECONDS: Final = 1.0
# Figures are queried for lists that were viewed within this time. Each figure is queried at this interval.
VIEWED_SECONDS: Final = 60.0
FIGURE_FRESH_SECONDS: Final = 30.0
LAGS_SECONDS: Final = 15.0
# The most figures that are kept for lists that are viewed again later. The oldest are dropped first.
MAX_FIGURES: Final = 20_000
# How long a page waits for the figures of its visible rows.
PATIENCE_SECONDS: Final = 1.5


@dataclass(frozen=True, slots=True)
class TopicFigure:
    """The figures of a topic at a time of trio's clock. `messages` is None if no broker answered.

    `is_whole` is False if a broker did not answer. `stored` counts all messages that were ever stored. `rate` is in
    messages a second over the last minute.
    """

    at: float
    messages: int | None = None
    stored: int = 0
    rate: float | None = None
    is_whole: bool = True


class TopicFigures:
    """The figures of topics in viewed lists, with each topic's lag from the latest list of groups."""

    def __init__(
        self, stats: Callable[[str], Awaitable[TopicStats]], groups: Callable[[], Awaitable[GroupList]]
    ) -> None:
        self._stats = stats
        self._groups = groups
        self._viewed_until: dict[str, float] = {}
        self._rows: Sequence[str] = ()
        self._figures: dict[str, TopicFigure] = {}
        self._tried_at: dict[str, float] = {}  # by topic: the time of the last query, the oldest first
        self._lags: TopicLags | None = None
        self._viewed = trio.Event()
        self._changed = trio.Event()

    def get(self, topic: str) -> TopicFigure | None:
        return self._figures.get(topic)

    @property
    def lags(self) -> TopicLags:
        return TopicLags() if self._lags is None else self._lags

    async def view(self, topics: Iterable[str], rows: Sequence[str]) -> None:
        """Schedules queries of a list's topics, the visible rows first, and waits a moment for the visible rows."""
        until = trio.current_time() + VIEWED_SECONDS
        self._viewed_until.update(dict.fromkeys(topics, until))
        self._rows = rows
        self._viewed.set()
        with trio.move_on_after(PATIENCE_SECONDS):
            while self._lags is None or any(topic not in self._figures for topic in rows):
                await self._changed.wait()

    def refresh(self) -> None:
        self._tried_at.clear()

    async def look_up(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._look_up_lags)
            while True:
                await self._viewed.wait()
                next_at = trio.current_time() + ROUND_SECONDS
                async with trio.open_nursery() as round_nursery:
                    for topic in self._due(trio.current_time()):
                        round_nursery.start_soon(self._look_up_topic, topic)
                await trio.sleep_until(next_at)

    def _due(self, now: float) -> list[str]:
        """Returns the topics to query in the next round, and drops the topics of lists that are no longer viewed."""
        self._viewed_until = {topic: until for topic, until in self._viewed_until.items() if until > now}
        self._tried_at = {topic: at for topic, at in self._tried_at.items() if topic in self._viewed_until}
        if not self._viewed_until:
            self._viewed = trio.Event()
        rows = (topic for topic in self._rows if topic in self._viewed_until)
        untried = (topic for topic in self._viewed_until if topic not in self._tried_at)
        stale = now - FIGURE_FRESH_SECONDS
        due = (
            topic
            for topic in dict.fromkeys((*rows, *untried, *self._tried_at))
            if self._tried_at.get(topic, -math.inf) <= stale
        )
        return list(itertools.islice(due, TOPICS_A_ROUND))

    async def _look_up_topic(self, topic: str) -> None:
        began = trio.current_time()
        self._tried_at.pop(topic, None)
        self._tried_at[topic] = began
        try:
            stats = await self._stats(topic)
        except TooManyLookUps:
            self._tried_at.pop(topic, None)
            return
        except RocketMQError:
            figure = TopicFigure(began)  # only the topic's own page shows the error
        else:
            before = self._figures.get(topic)
            stored = sum(queue.max_offset for queue in stats.queues.values())
            figure = TopicFigure(began, stats.messages, stored, stats.put_tps, is_whole=not stats.failures)
            if figure.rate is None:
                figure = replace(figure, rate=_rate(before, figure))
        self._figures.pop(topic, None)
        self._figures[topic] = figure
        if len(self._figures) > MAX_FIGURES:
            del self._figures[next(iter(self._figures))]
        self._has_changed()

    async def _look_up_lags(self) -> None:
        while True:
            await self._viewed.wait()
            next_at = trio.current_time() + LAGS_SECONDS
            try:
                self._lags = TopicLags.of(await self._groups())
            except TooManyLookUps:
                next_at = trio.current_time() + ROUND_SECONDS
            except RocketMQError as error:
                self._lags = TopicLags(failures={Text("lags"): error})
            self._has_changed()
            await trio.sleep_until(next_at)

    def _has_changed(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


@dataclass(frozen=True, slots=True)
class TopicLags:
    """Each topic's lag and number of groups. `failures` has the brokers whose groups are missing."""

    lags: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[str, RocketMQError] = field(default_factory=dict)

    @classmethod
    def of(cls, listed: GroupList) -> TopicLags:
        lags, groups = Counter[str](), Counter[str]()
        for group in listed.groups:
            lags.update(group.lags)
            groups.update(group.lags.keys())
        return cls(lags, groups, listed.failures)


def _rate(before: TopicFigure | None, now: TopicFigure) -> float | None:
    """Returns the messages stored per second between two samples, or None if one of them lacks a broker's answer."""
    if before is None or before.messages is None or not (before.is_whole and now.is_whole) or now.at <= before.at:
        return None
    return max(0.0, (now.stored - before.stored) / (now.at - before.at))
