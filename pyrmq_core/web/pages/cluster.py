"""The first page: every broker of every cluster, with its rates, or the reason why it says nothing."""

from __future__ import annotations

from starlette.requests import Request

from pyrmq_core.web.look_ups import LookUps
from pyrmq_core.web.pages.page import Shown


async def cluster_page(request: Request, look_ups: LookUps) -> Shown:
    """Returns the brokers by cluster."""
    del request
    brokers = await look_ups.brokers(watch=True)
    clusters = {name: [one for one in brokers if one.cluster == name] for name in sorted({b.cluster for b in brokers})}
    return Shown("cluster.html", {"clusters": clusters})
