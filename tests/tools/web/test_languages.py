"""The languages of the page: the viewer's choice, whole sentences with values that stay escaped, and the tables."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from pyrmq_core import Command, RequestCode
from pyrmq_core.client.texts import Text, joined
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.testing import ResponseCode, refusal
from pyrmq_core.tools.web.languages import LANGUAGES, Language, accepted
from pyrmq_core.tools.web.rendering import Pages
from tests.tools.web.serving import HOSTILE, served

CHINESE = LANGUAGES["zh-CN"]


def test_a_text_is_its_english_sentence() -> None:
    text = Text("{number:,} messages of {group}", number=1234, group=Text("all"))
    assert (text, f"{text}", str(InvalidArgument(text))) == ("1,234 messages of all",) * 3
    for other in (str(InvalidArgument(text)), copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
        assert isinstance(other, Text)
        assert (other.pattern, other.values) == (text.pattern, text.values)
    assert Text("{}") == "{}"
    assert joined([Text("a"), Text("b"), Text("c")]) == "a; b; c"


def test_a_text_in_another_language() -> None:
    language = Language("x", "X", {"a {b}": "{b} <A>", "c": "C", "<i>{b}</i>": "<b>{b}</b>"}, {})
    text = Text("a {b}", b=Text("c"))
    assert language.say(text) == "C <A>"
    assert language.html(text) == "C &lt;A&gt;"
    assert language.html("<i>{b}</i>", b="<script>") == "<b>&lt;script&gt;</b>"
    # Neither a value nor a text without a translation is HTML, or a pattern.
    assert language.html("<script>") == "&lt;script&gt;"
    assert language.html("{d}") == "{d}"
    assert language.html("new {n}", n=3) == "new 3"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "en"),
        ("zh", "zh-CN"),
        ("zh-TW,zh;q=0.9,en;q=0.8", "zh-CN"),
        ("en-US,en;q=0.9,zh-CN;q=0.8", "en"),
        ("de, zh;q=0.5, en;q=0.4", "zh-CN"),
        ("zh;q=0, *;q=0.1", "en"),
        ("zh;q=x, EN;q=0.001", "en"),
        ("zh;q=0.5;level=1,,;", "en"),
        (";q=1" * 9999, "en"),
    ],
)
def test_the_language_that_a_browser_asks_for(header: str, code: str) -> None:
    assert accepted(header).code == code


def test_an_error_in_another_language() -> None:
    template = Pages()._templates.from_string("{{ error }}")
    error = InvalidArgument(Text("group {group} is RocketMQ's own", group="<g>"))
    assert template.render(error=error, language=CHINESE) == "消费者组 &lt;g&gt; 是 RocketMQ 自用的"


async def test_the_servers_that_do_not_answer_in_another_language() -> None:
    async def refused(_request: Command, _peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_ERROR, "not now")

    async with served(brokers=1) as page:
        page.cluster.control(RequestCode.GET_BROKER_CONFIG, refused)
        page.http.cookies.set("language", "zh-CN")
        text = (await page.get("/servers")).text
    assert re.search('role="alert">Broker：.*not now', text)


async def test_a_page_in_the_chosen_language() -> None:
    async with served(brokers=1) as page:
        english = await page.http.get("/topics?filter=x")
        link = re.search(r'<a href="(/language[^"]*)" lang="zh-CN" hreflang="zh-CN">中文</a>', english.text)
        assert '<html lang="en"' in english.text
        assert link is not None
        chosen = await page.http.get(link[1].replace("&amp;", "&"))
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/topics?filter=x")
        assert all(part in chosen.headers["set-cookie"].lower() for part in ("httponly", "samesite=lax"))
        chinese = (await page.get("/")).text
        assert '<html lang="zh-CN"' in chinese
        assert "存在的问题" in chinese
        # The choice counts, not what the browser asks for.
        assert "存在的问题" in (await page.http.get("/", headers={"accept-language": "en"})).text
        page.http.cookies.clear()
        assert "存在的问题" in (await page.http.get("/", headers={"accept-language": "zh;q=0.9"})).text
        hostile = await page.get("/", filter=HOSTILE)
        assert HOSTILE not in hostile.text
        unknown = await page.get("/language", language=HOSTILE)
        assert (unknown.status_code, HOSTILE in unknown.text) == (400, False)
