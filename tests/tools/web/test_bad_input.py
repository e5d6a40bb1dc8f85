"""Pages over what is wrong or large: brokers that lie or are read-only, many queues, peers that abuse HTTP."""

from __future__ import annotations

import html
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import trio

from pyrmq_core import Admin, Client, Command, Message, Producer, RequestCode
from pyrmq_core.embedded import EmbeddedCluster, TopicConfig
from pyrmq_core.network import ConnectionPool, Peer
from pyrmq_core.network.addresses import local_ip, parse_address
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.requests.broker.users import CreateAcl, CreateUser
from pyrmq_core.testing import ResponseCode, refusal
from pyrmq_core.tools.web import look_up_queue
from pyrmq_core.tools.web.server import WebSettings, serve_web
from tests.servers.access.requests import signed
from tests.servers.broker.serving import message
from tests.support.message_admin_jobs import dead, eventually
from tests.tools.web.serving import HOSTILE, Served, changed, fill, served

PAGES = (
    "/",
    "/topics",
    "/topic?topic=orders",
    "/groups",
    "/group?group=billing",
    "/messages?topic=orders",
    "/message?topic=orders&brokerName=broker-a&queueId=0&offset=0",
    "/producers",
    "/dead-letters?group=billing",
)
USER = ("viewer", "viewer-password")
ROOT = ("root", "root-password")
GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-password"}),
}


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served() as page:
        await fill(page.cluster.nameserver)
        yield page


async def lie(request: Command, peer: Peer) -> Command:
    return refusal(ResponseCode.SYSTEM_ERROR, HOSTILE)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("servers", [("broker-b",), ("broker-a", "broker-b")])
async def test_what_a_hostile_broker_answers_is_text(page: Served, path: str, servers: tuple[str, ...]) -> None:
    for code in RequestCode:
        for server in servers:
            page.cluster.control(code, lie, server=server)
    text = (await page.http.get(path)).text
    assert HOSTILE not in text
    if len(servers) == 2 and not path.startswith(("/topics", "/dead-letters")):  # these two take names from NameServers
        assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in text


async def test_what_a_hostile_client_is_named_is_text(page: Served) -> None:
    async with (
        Client(nameserver=page.cluster.nameserver, instance_name=HOSTILE) as client,
        Producer("shop", client=client) as producer,
    ):
        await producer.send(Message("orders", b"x", keys=HOSTILE))
        text = (await page.get("/producers")).text
        assert HOSTILE not in text
        assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in text


async def test_a_topic_that_one_broker_knows(page: Served) -> None:
    async with trio.open_nursery() as nursery, Admin(nameserver=page.cluster.nameserver) as admin:
        pool, address = ConnectionPool(nursery), page.cluster.brokers["broker-b"]
        update = UpdateTopic.of(TopicConfig("alone", 3, 3, 6)).to_command()
        assert (await pool.call(address, update, timeout=30)).code == 0
        await eventually(admin.topics.list, lambda topics: "alone" in topics)
        assert (await pool.call(address, message("alone").to_command(), timeout=30)).code == 0
        await pool.aclose()
        nursery.cancel_scope.cancel()
    text = (await page.get("/topic", topic="alone")).text
    assert "1 message in 3 queues on 1 broker" in text
    assert "alert" not in text


async def test_a_group_that_no_broker_knows(page: Served) -> None:
    text = (await page.get("/group", group="nobody")).text
    assert "no broker knows a group nobody" in text
    assert "Members" in text


async def test_two_messages_of_one_id_are_both_shown(page: Served) -> None:
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for address in page.cluster.brokers.values():
            twin = message("orders", b"twin", properties="UNIQ_KEY\x01TWIN\x02").to_command()
            assert (await pool.call(address, twin, timeout=30)).code == 0
        await pool.aclose()
        nursery.cancel_scope.cancel()
    text = (await page.get("/messages", topic="orders", id="TWIN")).text
    assert text.count(">twin<") == 2


async def test_the_life_of_a_message_that_died(page: Served) -> None:
    nameserver = page.cluster.nameserver
    async with Admin(nameserver=nameserver) as admin:
        letter = await dead(nameserver, admin, "audit", "orders", "given up")
    listing = (await page.get("/messages", topic="orders", key="k7")).text
    links = [html.unescape(link) for link in re.findall(r'href="(/message\?[^"]*)"', listing)]
    texts = [(await page.http.get(link)).text for link in links]
    (life,) = [text for text in texts if "given up" in text]
    row = next(row for row in life.split("<tr>") if ">audit<" in row)
    assert 'href="/dead-letters?group=audit">1</a>' in row
    assert letter.msg_id in life


async def test_ten_thousand_queues() -> None:
    topics = {"wide": TopicConfig("wide", 5000, 5000)}
    async with (
        EmbeddedCluster(2, topics=topics) as cluster,
        Client(nameserver=cluster.nameserver) as client,
        trio.open_nursery() as nursery,
    ):
        address = await nursery.start(serve_web, client, cluster.nameserver, WebSettings(port=0))
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:
            began = time.process_time()
            text = (await http.get("/topic?topic=wide")).text
            took = time.process_time() - began
            assert "10,000 queues on 2 brokers" in text
            assert "4744 queues not drawn" in text
            assert "Page 1 of 50, 10,000 in all" in text
            assert len(text) < 300_000
            assert took < 2.5  # with both brokers' work
            last = (await http.get("/topic?topic=wide&page=99&sort=messages")).text
            assert "Page 50 of 50" in last
            assert "alert" not in (await http.get("/messages?topic=wide")).text
        nursery.cancel_scope.cancel()


async def test_credentials_that_may_only_read(tmp_path: Path) -> None:
    started = EmbeddedCluster(
        settings=GUARDED, nameserver_settings={**GUARDED, "authConfigPath": str(tmp_path / "auth")}, directory=tmp_path
    )
    async with started as cluster, trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        for address in (cluster.nameserver, *cluster.brokers.values()):
            await grant(pool, address)
        async with (
            Client(nameserver=cluster.nameserver, access_key=ROOT[0], secret_key=ROOT[1]) as root,
            Admin(client=root) as admin,
        ):
            await admin.create_topic("orders", queues=1)
        async with (
            Client(nameserver=cluster.nameserver, access_key=USER[0], secret_key=USER[1]) as client,
            trio.open_nursery() as serving,
        ):
            settings = WebSettings(port=0, allow_changes=True)
            page = await serving.start(serve_web, client, cluster.nameserver, settings)
            async with httpx.AsyncClient(base_url=page, timeout=30) as http:
                for path in ("/", "/topics", "/topic?topic=orders", "/groups", "/messages?topic=orders", "/producers"):
                    answer = await http.get(path)
                    assert (answer.status_code, "permi" in answer.text) == (200, False), path
                send = await changed(http, "/send", topic="orders", body="x")
                assert (send.status_code, "The message is not stored" in send.text) == (502, True)
                assert "User:viewer has no permission to access Topic:orders" in send.text
                reset = await changed(http, "/reset", group="G", topic="orders", to="latest")
                assert (reset.status_code, "The credentials of this page do not permit it" in reset.text) == (403, True)
            serving.cancel_scope.cancel()
        await pool.aclose()
        nursery.cancel_scope.cancel()


async def grant(pool: ConnectionPool, address: str) -> None:
    """Makes the user that may look at everything, and change nothing."""
    user = {"username": USER[0], "password": USER[1], "userType": "Normal", "userStatus": "enable"}
    entries = [
        {"resource": resource, "actions": ["Sub", "Get", "List"], "decision": "Allow"}
        for resource in ("Topic:*", "Group:*", "Cluster:*")
    ]
    acl = {"subject": f"User:{USER[0]}", "policies": [{"policyType": "Custom", "entries": entries}]}
    for request in (CreateUser(USER[0], user), CreateAcl(f"User:{USER[0]}", acl)):
        assert (await pool.call(address, signed(request.to_command(), *ROOT), timeout=30)).code == 0


async def test_the_page_is_on_this_machine_alone_unless_more_is_wanted(page: Served) -> None:
    assert page.address.startswith("http://127.0.0.1:")
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex((local_ip(), httpx.URL(page.address).port or 0)) != 0 or local_ip() == "127.0.0.1"


async def test_another_host_and_another_site_get_nothing(page: Served) -> None:
    for path in PAGES:
        answer = await page.http.get(path, headers={"Host": "evil.example"})
        assert (answer.status_code, "--allow-host" in answer.text) == (400, True)


async def test_a_greedy_address_keeps_no_other_waiting(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look_up_queue, "LOOK_UPS_A_SECOND", 4.0)
    monkeypatch.setattr(look_up_queue, "BURST", 1)
    answered = list[int]()
    one_is_answered = trio.Event()
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    async with (
        httpx.AsyncClient(base_url=page.address, transport=transport, timeout=60) as greedy,
        trio.open_nursery() as nursery,
    ):

        async def ask(number: int) -> None:
            answered.append((await greedy.get("/messages", params={"topic": f"unknown-{number}"})).status_code)
            one_is_answered.set()

        for number in range(16):
            nursery.start_soon(ask, number)
        await one_is_answered.wait()
        assert (await page.http.get("/")).status_code == 200
        assert len(answered) < 8
        nursery.cancel_scope.cancel()
    assert set(answered) == {404}


async def raw(page: Served) -> trio.SocketStream:
    host, port = parse_address(page.address.removeprefix("http://").rstrip("/"))
    return await trio.open_tcp_stream(host, port)


async def test_headers_without_an_end_are_refused(page: Served) -> None:
    async with await raw(page) as stream:
        with trio.fail_after(60):
            try:
                await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 100_000)
                answer = await stream.receive_some(1000)
            except trio.BrokenResourceError:
                answer = b""
    assert answer == b"" or b" 4" in answer.split(b"\r\n")[0]
    assert (await page.get("/")).status_code == 200


async def test_open_connections_and_slow_readers_harm_no_one(page: Served) -> None:
    streams = [await raw(page) for _ in range(100)]
    for number, stream in enumerate(streams):
        if number % 2:  # half of them say nothing, the others read nothing of several answers
            await stream.send_all(b"GET /messages?topic=orders HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 5)
    with trio.fail_after(60):
        for path in PAGES:
            assert (await page.http.get(path)).status_code == 200
    for stream in streams:
        await stream.aclose()
