"""The pages and data of one function each: cluster, producers, dead letters, forms of changes, samples of curves."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from pyrmq_core.errors import InvalidArgument, NoRoute
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, is_dead_letter_topic
from pyrmq_core.web.body_text import summary
from pyrmq_core.web.history import Curve
from pyrmq_core.web.look_ups import FoundMessages, LookUps
from pyrmq_core.web.pages.page import Shown, moment, needed, part, query

KINDS: Final = ("lag", "cluster", "topic")


async def cluster_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the brokers by cluster."""
    del request
    brokers = await look_ups.brokers(watch=True)
    clusters = {
        name: [broker for broker in brokers if broker.cluster == name] for name in sorted({b.cluster for b in brokers})
    }
    return Shown("cluster.html", {"clusters": clusters})


async def producers_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the producers whose group contains a text."""
    wanted = query(request, "filter")
    listed = await look_ups.producers()
    producers = [producer for producer in listed.producers if wanted.lower() in producer.group.lower()]
    values = {"part": part(request, producers), "filter": wanted, "failures": listed.failures}
    return Shown("producers.html", values)


async def dead_letters_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the groups with a dead-letter topic, and the newest dead letters of the chosen one."""
    group, before = query(request, "group"), query(request, "before")
    topics = [topic for topic in (await look_ups.topics()).names if is_dead_letter_topic(topic)]
    topic = DLQ_PREFIX + group
    try:
        letters = await look_ups.newest(topic, moment(before, "before")) if group else FoundMessages()
    except NoRoute:
        letters = FoundMessages()
    return Shown(
        "dead_letters.html",
        {
            "group": group,
            "part": part(request, [topic.removeprefix(DLQ_PREFIX) for topic in topics]),
            "topic": topic,
            "found": letters,
            "rows": [(message, summary(message.body)) for message in letters.messages],
            "oldest": letters.messages[-1].store_timestamp if letters.messages and letters.more else None,
        },
    )


async def send_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the form of a test message."""
    del look_ups
    return Shown("send.html", {"topic": query(request, "topic")})


async def reset_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the form that gives a group new offsets, with the topics it has offsets of."""
    group = needed(request, "group")
    progress = await look_ups.progress(group)
    return Shown("reset.html", {"group": group, "topics": sorted({row.queue.topic for row in progress.queues})})


def curve_data(request: Request, look_ups: LookUps) -> dict[str, object]:
    """Returns the times and the figures by line; no broker is queried for them."""
    kind = needed(request, "kind")
    if kind not in KINDS:
        raise InvalidArgument(f"kind={kind!r} is none of {', '.join(KINDS)}")
    seconds, lines = look_ups.history.columns(Curve(kind, needed(request, "name")))
    return {"seconds": seconds, "lines": lines}
