"""The list of topics, and the page of a topic: a chart of its queues by broker, and their numbers of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from pyrmq_core.client.texts import Text
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.messages.names import is_dead_letter_topic, is_retry_topic, is_system_topic
from pyrmq_core.tools.web.history import Curve
from pyrmq_core.tools.web.look_ups import MAX_GROUPS_DRAWN, LookUps, TopicNames
from pyrmq_core.tools.web.pages.page import ROWS_A_PAGE, Shown, matching, needed, ordered, part, query, tried
from pyrmq_core.tools.web.topic_figures import TopicFigure, TopicFigures

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import QueueStats

# The most queues of a broker that the chart draws, since more would be a grey bar. The table below the chart has all.
MAX_BARS_A_BROKER: Final = 256
ORDERS: Final[Mapping[str, Callable[[tuple[MessageQueue, QueueStats]], Any]]] = {
    "queue": lambda row: row[0],
    "messages": lambda row: (-row[1].messages, row[0]),
    "stored": lambda row: (-row[1].last_updated.timestamp() if row[1].last_updated else 0.0, row[0]),
}
UNKNOWN: Final = -1
TOPIC_ORDERS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "topic": lambda row: row.name,
    "messages": lambda row: (-_or_unknown(row.messages), row.name),
    "rate": lambda row: (-_or_unknown(row.rate), row.name),
    "lag": lambda row: (-_or_unknown(row.lag), row.name),
    "groups": lambda row: (-row.groups, row.name),
}
ROCKETMQ: Final = Text("RocketMQ's")
KINDS: Final[tuple[str, ...]] = (Text("own"), Text("retry"), Text("dead letters"), ROCKETMQ, Text("manifests"))


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list. An unknown figure is None. If not `is_whole`, `messages` lacks those of some brokers."""

    name: str
    messages: int | None
    rate: float | None
    is_whole: bool
    lag: int | None
    groups: int


async def topics_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the list of topics of the requested kind whose names contain a text, with the figures known so far."""
    kind, figures = query(request, "kind") or KINDS[0], look_ups.figures
    topic_names = await look_ups.topics()
    kinds = {name: topic_kind(name, topic_names) for name in topic_names.names}
    names = matching(request, (name for name in topic_names.names if kinds[name] == kind), lambda name: (name,))
    visible = part(request, ordered(request, [_row(name, figures) for name in names], TOPIC_ORDERS))
    await figures.view(names, [row.name for row in visible.rows])
    rows = [_row(name, figures) for name in names]
    return Shown(
        "topics.html",
        {
            "part": part(request, ordered(request, rows, TOPIC_ORDERS)),
            "kind": kind,
            "kinds": {name: sum(1 for kind in kinds.values() if kind == name) for name in KINDS},
            "most": max((row.lag or 0 for row in rows), default=0),
            "most_rate": max((row.rate or 0.0 for row in rows), default=0.0),
            "missing": sum(figures.get(name) is None for name in names),
            "seconds_old": max((look_ups.age(figure.at) for name in names if (figure := figures.get(name))), default=0),
            "failures": figures.lags.failures,
        },
    )


def _row(name: str, figures: TopicFigures) -> TopicRow:
    figure, lags = figures.get(name) or TopicFigure(0), figures.lags
    return TopicRow(name, figure.messages, figure.rate, figure.is_whole, lags.lags.get(name), lags.groups.get(name, 0))


def _or_unknown(figure: float | None) -> float:
    return UNKNOWN if figure is None else figure


def topic_kind(name: str, topic_names: TopicNames) -> str:
    if is_retry_topic(name):
        return KINDS[1]
    if is_dead_letter_topic(name):
        return KINDS[2]
    if name in topic_names.manifests:
        return KINDS[4]
    return ROCKETMQ if is_system_topic(name) or name in topic_names.of_servers else KINDS[0]


async def topic_page(request: Request, look_ups: LookUps) -> Shown:
    topic = needed(request, "topic")
    look_ups.watch(Curve("topic", topic))
    stats = await look_ups.topic_stats(topic)
    topic_names, _ = await tried(look_ups.topics)
    consumers, groups_error = await tried(lambda: look_ups.consumers(topic))
    rates, rates_error = await tried(lambda: look_ups.rates(topic))
    failures = {
        **(consumers.failures if consumers else {}),
        **(rates.failures if rates else {}),
        **stats.failures,
    }
    shown = consumers.consumers[:ROWS_A_PAGE] if consumers else ()
    acknowledged = {row.group: look_ups.history.acknowledged.get((topic, row.group)) for row in shown}
    spread: dict[str, list[tuple[MessageQueue, int]]] = {}
    for queue in sorted(stats.queues):
        spread.setdefault(queue.broker_name, []).append((queue, stats.queues[queue].messages))
    rows = matching(request, stats.queues.items(), lambda row: (f"{row[0].broker_name}/{row[0].queue_id}",))
    return Shown(
        "topic.html",
        {
            "topic": topic,
            "kind": topic_kind(topic, topic_names) if topic_names else "",
            "brokers": spread,
            "max_bars": MAX_BARS_A_BROKER,
            "part": part(request, ordered(request, rows, ORDERS)),
            "stats": stats,
            "most": max((figures.messages for figures in stats.queues.values()), default=0),
            "rates": rates,
            "failures": failures,
            "consumers": shown if consumers else None,
            "acknowledged": acknowledged,
            "most_lag": max((row.lag or 0 for row in shown), default=0),
            "most_delivered": max((row.consume_tps for row in shown), default=0.0),
            "most_acknowledged": max((rate or 0.0 for rate in acknowledged.values()), default=0.0),
            "left_out": consumers.left_out + len(consumers.consumers) - len(shown) if consumers else 0,
            "max_groups_drawn": MAX_GROUPS_DRAWN,
            "errors": list(dict.fromkeys(text for text in (groups_error, rates_error) if text)),
        },
    )
