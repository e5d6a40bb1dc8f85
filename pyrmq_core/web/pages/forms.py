"""The forms of changes; they are shown where changes are allowed."""

from __future__ import annotations

from starlette.requests import Request

from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.pages.page import Shown, needed, query


async def send_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the form of a test message."""
    del look_ups
    return Shown("send.html", {"topic": query(request, "topic")})


async def reset_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the form that gives a group new offsets, with the topics it has offsets of."""
    group = needed(request, "group")
    progress = await look_ups.progress(group)
    return Shown("reset.html", {"group": group, "topics": sorted({one.queue.topic for one in progress.queues})})
