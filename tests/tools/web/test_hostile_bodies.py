"""The page over bodies whose senders want it to work long: others go on, and a bad record or broker costs itself."""

from __future__ import annotations

import html
import threading
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
import trio

from pyrmq_core import Client, Command, Message, Producer, RequestCode
from pyrmq_core.client.unpacking import in_thread
from pyrmq_core.network import Peer
from pyrmq_core.testing import PASS, Pass
from pyrmq_core.tools.web import message_reads
from tests.support.raw_send_backs import send
from tests.tools.web.serving import Served, served
from tests.tools.web.test_pages import messages_in

COMPRESSED = 1
KEY = "k"
PLACE: dict[str, str | int] = {"topic": "bombs", "brokerName": "broker-a", "queueId": 0}


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    """Serves a topic of compressed bodies, whose middle message is not what it says."""
    async with served(brokers=1, topics={"bombs": 1, "bounded": 1, "dense": 1}) as page:
        async with Producer("senders", nameserver=page.cluster.nameserver) as producer:
            for number in range(4):
                body = b'{"n": %d, "text": "needle %s"}' % (number, b"x" * 100_000)
                await producer.send(Message("bombs", body, keys=KEY))
                if number == 1:
                    await send_packed(page, b"no zlib")
        yield page


async def send_packed(page: Served, body: bytes, topic: str = "bombs") -> None:
    """Sends a body that says it is compressed: every broker takes it."""
    async with Client(nameserver=page.cluster.nameserver) as client:
        command = send(topic, sys_flag=COMPRESSED, body=body).to_command()
        answer = await client._session.call(page.cluster.brokers["broker-a"], command, timeout=30)
    assert answer.code == 0


async def view_of(page: Served, path: str, offset: int) -> httpx.Response:
    return await page.get(path, **{**PLACE, "offset": offset})


ROUTES: tuple[tuple[str, dict[str, str | int]], ...] = (
    ("/messages", {"topic": "bombs"}),
    ("/messages", {"topic": "bombs", "contains": "needle"}),
    ("/messages", {"topic": "bombs", "where": "json.n >= 0"}),
    ("/messages", {"topic": "bombs", "regex": "needle"}),
    ("/messages", {"topic": "bombs", "key": KEY}),
    ("/message", {**PLACE, "offset": 0}),
    ("/message", {**PLACE, "offset": 2}),
    ("/message", {**PLACE, "offset": 3, "form": "json"}),
    ("/body", {**PLACE, "offset": 4}),
)


async def test_another_viewer_comes_first_on_every_route(page: Served) -> None:
    """Holds the thread that unpacks: each route that unpacks bodies waits for it, and the loop serves others."""
    asked, answers = trio.Semaphore(0), list[httpx.Response]()
    gate = threading.Event()

    async def note(request: Command, peer: Peer) -> Pass:
        asked.release()
        return PASS

    async def view(path: str, parameters: dict[str, str | int]) -> None:
        answers.append(await page.get(path, **parameters))

    for code in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE):
        page.cluster.control(code, note)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(in_thread, gate.wait))
        try:
            for path, parameters in ROUTES[:5]:  # the page unpacks for a few viewers at a time
                nursery.start_soon(view, path, parameters)
                await asked.acquire()
            other = [await page.get("/topics") for _ in range(3)]
            assert [answer.status_code for answer in other] == [200] * 3
            assert answers == []
            for path, parameters in ROUTES[5:]:
                nursery.start_soon(view, path, parameters)
                await asked.acquire()
            assert (await page.get("/producers")).status_code == 200
            assert answers == []
        finally:
            gate.set()
    assert [answer.status_code for answer in answers] == [200] * len(ROUTES)


async def test_a_record_that_cannot_be_read_costs_itself(page: Served) -> None:
    newest = (await page.get("/messages", topic="bombs")).text
    assert len(messages_in(newest)) == 5
    assert "cannot be read, 7 bytes as stored" in newest
    for condition in ({"contains": "needle"}, {"where": "json.n >= 0"}, {"regex": "needle"}):
        text = (await page.get("/messages", topic="bombs", **condition)).text
        assert len(messages_in(text)) == 4
        assert "records that cannot be read: 1" in text
    shown = (await view_of(page, "/message", 2)).text
    assert "a body is marked as zlib and cannot be inflated" in shown
    assert "no zlib" in shown
    assert (await view_of(page, "/body", 2)).status_code == 502


async def test_a_body_beyond_the_bound_is_named(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await send_packed(page, zlib.compress(b" " * (message_reads.PAGE_BODY_BYTES + 1)))
    text = (await page.get("/messages", topic="bombs")).text
    assert len(messages_in(text)) == 6
    assert "a ZLIB body grows beyond 16777216 bytes" in text


async def test_a_bounded_search_denies_nothing_and_goes_on(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follows the links of a search whose bound is reached with each slice, to the match in the oldest message."""
    monkeypatch.setattr(message_reads, "SEARCHED_BYTES", 1)
    async with Producer("senders", nameserver=page.cluster.nameserver) as producer:
        await producer.send(Message("bounded", b"the needle"))
        for _ in range(100):
            await producer.send(Message("bounded", b"hay"))
    parameters, pages = {"topic": "bounded", "contains": "needle"}, 0
    while not messages_in(text := (await page.get("/messages", **parameters)).text):
        assert "Nothing found in what was read (from " in text
        assert "No message" not in text
        link = html.unescape(text.partition('rel="next" href="')[2].partition('"')[0])
        assert dict(parse_qsl(urlsplit(link).query)) != parameters
        parameters, pages = dict(parse_qsl(urlsplit(link).query)), pages + 1
    assert pages
    assert "the needle" in text


async def test_all_matches_of_a_millisecond_are_shown(page: Served) -> None:
    """Follows the links over more matches than a page has, most of which were stored at once."""
    async with Producer("senders", nameserver=page.cluster.nameserver) as producer:
        await producer.send(Message("dense", b"needle 0"))
        await producer.send_batch([Message("dense", b"needle %d" % n) for n in range(1, 151)])
    parameters, rows = {"topic": "dense", "contains": "needle"}, list[str]()
    while parameters:
        text = (await page.get("/messages", **parameters)).text
        rows += [row.split("@")[1].split()[0] for row in messages_in(text)]
        link = html.unescape(text.partition('rel="next" href="')[2].partition('"')[0])
        parameters = dict(parse_qsl(urlsplit(link).query))
    assert rows == [str(offset) for offset in range(150, -1, -1)]


async def test_a_silent_broker_costs_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_reads, "SILENT_SECONDS", 0.2)
    never = trio.Event()

    async def hold(request: Command, peer: Peer) -> Pass:
        await never.wait()
        return PASS

    async with served(brokers=2, topics={"T": 1}) as page:
        async with Producer("senders", nameserver=page.cluster.nameserver) as producer:
            for queue in await producer.message_queues("T"):
                await producer.send(Message("T", b"needle"), queue=queue)
        for code in (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_TOPIC_STATS_INFO):
            page.cluster.control(code, hold, server="broker-b")
        before = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        text = (await page.get("/messages", topic="T", contains="needle", before=before)).text
        (row,) = messages_in(text)
        assert "broker-a/0@0" in row
        assert "broker-b did not answer within 0.2 s" in text
        never.set()
