"""The zone that a viewer chose: times of pages and forms are its own; ranges of time mean the same to all viewers."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.tools.web.shared_answers import FRESH_SECONDS
from pyrmq_core.tools.web.zones import OFFERED, UTC_ZONE, Zone, form_zone, local_path, zone_named
from tests.tools.web.serving import ORDERS, Served, changed, fill, served
from tests.tools.web.test_pages import rows

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
async def page() -> AsyncIterator[Served]:
    async with served(allow_changes=True, brokers=1) as page:
        await fill(page.cluster.nameserver)
        yield page


def zone(name: str) -> Zone:
    named = zone_named(name)
    assert named is not None
    return named


@pytest.mark.parametrize("name", OFFERED)
def test_zones_that_are_offered(name: str) -> None:
    offered = zone(name)
    assert offered.name == name
    assert offered.read(offered.write(NOON), "since") == NOON
    assert offered.read(offered.write(NOON)[:16], "since") == NOON


@pytest.mark.parametrize(
    "name",
    ["", "UTC+99:00", "UTC+14:01", "Nowhere/City", "../../etc/passwd", "/etc/localtime", "a" * 99, "Europe", "é"],
)
def test_what_is_no_zone(name: str) -> None:
    assert zone_named(name) is None
    if name:
        with pytest.raises(InvalidArgument, match="is no zone that this machine knows"):
            form_zone(name, UTC_ZONE)


def test_times_of_a_form() -> None:
    chinese = zone("UTC+08:00")
    assert chinese.read("2026-01-31T12:00", "since") == NOON - timedelta(hours=8)
    assert chinese.read("2026-01-31T12:00Z", "since") == NOON
    assert chinese.read("", "since") is None
    assert (chinese.write(None), chinese.write(NOON)) == ("", "2026-01-31T20:00:00+08:00")
    for text in ("yesterday", "31.12.2026", "9999-12-31T23:59-10:00"):
        with pytest.raises(InvalidArgument, match=r"write 2026-01-31T12:00 .UTC.08:00. or with"):
            chinese.read(text, "since")
    now = datetime.now(UTC)
    ages = {age: chinese.read(age, "since") for age in ("0s", "15m", "2h")}
    for age, seconds in (("0s", 0), ("15m", 900), ("2h", 7200)):
        moment = ages[age]
        assert moment is not None
        assert -FRESH_SECONDS <= (moment - now).total_seconds() + seconds <= (datetime.now(UTC) - now).total_seconds()
        assert moment.timestamp() % FRESH_SECONDS == 0  # shared by viewers
    with pytest.raises(InvalidArgument, match="an age as 15m"):
        chinese.read("999999d", "since")
    assert chinese.local(datetime.max.replace(tzinfo=UTC)).year == 9999


@pytest.mark.parametrize(
    "text",
    ["//evil.example/", "/\\evil.example", "https://evil.example/", "javascript:x", "", "/a\r\nSet-Cookie:x", "/é"],
)
def test_a_choice_leads_nowhere_else(text: str) -> None:
    assert local_path(text) == "/"


@given(st.text(max_size=20))
def test_a_local_path_is_local(text: str) -> None:
    path = local_path(text)
    assert path.startswith("/")
    assert path[1:2] not in ("/", "\\")


async def test_a_page_in_the_chosen_zone(page: Served) -> None:
    utc = (await page.get("/messages", topic="orders")).text
    stored = re.search(r'<time datetime="([^"]+)Z"[^>]*>([^<]+)Z</time>', utc)
    assert stored is not None
    assert stored[1] == stored[2].replace(" ", "T")
    back = html.unescape(re.findall(r'name="back" value="([^"]*)"', utc)[0])
    assert back == "/messages?topic=orders"
    chosen = await page.get("/zone", zone="UTC+05:30", back=back)
    assert (chosen.status_code, chosen.headers["location"]) == (303, back)
    cookie = chosen.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    indian = (await page.http.get(back)).text
    there = zone("UTC+05:30").local(datetime.fromisoformat(f"{stored[1]}+00:00"))
    assert there.isoformat(" ", "milliseconds") in indian
    assert "Times are those of UTC+05:30" in indian
    assert "stored from (UTC+05:30)" in indian
    assert '<option value="UTC+05:30" selected>' in indian
    assert (await page.get("/zone", zone="Nowhere/City", back="/")).status_code == 400
    page.http.cookies.clear()
    other = await page.http.get("/", headers={"cookie": "zone=..%5Cx"})
    assert "Times are those of UTC," in other.text


async def test_the_script_chooses_a_zone_where_the_viewer_has_none(page: Served) -> None:
    """It does so neither on the answer to a form, which is not loaded again, nor over UTC that was chosen."""
    is_open = " data-zone-open "
    assert is_open in (await page.get("/topics")).text
    assert is_open in (await page.get("/topic", topic="nowhere")).text
    text = (await page.get("/reset", group="billing")).text
    token = re.search(r'name="token" value="([^"]+)"', text)
    assert token is not None
    form = {"token": token[1], "group": "billing", "topic": "orders", "to": "latest"}
    assert is_open not in (await page.http.post("/reset", data=form)).text
    await page.get("/zone", zone="UTC")
    assert is_open not in (await page.get("/topics")).text


async def test_messages_of_a_range_of_time(page: Served) -> None:
    async def listed(**query: str) -> list[datetime]:
        text = (await page.get("/messages", topic="orders", **query)).text
        return sorted(map(datetime.fromisoformat, re.findall(r'<time datetime="([^"]+)"', text)))

    times = await listed()
    assert len(times) == ORDERS
    since, before = times[10], times[-10]
    assert await listed(since=since.isoformat()) == [time for time in times if since <= time]
    within = {"since": since.isoformat(), "before": before.isoformat()}
    assert await listed(**within) == [time for time in times if since <= time < before]
    # What is older is before the range.
    assert "Older messages" not in (await page.get("/messages", topic="orders", **within)).text
    assert len(await listed(key="k3")) == len(await listed(key="k3", since=times[0].isoformat())) == 1
    assert await listed(key="k3", before="2000-01-01") == []
    later = {"since": "2100-01-01T00:00", "zone": "UTC+08:00"}
    text = (await page.get("/messages", topic="orders", key="k3", **later)).text
    assert "No message has the key k3." in text
    assert "stored from 2099-12-31T16:00:00+00:00 on were looked at" in text.replace("&#43;", "+")
    assert (await page.get("/messages", topic="orders", since="x", zone="nowhere")).status_code == 400
    assert len(rows((await page.get("/messages", topic="orders", since="2100-01-01")).text)) == 0


async def test_the_last_hour_is_a_button(page: Served) -> None:
    times = {"since": "2000-01-01", "before": "2000-01-02"}
    last = {name: await page.get("/messages", topic="orders", **times, **more) for name, more in LAST.items()}
    assert {name: len(rows(answer.text)) > 1 for name, answer in last.items()} == {"button": True, "none": False}
    assert 'name="since" value="1h"' in last["button"].text
    assert 'name="before" value=""' in last["button"].text
    assert len(rows((await page.get("/messages", topic="orders", since="15m")).text)) > 1
    assert len(rows((await page.get("/messages", topic="orders", before="15m")).text)) == 0


LAST: dict[str, dict[str, str]] = {"button": {"last": "1h"}, "none": {}}


async def test_a_reset_to_a_time_of_the_chosen_zone(page: Served) -> None:
    fields = {"group": "billing", "topic": "orders", "to": "2100-01-01T00:00", "zone": "UTC+08:00"}
    token = re.search(r'name="token" value="([^"]+)"', (await page.get("/reset", group="billing")).text)
    assert token is not None
    question = await page.http.post("/reset", data={"token": token[1], **fields})
    assert "to 2100-01-01T00:00:00+08:00 in topic orders" in question.text.replace("&#43;", "+")
    assert "4 of 4 queues of orders have a new offset" in (await changed(page.http, "/reset", **fields)).text
