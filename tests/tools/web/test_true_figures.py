"""States and figures of the page that have to be true: given-up messages, unknown groups, and its own reading."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape

import pytest

from pyrmq_core import Admin, Message, MessageQueue, Producer
from pyrmq_core.tools.web.message_reads import MOST_TIED
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import Served, fill, served


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(brokers=1) as page:
        await fill(page.cluster.nameserver)
        yield page


async def test_a_dead_letter_was_not_consumed(page: Served) -> None:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        await dead(page.cluster.nameserver, admin, "audit", "orders", "given up")
    text = (await page.get("/message", topic="%DLQ%audit", brokerName="broker-a", queueId=0, offset=0)).text
    life = text[text.index("<h2>Life</h2>") : text.index("<h2>Properties")]
    assert " ".join(re.sub(r"<[^>]*>", " ", life).split()).endswith("audit DEAD_LETTER 1")


async def test_the_lag_of_an_unknown_group_is_not_0(page: Served) -> None:
    text = (await page.get("/group", group="nobody-knows-it")).text
    assert "its lag is not known" in text
    assert "0 messages" not in re.sub(r"[\d.]+ messages a second", "", text)


@pytest.mark.parametrize(("topic", "path", "name"), [("T", "/messages", "topic"), ("%DLQ%G", "/dead-letters", "group")])
async def test_older_messages_have_no_gap(topic: str, path: str, name: str) -> None:
    """A busy queue has more messages than are read of it at once, and a batch more than a list in one millisecond."""
    async with served(brokers=1, topics={topic: 2}) as page:
        queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in (0, 1)]
        async with Producer("P", nameserver=page.cluster.nameserver) as producer:
            for queue in queues:
                await producer.send_batch([Message(topic, b"batch") for _ in range(100)], queue=queue)
            for number in range(100):
                await producer.send(Message(topic, b"one"), queue=queues[number % 20 == 0])
        address, places = f"{path}?{name}={topic.removeprefix('%DLQ%')}", list[tuple[str, str]]()
        while address:
            text = (await page.http.get(address)).text
            places += re.findall(r'href="/message\?[^"]*queueId=(\d+)&amp;offset=(\d+)', text)
            link = re.search(r'rel="next" href="([^"]+)"', text)
            address = unescape(link[1]) if link else ""
    assert sorted(places) == sorted({*places})
    assert len(places) == 300


async def test_a_millisecond_with_very_many_messages_is_shown_in_part_and_says_so() -> None:
    async with served(brokers=1, topics={"T": 1}) as page:
        async with Producer("P", nameserver=page.cluster.nameserver) as producer:
            await producer.send(Message("T", b"before"))
            await producer.send_batch([Message("T", b"m")] * 3 * MOST_TIED)  # one request, stored at once
        text = (await page.get("/messages", topic="T")).text
        assert "not all messages of one millisecond are shown" in text
        assert MOST_TIED // 4 <= len(re.findall(r'href="/message\?', text)) < 3 * MOST_TIED
        link = re.search(r'rel="next" href="([^"]+)"', text)
        assert link is not None
        assert "before" in (await page.http.get(unescape(link[1]))).text


async def test_a_few_busy_queues_of_many_fill_a_list() -> None:
    """At first two messages of each queue are read, and then more of the queues that end the list."""
    async with served(brokers=1, topics={"T": 100}) as page:
        async with Producer("P", nameserver=page.cluster.nameserver) as producer:
            for number in [*range(100), *(number % 5 for number in range(300))]:
                await producer.send(Message("T", b"one"), queue=MessageQueue("T", "broker-a", number))
        text = (await page.get("/messages", topic="T")).text
        assert "not all messages of one millisecond" not in text
        assert len(re.findall(r'href="/message\?', text)) >= 16


async def test_the_pages_own_reading_is_no_traffic(page: Served) -> None:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        (before,) = await admin.brokers.list()
        for condition in ("", "json.order in [2, 4]"):
            text = (await page.get("/messages", topic="orders", where=condition)).text
            assert len(re.findall(r'href="/message\?', text)) >= 2
        (after,) = await admin.brokers.list()
        assert after.messages_got_today == before.messages_got_today == 0
