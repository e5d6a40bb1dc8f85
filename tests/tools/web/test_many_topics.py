"""A page over 500 topics and 50 groups: its requests to brokers are bounded, and every list is sorted and filtered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import trio

from pyrmq_core import Client, Command, Message, Producer, PullConsumer, RequestCode
from pyrmq_core.embedded import PASS, EmbeddedCluster, Pass
from pyrmq_core.network import Peer
from pyrmq_core.tools.web import topic_figures
from pyrmq_core.tools.web.topic_figures import ROUND_SECONDS, TOPICS_A_ROUND
from tests.tools.web.serving import Served, served
from tests.tools.web.test_pages import rows

TOPICS, GROUPS = 500, 50
VIEWERS = 10
BROKERS = 2
# A click moves the page alone: browsers keep its files.
PAGE_BYTES = 25_000


@dataclass
class Many:
    """The page, and the requests that brokers and NameServers had of it."""

    page: Served
    counted: Counter[int] = field(default_factory=Counter)

    def count(self) -> None:
        async def counting(request: Command, peer: Peer) -> Pass:
            self.counted[request.code] += 1
            return PASS

        for code in (
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        ):
            self.page.cluster.control(code, counting)


@pytest.fixture
async def many() -> AsyncIterator[Many]:
    async with served(brokers=BROKERS, topics={f"topic-{number:03}": 1 for number in range(TOPICS)}) as page:
        await behind(page.cluster)
        yield Many(page)


async def behind(cluster: EmbeddedCluster) -> None:
    """Puts messages into three topics, and fifty groups behind them."""
    async with Client(nameserver=cluster.nameserver) as client, Producer("web-tests", client=client) as producer:
        for number in range(6):
            for topic in ("topic-003", "topic-499", "topic-499")[: 1 + number % 3]:
                await producer.send(Message(topic, b"x"))
        for number in range(GROUPS):
            async with PullConsumer(f"group-{number:02}", client=client) as consumer:
                for queue in await consumer.message_queues("topic-499"):
                    await consumer.commit(queue, number % 2)


def names(text: str) -> list[str]:
    return re.findall(r"<tr><td[^>]*><a [^>]*>([^<]+)</a>", text)


async def test_many_topics_cost_brokers_a_bounded_rate(many: Many) -> None:
    many.count()
    began, statuses = trio.current_time(), list[int]()

    async def view(number: int) -> None:
        sort = ("topic", "messages", "rate", "lag", "groups")[number % 5]
        for path in (f"/topics?sort={sort}", f"/groups?sort=lag&page={number}"):
            statuses.append((await many.page.http.get(path)).status_code)

    async with trio.open_nursery() as nursery:
        for number in range(VIEWERS):
            nursery.start_soon(view, number)
    seconds = trio.current_time() - began
    assert statuses == [200] * (2 * VIEWERS)
    topics = TOPICS_A_ROUND * (seconds / ROUND_SECONDS + 2)
    lists = 2 + seconds / 5
    assert 0 < many.counted[RequestCode.GET_TOPIC_STATS_INFO] <= BROKERS * topics
    assert many.counted[RequestCode.GET_ROUTEINFO_BY_TOPIC] <= topics
    assert 0 < many.counted[RequestCode.GET_BROKER_CONSUME_STATS] <= BROKERS * lists
    assert many.counted[RequestCode.GET_CONSUMER_CONNECTION_LIST] <= BROKERS * (GROUPS + 20) * lists
    assert many.counted[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] <= lists


async def test_lists_are_sorted_and_filtered_by_their_address(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    get = many.page.get
    first = await get("/topics")
    assert names(first.text)[:2] == ["topic-000", "topic-001"]
    assert "Page 1 of 3, 500 in all" in first.text
    assert first.num_bytes_downloaded < PAGE_BYTES
    monkeypatch.setattr(topic_figures, "PATIENCE_SECONDS", 60.0)  # the figures of the rows are waited for
    by_lag = await get("/topics", sort="lag", filter="topic-49")
    assert names(by_lag.text)[0] == "topic-499"
    row = next(row for row in rows(by_lag.text) if row.startswith("topic-499"))
    held = int(row.split()[1])
    assert held == 6
    assert row.split()[3:5] == [f"{GROUPS // 2 * (held - BROKERS + held)}", str(GROUPS)]
    assert "topic-003" not in by_lag.text
    few = await get("/topics", filter="99", sort="messages")
    assert names(few.text) == ["topic-499", "topic-099", "topic-199", "topic-299", "topic-399"]
    assert 'name="sort" value="messages"' in few.text
    assert "sort=lag&amp;kind=own&amp;filter=99" in few.text
    assert "No topic of this kind has “nowhere”" in (await get("/topics", filter="nowhere")).text
    groups = (await get("/groups", filter="GROUP-0", sort="lag")).text
    assert names(groups)[:2] == ["group-00", "group-02"]
    assert len(names(groups)) == 10
    assert len(names((await get("/groups", filter="topic-499")).text)) == GROUPS
    queues = (await get("/topic", topic="topic-499", filter="broker-b/")).text
    assert [row.split()[0] for row in rows(queues[queues.index("<h2>Queues") :])][1:] == ["broker-b"]
    lag = (await get("/group", group="group-01", filter="broker-a/")).text
    assert sum(row.startswith("topic-499 broker-a") for row in rows(lag)) == 1
    assert not any("broker-b" in row for row in rows(lag))
    brokers = (await get("/", filter="BROKER-B", sort="in")).text
    assert [row.split()[0] for row in rows(brokers) if "master" in row] == ["broker-b"]
    producers = (await get("/producers", filter="nobody")).text
    assert "No connected producer has “nobody”" in producers
