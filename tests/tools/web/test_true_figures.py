"""States and figures of the page that have to be true: given-up messages, unknown groups, and its own reading."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from pyrmq_core import Admin
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


async def test_the_pages_own_reading_is_no_traffic(page: Served) -> None:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        (before,) = await admin.brokers.list()
        for condition in ("", "json.order in [2, 4]"):
            text = (await page.get("/messages", topic="orders", where=condition)).text
            assert len(re.findall(r'href="/message\?', text)) >= 2
        (after,) = await admin.brokers.list()
        assert after.messages_got_today == before.messages_got_today == 0
