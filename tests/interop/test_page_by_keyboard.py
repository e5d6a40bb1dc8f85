"""The page's three questions by keyboard alone, on Apache's brokers with a member of Java's that is slow."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from pyrmq_core import Admin, Client, Message, MessageQueue, Producer
from pyrmq_core.client.admin import wait_reasons
from pyrmq_core.client.admin.values import WaitKind
from pyrmq_core.tools.web.server import WebSettings, serve_web
from tests.interop.test_wait_reasons import MESSAGES, PROGRAM, topic, waiting
from tests.support.apache import ApacheCluster
from tests.support.browser import browser, missing
from tests.support.java_programs import start_java
from tests.tools.web.test_browser import is_titled, tab_to, text_of, wait

__all__ = ["topic"]


@pytest.mark.soak
@pytest.mark.skipif(bool(missing()), reason=missing() or "")
async def test_three_questions_by_keyboard(
    apache_5: ApacheCluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_reasons, "STILL_SECONDS", 4)
    nameserver, groups = apache_5.nameserver.address, [f"{name}_{topic}" for name in ("slow", "still", "stopped")]
    async with Client(nameserver=nameserver) as client, trio.open_nursery() as nursery:
        async with Admin(client=client, timeout=20) as admin, Producer("P", client=client, send_timeout=20) as producer:

            async def send() -> None:
                for _ in range(MESSAGES):
                    await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 0))

            async def offset() -> int:
                rows = (await admin.groups.progress(groups[2], topic=topic)).queues
                return next(row.consumer_offset for row in rows if row.queue.broker_name == "broker-a")

            await admin.create_topic(topic, queues=1)
            await send()
            address = await nursery.start(serve_web, client, nameserver, WebSettings(port=0, allow_changes=True))
            with start_java("5.4.0", PROGRAM, nameserver, topic, *groups), browser(tmp_path) as chrome:
                await waiting(admin, groups[0], topic, WaitKind.IN_MEMORY, send)
                await trio.to_thread.run_sync(whose_and_why, chrome, address, topic, groups[0])
                await waiting(admin, groups[2], topic, WaitKind.NOT_DELIVERED, send)
                before = await offset()
                await trio.to_thread.run_sync(reset, chrome, address, topic, groups[2])
                assert await offset() != before
                await trio.to_thread.run_sync(take_back, chrome)
                assert await offset() == before
        nursery.cancel_scope.cancel()


def whose_and_why(chrome: Chrome, address: str, topic: str, group: str) -> None:
    """Asks in two clicks whose lag the topic has, and in a third why the group waits."""
    chrome.get(address)
    for link, title in (("/topics", "Topics"), (f"/topic?topic={topic}", topic)):
        tab_to(chrome, f'a[href="{link}"]', Keys.ENTER)
        wait(chrome, partial(is_titled, title))
    assert group in chrome.find_element(By.CSS_SELECTOR, "tbody").text
    tab_to(chrome, f'a[href="/group?group={group}"]', Keys.ENTER)
    wait(chrome, partial(is_titled, group))
    assert "in the memory of" in chrome.find_element(By.CSS_SELECTOR, ".why").text


def reset(chrome: Chrome, address: str, topic: str, group: str) -> None:
    chrome.get(f"{address}group?group={group}")
    tab_to(chrome, f'a[href="/reset?group={group}"]', Keys.ENTER)
    wait(chrome, partial(is_titled, "Reset"))
    tab_to(chrome, "[name=topic]", topic)
    tab_to(chrome, "[name=to]", "latest")
    tab_to(chrome, "main button", Keys.ENTER)
    confirm(chrome, f"Reset group {group} to latest")


def take_back(chrome: Chrome) -> None:
    tab_to(chrome, '[action="/undo"] button', Keys.ENTER)
    confirm(chrome, "its former offsets")


def confirm(chrome: Chrome, text: str) -> None:
    wait(chrome, lambda chrome: text in text_of(chrome))
    tab_to(chrome, "#confirm", Keys.ENTER)
    wait(chrome, lambda chrome: "have a new offset" in text_of(chrome))
