"""The list of groups, and one group: its members, its progress in each queue, and its lag over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from pyrmq_core.protocol.messages.names import is_system_group
from pyrmq_core.tools.web.history import Curve
from pyrmq_core.tools.web.look_ups import LookUps
from pyrmq_core.tools.web.pages.page import Shown, matching, needed, ordered, part, query, tried

if TYPE_CHECKING:
    from pyrmq_core.client.admin.values import GroupSummary, QueueProgress

KINDS: Final = ("own", "RocketMQ's")
LATEST: Final = datetime.max.replace(tzinfo=UTC)
GROUP_ORDERS: Final[Mapping[str, Callable[[GroupSummary], Any]]] = {
    "group": lambda group: group.group,
    "members": lambda group: (-group.members, group.group),
    "lag": lambda group: (-group.lag, group.group),
    "rate": lambda group: (-group.consume_tps, group.group),
}
QUEUE_ORDERS: Final[Mapping[str, Callable[[QueueProgress], Any]]] = {
    "queue": lambda queue: queue.queue,
    "lag": lambda queue: (-queue.lag, queue.queue),
    "waiting": lambda queue: (queue.waiting_since or LATEST, queue.queue),
}


async def groups_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the groups whose names or topics contain a text, with their members and lag."""
    listed = await look_ups.groups()
    kind = query(request, "kind") or KINDS[0]
    of_kind = {
        kind_name: [group for group in listed.groups if group_kind(group.group) == kind_name] for kind_name in KINDS
    }
    groups = matching(request, of_kind.get(kind, ()), lambda group: (group.group, *group.topics))
    values = {
        "part": part(request, ordered(request, groups, GROUP_ORDERS)),
        "sort": query(request, "sort"),
        "filter": query(request, "filter"),
        "kind": kind,
        "kinds": {kind_name: len(there) for kind_name, there in of_kind.items()},
    }
    return Shown("groups.html", {**values, "failures": listed.failures})


def group_kind(name: str) -> str:
    return KINDS[1] if is_system_group(name) else KINDS[0]


async def group_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns one group, whose lag is sampled from now on."""
    group = needed(request, "group")
    look_ups.watch(Curve("lag", group))
    description, description_error = await tried(lambda: look_ups.describe(group))
    progress, progress_error = await tried(lambda: look_ups.progress(group))
    failures = {**(progress.failures if progress else {}), **(description.failures if description else {})}
    rows = matching(request, progress.queues if progress else (), _texts_of_queue)
    return Shown(
        "group.html",
        {
            "group": group,
            "description": description,
            "progress": progress,
            "part": part(request, ordered(request, rows, QUEUE_ORDERS)),
            "sort": query(request, "sort"),
            "filter": query(request, "filter"),
            "failures": failures,
            "errors": list(dict.fromkeys(text for text in (description_error, progress_error) if text)),
        },
    )


def _texts_of_queue(row: QueueProgress) -> tuple[str, ...]:
    return row.queue.topic, f"{row.queue.broker_name}/{row.queue.queue_id}", row.client_id or ""
