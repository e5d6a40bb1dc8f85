"""The pages in a real browser: pictures that are not empty, hostile text as text, a change by keyboard alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer, PullConsumer
from tests.support import commands
from tests.support.browser import browser, missing
from tests.web.serving import HOSTILE, ORDERS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(180),
    pytest.mark.skipif(bool(missing()), reason=missing() or ""),
]

DRAWN_WITHIN = 40
# With this set, each test leaves a picture of what it saw there: those in docs/pictures were made so.
PICTURES = os.environ.get("PYRMQ_PICTURES")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        with Producer("web-tests", nameserver=cluster.nameserver) as producer:
            for number in range(ORDERS):
                body = HOSTILE if number % 2 else f'{{"order": {number}}}'
                producer.send(Message("orders", body.encode(), keys=f"k{number}", tags="paid"))
        with PullConsumer("billing", nameserver=cluster.nameserver) as consumer:
            for queue in consumer.message_queues("orders"):
                consumer.commit(queue, 1)
        yield cluster


@pytest.fixture(scope="module")
def page(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `pyrmq web`, as a user starts it."""
    words = ["web", "-n", cluster.nameserver, "--port", "0", "--allow-changes"]
    process: Popen[str] = commands.started(*words, home=tmp_path_factory.mktemp("home"))
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("the page is at http://"), first
    yield first.split()[4].rstrip(";")
    process.terminate()
    process.communicate(timeout=30)


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture(autouse=True)
def picture(chrome: Chrome, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    assert [
        entry
        for entry in chrome.get_log("browser")  # type: ignore[no-untyped-call]
        if entry["level"] == "SEVERE"
    ] == []
    if PICTURES:
        name = request.node.name.removeprefix("test_").replace("_", "-")
        chrome.save_screenshot(str(Path(PICTURES) / f"{name}.png"))


def wait(chrome: Chrome, condition: Callable[[Chrome], object]) -> None:
    # The page may be exchanged between the look at an element and the look into it.
    waiting = WebDriverWait(chrome, DRAWN_WITHIN, 0.05, ignored_exceptions=[StaleElementReferenceException])
    waiting.until(condition)


def text_of(chrome: Chrome) -> str:
    return chrome.find_element(By.TAG_NAME, "main").text


def test_web_cluster(chrome: Chrome, page: str, cluster: EmbeddedCluster) -> None:
    chrome.get(page)
    assert all(address in text_of(chrome) for address in cluster.brokers.values())


def test_web_topic(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}topic?topic=orders")
    bars = chrome.find_elements(By.CSS_SELECTOR, ".spread rect.queue")
    assert len(bars) == 8
    assert all(bar.size["width"] > 2 and bar.size["height"] > 20 for bar in bars)
    fill = bars[0].value_of_css_property("fill")
    assert fill not in ("rgb(0, 0, 0)", "none")


def test_web_group(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}group?group=billing")
    box = chrome.find_element(By.ID, "renew")
    box.click()  # samples come each 10 s; the page shows them by itself
    wait(chrome, lambda chrome: chrome.find_elements(By.CSS_SELECTOR, "#lag canvas"))
    wait(chrome, lambda chrome: int(chrome.find_element(By.ID, "lag").get_attribute("data-points") or 0) >= 1)
    drawn = chrome.execute_script(
        "const canvas = document.querySelector('#lag canvas');"
        "const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "return new Set(new Uint32Array(bytes.buffer)).size"
    )
    assert drawn > 5  # an empty canvas has one colour
    chrome.find_element(By.ID, "renew").click()


def test_web_hostile_message(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}messages?topic=orders&key=k7")
    chrome.find_element(By.CSS_SELECTOR, "tbody a").click()
    assert chrome.find_element(By.CSS_SELECTOR, "pre.body").text == HOSTILE
    assert "broken" not in chrome.title
    chrome.get(f"{page}topics?filter={HOSTILE}")
    assert "broken" not in chrome.title
    assert chrome.find_element(By.NAME, "filter").get_attribute("value") == HOSTILE


def test_web_send_by_keyboard(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}send?topic=orders")
    chrome.find_element(By.NAME, "topic").send_keys(Keys.TAB, Keys.TAB)
    chrome.switch_to.active_element.send_keys("typed", Keys.TAB)
    chrome.switch_to.active_element.send_keys("by keyboard", Keys.TAB)
    chrome.switch_to.active_element.send_keys(Keys.ENTER)
    wait(chrome, lambda chrome: "Please confirm" in text_of(chrome))
    chrome.find_element(By.ID, "confirm").send_keys(Keys.ENTER)
    wait(chrome, lambda chrome: "SEND_OK" in text_of(chrome))
    chrome.get(f"{page}messages?topic=orders&key=typed")
    assert "by keyboard" in text_of(chrome)


@pytest.mark.parametrize("path", ["", "topics", "topic?topic=orders", "groups", "group?group=billing", "producers"])
def test_web_dark(chrome: Chrome, page: str, path: str) -> None:
    chrome.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    try:
        chrome.get(page + path)
        body = chrome.find_element(By.TAG_NAME, "body")
        ground, text = (body.value_of_css_property(name) for name in ("background-color", "color"))
        assert brightness(ground) < 60 < 200 < brightness(text)
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def brightness(colour: str) -> float:
    red, green, blue = (int(number) for number in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
