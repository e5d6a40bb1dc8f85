"""The small pages: cluster, producers, dead letters, charts' data, and forms to send, reset, delete and consume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from pyrmq_core.errors import NoRoute
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, is_dead_letter_topic, is_retry_topic
from pyrmq_core.tools.web.health_looks import MOST_LINES, address_of
from pyrmq_core.tools.web.history import Curve
from pyrmq_core.tools.web.languages import language_of
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.message_reads import FoundMessages, Wanted
from pyrmq_core.tools.web.pages.messages import place_of
from pyrmq_core.tools.web.pages.page import Shown, matching, needed, one_of, ordered, part, query, time_range
from pyrmq_core.tools.web.zones import zone_of

if TYPE_CHECKING:
    from pyrmq_core.client.admin.producers import ConnectedProducer
    from pyrmq_core.client.admin.values import BrokerStatus

KINDS: Final = {kind: kind for kind in ("lag", "cluster", "topic")}

# A group with a dead-letter topic, and the number of its letters, None if it is unknown.
LetterCount = tuple[str, int | None]

LETTER_ORDERS: Final[Mapping[str, Callable[[LetterCount], Any]]] = {
    "group": lambda row: row[0],
    "letters": lambda row: (1 if row[1] is None else -row[1], row[0]),
}
BROKER_ORDERS: Final[Mapping[str, Callable[[BrokerStatus], Any]]] = {
    "broker": lambda broker: (broker.broker_name, broker.broker_id),
    "in": lambda broker: (-(broker.put_tps or 0.0), broker.broker_name, broker.broker_id),
    "out": lambda broker: (-(broker.get_tps or 0.0), broker.broker_name, broker.broker_id),
    "disk": lambda broker: (-(broker.disk_ratio or 0.0), broker.broker_name, broker.broker_id),
}
PRODUCER_ORDERS: Final[Mapping[str, Callable[[ConnectedProducer], Any]]] = {
    "group": lambda row: (row.group, row.client_id),
    "client": lambda row: (row.client_id, row.group),
}


async def cluster_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the page of the cluster: its problems, and its brokers by cluster."""
    brokers = await look_ups.brokers(watch=True)
    await look_ups.health.view()
    health = look_ups.health.latest
    rows = ordered(request, matching(request, brokers, _texts_of_broker), BROKER_ORDERS)
    clusters = {
        name: [broker for broker in rows if broker.cluster == name] for name in sorted({b.cluster for b in brokers})
    }
    wrong = {"health": health, "most": MOST_LINES, "address_of": address_of, "error": look_ups.health.error}
    return Shown("cluster.html", {"clusters": clusters, **wrong})


async def producers_page(request: Request, look_ups: LookUps) -> Shown:
    listed = await look_ups.producers()
    producers = matching(request, listed.producers, lambda row: (row.group, row.client_id, row.address))
    values = {"part": part(request, ordered(request, producers, PRODUCER_ORDERS)), "failures": listed.failures}
    return Shown("producers.html", values)


async def dead_letters_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the groups that have a dead-letter topic, or the newest dead letters of the chosen group."""
    group, times, zone = query(request, "group"), time_range(request), zone_of(request)
    topic, groups = DLQ_PREFIX + group, list[LetterCount]()
    if not group:
        groups = await _letter_counts(request, look_ups)
    try:
        letters = await look_ups.newest(Wanted(topic, times.since, times.before)) if group else FoundMessages()
    except NoRoute:
        letters = FoundMessages()
    return Shown(
        "dead_letters.html",
        {
            "group": group,
            "part": part(request, groups),
            "topic": topic,
            "found": letters,
            "rows": letters.rows(),
            **times.fields,
            "older": zone.write(letters.older),
        },
    )


async def _letter_counts(request: Request, look_ups: LookUps) -> list[LetterCount]:
    names = [name for name in (await look_ups.topics()).names if is_dead_letter_topic(name)]
    topics = matching(request, names, lambda name: (name.removeprefix(DLQ_PREFIX),))

    def rows() -> list[LetterCount]:
        figures = [(topic.removeprefix(DLQ_PREFIX), look_ups.figures.get(topic)) for topic in topics]
        counts = [(group, None if figure is None else figure.messages) for group, figure in figures]
        return ordered(request, counts, LETTER_ORDERS)

    await look_ups.figures.view(topics, [DLQ_PREFIX + group for group, _ in part(request, rows()).rows])
    return rows()


def _texts_of_broker(broker: BrokerStatus) -> tuple[str, ...]:
    return broker.broker_name, broker.address, broker.version or "", broker.cluster


async def send_page(request: Request, look_ups: LookUps) -> Shown:
    del look_ups
    return Shown("send.html", {"topic": query(request, "topic")})


async def reset_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the form to reset a group's offsets. It offers the group's topics, but selects none."""
    group = needed(request, "group")
    progress = await look_ups.progress(group)
    topics = {row.queue.topic for row in progress.queues if not is_retry_topic(row.queue.topic)}
    return Shown("reset.html", {"group": group, "topic": query(request, "topic"), "topics": sorted(topics)})


async def delete_page(request: Request, look_ups: LookUps) -> Shown:
    del look_ups
    topic = query(request, "topic")
    return Shown("delete.html", {"topic": topic, "group": "" if topic else needed(request, "group")})


async def consume_page(request: Request, look_ups: LookUps) -> Shown:
    group, (queue, offset) = needed(request, "group"), place_of(request)
    members = (await look_ups.describe(group)).members
    return Shown("consume.html", {"group": group, "queue": queue, "offset": offset, "members": members})


def curve_data(request: Request, look_ups: LookUps) -> dict[str, object]:
    """Returns the times of a curve's samples, and the figures of each line. No broker is queried."""
    kind = one_of(request.query_params, "kind", KINDS)
    seconds, lines = look_ups.history.columns(Curve(kind, needed(request, "name")))
    language = language_of(request)
    return {"seconds": seconds, "lines": {language.say(name): line for name, line in lines.items()}}
