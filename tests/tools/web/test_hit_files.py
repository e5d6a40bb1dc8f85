"""The hits of a search as a file: JSON lines and CSV, masked, within bounds, and with what was not read."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import AsyncIterator
from io import StringIO
from typing import Any

import pytest

from pyrmq_core import Message, MessageExt, Producer
from pyrmq_core.tools.web import hit_files, message_reads
from pyrmq_core.tools.web.hit_files import HitFile
from tests.tools.web.serving import Served, served

SECRET = "4111222233334444"
BODIES = (f'{{"order": 0, "card": "{SECRET}"}}', "=1+1", "\x1b[2J no order", '{"order": 3, "name": "李"}')


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(brokers=1, topics={"orders": 1}, masks=["json.card", "properties.token"]) as page:
        async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
            for number, body in enumerate(BODIES):
                await producer.send(Message("orders", body.encode(), keys=f"-{number}", properties={"token": SECRET}))
        yield page


def message(body: bytes) -> MessageExt:
    return MessageExt("T", "broker-a", 0, 0, body, {"KEYS": "k"}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")


def lines_of(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode().splitlines()]


async def test_hits_are_masked_in_each_form(page: Served) -> None:
    shown = (await page.get("/messages", topic="orders", since="1h")).text
    links = [html.unescape(link) for link in re.findall(r'href="(/hits\?[^"]*)" download', shown)]
    jsonl, table = [await page.http.get(link) for link in links]
    for answer, form in ((jsonl, "jsonl"), (table, "csv")):
        assert answer.headers["content-disposition"] == f'attachment; filename="orders.{form}"'
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["cache-control"] == "no-store"
        assert SECRET not in answer.text
    lines = lines_of(jsonl.content)
    assert [line["body"] for line in lines[::-1]] == [BODIES[0].replace(SECRET, "***"), *BODIES[1:]]
    assert {line["properties"]["token"] for line in lines} == {"***"}
    assert b"\x1b" not in jsonl.content
    rows = list(csv.DictReader(StringIO(table.text, newline="")))
    assert [row["body"] for row in rows[::-1]] == [lines[3]["body"], "'=1+1", *BODIES[2:]]
    assert [row["keys"] for row in rows] == ["'-3", "'-2", "'-1", "'-0"]


async def test_hits_are_those_of_the_search(page: Served) -> None:
    shown = await page.get("/hits", topic="orders", where="json.order >= 1", **{"as": "jsonl"})
    assert [line["queueOffset"] for line in lines_of(shown.content)] == [3]
    telling = await page.get("/hits", topic="orders", contains=SECRET, **{"as": "csv"})
    assert len(telling.text.splitlines()) == 1
    wrong: list[dict[str, str]] = [{"as": "xlsx"}, {}, {"as": "csv", "where": "json."}]
    wrong.append({"as": "csv", "sql": f"token = '{SECRET}'"})
    for fields in wrong:
        answer = await page.get("/hits", topic="orders", **fields)
        assert (answer.status_code, "content-disposition" in answer.headers) == (400, False)


async def test_a_file_says_what_a_bound_cut_off(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lines_of((await page.get("/hits", topic="orders", **{"as": "jsonl"})).content)
    monkeypatch.setattr(hit_files, "FILE_BYTES", 600)
    cut = lines_of((await page.get("/hits", topic="orders", **{"as": "jsonl"})).content)
    assert cut[:-1] == whole[: len(cut) - 1]
    assert 1 < len(cut) < len(whole)
    assert cut[-1]["notRead"].startswith(f"matches from {whole[len(cut) - 1]['storeTimestamp']} back")
    monkeypatch.undo()
    monkeypatch.setattr(message_reads, "SEARCH_SECONDS", 0.0)
    late = (await page.get("/hits", topic="orders", **{"as": "csv"})).text.splitlines()
    assert late[1:] == ['"not read: 0 of 4 messages (0.0 MiB) searched, not searched: broker-a/0 before 4"']


def test_a_file_ends_before_the_first_hit_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hit_files, "FILE_BYTES", 2000)
    for form in ("jsonl", "csv"):
        file = HitFile(form)
        file.add([message(b"a"), message(b"b" * 2000), message(b"c")])
        file.add([message(b"d")])
        content = file.end("and more")
        assert content.count(b"\n") == (2 if form == "jsonl" else 3)
        assert b"1970-01-01T00:00:00+00:00 back, beyond 2,000 bytes; and more" in content.splitlines()[-1]
        assert (b'"body": "a"' if form == "jsonl" else b",a,") in content
    empty = HitFile("csv")
    empty.add([])
    assert empty.end("").decode().splitlines()[0].startswith("topic,brokerName")
