"""The page in the browser over Apache RocketMQ: every page of both releases."""

from __future__ import annotations

import html
import re

import httpx
import trio

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.web.server import WebSettings, serve_web
from tests.support.apache import ApacheCluster

TOPIC = "web_page_orders"
GROUP = "web_page_billing"
HOSTILE = "<img src=x onerror=alert(1)>"
MESSAGES = 12


async def test_every_page(apache: ApacheCluster) -> None:
    nameserver = apache.nameserver.address
    async with Client(nameserver=nameserver) as client, trio.open_nursery() as nursery:
        await fill(client)
        address = await nursery.start(serve_web, client, nameserver, WebSettings(port=0))
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:

            async def text(path: str) -> str:
                answer = await http.get(path)
                assert answer.status_code == 200, answer.text
                assert HOSTILE not in answer.text
                return answer.text

            cluster = await text("/")
            assert all(broker.address in cluster for broker in apache.brokers.values())
            assert cluster.count(apache.version) >= len(apache.brokers)
            assert TOPIC in await text("/topics")
            topic = await text(f"/topic?topic={TOPIC}")
            assert topic.count('<rect class="queue"') == 4 * len(apache.brokers)
            assert f"{MESSAGES} messages in" in topic
            assert GROUP in topic
            assert GROUP in await text("/groups")
            assert f"{MESSAGES - 4 * len(apache.brokers)} messages behind" in await text(f"/group?group={GROUP}")
            assert await text("/producers")
            assert await text("/dead-letters")
            found = await text(f"/messages?topic={TOPIC}&key=web-key-3")
            link = re.search(r'href="(/message\?[^"]*)"', found)
            assert link is not None
            message = await text(html.unescape(link[1]))
            assert html.escape(HOSTILE) in message
            assert GROUP in message
        nursery.cancel_scope.cancel()


async def fill(client: Client) -> None:
    """Sends messages to every queue, and commits offset 1 of each for the group."""
    async with Producer("web-page", client=client) as producer, PullConsumer(GROUP, client=client) as consumer:
        for number in range(MESSAGES):
            await producer.send(Message(TOPIC, HOSTILE.encode(), keys=f"web-key-{number}"))
        queues = await consumer.message_queues(TOPIC)
        for queue in queues:
            await consumer.commit(queue, 1)
