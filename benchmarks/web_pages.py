"""The page in the browser over a cluster with 1,000 topics and 100 groups: the time of each page, and what it asks.

    python -m benchmarks web_pages [--quick]

Cluster, page and client share one process and loop, so that the times include the brokers' work. `requests` counts all
that reached the servers while the page was made; `again` is the time of the same page while its answers are fresh;
`CPU, s` is the process time of the first.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import httpx
import trio

from pyrmq_core import Client, Command, Message, Producer, PullConsumer, RequestCode
from pyrmq_core.embedded import PASS, EmbeddedCluster, Pass, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.web.server import WebSettings, serve_web

PATHS = (
    "/",
    "/topics",
    "/topic?topic=topic-3",
    "/groups",
    "/group?group=group-3",
    "/messages?topic=topic-3",
    "/producers",
)
COUNTED = (
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.VIEW_BROKER_STATS_DATA,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.PULL_MESSAGE,
)


def main(*, quick: bool) -> None:
    trio.run(measure, 50 if quick else 1000, 10 if quick else 100)


async def measure(topics: int, groups: int) -> None:
    """Prints a line for each page."""
    named = [f"topic-{number}" for number in range(topics)]
    async with (
        EmbeddedCluster(2, topics={name: TopicConfig(name, 4, 4) for name in named}) as cluster,
        Client(nameserver=cluster.nameserver) as client,
        trio.open_nursery() as nursery,
    ):
        await fill(client, named[:groups])
        asked: list[int] = []

        async def count(request: Command, peer: Peer) -> Pass:
            asked.append(request.code)
            return PASS

        for code in COUNTED:
            cluster.control(code, count)
        address = await nursery.start(serve_web, client, cluster.nameserver, WebSettings(port=0))
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            print(f"{topics} topics, {groups} groups")
            print(f"{'page':28} {'s':>7} {'CPU, s':>7} {'requests':>9} {'again, s':>9}")
            for path in PATHS:
                asked.clear()
                began = time.process_time()
                first = await seconds(http, path)
                took, requests = time.process_time() - began, len(asked)
                print(f"{path:28} {first:7.3f} {took:7.3f} {requests:9} {await seconds(http, path):9.3f}")
        nursery.cancel_scope.cancel()


async def fill(client: Client, topics: Iterable[str]) -> None:
    """Sends one message to each topic, and commits an offset of a group in each of its queues."""

    async def group(number: int, topic: str) -> None:
        async with PullConsumer(f"group-{number}", client=client) as consumer:
            for queue in await consumer.message_queues(topic):
                await consumer.commit(queue, 0)

    async with Producer("filling", client=client) as producer, trio.open_nursery() as nursery:
        for number, topic in enumerate(topics):
            await producer.send(Message(topic, b"x"))
            nursery.start_soon(group, number, topic)


async def seconds(http: httpx.AsyncClient, path: str) -> float:
    began = time.perf_counter()
    answer = await http.get(path)
    answer.raise_for_status()
    return time.perf_counter() - began
