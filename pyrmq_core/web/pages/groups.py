"""The list of groups, and one group: its members, its progress in each queue, and its lag over time."""

from __future__ import annotations

from starlette.requests import Request

from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.pages.page import Shown, needed, query, tried


async def groups_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the groups whose names contain a text, with their members and lag."""
    wanted = query(request, "filter")
    found = await look_ups.groups()
    groups = [group for group in found.groups if wanted.lower() in group.group.lower()]
    return Shown("groups.html", {"groups": groups, "filter": wanted, "failures": found.failures})


async def group_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns one group; it is sampled from now on."""
    group = needed(request, "group")
    look_ups.watch(group)
    description, description_error = await tried(lambda: look_ups.describe(group))
    progress, progress_error = await tried(lambda: look_ups.progress(group))
    failures = {**(progress.failures if progress else {}), **(description.failures if description else {})}
    return Shown(
        "group.html",
        {
            "group": group,
            "description": description,
            "progress": progress,
            "failures": failures,
            "errors": list(dict.fromkeys(text for text in (description_error, progress_error) if text)),
        },
    )


async def lag_data(request: Request, look_ups: LookUps) -> dict[str, list[float]]:
    """Returns the samples of a group's lag as two columns."""
    points = tuple(look_ups.history.points(needed(request, "group")))
    return {"seconds": [seconds for seconds, _ in points], "messages": [lag for _, lag in points]}
