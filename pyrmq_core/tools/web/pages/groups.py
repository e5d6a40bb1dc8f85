"""The list of groups, and a group's page: why its messages wait, its members, progress by queue, and lag."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from pyrmq_core.client.texts import Text
from pyrmq_core.protocol.messages.names import is_dead_letter_topic, is_retry_topic, is_system_group
from pyrmq_core.tools.web.history import Curve
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.page import Shown, matching, needed, ordered, part, query, tried

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import GroupSummary, QueueProgress

KINDS: Final[tuple[str, ...]] = (Text("own"), Text("RocketMQ's"))
MAX_STACK_CHARACTERS: Final = 256 * 1024
LATEST: Final = datetime.max.replace(tzinfo=UTC)
GROUP_ORDERS: Final[Mapping[str, Callable[[GroupSummary], Any]]] = {
    "group": lambda group: group.group,
    "members": lambda group: (-group.members, group.group),
    "lag": lambda group: (-group.lag, group.group),
    "rate": lambda group: (-group.consume_tps, group.group),
}
QUEUE_ORDERS: Final[Mapping[str, Callable[[QueueProgress], Any]]] = {
    "queue": lambda queue: (_is_of_failures(queue.queue.topic), queue.queue),
    "lag": lambda queue: (-queue.lag, queue.queue),
    "waiting": lambda queue: (queue.waiting_since or LATEST, queue.queue),
}


def topics_in_order(topics: Iterable[str]) -> list[str]:
    """Sorts topics by name, with the topics of retries and dead letters after all others."""
    return sorted(topics, key=lambda topic: (_is_of_failures(topic), topic))


def _is_of_failures(topic: str) -> bool:
    return is_retry_topic(topic) or is_dead_letter_topic(topic)


async def groups_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the list of groups whose names or topics contain a text, with their members and lag."""
    listed = await look_ups.groups()
    kind = query(request, "kind") or KINDS[0]
    own, systems = KINDS
    of_kind = {own: [group for group in listed.groups if not is_system_group(group.group)]}
    of_kind[systems] = [group for group in listed.groups if is_system_group(group.group)]
    groups = matching(request, of_kind.get(kind, ()), lambda group: (group.group, *group.topics))
    shown = part(request, ordered(request, groups, GROUP_ORDERS))
    values = {
        "part": shown,
        "most": max((group.lag for group in groups), default=0),
        "most_rate": max((group.consume_tps for group in groups), default=0.0),
        "topics": {group.group: topics_in_order(group.topics) for group in shown.rows},
        "kind": kind,
        "kinds": {kind_name: len(there) for kind_name, there in of_kind.items()},
    }
    return Shown("groups.html", {**values, "failures": listed.failures})


async def group_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the page of a consumer group. Its lag is sampled for a chart while the page is viewed.

    Queues are listed under the member that consumes them, the member with most lag first.
    """
    group = needed(request, "group")
    look_ups.watch(Curve("lag", group))
    progress, error = await tried(lambda: look_ups.progress(group))
    description = progress.description if progress else None
    failures = {**(progress.failures if progress else {}), **(description.failures if description else {})}
    queues, members = progress.queues if progress else (), description.members if description else ()
    lags = Counter[str | None]()
    for queue in queues:
        lags[queue.client_id] += max(0, queue.lag)
    ranked = ordered(request, matching(request, queues, _texts_of_queue), QUEUE_ORDERS)
    rows = part(request, sorted(ranked, key=lambda row: (-lags[row.client_id], row.client_id or "")))
    held = itertools.groupby(rows.rows, key=lambda row: row.client_id)
    members_error = str(progress.members_error) if progress and progress.members_error else ""
    return Shown(
        "group.html",
        {
            "group": group,
            "description": description,
            "progress": progress,
            "acknowledged": look_ups.history.acknowledged.get(group),
            "part": rows,
            "held": [(client_id, lags[client_id], list(of_client)) for client_id, of_client in held],
            "most": max((queue.lag for queue in queues), default=0),
            "most_ok": max((member.rates.consume_ok_tps for member in members if member.rates), default=0.0),
            "failures": failures,
            "errors": [text for text in (error, members_error) if text],
        },
    )


async def stack_page(request: Request, look_ups: LookUps) -> Shown:
    group, client_id = needed(request, "group"), needed(request, "client")
    stack = await look_ups.stack(group, client_id)
    left_out = max(0, len(stack) - MAX_STACK_CHARACTERS)
    values = {"group": group, "client_id": client_id, "stack": stack[:MAX_STACK_CHARACTERS], "left_out": left_out}
    return Shown("stack.html", values)


def _texts_of_queue(row: QueueProgress) -> tuple[str, ...]:
    return row.queue.topic, f"{row.queue.broker_name}/{row.queue.queue_id}", row.client_id or ""
