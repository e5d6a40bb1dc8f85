"""Changes with what they show before, their way back, and their log, over a cluster of our own."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrmq_core import Admin, Command, ConsumeLater, MessageQueue, PullConsumer, RequestCode
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.testing import ResponseCode, refusal
from pyrmq_core.tools.web import zones
from tests.support.consumer_jobs import Seen, consuming
from tests.support.message_admin_jobs import eventually, sent
from tests.tools.web.serving import Served, fill, served
from tests.tools.web.test_changes import asked, undo_of

QUEUE = MessageQueue("orders", "broker-a", 0)
BODIES = ("one", "two", "three")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "changes.jsonl"


@pytest.fixture
async def changing(log: Path) -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=1, change_log=log, viewer_header="X-User") as page:
        await fill(page.cluster.nameserver)
        yield page


async def queue_offsets(page: Served) -> dict[MessageQueue, int]:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        progress = await admin.groups.progress("billing", topic="orders")
    return {row.queue: row.consumer_offset for row in progress.queues}


async def offsets(page: Served) -> dict[int, int]:
    return {queue.queue_id: offset for queue, offset in (await queue_offsets(page)).items()}


def ticket_of(text: str) -> str:
    ticket = re.search(r'name="ticket" value="([^"]+)"', text)
    assert ticket is not None
    return ticket[1]


async def test_a_reset_is_taken_back_by_its_button(changing: Served) -> None:
    before = await offsets(changing)
    _, _, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="latest")
    done = await changing.http.post("/confirmed", data=confirmation)
    after = await offsets(changing)
    assert after != before
    status, text, back = await asked(changing, "/undo", ticket=ticket_of(done.text))
    assert status == 200
    assert f"<strong>{sum(after.values()) - sum(before.values())} are consumed again</strong>" in text
    undone = await changing.http.post("/confirmed", data=back)
    assert "4 of 4 queues of orders have a new offset" in undone.text
    assert await offsets(changing) == before
    _, _, forth = await asked(changing, "/undo", ticket=ticket_of(undone.text))  # the way back has one, too
    await changing.http.post("/confirmed", data=forth)
    assert await offsets(changing) == after


@pytest.mark.parametrize("is_away", [False, True])
async def test_what_a_refused_reset_changed_is_taken_back(is_away: bool) -> None:
    """One broker makes the reset, and the other refuses, or is away when the offsets are looked up again."""
    async with served(allow_changes=True) as page:
        await fill(page.cluster.nameserver)
        before = await queue_offsets(page)
        _, _, confirmation = await asked(page, "/reset", group="billing", topic="orders", to="latest")

        async def refused(_request: Command, _peer: Peer) -> Command:
            if is_away and len(rules) == 1:
                rules.append(page.cluster.control(RequestCode.GET_CONSUME_STATS, refused, server="broker-b"))
            return refusal(ResponseCode.SYSTEM_ERROR, "not here")

        rules = [page.cluster.control(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, refused, server="broker-b")]
        answer = await page.http.post("/confirmed", data=confirmation)
        assert (answer.status_code, "can be taken back: see the changes" in answer.text) == (502, True)
        for rule in rules:
            rule.remove()
        after = await queue_offsets(page)
        assert {queue.broker_name for queue in before if before[queue] != after[queue]} == {"broker-a"}
        changes = (await page.get("/changes")).text
        assert "failed: " in changes
        _, text, back = await asked(page, "/undo", ticket=ticket_of(changes))
        assert text.count(">stays<") == (4 if is_away else 0)
        await page.http.post("/confirmed", data=back)
        assert await queue_offsets(page) == before


@pytest.mark.parametrize("anyway", [False, True])
async def test_offsets_that_move_after_they_were_shown(changing: Served, anyway: bool) -> None:
    _, _, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="latest")
    async with PullConsumer("billing", nameserver=changing.cluster.nameserver) as consumer:
        await consumer.commit(QUEUE, 5)
        again = await changing.http.post("/confirmed", data=confirmation)
        assert ("Nothing is changed yet, since" in again.text, ">5<" in again.text) == (True, True)
        assert (await offsets(changing))[0] == 5
        await consumer.commit(QUEUE, 6)
    confirmation["ticket"] = ticket_of(again.text)
    answer = await changing.http.post("/confirmed", data={**confirmation, **({"anyway": "yes"} if anyway else {})})
    assert ("have a new offset" in answer.text) is anyway
    assert ("Nothing is changed yet" in answer.text) is not anyway


async def test_an_age_is_counted_from_the_form(changing: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "FRESH_SECONDS", 1e-6)
    _, _, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="1h")
    assert "have a new offset" in (await changing.http.post("/confirmed", data=confirmation)).text


async def test_what_a_group_consumed_before_a_refused_reset_is_not_taken_back(changing: Served) -> None:
    _, _, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="latest")
    async with PullConsumer("billing", nameserver=changing.cluster.nameserver) as consumer:
        await consumer.commit(QUEUE, 5)

    async def refused(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_ERROR, "not here")

    changing.cluster.control(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, refused)
    answer = await changing.http.post("/confirmed", data={**confirmation, "anyway": "yes"})
    assert (answer.status_code, "can be taken back" in answer.text) == (502, False)
    assert 'name="ticket"' not in (await changing.get("/changes")).text


async def test_a_refused_reset_has_its_line_though_its_look_up_is_cut_off(log: Path) -> None:
    async with served(allow_changes=True, brokers=1, change_log=log) as page, trio.open_nursery() as nursery:
        await fill(page.cluster.nameserver)
        _, _, confirmation = await asked(page, "/reset", group="billing", topic="orders", to="latest")
        is_looked_up = trio.Event()

        async def refused(_request: Command, _peer: Peer) -> Command:
            page.cluster.control(RequestCode.GET_CONSUME_STATS, silent)
            return refusal(ResponseCode.SYSTEM_ERROR, "not here")

        async def silent(_request: Command, _peer: Peer) -> Command:
            is_looked_up.set()
            await trio.sleep_forever()
            raise AssertionError

        page.cluster.control(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, refused)
        nursery.start_soon(lambda: page.http.post("/confirmed", data=confirmation))
        await is_looked_up.wait()
        nursery.cancel_scope.cancel()
    assert "not here" in (await trio.Path(log).read_text("utf-8")).splitlines()[-1]


async def test_one_queue(changing: Served) -> None:
    before = await offsets(changing)
    form = {"group": "billing", "topic": "orders", "queue": "broker-a/0"}
    for to, offset in (("4", 4), ("earliest", 0), ("2020-01-01T00:00", 0), ("latest", 10)):
        _, text, confirmation = await asked(changing, "/reset", **form, to=to)
        assert text.count('<td class="n" data-head="then">') == 1
        done = await changing.http.post("/confirmed", data=confirmation)
        assert await offsets(changing) == {**before, 0: offset}
        assert len(undo_of(done.text)) <= 1


@pytest.mark.parametrize(
    ("queue", "to", "reason"),
    [
        ("", "4", "an offset is that of one queue"),
        ("broker-a/0", "11", "has offsets from 0 to 10"),
        ("broker-a/9", "latest", "has no queue broker-a/9"),
        ("broker-a", "latest", "write it as broker-a/0"),
        ("broker-a/0", "9" * 25, "is not a number"),
    ],
)
async def test_queues_and_offsets_that_are_not_there(changing: Served, queue: str, to: str, reason: str) -> None:
    status, text, confirmation = await asked(changing, "/reset", group="billing", topic="orders", queue=queue, to=to)
    assert (status, confirmation) == (400, {})
    assert reason in text


async def test_the_log_of_changes(changing: Served, log: Path) -> None:
    changing.http.headers["X-User"] = "ada <b>" + "x" * 300
    _, _, confirmation = await asked(changing, "/reset", group="billing", topic="orders", to="latest")
    await changing.http.post("/confirmed", data=confirmation)
    changing.http.headers.pop("X-User")
    _, _, failing = await asked(changing, "/send", topic="orders", body="x")
    await changing.cluster.stop("broker-a")
    await changing.http.post("/confirmed", data=failing)
    lines = [json.loads(line) for line in (await trio.Path(log).read_text()).splitlines()]
    assert [(line["change"], line["state"]) for line in lines] == [
        (1, "begun"),
        (1, "done"),
        (2, "begun"),
        (2, "failed"),
    ]
    assert lines[1]["what"] == "Reset group billing to latest in topic orders."
    assert lines[1]["result"] == "4 of 4 queues of orders have a new offset."
    assert (len(lines[1]["viewer"]), lines[1]["viewer"][:7], lines[2]["viewer"]) == (200, "ada <b>", "")
    text = (await changing.get("/changes")).text
    assert "ada &lt;b&gt;" in text
    assert text.index("Send a message") < text.index("Reset group billing")
    assert text.count("Take it back") == 1


async def test_without_its_log_nothing_is_changed(tmp_path: Path) -> None:
    async with served(allow_changes=True, brokers=1, change_log=tmp_path) as page:
        await fill(page.cluster.nameserver)
        before = await offsets(page)
        _, _, confirmation = await asked(page, "/reset", group="billing", topic="orders", to="latest")
        answer = await page.http.post("/confirmed", data=confirmation)
        assert (answer.status_code, "takes no line" in answer.text) == (503, True)
        assert await offsets(page) == before


async def test_dead_letters_are_sent_again_together(changing: Served, log: Path) -> None:
    nameserver, seen = changing.cluster.nameserver, Seen()
    seen.orders = {body: [ConsumeLater(-1)] for body in BODIES}
    async with Admin(nameserver=nameserver) as admin, consuming(nameserver, "audit", "orders", seen):
        for body in BODIES:
            await sent(nameserver, "orders", body)
        await eventually(
            lambda: admin.messages.dead_letters("audit"), lambda listing: len(listing.messages) == len(BODIES)
        )
        page = (await changing.get("/dead-letters", group="audit")).text
        marks = [html.unescape(name) for name in re.findall(r'name="(letter [^"]*)"', page)]
        assert len(marks) == len(BODIES)
        count = len(seen.messages)
        for form, number in (({"all": "yes"}, 3), (dict.fromkeys(marks[:2], "yes"), 2)):
            _, text, confirmation = await asked(changing, "/resend", group="audit", rate="100", **form)
            assert f" {number} dead letters of group audit to it again, 100 a second" in text
            assert "cannot be taken back" in text
            await changing.http.post("/confirmed", data=confirmation)
            count += number
            await seen.wait(count)
            sentence = f"{number} of {number} dead letters of audit were sent again"
            await eventually(lambda: trio.Path(log).read_text(), lambda lines: sentence in lines)  # noqa: B023
        assert sentence in (await changing.get("/changes")).text


async def test_a_run_is_stopped(changing: Served) -> None:
    nameserver, seen = changing.cluster.nameserver, Seen()
    seen.orders = {body: [ConsumeLater(-1)] for body in BODIES}
    async with Admin(nameserver=nameserver) as admin, consuming(nameserver, "audit", "orders", seen):
        for body in BODIES:
            await sent(nameserver, "orders", body)
        await eventually(
            lambda: admin.messages.dead_letters("audit"), lambda listing: len(listing.messages) == len(BODIES)
        )
    assert (await asked(changing, "/stop"))[0] == 400
    assert "its 3 dead letters are lost for good" in (await asked(changing, "/delete", group="audit"))[1]
    _, _, first = await asked(changing, "/resend", group="audit", rate="1", all="yes")
    _, _, second = await asked(changing, "/resend", group="audit", rate="1", all="yes")
    is_reading, never = trio.Event(), trio.Event()

    async def hold(request: Command, peer: Peer) -> Pass:
        is_reading.set()
        await never.wait()
        return PASS

    changing.cluster.control(RequestCode.PULL_MESSAGE, hold)
    await changing.http.post("/confirmed", data=first)
    await is_reading.wait()
    assert (await changing.http.post("/confirmed", data=second)).status_code == 400
    _, _, stop = await asked(changing, "/stop")
    await changing.http.post("/confirmed", data=stop)

    async def changes() -> str:
        return (await changing.get("/changes")).text

    text = await eventually(changes, lambda text: 'action="/stop"' not in text)
    assert '<p role="status">0 of 3 dead letters of audit were sent again.</p>' in text
    never.set()


@pytest.mark.parametrize("form", [{}, {"all": "yes", "rate": "0"}, {"all": "yes", "rate": "101"}, {"letter x": "yes"}])
async def test_resends_with_faults(changing: Served, form: dict[str, str]) -> None:
    status, _, confirmation = await asked(changing, "/resend", group="billing", **form)
    assert (status, confirmation) == (400, {})


async def test_a_message_is_consumed_at_a_member(changing: Served) -> None:
    nameserver, seen = changing.cluster.nameserver, Seen()
    query = {"topic": "orders", "brokerName": "broker-a", "queueId": "0", "offset": "0"}
    async with consuming(nameserver, "audit", "orders", seen):
        await seen.wait(40)
        form = (await changing.get("/consume", group="audit", **query)).text
        (member,) = re.findall(r"<option>([^<]*)</option>", form)
        _, text, confirmation = await asked(changing, "/consume", group="audit", member=html.unescape(member), **query)
        assert "consume the message in" in text
        done = await changing.http.post("/confirmed", data=confirmation)
        assert "answered CR_SUCCESS after" in done.text
        assert [message.queue_offset for message in seen.messages if message.queue_id == 0].count(0) == 2
    assert "/consume?group=audit" in (await changing.get("/message", **query)).text


async def test_a_topic_is_deleted(changing: Served) -> None:
    assert "/delete?topic=orders" in (await changing.get("/topic", topic="orders")).text
    assert "Delete topic orders" in (await changing.get("/delete", topic="orders")).text
    _, text, confirmation = await asked(changing, "/delete", topic="orders")
    assert "40 messages in 4 queues are lost for good. It is read by: billing." in text
    assert "40 messages" in (await changing.get("/topic", topic="orders")).text
    done = await changing.http.post("/confirmed", data=confirmation)
    assert undo_of(done.text) == ["pyrmq topic create orders -r 4 -w 4"]
    assert (await changing.get("/topic", topic="orders")).status_code == 404


@pytest.mark.parametrize("first", [0, 1])
async def test_a_topic_that_changed_since_it_was_shown(changing: Served, first: int) -> None:
    """With more messages than were shown it is deleted only once they were shown too, and no send makes it again."""
    nameserver = changing.cluster.nameserver
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic("fresh", queues=1)
        for _ in range(first):
            await sent(nameserver, "fresh")
        _, text, deletion = await asked(changing, "/delete", topic="fresh")
        assert f"{first} messages in 1 queues are lost" in text
        await sent(nameserver, "fresh", "one")
        again = (await changing.http.post("/confirmed", data=deletion)).text
        shown = ("Nothing is changed yet, since" in again, f"{first + 1} messages in 1 queues are lost" in again)
        assert shown == (True, True)
        assert (await admin.topics.stats("fresh")).messages == first + 1
        _, _, sending = await asked(changing, "/send", topic="fresh", body="two")
        deletion["ticket"] = ticket_of(again)
        assert (await changing.http.post("/confirmed", data=deletion)).status_code == 200
        assert (await changing.http.post("/confirmed", data=sending)).status_code == 404
        assert "fresh" not in await admin.topics.list()


async def test_a_group_is_deleted(changing: Served) -> None:
    before, seen = await offsets(changing), Seen()
    async with consuming(changing.cluster.nameserver, "audit", "orders", seen):
        await seen.wait(40)
        status, text, _ = await asked(changing, "/delete", group="audit")
        assert (status, "stop them first" in text) == (400, True)
    _, text, confirmation = await asked(changing, "/delete", group="billing")
    assert "its offsets in 4 queues" in text
    done = await changing.http.post("/confirmed", data=confirmation)
    create, *seeks = undo_of(done.text)
    assert create == "pyrmq group create billing -r 16 -q 1 --consume --broadcast --no-orderly"
    assert [command.split()[-1] for command in seeks] == [str(offset) for _, offset in sorted(before.items())]
    async with Admin(nameserver=changing.cluster.nameserver) as admin:
        assert "billing" not in {group.group for group in (await admin.groups.list()).groups}
    for command in (create, seeks[1]):
        words = [*shlex.split(command)[1:], "-n", changing.cluster.nameserver, "--timeout", "60"]
        await trio.run_process([sys.executable, "-m", "pyrmq_core.tools.cli", *words])
    assert (await offsets(changing))[1] == before[1] == 1
