"""The pages of messages: a topic's newest messages, those with a key, id or content, and one message in full."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

from starlette.requests import Request

from pyrmq_core.client.texts import Text
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import MessageQueue
from pyrmq_core.tools.search.where import MEMBER, Columns
from pyrmq_core.tools.web.body_text import FORMS, JSON_BYTES, member_names
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.message_reads import FoundMessages, Wanted
from pyrmq_core.tools.web.pages.page import Shown, needed, page_number, query, time_range, tried, whole_number
from pyrmq_core.tools.web.rendering import link
from pyrmq_core.tools.web.tails import TailPlace
from pyrmq_core.tools.web.zones import zone_of

# The most matches that a search skips because they were shown already.
MAX_SKIPPED: Final = 10_000
OFFERED_COLUMNS: Final = 6
# The fields of the form that select messages by content.
CONDITIONS: Final = ("contains", "where", "regex", "tags", "sql", "queue")


async def messages_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the page of a topic's messages: the newest, or those with a key, an id or a content, also by time."""
    key, message_id, result = query(request, "key"), query(request, "id"), FoundMessages()
    times, zone, wanted = time_range(request), zone_of(request), wanted_of(request)
    topic, conditions = wanted.topic, _conditions(wanted)
    if [bool(key), bool(message_id), bool(wanted or wanted.queue)].count(True) > 1:
        raise InvalidArgument(
            Text("a message is looked up by its key, by its id, or by the other conditions: choose one")
        )
    if topic and message_id:
        result = await look_ups.by_id(wanted, message_id)
    elif topic and key:
        result = await look_ups.by_key(wanted, key)
    elif topic and wanted:
        result = await look_ups.search(wanted)
    elif topic:
        result = await look_ups.newest(wanted)
    return Shown(
        "messages.html",
        {
            "topic": topic,
            "key": key,
            "id": message_id,
            **times.fields,
            **conditions,
            "searches": bool(wanted),
            "found": result,
            **_listed(result, wanted),
            "conditions": conditions,
            "read_from": zone.write(result.go_on),
            "searched_since": zone.write(result.since),
            "older": zone.write(result.older),
        },
    )


async def tail_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the page of messages that match a search and arrived since the position in the query's `place`."""
    if any(query(request, name) for name in ("key", "id", "before", "last")):
        raise InvalidArgument(
            Text("a tail has no key, id or end: take where, as properties.KEYS == 'k1', and times from")
        )
    topic, text = needed(request, "topic"), request.query_params.get("place", "")
    reached = TailPlace.parse(text, topic) if text else None
    wanted = wanted_of(request)
    part = await look_ups.tail(wanted if reached is None else replace(wanted, since=None), reached)
    conditions = {"topic": wanted.topic} | _conditions(wanted)
    return Shown(
        "tail.html",
        {
            "topic": wanted.topic,
            "conditions": conditions,
            "found": part.found,
            **_listed(part.found, wanted),
            "behind": part.behind,
            "began": part.place.began_ms,
            "next": link("/tail", **conditions, place=part.place.text()),
        },
    )


def wanted_of(request: Request) -> Wanted:
    times, texts = time_range(request), {name: query(request, name) for name in (*CONDITIONS, "columns")}
    skip = min(page_number(request, "skip"), MAX_SKIPPED) if query(request, "skip") else 0
    return Wanted(query(request, "topic"), times.since, times.before, **texts, skip=skip)


def _conditions(wanted: Wanted) -> dict[str, str]:
    return {name: getattr(wanted, name) for name in (*CONDITIONS, "columns")}


def _listed(result: FoundMessages, wanted: Wanted) -> dict[str, object]:
    heads = tuple(Columns.parse(wanted.columns).values) if wanted.columns else ()
    counts = Counter(name for message in result.messages for name in member_names(message.body) if not heads)
    offered = [f"json.{name}" for name, _ in counts.most_common(OFFERED_COLUMNS) if MEMBER.fullmatch(name)]
    return {"rows": result.rows(bool(heads)), "heads": heads, "offered": ", ".join(offered)}


async def message_page(request: Request, look_ups: LookUps) -> Shown:
    place, offset = place_of(request)
    shown = await look_ups.shown(place, offset, query(request, "form"), page_number(request, "part"))
    if shown is None:
        raise missing(place, offset)
    message = shown.message
    tracks, tracks_error = await tried(lambda: look_ups.tracks(message))
    trace, trace_error = await tried(lambda: look_ups.trace(message))
    return Shown(
        "message.html",
        {
            "message": message,
            "place": place,
            "offset": offset,
            "body": shown.body,
            "fault": shown.fault,
            "is_masked": look_ups.masks.any,
            "forms": FORMS,
            "json_bytes": JSON_BYTES,
            "tracks": tracks or (),
            "trace": trace,
            "errors": list(dict.fromkeys(text for text in (tracks_error, trace_error) if text)),
        },
    )


def missing(queue: MessageQueue, offset: int) -> InvalidArgument:
    return InvalidArgument(
        Text("{queue} has no message at {offset}; it may have been removed", queue=queue, offset=offset)
    )


def place_of(request: Request) -> tuple[MessageQueue, int]:
    topic, broker_name = needed(request, "topic"), needed(request, "brokerName")
    queue_id, offset = (whole_number(request.query_params, name) for name in ("queueId", "offset"))
    return MessageQueue(topic, broker_name, queue_id), offset
