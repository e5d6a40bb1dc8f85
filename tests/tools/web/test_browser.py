"""The pages in a real browser: pictures that are not empty, hostile text as text, a change by keyboard alone.

    PYRMQ_PICTURES=docs/pictures .ci/env --browser pytest tests/tools/web/test_browser.py

makes the pictures of docs/web.md. It takes two minutes, in which messages are sent and consumed, so that curves have a
form; this machine's own address is replaced in them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from pyrmq_core import Message, MessageQueue
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer, PullConsumer
from tests.support import commands
from tests.support.browser import browser, missing, picture
from tests.tools.web.browsed import JSON_ITEMS, LARGE, PAGES, filled, living
from tests.tools.web.serving import HOSTILE

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(missing()), reason=missing() or ""),
]

DRAWN_WITHIN = 40
# With this set, each page leaves a picture there: those in docs/pictures were made so.
PICTURES = os.environ.get("PYRMQ_PICTURES")
LIVING_SECONDS = 100
NARROW = 400
WIDTHS = ("clientWidth", "scrollWidth")
CURVE = "document.querySelector('.chart[data-points] canvas') !== null"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster, filled(cluster.nameserver):
        yield cluster


@pytest.fixture(scope="module")
def page(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `pyrmq web`, as a user starts it."""
    words = ["web", "-n", cluster.nameserver, "--port", "0", "--allow-changes"]
    process: Popen[str] = commands.started(*words, home=tmp_path_factory.mktemp("home"))
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("the page is at http://"), first
    address = first.split()[4].rstrip(";")
    if PICTURES:
        living(cluster.nameserver, address, LIVING_SECONDS)
    yield address
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert errors == ""


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile"), "--hide-scrollbars") as chrome:
        # The page's own zone: in another one a first visit loads the page twice.
        chrome.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
        yield chrome


@pytest.fixture(autouse=True)
def no_errors(chrome: Chrome) -> Iterator[None]:
    yield
    assert [
        entry
        for entry in chrome.get_log("browser")  # type: ignore[no-untyped-call]
        if entry["level"] == "SEVERE" and "status of 404" not in entry["message"]
    ] == []


@contextmanager
def looking(chrome: Chrome, *, width: int = 1100, dark: bool = False) -> Iterator[None]:
    """Has the browser show pages in this width and scheme."""
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}] if dark else []
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def wait(chrome: Chrome, condition: Callable[[Chrome], object]) -> None:
    # The page may be exchanged between the look at an element and the look into it.
    waiting = WebDriverWait(chrome, DRAWN_WITHIN, 0.05, ignored_exceptions=[StaleElementReferenceException])
    waiting.until(condition)


def text_of(chrome: Chrome) -> str:
    return chrome.find_element(By.TAG_NAME, "main").text


def drawn_colours(chrome: Chrome) -> int:
    """Returns how many colours the page's curve has; an empty one has one."""
    wait(
        chrome,
        lambda chrome: chrome.execute_async_script(
            "drawAll().then(() => arguments[0]($CURVE))".replace("$CURVE", CURVE)
        ),
    )
    return int(
        chrome.execute_script(
            "const canvas = document.querySelector('.chart canvas');"
            "const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
            "return new Set(new Uint32Array(bytes.buffer)).size"
        )
    )


def take(chrome: Chrome, name: str) -> None:
    if PICTURES:
        picture(chrome, Path(PICTURES) / f"web-{name}.png")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (NARROW, True)], ids=["wide", "narrow-dark"])
def test_each_page(chrome: Chrome, page: str, name: str, width: int, dark: bool) -> None:
    path, part = PAGES[name]
    with looking(chrome, width=width, dark=dark):
        chrome.get(page + path)
        if name in ("topic", "group") or (name == "cluster" and PICTURES):
            assert drawn_colours(chrome) > 5
        assert part in text_of(chrome)
        assert "broken" not in chrome.title
        body = chrome.find_element(By.TAG_NAME, "body")
        ground, text = (brightness(body.value_of_css_property(name)) for name in ("background-color", "color"))
        assert ground < 60 < 200 < text if dark else text < 60 < 200 < ground
        assert chrome.execute_script("return document.documentElement.scrollWidth") <= width
        hints = (
            "[...document.querySelectorAll('[placeholder]')].map((f) => getComputedStyle(f, '::placeholder').fontStyle)"
        )
        assert set(chrome.execute_script(f"return {hints}")) <= {"italic"}  # not as what is typed
        for table in chrome.find_elements(By.CSS_SELECTOR, ".wide"):
            shown, whole = (chrome.execute_script(f"return arguments[0].{side}", table) for side in WIDTHS)
            assert whole <= shown, table.text
        if width != NARROW or name in ("cluster", "topic", "group", "message"):
            take(chrome, f"{name}{'-narrow' if width == NARROW else ''}")


@pytest.mark.parametrize("name", ["cluster", "topic", "group"] if PICTURES else ["topic"])
def test_dark_curves(chrome: Chrome, page: str, name: str) -> None:
    with looking(chrome, dark=True):
        chrome.get(page + PAGES[name][0])
        assert drawn_colours(chrome) > 5
        take(chrome, f"{name}-dark")


@pytest.mark.parametrize(("width", "keys_at_most", "body_at_least"), [(1280, 240, 500), (NARROW, 376, 300)])
def test_long_keys_leave_room_for_bodies(
    chrome: Chrome, page: str, width: int, keys_at_most: int, body_at_least: int
) -> None:
    with looking(chrome, width=width):
        chrome.get(f"{page}messages?topic=invoices")
        keys, body = (chrome.find_element(By.CSS_SELECTOR, f"td.{name}").rect for name in ("keys", "body"))
        assert keys["width"] <= keys_at_most
        assert keys["height"] < 120
        assert body["width"] >= body_at_least
        assert body["x"] + body["width"] <= width
        for path in ("topics", "groups", ""):
            chrome.get(page + path)
            cells = chrome.find_elements(By.CSS_SELECTOR, "table.cards td")
            assert max(cell.rect["x"] + cell.rect["width"] for cell in cells) <= width


def test_names_are_whole_at_any_width(chrome: Chrome, page: str, cluster: EmbeddedCluster) -> None:
    group, topic = f"group-{'of-a-department-' * 4}1", "topic-of-some-department-with-a-suffix"
    with Admin(nameserver=cluster.nameserver) as admin, PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        admin.create_topic(topic, queues=1)
        for queue in consumer.message_queues(topic):
            consumer.commit(queue, 0)
    for width, path in ((1100, "groups"), (NARROW, "groups"), (NARROW, "producers")):
        with looking(chrome, width=width):
            chrome.get(f"{page}{path}")
            table = chrome.find_element(By.CSS_SELECTOR, ".wide")
            shown, whole = (chrome.execute_script(f"return arguments[0].{name}", table) for name in WIDTHS)
            assert whole <= shown, path
    with looking(chrome, width=NARROW):
        chrome.get(f"{page}send?topic=orders")
        labels = chrome.find_elements(By.CSS_SELECTOR, "form.tall label")
        assert max(label.size["height"] for label in labels[:3]) < 80


def test_the_spread_is_drawn(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}topic?topic=orders")
    bars = chrome.find_elements(By.CSS_SELECTOR, ".spread rect.queue")
    assert len(bars) == 8
    assert all(bar.size["width"] > 2 for bar in bars)
    assert max(bar.size["height"] for bar in bars) > 80
    assert bars[0].value_of_css_property("fill") not in ("rgb(0, 0, 0)", "none")


def test_a_live_tail_puts_what_comes_on_top(chrome: Chrome, page: str, cluster: EmbeddedCluster) -> None:
    chrome.get(f"{page}messages?topic=invoices&where=json.late")
    chrome.find_element(By.CSS_SELECTOR, "button[formaction]").click()
    wait(chrome, lambda chrome: "All is read" in text_of(chrome))

    def shows(bodies: list[str], chrome: Chrome) -> bool:
        cells = "return [...document.querySelectorAll('td.body')].map((cell) => cell.textContent)"
        return bool(chrome.execute_script(cells) == bodies)

    with Producer("shop", nameserver=cluster.nameserver) as producer:
        for number in (1, 2):
            producer.send(Message("invoices", b'{"late": true, "n": %d}' % number))
            producer.send(Message("invoices", b'{"late": false}'))
            wait(chrome, partial(shows, [f"late: true, n: {sent}" for sent in range(number, 0, -1)]))


def test_a_page_renews_itself_and_keeps_what_is_typed(chrome: Chrome, page: str, cluster: EmbeddedCluster) -> None:
    chrome.get(f"{page}messages?topic=renewed")
    assert "No message is there" in text_of(chrome)
    chrome.find_element(By.NAME, "key").send_keys("half a k")
    chrome.execute_script("document.activeElement.blur()")
    with Producer("web-tests", nameserver=cluster.nameserver) as producer:
        producer.send(Message("renewed", b"a first one"))
    chrome.find_element(By.ID, "renew").click()
    try:
        chrome.execute_async_script("renew().then(arguments[0])")
        assert "a first one" not in text_of(chrome)
        assert chrome.find_element(By.NAME, "key").get_attribute("value") == "half a k"
        chrome.find_element(By.NAME, "key").clear()
        chrome.execute_script("document.activeElement.blur()")
        wait(chrome, lambda chrome: "a first one" in text_of(chrome))
    finally:
        chrome.find_element(By.ID, "renew").click()


def test_times_in_the_zone_of_the_reader(chrome: Chrome, page: str) -> None:
    def shown(end: str, chrome: Chrome) -> bool:
        return chrome.find_element(By.CSS_SELECTOR, "tbody time").text.endswith(end)

    chrome.delete_all_cookies()
    chrome.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    chrome.get(f"{page}messages?topic=orders&before=2100-01-01")
    wait(chrome, partial(shown, "+09:00"))  # the first visit
    assert chrome.current_url.endswith("messages?topic=orders&before=2100-01-01")
    chrome.delete_all_cookies()  # as a browser that keeps none: the page is not loaded again and again
    chrome.get(f"{page}messages?topic=orders")
    assert shown("Z", chrome)
    assert chrome.execute_script("return performance.getEntriesByType('navigation')[0].type") == "navigate"
    chrome.get(f"{page}messages?topic=orders&before=2100-01-01")
    for zone, end in (("Asia/Tokyo", "+09:00"), ("UTC+08:00", "+08:00"), ("UTC", "Z")):
        Select(chrome.find_element(By.NAME, "zone")).select_by_value(zone)
        wait(chrome, partial(shown, end))
        assert (chrome.find_element(By.CSS_SELECTOR, "tbody time").get_attribute("title") or "").endswith("Z")
        assert chrome.current_url.endswith("messages?topic=orders&before=2100-01-01")
        assert f"stored from ({zone})" in text_of(chrome)
    chrome.execute_script("sessionStorage.clear()")
    chrome.refresh()
    assert shown("Z", chrome)  # a zone that was chosen stays
    for zone, time in (("Asia/Kolkata", "05:30"), ("UTC-03:30", "20:30"), ("UTC", "00:00")):
        script = "document.documentElement.dataset.zone = arguments[0]; return clock(0, false)"
        assert chrome.execute_script(script, zone) == time
    chrome.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})


def test_hostile_text_is_text(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}messages?topic=orders&key=k7")
    chrome.find_element(By.CSS_SELECTOR, "tbody a").click()
    assert chrome.find_element(By.CSS_SELECTOR, "pre.body").text == HOSTILE
    assert "broken" not in chrome.title
    chrome.get(f"{page}topics?filter={HOSTILE}")
    assert "broken" not in chrome.title
    assert chrome.find_element(By.NAME, "filter").get_attribute("value") == HOSTILE


def test_a_body_of_4_mib(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}messages?topic=large")
    chrome.find_element(By.CSS_SELECTOR, "tbody a").click()
    parts = -(-LARGE // 65536)
    assert f"Part 1 of {parts}: bytes 0 to 65,535 of {LARGE:,}" in text_of(chrome)
    assert len(chrome.find_element(By.CSS_SELECTOR, "pre.body").get_attribute("textContent") or "") == 65536
    chrome.find_element(By.LINK_TEXT, "Last").click()
    assert f"Part {parts} of {parts}" in text_of(chrome)
    assert len(chrome.find_element(By.CSS_SELECTOR, "pre.body").get_attribute("textContent") or "") == LARGE % 65536
    copied = "navigator.clipboard.writeText = async (text) => { window.copied = text.length; };"
    chrome.execute_script(copied)
    chrome.find_element(By.CSS_SELECTOR, "[data-copy]").click()
    wait(chrome, lambda chrome: f"{LARGE:,} characters copied" in text_of(chrome))
    assert chrome.execute_script("return window.copied") == LARGE


def test_long_json_is_laid_out_in_parts(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}messages?topic=large&key=json")
    chrome.find_element(By.CSS_SELECTOR, "tbody a").click()
    chrome.find_element(By.LINK_TEXT, "json").click()
    shown = []
    while True:
        shown.append(chrome.find_element(By.CSS_SELECTOR, "pre.body").get_attribute("textContent") or "")
        following = chrome.find_elements(By.LINK_TEXT, "Next part")
        if not following:
            break
        with looking(chrome, width=NARROW):
            assert chrome.execute_script("return document.documentElement.scrollWidth") == NARROW
        following[0].click()
    assert len(shown) == 5
    assert "".join(shown).splitlines()[:5] == ["{", '  "items": [', "    {", '      "item": 0', "    },"]
    assert json.loads("".join(shown)) == {"items": [{"item": number} for number in range(JSON_ITEMS)]}


def test_a_message_is_sent_by_keyboard(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}send?topic=orders")
    chrome.find_element(By.NAME, "topic").send_keys(Keys.TAB, Keys.TAB)
    chrome.switch_to.active_element.send_keys("typed", Keys.TAB)
    chrome.switch_to.active_element.send_keys("by keyboard", Keys.TAB)
    assert chrome.switch_to.active_element.value_of_css_property("outline-style") == "solid"
    chrome.switch_to.active_element.send_keys(Keys.ENTER)
    wait(chrome, lambda chrome: "Please confirm" in text_of(chrome))
    with looking(chrome):
        take(chrome, "confirm")
    chrome.execute_async_script("document.getElementById('renew').checked = true; renew().then(arguments[0])")
    chrome.find_element(By.ID, "confirm").send_keys(Keys.ENTER)
    wait(chrome, lambda chrome: "SEND_OK" in text_of(chrome))
    with looking(chrome):
        take(chrome, "done")
    chrome.get(f"{page}messages?topic=orders&key=typed")
    assert "by keyboard" in text_of(chrome)


def tab_to(chrome: Chrome, selector: str, *keys: str) -> None:
    """Presses the tabulator until such an element is chosen, and then the keys.

    No element is held meanwhile, since the page may be exchanged at any time.
    """
    for _ in range(200):
        ActionChains(chrome).send_keys(Keys.TAB).perform()
        if chrome.execute_script("return document.activeElement.matches(arguments[0])", selector):
            ActionChains(chrome).send_keys(*keys).perform()
            return
    raise AssertionError(f"no tabulator leads to {selector}")


def test_a_reset_and_its_way_back_by_keyboard(chrome: Chrome, page: str, cluster: EmbeddedCluster) -> None:
    def offsets() -> dict[MessageQueue, int]:
        with Admin(nameserver=cluster.nameserver) as admin:
            return {row.queue: row.consumer_offset for row in admin.groups.progress("billing", topic="orders").queues}

    def confirm(text: str) -> None:
        wait(chrome, lambda chrome: text in text_of(chrome))
        tab_to(chrome, "#confirm", Keys.ENTER)
        wait(chrome, lambda chrome: "have a new offset" in text_of(chrome))

    before = offsets()
    chrome.get(page)
    for link, title in (("/groups", "Groups"), ("/group?group=billing", "billing"), ("/reset?group=billing", "Reset")):
        tab_to(chrome, f'a[href="{link}"]', Keys.ENTER)
        wait(chrome, lambda chrome: title in chrome.title)  # noqa: B023
    tab_to(chrome, "[name=topic]", "orders")
    tab_to(chrome, "[name=to]", "latest")
    tab_to(chrome, "main button", Keys.ENTER)
    confirm("Reset group billing to latest in topic orders.")
    assert offsets() != before
    tab_to(chrome, '[action="/undo"] button', Keys.ENTER)
    confirm("Give group billing its former offsets")
    assert offsets() == before
    tab_to(chrome, 'main a[href="/changes"]', Keys.ENTER)
    wait(chrome, lambda chrome: chrome.title.startswith("Changes"))
    assert text_of(chrome).count("Take it back") >= 2


def test_whose_lag_and_why_by_keyboard(chrome: Chrome, page: str) -> None:
    chrome.get(page)
    for link, title in (("/topics", "Topics"), ("/topic?topic=orders", "orders")):
        tab_to(chrome, f'a[href="{link}"]', Keys.ENTER)
        wait(chrome, partial(is_titled, title))
    row = chrome.find_element(By.CSS_SELECTOR, "tbody tr")
    group, _, lag = (cell.text for cell in row.find_elements(By.TAG_NAME, "td")[:3])
    assert (group, int(lag.replace(",", "")) > 0) == ("billing", True)
    tab_to(chrome, 'a[href="/group?group=billing"]', Keys.ENTER)
    wait(chrome, partial(is_titled, "billing"))
    assert "Why they wait" in text_of(chrome)
    assert "no member is connected" in chrome.find_element(By.CSS_SELECTOR, ".why").text


def is_titled(title: str, chrome: Chrome) -> bool:
    return chrome.title.startswith(title)


def test_a_members_stack_by_keyboard(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}group?group=shipping")
    tab_to(chrome, 'a[href^="/stack?"]', Keys.ENTER)
    wait(chrome, partial(is_titled, "Stacks of"))
    assert "thread" in chrome.find_element(By.TAG_NAME, "pre").text


def test_a_young_curve_has_no_empty_minutes(chrome: Chrome, page: str) -> None:
    chrome.get(f"{page}group?group=shipping")
    drawn_colours(chrome)
    chart = chrome.find_element(By.CSS_SELECTOR, ".chart")
    assert int(chart.get_attribute("data-points") or 0) >= 1
    newest = "fetch(arguments[0]).then((answer) => answer.json()).then((data) => arguments[1](data.seconds))"
    seconds = chrome.execute_async_script(newest, chart.get_attribute("data-from"))
    assert 30 <= float(chart.get_attribute("data-seconds") or 0) <= max(30, seconds[-1] - seconds[0])


def test_the_rates_of_the_cluster_are_drawn(chrome: Chrome, page: str) -> None:
    # The last test: a broker has its rates after 10 s.
    chrome.get(page)
    assert drawn_colours(chrome) > 5
    legend = chrome.find_element(By.CSS_SELECTOR, ".u-legend").text
    assert {"time", "in", "out"} <= set(re.findall("[a-z]+", legend))


def brightness(colour: str) -> float:
    red, green, blue = (int(number) for number in colour.partition("(")[2].rstrip(")").split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue
