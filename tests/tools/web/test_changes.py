"""Changes on the page: their question, their result, and the refusals that come before the question."""

from __future__ import annotations

import html
import re
import shlex
import sys
from collections.abc import AsyncIterator

import pytest
import trio

from pyrmq_core import Admin, MessageQueue, PullConsumer
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import Served, fill, served


@pytest.fixture
async def changing() -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=1) as page:
        await fill(page.cluster.nameserver)
        yield page


async def asked(page: Served, path: str, **form: str) -> tuple[int, str, dict[str, str]]:
    """Sends a form; returns the status and the text of its answer, and the fields of the confirmation."""
    token = re.search(r'name="token" value="([^"]+)"', (await page.http.get("/reset?group=billing")).text)
    assert token is not None
    answer = await page.http.post(path, data={"token": token[1], **form})
    ticket = re.search(r'name="ticket" value="([^"]+)"', answer.text)
    return answer.status_code, answer.text, {"token": token[1], "ticket": ticket[1]} if ticket else {}


def undo_of(text: str) -> list[str]:
    commands = re.search(r'<pre id="undo">([^<]*)</pre>', text)
    return html.unescape(commands[1]).split("\n")[:-1] if commands else []


async def test_a_reset(changing: Served) -> None:
    """Its effect on each queue is shown before, and afterwards the commands that take it back."""
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        before = {row.queue: row for row in (await admin.groups.progress("billing", topic="orders")).queues}
        _, text, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="latest")
        assert f"<strong>{sum(row.lag for row in before.values())} messages are skipped</strong>" in text
        assert "<strong>0 are consumed again</strong>" in text
        assert re.findall(r">([\d,]+) skipped<", text) == [str(row.lag) for row in before.values() if row.lag]
        done = await changing.http.post("/confirmed", data=confirmation)
        assert "4 of 4 queues of orders have a new offset" in done.text
        assert ">0 messages behind" in (await changing.get("/group", group="billing")).text
        for command in undo_of(done.text):
            words = [*shlex.split(command)[1:], "-n", changing.cluster.nameserver, "--timeout", "60"]
            await trio.run_process([sys.executable, "-m", "pyrmq_core.tools.cli", *words])
        for row in (await admin.groups.progress("billing", topic="orders")).queues:
            assert row.consumer_offset == before[row.queue].consumer_offset
        _, text, _ = await asked(changing, "/reset", group="billing", topic="orders", to="earliest")
        consumed = [row.consumer_offset for row in before.values()]
        assert f"<strong>{sum(consumed)} are consumed again</strong>" in text
        assert re.findall(r">([\d,]+) consumed again<", text) == [str(offset) for offset in consumed if offset]


async def test_the_form_of_a_reset_fills_in_no_topic(changing: Served) -> None:
    """Nor does it offer the group's own retry topic, which comes first by name."""
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await admin.create_topic("%RETRY%billing", queues=1)
    async with PullConsumer("billing", nameserver=changing.cluster.nameserver) as consumer:
        await consumer.commit(MessageQueue("%RETRY%billing", "broker-a", 0), 0)
    text = (await changing.get("/reset", group="billing")).text
    field = re.search(r'<input name="topic"[^>]*>', text)
    assert field is not None
    assert ' value=""' in field[0]
    assert ' placeholder="such as orders"' in field[0]
    assert re.findall(r'<datalist id="topics">(.*)</datalist>', text) == ['<option value="orders">']


@pytest.mark.parametrize("field", ["to", "queue", "zone"])
async def test_a_long_field_is_refused_and_not_repeated(changing: Served, field: str) -> None:
    form = {"group": "billing", "topic": "orders", "to": "latest", field: 5000 * "x"}
    status, text, confirmation = await asked(changing, "/reset", **form)
    assert (status, f"{field} has 5000 characters" in text, 100 * "x" in text, confirmation) == (400, True, False, {})


async def test_a_group_of_rocketmq_is_not_reset(changing: Served) -> None:
    """A reset of the page's own group would move its next reads."""
    status, text, _ = await asked(changing, "/reset", group="TOOLS_CONSUMER", topic="orders", to="latest")
    assert (status, "is RocketMQ's own" in html.unescape(text)) == (400, True)


async def test_all_dead_letters_of_a_group_without_any(changing: Served) -> None:
    status, text, _ = await asked(changing, "/resend", group="billing", all="yes", rate="1")
    assert (status, "has no dead letter that is kept" in text) == (400, True)


async def test_sentences_are_apart(changing: Served) -> None:
    messages = (await changing.get("/messages", topic="orders", since="2100-01-01")).text
    assert "No message is there. Only those stored from" in " ".join(messages.split())
    group = (await changing.get("/group", group="billing")).text
    assert '. <a href="/dead-letters?' in " ".join(group.split())


@pytest.mark.parametrize("path", ["/reset", "/send"])
async def test_a_topic_that_is_not_there_is_refused_before_a_confirmation(changing: Served, path: str) -> None:
    form = {"group": "billing", "topic": "no-such-topic", "to": "latest", "body": "x"}
    status, text, confirmation = await asked(changing, path, **form)
    assert (status, "no-such-topic" in text, confirmation) == (404, True, {})


async def test_a_dead_letter_that_is_not_there_is_refused_before_a_confirmation(changing: Served) -> None:
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        await dead(changing.cluster.nameserver, admin, "audit", "orders", "given up")
    assert (await asked(changing, "/resend", group="audit", one="broker-a/0@0"))[0] == 200
    status, _, confirmation = await asked(changing, "/resend", group="audit", one="broker-a/0@77")
    assert (status, confirmation) == (400, {})
