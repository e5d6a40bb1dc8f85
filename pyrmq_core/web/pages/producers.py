"""The producers that are connected, of all groups."""

from __future__ import annotations

from starlette.requests import Request

from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.pages.page import Shown, part, query


async def producers_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the producers whose group contains a text."""
    wanted = query(request, "filter")
    found = await look_ups.producers()
    producers = [one for one in found.producers if wanted.lower() in one.group.lower()]
    values = {"part": part(request, producers), "filter": wanted, "failures": found.failures}
    return Shown("producers.html", values)
