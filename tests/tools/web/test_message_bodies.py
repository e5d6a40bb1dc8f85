"""Bodies of messages on the page: downloads that no browser renders, large ones in parts, lists without them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from pyrmq_core import Admin, Message, MessageExt, Producer, PullConsumer
from pyrmq_core.tools.web.application import SLICE_BYTES, Download
from pyrmq_core.tools.web.bodies import AsgiMessage
from pyrmq_core.tools.web.body_text import PART_BYTES, SUMMARY_BYTES, summary
from pyrmq_core.tools.web.guards import RequestSlots
from pyrmq_core.tools.web.look_ups import _size_of
from pyrmq_core.tools.web.masks import NO_MASKS
from pyrmq_core.tools.web.message_reads import FoundMessages, MessageReads, shortened
from tests.tools.web.serving import HOSTILE, Served, served

LARGE = "größe " * 60_000
LONG_JSON = json.dumps([{"größe": number} for number in range(20_000)], ensure_ascii=False)
BODIES = {
    "markup": HOSTILE.encode(),
    "bytes": bytes(range(256)),
    "large": LARGE.encode(),
    "json": LONG_JSON.encode(),
    "none": b"",
}


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(brokers=1, topics={"bodies": 1}) as page:
        async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
            for key, body in BODIES.items():
                await producer.send(Message("bodies", body or b"0", keys=key))
        yield page


async def path_of(page: Served, key: str) -> str:
    """Returns the path of the message with a key."""
    link = re.search(r'href="(/message\?[^"]*)"', (await page.get("/messages", topic="bodies", key=key)).text)
    assert link is not None
    return html.unescape(link[1])


@pytest.mark.parametrize("key", ["markup", "bytes", "large"])
async def test_a_download_is_the_bytes_and_nothing_to_render(page: Served, key: str) -> None:
    path = await path_of(page, key)
    link = re.search(r'href="(/body\?[^"]*)" download', (await page.http.get(path)).text)
    assert link is not None
    answer = await page.http.get(html.unescape(link[1]))
    assert (answer.status_code, answer.content) == (200, BODIES[key])
    offset = list(BODIES).index(key)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == f'attachment; filename="bodies-broker-a-0-{offset}.bin"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"
    assert int(answer.headers["content-length"]) == len(BODIES[key])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("topic=bodies&brokerName=broker-a&queueId=0&offset=99", 400),
        ("topic=bodies&brokerName=broker-a&queueId=0&offset=-1", 400),
        ("topic=bodies&brokerName=nowhere&queueId=0&offset=0", 502),
        ("topic=bodies&brokerName=a%0D%0ASet-Cookie:x&queueId=0&offset=0", 502),
        ("topic=a%0D%0Ab&brokerName=broker-a&queueId=0&offset=0", 502),
    ],
)
async def test_downloads_of_nothing(page: Served, query: str, status: int) -> None:
    answer = await page.http.get(f"/body?{query}")
    assert (answer.status_code, "content-disposition" in answer.headers) == (status, False)
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"].startswith("text/html")


async def parts_of(page: Served, path: str | None, number: int) -> list[str]:
    """Returns the parts that pages show one after another, each of which names their number."""
    parts = list[str]()
    while path:
        text = (await page.http.get(path)).text
        shown = re.search(r'<pre class="body" tabindex="0">\n(.*?)</pre>', text, re.DOTALL)
        assert shown is not None
        parts.append(html.unescape(shown[1]))
        following = re.search(r'href="([^"]*)" rel="next"', text)
        path = html.unescape(following[1]) if following else None
        assert f"Part {len(parts)} of {number}" in text
    return parts


async def test_long_json_is_laid_out_part_by_part(page: Served) -> None:
    parts = await parts_of(page, f"{await path_of(page, 'json')}&form=json", 6)
    assert parts[0].splitlines()[:4] == ["[", "  {", '    "größe": 0', "  },"]
    assert json.loads("".join(parts)) == json.loads(LONG_JSON)


async def test_others_have_their_turns_while_json_is_laid_out() -> None:
    reads = MessageReads(Admin(), PullConsumer("none"))
    body = b"[" + b"[]," * 300_000 + b"0]"
    turns = 0
    async with trio.open_nursery() as nursery:

        async def take_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(take_turns)
        shown = await reads.body_text(body, "json", 10**6, "viewer")
        nursery.cancel_scope.cancel()
    assert (shown.form, shown.part, shown.text[-5:]) == ("json", 14, "  0\n]")
    assert turns > 100


async def test_a_large_body_is_read_part_by_part(page: Served) -> None:
    parts = await parts_of(page, await path_of(page, "large"), 8)
    assert "".join(parts) == LARGE
    assert all(len(part.encode()) <= PART_BYTES for part in parts)
    last = (await page.http.get(f"{await path_of(page, 'large')}&form=hex&part=99999999999999999999")).text
    assert "Part 1 of 118" in last  # a number that is none
    assert "Part 118 of 118" in (await page.http.get(f"{await path_of(page, 'large')}&form=hex&part=999")).text


async def test_a_body_of_one_part_has_no_links_to_others(page: Served) -> None:
    text = (await page.http.get(await path_of(page, "markup"))).text
    assert "Parts of the body" not in text
    assert html.escape(HOSTILE).replace("&#x27;", "&#39;") in text
    assert HOSTILE not in text


async def test_downloads_of_one_address_give_way_to_others() -> None:
    slots, sent = RequestSlots(2), dict[str, list[int]]()
    never = trio.Event()

    async def download(address: str, name: str) -> None:
        async def send(message: AsgiMessage) -> None:
            sent.setdefault(name, []).append(message.get("status", len(message.get("body", b""))))
            if name in ("first", "second") and message.get("body"):
                await never.wait()

        async def receive() -> AsgiMessage:
            raise AssertionError("a download has no body of its own")

        await Download(b"x" * (2 * SLICE_BYTES), "x.bin", slots, address)({"type": "http"}, receive, send)

    async with trio.open_nursery() as nursery:
        for name in ("first", "second"):
            nursery.start_soon(download, "slow", name)
        await trio.testing.wait_all_tasks_blocked()
        await download("slow", "third")
        assert sent["third"][0] == 503
        await download("other", "fourth")
        assert sent["fourth"] == [200, SLICE_BYTES, SLICE_BYTES, 0]
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 1  # the oldest of the slow ones gave way
        nursery.cancel_scope.cancel()


def test_lists_of_messages_hold_the_beginnings_of_bodies() -> None:
    body, properties = b"x" * 4_000_000, {"KEYS": "k"}
    message = MessageExt("T", "broker-a", 0, 0, body, properties, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")
    short = shortened(message, NO_MASKS)
    assert (len(short.body), summary(short.body)) == (SUMMARY_BYTES, summary(message.body))
    assert (short.keys, _size_of(short)) == ("k", _size_of(FoundMessages((short,))))
    assert _size_of(message) > 4_000_000 > 2000 > _size_of(FoundMessages((short, short)))
    assert (_size_of(None), _size_of("a stack")) == (0, 7)


async def test_a_row_is_found_by_its_json_key(page: Served) -> None:
    """KEYS of change data: a text with blanks, whose first word all rows have."""
    async with Producer("rows", nameserver=page.cluster.nameserver) as producer:
        for number in (7, 8):
            await producer.send(Message("rows", b"a row", keys=f'{{"id": {number}, "shop": "tea house"}}'))
    text = (await page.get("/messages", topic="rows", key='{"id": 8, "shop": "tea house"}')).text
    assert "{&#34;id&#34;: 8," in text
    assert "{&#34;id&#34;: 7," not in text
    assert "No message has the key" in (await page.get("/messages", topic="rows", key='{"id": 8, "shop": "x"}')).text
