"""A page over a cluster of our own, in the loop of a test, with a hostile topic and a group that is behind."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import trio

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.tools.web.server import WebSettings, serve_web

HOSTILE = "<script>document.title='broken'</script>"
ORDERS = 40


@dataclass(frozen=True, slots=True)
class Served:
    """A cluster, the address of its page, and a client without a browser."""

    cluster: EmbeddedCluster
    address: str
    http: httpx.AsyncClient

    async def get(self, path: str, **parameters: str | int) -> httpx.Response:
        return await self.http.get(path, params=parameters)


@asynccontextmanager
async def served(
    *,
    allow_changes: bool = False,
    brokers: int = 2,
    topics: Mapping[str, int] | None = None,
    settings: Mapping[str, str] | None = None,
    masks: Sequence[str] = (),
    change_log: Path | None = None,
    viewer_header: str | None = None,
) -> AsyncIterator[Served]:
    """Yields a page on a free port; `settings` are the brokers'."""
    async with (
        EmbeddedCluster(brokers, topics=topics or {}, settings=settings) as cluster,
        Client(nameserver=cluster.nameserver) as client,
        trio.open_nursery() as nursery,
    ):
        web_settings = WebSettings(
            port=0,
            allow_changes=allow_changes,
            masks=masks,
            change_log=change_log,
            viewer_header=viewer_header,
        )
        address: str = await nursery.start(serve_web, client, cluster.nameserver, web_settings)
        async with httpx.AsyncClient(base_url=address, timeout=30) as http:
            yield Served(cluster, address, http)
        nursery.cancel_scope.cancel()


async def fill(nameserver: str) -> None:
    """Sends orders with hostile bodies and keys, and commits half of the first queue's for a group."""
    async with (
        Producer("web-tests", nameserver=nameserver) as producer,
        PullConsumer("billing", nameserver=nameserver) as consumer,
    ):
        for number in range(ORDERS):
            body = HOSTILE if number % 2 else f'{{"order": {number}}}'
            await producer.send(Message("orders", body.encode(), keys=f"k{number}", tags=HOSTILE[:8]))
        for queue in await consumer.message_queues("orders"):
            await consumer.commit(queue, 1)


async def changed(http: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Fills in a form of the page, and confirms it."""
    token = re.search(r'name="token" value="([^"]+)"', (await http.get("/send")).text)
    assert token is not None
    ticket = re.search(
        r'name="ticket" value="([^"]+)"', (await http.post(path, data={"token": token[1], **fields})).text
    )
    assert ticket is not None
    return await http.post("/confirmed", data={"token": token[1], "ticket": ticket[1]})
