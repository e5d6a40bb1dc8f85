"""Whose lag a topic has, and why its groups wait: figures, order, reasons, members and their stacks."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest
import trio

from pyrmq_core import Admin, Command, MessageExt, MessageQueue, PullConsumer, PushConsumer, RequestCode
from pyrmq_core.client.admin.values import GroupProgress, QueueProgress
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo
from pyrmq_core.tools.web.history import MAX_RATED, AcknowledgedRates
from pyrmq_core.tools.web.pages.groups import MAX_STACK_CHARACTERS, topics_in_order
from pyrmq_core.tools.web.rendering import Pages
from tests.tools.web.serving import HOSTILE, ORDERS, Served, fill, served

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served() as page:
        await fill(page.cluster.nameserver)
        yield page


def cells(text: str, group: str) -> list[str]:
    """Returns the cells of the group's row."""
    (row,) = re.findall(rf'<tr><td class="name"><a [^>]*>{group}</a>.*?</tr>', text, re.DOTALL)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]


async def test_a_topic_has_its_groups_with_most_lag_first(page: Served) -> None:
    async with PullConsumer("accounting", nameserver=page.cluster.nameserver) as consumer:
        for queue in await consumer.message_queues("orders"):
            await consumer.commit(queue, 5)
    text = (await page.get("/topic", topic="orders")).text
    assert re.findall(r'href="/group\?group=(\w+)"', text) == ["billing", "accounting"]
    billing, accounting = cells(text, "billing"), cells(text, "accounting")
    assert billing[:4] == ["billing", "0", str(ORDERS - 8), "0"]
    assert accounting[:4] == ["accounting", "0", "0", "0"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", billing[5])
    assert accounting[4:] == ["", ""]
    assert 'class="n s s20" data-head="lag">32<' in text


async def test_the_groups_of_most_lag_are_drawn(page: Served) -> None:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        queues = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]
        for number in range(6):
            async with PullConsumer(f"early-{number}", nameserver=page.cluster.nameserver) as consumer:
                for queue in queues:
                    await consumer.commit(queue, 5)
        listed = await admin.topics.consumers("orders", most=6)
    assert (listed.left_out, listed.consumers[0].group, len(listed.consumers)) == (1, "billing", 6)
    text = (await page.get("/topic", topic="orders")).text
    assert "Of 7 groups the 5 of most lag are drawn" in text
    lines = (await page.get("/data/curve", kind="topic", name="orders")).json()["lines"]
    assert "to billing" in lines
    assert len(lines) == 6


async def test_a_group_without_members_says_so(page: Served) -> None:
    text = (await page.get("/group", group="billing")).text
    assert "<li>no member is connected</li>" in text
    assert "counted from the next look on" in text


async def test_a_slow_handler_its_member_and_its_stack(page: Served) -> None:
    go_on = trio.Event()

    async def handle(_messages: Sequence[MessageExt]) -> None:
        await go_on.wait()

    async with (
        PushConsumer("billing", nameserver=page.cluster.nameserver) as consumer,
        trio.open_nursery() as nursery,
    ):
        await consumer.subscribe("orders", tags="<script> || x")
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(60):
            while "in the memory of" not in (text := (await page.get("/group", group="billing")).text):  # noqa: ASYNC110
                await trio.sleep(0.1)
        (stack,) = set(re.findall(r'href="(/stack\?[^"]*)"', text))
        assert "thread" in (await page.http.get(html.unescape(stack))).text
        head = re.findall(r'<tr class="of"><td colspan="8">([^<]*)</td>', text)
        assert len(head) == 1
        assert head[0].endswith(f": {ORDERS - 8} messages behind")
        assert "orders (&lt;script&gt; || x)" in text
        go_on.set()
        await consumer.stop(5)


async def test_a_stack_is_text_and_bounded(page: Served) -> None:
    async def tell(request: Command, peer: Peer) -> Command:
        return ConsumerRunningInfo(jstack=HOSTILE + "x" * MAX_STACK_CHARACTERS).to_command()

    async def handle(_messages: Sequence[MessageExt]) -> None: ...

    page.cluster.control(RequestCode.GET_CONSUMER_RUNNING_INFO, tell)
    async with (
        Admin(nameserver=page.cluster.nameserver) as admin,
        PushConsumer("audit", nameserver=page.cluster.nameserver) as consumer,
        trio.open_nursery() as nursery,
    ):
        await admin.groups.create("audit")
        await consumer.subscribe("orders")
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(60):
            while not (members := (await admin.groups.describe("audit")).members):  # noqa: ASYNC110
                await trio.sleep(0.1)
        text = (await page.get("/stack", group="audit", client=members[0].client_id)).text
        await consumer.stop(5)
    assert HOSTILE not in text
    assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in text
    (stack,) = re.findall("<pre>(.*?)</pre>", text, re.DOTALL)
    assert len(html.unescape(stack)) == MAX_STACK_CHARACTERS
    assert f"{len(HOSTILE)} characters more are left out" in text


async def test_the_stack_of_nobody(page: Served) -> None:
    answer = await page.get("/stack", group="billing", client="nobody")
    assert (answer.status_code, "has no member nobody" in answer.text) == (400, True)
    assert (await page.get("/stack", group="billing")).status_code == 400


def progress(seconds: float, offset: int) -> GroupProgress:
    row = QueueProgress(MessageQueue("orders", "broker-a", 0), 1000, offset, None, None, None)
    return GroupProgress("audit", (row,), 4.9, {}, NOW + timedelta(seconds=seconds))


def test_what_is_acknowledged_is_counted_over_half_a_minute_to_a_minute() -> None:
    rates = AcknowledgedRates()
    shown = []
    for seconds, offset in ((0, 0), (10, 40), (20, 40), (30, 60), (60, 60), (70, 60), (400, 900), (410, 910)):
        rates.add("audit", progress(seconds, offset))
        shown.append(rates.get("audit"))
    assert shown == [None, 4.0, 2.0, 2.0, 1.0, 0.0, None, 1.0]


def test_the_offsets_of_few_groups_are_kept() -> None:
    rates = AcknowledgedRates()
    for number in range(MAX_RATED + 1):
        for seconds in (0, 10):
            rates.add(number, progress(seconds, 10 * number + int(seconds)))
    assert rates.get(0) is None
    assert [rates.get(1), rates.get(MAX_RATED)] == [1.0, 1.0]


def test_topics_of_retries_and_dead_letters_come_last() -> None:
    assert topics_in_order(["%DLQ%g", "%RETRY%g", "orders", "bills"]) == ["bills", "orders", "%DLQ%g", "%RETRY%g"]


@pytest.mark.parametrize(
    ("value", "most", "bar"),
    [(0, 10, "n"), (None, 10, "n"), (10, 10, "n s s20"), (1, 1000, "n s s1"), (5, 10, "n s s10"), (5, 0, "n")],
)
def test_the_bar_behind_a_figure(value: float | None, most: float, bar: str) -> None:
    assert Pages()._templates.filters["share"](value, most) == bar
