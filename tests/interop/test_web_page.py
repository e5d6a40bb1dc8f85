"""The page in the browser over Apache RocketMQ: every page of both releases."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
import trio
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from pyrmq_core import Client, Message, Producer, PullConsumer
from pyrmq_core.tools.web import topic_figures
from pyrmq_core.tools.web.server import WebSettings, serve_web
from tests.support.apache import ApacheCluster
from tests.support.browser import browser, missing

TOPIC = "web_page_orders"
GROUP = "web_page_billing"
CREATED = "web_page_created"
HOSTILE = "<img src=x onerror=alert(1)>"
MESSAGES = 12
WITHIN_SECONDS = 120  # the end of a wait that hangs


async def test_every_page(apache: ApacheCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_figures, "PATIENCE_SECONDS", 60.0)  # the list of topics waits for its rows' figures
    nameserver = apache.nameserver.address
    async with Client(nameserver=nameserver) as client, trio.open_nursery() as nursery:
        await fill(client)
        address = await nursery.start(serve_web, client, nameserver, WebSettings(port=0))
        async with httpx.AsyncClient(base_url=address, timeout=60) as http:

            async def text(path: str) -> str:
                answer = await http.get(path)
                assert answer.status_code == 200, answer.text
                assert HOSTILE not in answer.text
                return answer.text

            cluster = await text("/")
            assert all(broker.address in cluster for broker in apache.brokers.values())
            assert cluster.count(apache.version) >= len(apache.brokers)
            row = await text(f"/topics?filter={TOPIC}")
            assert TOPIC in row
            lag = MESSAGES - 4 * len(apache.brokers)
            for head, figure in (("messages", MESSAGES), ("lag", lag), ("groups", 1)):
                assert f'data-head="{head}">{figure}</td>' in row
            topic = await text(f"/topic?topic={TOPIC}")
            assert topic.count('<rect class="queue"') == 4 * len(apache.brokers)
            assert f"{MESSAGES} messages in" in topic
            assert GROUP in topic
            assert GROUP in await text("/groups")
            assert f"{lag} messages behind" in await text(f"/group?group={GROUP}")
            for kind, name in (("topic", TOPIC), ("lag", GROUP)):
                curve = (await http.get("/data/curve", params={"kind": kind, "name": name})).json()
                assert len(curve["seconds"]) == 1
                assert curve["lines"]
            changed = set(re.findall(r'<td class="k">([^<]*)</td>', await text("/servers")))
            assert {"enablePropertyFilter", "transactionCheckInterval"} <= changed
            assert "flushDiskType" not in changed
            assert len(changed) < 40
            assert 'data-head="value">4</td>' in await text(f"/topic-settings?topic={TOPIC}")
            assert "retryMaxTimes" in await text(f"/group-settings?group={GROUP}")
            assert await text("/producers")
            assert await text("/dead-letters")
            assert await text(f"/dead-letters?group={GROUP}")
            listing = await text(f"/messages?topic={TOPIC}&key=web-key-3")
            ranged = await text(f"/messages?topic={TOPIC}&key=web-key-3&since=2100-01-01")
            assert "No message has the key web-key-3" in ranged
            link = re.search(r'href="(/message\?[^"]*)"', listing)
            assert link is not None
            message = await text(html.unescape(link[1]))
            body = await http.get(html.unescape(link[1]).replace("/message?", "/body?"))
            assert (body.status_code, body.content) == (200, HOSTILE.encode())
            assert html.escape(HOSTILE) in message
            assert GROUP in message
        nursery.cancel_scope.cancel()


@pytest.mark.soak
async def test_every_page_in_a_browser(apache_5: ApacheCluster, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    nameserver = apache_5.nameserver.address
    async with Client(nameserver=nameserver) as client, trio.open_nursery() as nursery:
        await fill(client)
        address = await nursery.start(serve_web, client, nameserver, WebSettings(port=0, allow_changes=True))
        await trio.to_thread.run_sync(look, address, tmp_path)
        nursery.cancel_scope.cancel()


def look(address: str, profile: Path) -> None:
    """Visits every page of the server at the address, and sends a message by its form."""
    with browser(profile) as chrome:

        def see(path: str, word: str) -> None:
            """Asks for the page until it has the word: what other tests do to the brokers may delay its figures."""

            def seen(chrome: Chrome) -> bool:
                chrome.get(address + path)
                return word in text_of(chrome)

            wait(chrome, seen)
            assert chrome.find_elements(By.TAG_NAME, "img") == []

        see("", "broker-a")
        assert curve_points(chrome) > 0
        see(f"topics?filter={TOPIC}", TOPIC)
        see(f"topic?topic={TOPIC}", GROUP)
        bars = chrome.find_elements(By.CSS_SELECTOR, ".spread rect.queue")
        assert len(bars) >= 8
        assert max(bar.size["height"] for bar in bars) > 80
        assert curve_points(chrome) > 0
        see(f"groups?filter={GROUP}", GROUP)
        see(f"group?group={GROUP}", "messages behind")
        assert curve_points(chrome) > 0
        see(f"messages?topic={TOPIC}", HOSTILE)
        chrome.find_element(By.CSS_SELECTOR, "tbody a").click()
        wait(chrome, lambda chrome: chrome.find_element(By.CSS_SELECTOR, "pre.body").text == HOSTILE)
        see("producers", "client")
        see("dead-letters", "Dead letters")
        see(f"reset?group={GROUP}", f"Reset the offsets of {GROUP}")
        see("topic-settings", "A new topic")
        chrome.find_element(By.NAME, "topic").send_keys(CREATED)
        chrome.find_element(By.CSS_SELECTOR, "main button").click()
        wait(chrome, lambda chrome: chrome.find_element(By.ID, "confirm")).click()
        wait(chrome, lambda chrome: f"pyrmq topic delete {CREATED}" in text_of(chrome))
        see(f"topic-settings?topic={CREATED}", "readQueueNums")
        see(f"send?topic={TOPIC}", "body")
        chrome.find_element(By.NAME, "body").send_keys(HOSTILE)
        chrome.find_element(By.CSS_SELECTOR, "main button").click()
        wait(chrome, lambda chrome: chrome.find_element(By.ID, "confirm")).click()
        wait(chrome, lambda chrome: "SEND_OK" in text_of(chrome))
        log = chrome.get_log("browser")  # type: ignore[no-untyped-call]
        assert [entry for entry in log if entry["level"] == "SEVERE"] == []


Found = TypeVar("Found")


def wait(chrome: Chrome, condition: Callable[[Chrome], Found]) -> Found:
    """Waits for a page's condition: until the next page is there its predecessor is found, or neither is."""
    ignored = [StaleElementReferenceException, NoSuchElementException]
    return WebDriverWait(chrome, WITHIN_SECONDS, 0.1, ignored_exceptions=ignored).until(condition)


def text_of(chrome: Chrome) -> str:
    return chrome.find_element(By.TAG_NAME, "main").text


def curve_points(chrome: Chrome) -> int:
    """Returns how many samples the page's curve has, once it is drawn."""
    drawn = "drawAll().then(() => arguments[0](Number(document.querySelector('.chart').dataset.points || 0)))"
    points: int = WebDriverWait(chrome, WITHIN_SECONDS, 0.2).until(lambda chrome: chrome.execute_async_script(drawn))
    return points


async def fill(client: Client) -> None:
    """Sends messages to every queue, and commits offset 1 of each for the group."""
    async with Producer("web-page", client=client) as producer, PullConsumer(GROUP, client=client) as consumer:
        for number in range(MESSAGES):
            await producer.send(Message(TOPIC, HOSTILE.encode(), keys=f"web-key-{number}"))
        queues = await consumer.message_queues(TOPIC)
        for queue in queues:
            await consumer.commit(queue, 1)
