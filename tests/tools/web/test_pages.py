"""Every page over a cluster of our own, without a browser: what it shows, what it escapes, what it refuses."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from pyrmq_core import Admin, Command, Message, Producer, RequestCode
from pyrmq_core.embedded import PASS, CutConnection, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.figures.runtime_info import RuntimeInfo
from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats, StatsPeriod, ViewBrokerStats
from pyrmq_core.tools.web import look_ups
from pyrmq_core.tools.web.look_ups import SEARCHES_AT_ONCE, TopicNames
from pyrmq_core.tools.web.pages.topics import topic_kind
from tests.support.message_admin_jobs import dead
from tests.tools.web.serving import HOSTILE, ORDERS, Served, changed, fill, served


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served() as page:
        await fill(page.cluster.nameserver)
        yield page


@pytest.fixture
async def changing() -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=1) as page:
        await fill(page.cluster.nameserver)
        yield page


def rows(text: str) -> list[str]:
    """Returns the texts of a page's table rows."""
    markup = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", row)).split()) for row in markup]


def messages_in(text: str) -> list[str]:
    """Returns the rows of a page's list of messages."""
    return [row for row in rows(text) if "@" in row]


async def test_brokers(page: Served) -> None:
    answer = await page.get("/")
    assert answer.status_code == 200
    masters = [row for row in rows(answer.text) if "master" in row]
    assert [row.split()[0] for row in masters] == list(page.cluster.brokers)


async def test_a_broker_that_is_down_is_shown_as_such(page: Served) -> None:
    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    for code in (RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_TOPIC_STATS_INFO):
        page.cluster.control(code, cut, server="broker-b")
    text = (await page.get("/")).text
    assert all(name in text for name in page.cluster.brokers)
    assert text.count('role="alert"') == 1
    topic = (await page.get("/topic", topic="orders")).text
    assert topic.count('<rect class="queue"') == 4
    assert "<b>broker-b</b>:" in topic


async def test_topics(page: Served) -> None:
    text = (await page.get("/topics")).text
    assert any(row.startswith("orders") for row in rows(text))
    assert not any("TBW102" in row for row in rows(text))
    assert any("TBW102" in row for row in rows((await page.get("/topics", kind="RocketMQ's")).text))
    assert "0 topics" in (await page.get("/topics", filter="nowhere")).text


def test_a_manifest_is_a_kind_of_topic() -> None:
    names = TopicNames(("decided", "orders"), frozenset(), frozenset({"decided"}))
    assert [topic_kind(name, names) for name in names.names] == ["manifests", "own"]


async def test_topics_of_servers_are_never_shown_as_own(page: Served) -> None:
    own = rows((await page.get("/topics")).text)
    assert [row.split()[0] for row in own] == ["topic", "orders"]
    assert {"broker-a", "broker-b", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"} <= {
        row.split()[0] for row in rows((await page.get("/topics", kind="RocketMQ's")).text)
    }


async def test_topics_without_the_names_of_brokers_are_not_shown(page: Served) -> None:
    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    page.cluster.control(RequestCode.GET_BROKER_CLUSTER_INFO, cut)
    answer = await page.get("/topics")
    assert (answer.status_code, "broker-a" in "".join(rows(answer.text))) == (502, False)
    assert "The cluster did not answer" in answer.text


async def test_looking_creates_no_group(page: Served) -> None:
    async with Admin(nameserver=page.cluster.nameserver) as admin:
        before = {group.group for group in (await admin.groups.list()).groups}
        for path in ("/messages?topic=orders", "/message?topic=orders&brokerName=broker-a&queueId=0&offset=0"):
            assert (await page.http.get(path)).status_code == 200
        assert {group.group for group in (await admin.groups.list()).groups} == before


async def test_the_spread_of_a_topic(page: Served) -> None:
    text = (await page.get("/topic", topic="orders")).text
    assert text.count('<rect class="queue"') == 8
    assert f"{ORDERS} messages in 8 queues on 2 brokers" in text
    assert "billing" in text


async def test_a_group(page: Served) -> None:
    assert any(row.startswith("billing") for row in rows((await page.get("/groups")).text))
    text = (await page.get("/group", group="billing")).text
    assert f"{ORDERS - 8} messages behind" in text
    assert "No member is connected" in text


async def test_lag_over_time(page: Served) -> None:
    text = (await page.get("/group", group="billing")).text
    assert 'data-from="/data/curve?kind=lag&amp;name=billing"' in text
    lag = (await page.get("/data/curve", kind="lag", name="billing")).json()
    assert lag["lines"] == {"messages behind": [ORDERS - 8]}
    assert len(lag["seconds"]) == 1


async def test_what_is_looked_at_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_ups, "SAMPLE_SECONDS", 0.1)
    async with served(brokers=1) as sampled:
        await fill(sampled.cluster.nameserver)
        for kind, path, name in (
            ("lag", "/group?group=billing", "billing"),
            ("topic", "/topic?topic=orders", "orders"),
        ):
            await sampled.http.get(path)
            with trio.fail_after(30):
                while len((await sampled.get("/data/curve", kind=kind, name=name)).json()["seconds"]) < 3:  # noqa: ASYNC110
                    await trio.sleep(0.05)


async def test_many_viewers_cost_brokers_no_more_than_one(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # Thirty loads may need longer than the seconds for which answers are fresh.
    monkeypatch.setattr(look_ups.LookUps._get, "__defaults__", (3600.0,))
    monkeypatch.setattr(look_ups, "SAMPLE_SECONDS", 7200.0)
    monkeypatch.setattr(look_ups, "GROUPS_FRESH_SECONDS", 3600.0)
    queries = list[int]()

    async def count(request: Command, peer: Peer) -> Pass:
        queries.append(request.code)
        return PASS

    looked_up = {
        "/": (RequestCode.GET_BROKER_RUNTIME_INFO, 4),  # for the list of brokers, and for what is wrong
        "/topic?topic=orders": (RequestCode.GET_TOPIC_STATS_INFO, 2),
        "/group?group=billing": (RequestCode.GET_CONSUME_STATS, 4),  # and for the topic's groups before
    }
    for code, _ in looked_up.values():
        page.cluster.control(code, count)
    for path, (code, most) in looked_up.items():
        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(page.http.get, path)
        assert 2 <= queries.count(code) <= most, path


async def test_rates_of_a_topic_over_time(page: Served) -> None:
    async def figure(request: Command, peer: Peer) -> Command:
        key = ViewBrokerStats.from_command(request).stats_key
        return BrokerStats(StatsPeriod(tps={"orders": 2.25, "orders@billing": 1.5}[key])).to_command()

    page.cluster.control(RequestCode.VIEW_BROKER_STATS_DATA, figure)
    text = (await page.get("/topic", topic="orders")).text
    assert "4.5 new ones a second" in text
    assert 'data-from="/data/curve?kind=topic&amp;name=orders"' in text
    rates = (await page.get("/data/curve", kind="topic", name="orders")).json()
    assert rates["lines"] == {"stored": [4.5], "to billing": [3.0]}


async def test_rates_of_a_cluster_over_time(page: Served) -> None:
    rates = {"putTps": "3.5 3.0 2.0", "getTransferredTps": "1.5 1.0 0.5"}

    async def runtime(request: Command, peer: Peer) -> Command:
        return RuntimeInfo(rates).to_command()

    page.cluster.control(RequestCode.GET_BROKER_RUNTIME_INFO, runtime)
    assert 'data-from="/data/curve?kind=cluster&amp;name=DefaultCluster"' in (await page.get("/")).text
    curve = (await page.get("/data/curve", kind="cluster", name="DefaultCluster")).json()
    assert curve["lines"] == {"in": [7.0], "out": [3.0]}


async def test_messages(page: Served) -> None:
    text = (await page.get("/messages", topic="orders")).text
    assert len(rows(text)) == ORDERS + 1
    by_key = (await page.get("/messages", topic="orders", key="k7")).text
    assert len(rows(by_key)) == 2
    assert "No message has the key nothing" in (await page.get("/messages", topic="orders", key="nothing")).text
    assert "No message has the id NONE" in (await page.get("/messages", topic="orders", id="NONE")).text
    link = re.search(r'href="(/message\?[^"]*)"', by_key)
    assert link is not None
    response = await page.http.get(html.unescape(link[1]))
    assert html.escape(HOSTILE) in response.text.replace("&#39;", "&#x27;")
    assert any(row.startswith("billing NOT_ONLINE") for row in rows(response.text))
    by_id = re.search(r"<h1>Message (\w+)</h1>", response.text)
    assert by_id is not None
    assert len(rows((await page.get("/messages", topic="orders", id=by_id[1])).text)) == 2


async def test_bodies_in_each_form(page: Served) -> None:
    place = re.search(r'href="(/message\?[^"]*)"', (await page.get("/messages", topic="orders", key="k8")).text)
    assert place is not None
    path = html.unescape(place[1])
    as_it_is = ">\n{&#34;order&#34;: 8}</pre>"
    laid_out = "\n  &#34;order&#34;: 8\n}"
    for form, part in (("", laid_out), ("text", as_it_is), ("json", laid_out), ("hex", "00000000  7b 22")):
        assert part in (await page.http.get(f"{path}&form={form}")).text


@pytest.mark.parametrize("path", ["/", "/topics", "/groups", "/messages?topic=orders", "/producers", "/dead-letters"])
async def test_nothing_hostile_is_markup(page: Served, path: str) -> None:
    answer = await page.http.get(path)
    assert answer.status_code == 200
    assert HOSTILE not in answer.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/message", 400),
        ("/data/curve?kind=rates&name=orders", 400),
        ("/topics?page=abc", 200),
        (f"/groups?page={'9' * 18}", 200),
        ("/groups?sort=nothing&kind=none", 200),
        ("/topic", 400),
        ("/topic?topic=nowhere", 404),
        (f"/topic?topic={'x' * 2000}", 400),
        ("/group?group=nobody", 200),
        ("/messages?topic=orders&before=yesterday", 400),
        ("/message?topic=orders&brokerName=broker-a&queueId=0&offset=99999", 400),
        ("/message?topic=orders&brokerName=broker-a&queueId=-1&offset=0", 400),
        (f"/message?topic=orders&brokerName=broker-a&queueId=0&offset={'9' * 25}", 400),
        (f"/message?topic=orders&brokerName=broker-a&queueId=0&offset={2**63}", 400),
        ("/message?topic=orders&brokerName=nowhere&queueId=0&offset=0", 502),
        ("/messages?topic=%ED%A0%80", 404),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/send", 404),
    ],
)
async def test_wrong_addresses(page: Served, path: str, status: int) -> None:
    answer = await page.http.get(path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


async def test_what_is_wrong_with_an_address_is_said(page: Served) -> None:
    assert "There is no page at this address" in (await page.get("/nowhere")).text
    assert "the address lacks topic=" in (await page.get("/message")).text
    assert "write 2026-01-31T12:00 (UTC)" in (await page.get("/messages", topic="orders", before="31.12.2026")).text


async def token_of(page: Served, path: str) -> str:
    match = re.search(r'name="token" value="([^"]+)"', (await page.http.get(path)).text)
    assert match is not None
    return match[1]


async def test_a_test_message_after_a_confirmation(changing: Served) -> None:
    token = await token_of(changing, "/send?topic=orders")
    form = {"token": token, "topic": "orders", "body": "hello\r\nthere", "keys": "fresh", "tags": ""}
    asked = await changing.http.post("/send", data=form)
    assert "Please confirm" in asked.text
    assert "No message has the key fresh" in (await changing.get("/messages", topic="orders", key="fresh")).text
    ticket = re.search(r'name="ticket" value="([^"]+)"', asked.text)
    assert ticket is not None
    done = await changing.http.post("/confirmed", data={"token": token, "ticket": ticket[1]})
    assert "SEND_OK" in done.text
    assert "hello there" in (await changing.get("/messages", topic="orders", key="fresh")).text
    again = await changing.http.post("/confirmed", data={"token": token, "ticket": ticket[1]})
    assert (again.status_code, "used before" in again.text) == (400, True)


async def test_a_dead_letter_is_sent_again(changing: Served) -> None:
    nameserver = changing.cluster.nameserver
    async with Admin(nameserver=nameserver) as admin:
        await dead(nameserver, admin, "audit", "orders", "given up")
    text = (await changing.get("/dead-letters", group="audit")).text
    assert "given up" in text
    form = dict(re.findall(r'(?:hidden"|resend") name="(\w+)" value="([^"]*)">', text))
    asked = await changing.http.post("/resend", data=form)
    ticket = re.search(r'name="ticket" value="([^"]+)"', asked.text)
    assert ticket is not None
    done = await changing.http.post("/confirmed", data={"token": form["token"], "ticket": ticket[1]})
    assert "Sent to audit again" in done.text
    assert "given up" in (await changing.get("/messages", topic="%RETRY%audit")).text


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"body": "x"}, 403),
        ({"token": "wrong"}, 403),
        ({"token": ""}, 403),
        ({"body": "token=x", "token2": "x"}, 403),
        ({"topic": "not a topic", "body": "x"}, 400),
        ({"topic": "orders", "body": ""}, 400),
        ({"topic": "SCHEDULE_TOPIC_XXXX", "body": "x"}, 400),
    ],
)
async def test_forms_with_faults(changing: Served, form: dict[str, str], status: int) -> None:
    token = await token_of(changing, "/send?topic=orders")
    answer = await changing.http.post("/send", data={"token": token, **form} if status == 400 else form)
    assert answer.status_code == status


async def test_a_body_of_4_mib_is_sent(changing: Served) -> None:
    done = await changed(changing.http, "/send", topic="orders", keys="large", body="x" * (4 << 20))
    assert "SEND_OK" in done.text
    assert len(rows((await changing.get("/messages", topic="orders", key="large")).text)) == 2


async def test_forms_of_many_fields_are_refused(changing: Served) -> None:
    token = await token_of(changing, "/send?topic=orders")
    answer = await changing.http.post("/send", data={"token": token, **{f"f{number}": "" for number in range(128)}})
    assert (answer.status_code, "more than 128 fields" in answer.text) == (400, True)


async def test_uploads_are_no_forms(changing: Served) -> None:
    answer = await changing.http.post("/send", files={"body": b"x"})
    assert answer.status_code == 415


async def test_nothing_changes_on_a_page_that_only_shows(page: Served) -> None:
    for path in ("/send", "/reset", "/confirmed"):
        assert (await page.http.post(path, data={"token": "x"})).status_code == 403


async def test_a_search_in_bodies(page: Served) -> None:
    where = (await page.get("/messages", topic="orders", where="json.order in [2, 4]")).text
    assert sum("order: " in row for row in rows(where)) == 2
    assert "40 of 40 messages" in where
    assert "20 bodies are no JSON" in where
    assert 'value="json.order in [2, 4]"' in where
    contains = (await page.get("/messages", topic="orders", contains='"order": 38}')).text
    assert sum("order: " in row for row in rows(contains)) == 1
    matching = (await page.get("/messages", topic="orders", regex=r'"order": [13]8\}$')).text
    assert sum("order: " in row for row in rows(matching)) == 2
    wrong = await page.get("/messages", topic="orders", regex="(a|b")
    assert (wrong.status_code, "missing )" in wrong.text) == (400, True)
    later = (await page.get("/messages", topic="orders", contains="order", since="2100-01-01")).text
    assert "0 of 0 messages" in later
    wrong = await page.get("/messages", topic="orders", where="json.order = 2")
    assert (wrong.status_code, "character 12" in wrong.text) == (400, True)
    both = await page.get("/messages", topic="orders", where="json.order == 2", contains="2")
    assert both.status_code == 400


async def test_a_search_by_the_filters_of_a_broker(page: Served) -> None:
    async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
        for number in (2, 3):
            await producer.send(Message("orders", f'{{"order": {number}}}'.encode(), tags="paid"))
    paid = (await page.get("/messages", topic="orders", tags="paid")).text
    assert len(messages_in(paid)) == 2
    assert 'value="paid"' in paid
    both = (await page.get("/messages", topic="orders", tags="paid", where="json.order == 2")).text
    assert len(messages_in(both)) == 1
    assert (await page.get("/messages", topic="orders", tags="paid", sql="a = 1")).status_code == 400
    refused = await page.get("/messages", topic="orders", sql="a = 1")
    assert (refused.status_code, "enablePropertyFilter" in refused.text) == (502, True)


async def test_a_search_by_sql() -> None:
    async with served(brokers=1, settings={"enablePropertyFilter": "true"}) as page:
        async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
            for amount in (5, 11, 12):
                await producer.send(Message("orders", b"x", properties={"amount": str(amount)}))
        assert len(messages_in((await page.get("/messages", topic="orders", sql="amount > 10")).text)) == 2
        wrong = await page.get("/messages", topic="orders", sql="amount >")
        assert (wrong.status_code, "amount &gt;" in wrong.text) == (502, True)


@pytest.mark.parametrize("other", [{"id": "x"}, {"contains": "x"}, {"regex": "x"}, {"tags": "x"}, {"queue": "0"}])
async def test_a_key_and_another_condition_are_refused(page: Served, other: dict[str, str]) -> None:
    answer = await page.get("/messages", topic="orders", key="k8", **other)
    assert (answer.status_code, "choose one" in answer.text) == (400, True)


async def test_messages_of_some_queues(page: Served) -> None:
    every = messages_in((await page.get("/messages", topic="orders")).text)
    first = messages_in((await page.get("/messages", topic="orders", queue="0")).text)
    others = (await page.get("/messages", topic="orders", queue="broker-a/1 broker-a/2 broker-a/3")).text
    assert sorted(first) == sorted(row for row in every if "/0@" in row)
    assert 0 < len(first) < len(every)
    assert sorted(messages_in(others)) == sorted(row for row in every if re.search("broker-a/[123]@", row))
    matches = (await page.get("/messages", topic="orders", queue="0", where="json.order >= 0")).text
    assert sorted(messages_in(matches)) == sorted(row for row in first if "order: " in row)
    wrong = await page.get("/messages", topic="orders", queue="broker-x/0")
    assert (wrong.status_code, "queue broker-x/0: the topic has no such queue" in wrong.text) == (400, True)


async def test_viewers_behind_one_address_search_at_once(page: Served) -> None:
    held, go_on = trio.Event(), trio.Event()

    async def hold(request: Command, peer: Peer) -> Pass:
        if held.is_set():
            return PASS
        held.set()
        await go_on.wait()
        return PASS

    page.cluster.control(RequestCode.PULL_MESSAGE, hold)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(page.get, "/messages", topic="orders", contains="order"))
        await held.wait()
        second = await page.get("/messages", topic="orders", contains="document")
        go_on.set()
    assert second.status_code == 200
    assert messages_in(second.text)


async def test_a_search_ends_with_its_viewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends as many searches as there may be by leaving, while a broker keeps them waiting: the next need not wait."""
    monkeypatch.setattr(look_ups, "SEARCH_WAIT_SECONDS", 5.0)  # a pull without an answer ends after 10 s
    started, never = trio.Semaphore(0), trio.Event()

    async def hold(request: Command, peer: Peer) -> Pass:
        started.release()
        await never.wait()
        return PASS

    async with served() as page:
        await fill(page.cluster.nameserver)
        rule = page.cluster.control(RequestCode.PULL_MESSAGE, hold)
        async with trio.open_nursery() as nursery:
            for number in range(SEARCHES_AT_ONCE):
                nursery.start_soon(partial(page.get, "/messages", topic="orders", contains=f"order {number}"))
                await started.acquire()
            nursery.cancel_scope.cancel()
        rule.remove()
        answer = await page.get("/messages", topic="orders", contains="document")
        assert answer.status_code == 200
        assert messages_in(answer.text)
        never.set()
