"""Members of bodies and properties as columns of lists: on demand, masked, escaped, and of short bodies alone."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import AsyncIterator

import pytest

from pyrmq_core import InvalidArgument, Message, MessageExt, Producer
from pyrmq_core.tools.search.conditions import QUICK_BYTES
from pyrmq_core.tools.search.where import MAX_COLUMNS, Columns
from pyrmq_core.tools.web.body_text import member_names
from pyrmq_core.tools.web.masks import NO_MASKS
from pyrmq_core.tools.web.message_reads import in_columns
from tests.tools.web.serving import HOSTILE, Served, served

SECRET = "4111222233334444"
BODIES = (
    f'{{"order": 12.50, "user": {{"name": "\\u674e\\u202e"}}, "card": "{SECRET}"}}',
    f'{{"order": [1, {{"a": null}}], "text": "{HOSTILE}"}}',
    f'{{"order": 3, "filler": "{"x" * QUICK_BYTES}"}}',
    "no order",
)
COLUMNS = "json.order, json.user.name, json.card, json['text'], properties.region"
CELLS = [
    ["12.50", "李\\u202e", "***", "", "***"],
    ['[1, {"a": null}]', "", "", HOSTILE, "***"],
    ["…", "…", "…", "…", "***"],
    ["", "", "", "", "***"],
]


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(brokers=1, topics={"orders": 1}, masks=["json.card", "properties.region"]) as page:
        async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
            for body in BODIES:
                await producer.send(Message("orders", body.encode(), keys="k", properties={"region": SECRET}))
        yield page


def cells(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>\n(.*?)</tr>", text, re.DOTALL)
    return [[html.unescape(cell) for cell in re.findall(r'<td class="any"[^>]*>(.*?)</td>', row)] for row in rows]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/messages", {}),
        ("/messages", {"key": "k"}),
        ("/messages", {"contains": "order"}),
        ("/messages", {"queue": "0", "since": "1h"}),
        ("/tail", {"since": "1h"}),
    ],
)
async def test_members_are_columns_masked_and_escaped(page: Served, path: str, fields: dict[str, str]) -> None:
    answer = await page.get(path, topic="orders", columns=COLUMNS, **fields)
    assert cells(answer.text) == CELLS[::-1]
    assert SECRET not in answer.text
    assert HOSTILE not in answer.text
    for head in COLUMNS.split(", "):
        assert f"<th>{html.escape(head).replace('&#x27;', '&#39;')}</th>" in answer.text


async def test_a_list_offers_the_members_of_its_bodies(page: Served) -> None:
    text = (await page.get("/messages", topic="orders", queue="0")).text
    link = re.search(r'href="(/messages\?[^"]*columns=[^"]*)"', text)
    assert link is not None
    answer = await page.http.get(html.unescape(link[1]))
    heads = re.findall("<th>(json[^<]*)</th>", answer.text)
    assert heads == ["json.order", "json.filler", "json.text", "json.user", "json.card"]
    wrong = await page.get("/messages", topic="orders", columns="order")
    assert (wrong.status_code, "order is no name" in wrong.text) == (400, True)


def test_columns_that_cannot_be_read() -> None:
    assert list(Columns.parse("json.a , json['b, c'],tags").values) == ["json.a", "json['b, c']", "tags"]
    for text in ("", "json.a,", "json.a json.b", "json.a == 1", ", tags", "x" * 5000):
        with pytest.raises(InvalidArgument):
            Columns.parse(text)
    with pytest.raises(InvalidArgument, match="13 columns; 12 are possible"):
        Columns.parse(", ".join(f"json.a{number}" for number in range(MAX_COLUMNS + 1)))


def test_a_value_too_deep_to_be_written_is_left_out() -> None:
    # Somewhere below Python's limit a value can be read and not be written.
    for depth in range(sys.getrecursionlimit() - 100, sys.getrecursionlimit()):
        body = f"[{'[' * depth}{']' * depth}]".encode()
        message = MessageExt("T", "broker-a", 0, 0, body, {}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")
        (cell,) = json.loads(in_columns(message, NO_MASKS, Columns.parse("json[0]")).body)
        assert cell in ("", "…") or cell.startswith("[[[")


def test_names_of_members() -> None:
    assert member_names(b'{"a": {"b": 1}, "c:": [{"d": 2}], "e": ":", "f') == ["a", "c:", "e"]
    assert member_names(b"[1]") == member_names(b"\xff") == member_names(b"") == []
