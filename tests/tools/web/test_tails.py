"""The live tail: every match once and in whatever parts, masked, bounded, and nothing lost by a broker that is away."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import Admin, Command, Message, MessageExt, MessageQueue, Producer, PullConsumer, RequestCode
from pyrmq_core.embedded import CutConnection
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.tools.web import tails
from pyrmq_core.tools.web.message_reads import MessageReads, Wanted
from pyrmq_core.tools.web.tails import MAX_CHARACTERS, TailPlace, read_tail
from tests.tools.web.serving import HOSTILE, Served, served

SECRET = "4111222233334444"
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="-_%."), min_size=1, max_size=9)


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr(tails, "PART_SECONDS", 60.0)
    monkeypatch.setattr("pyrmq_core.tools.web.look_ups.TAIL_FRESH_SECONDS", 0.0)
    async with served(topics={"orders": 2}, masks=["json.card", "properties.token"]) as page:
        yield page


async def send(page: Served, *bodies: str, tags: str | None = None) -> None:
    async with Producer("web-tests", nameserver=page.cluster.nameserver) as producer:
        for body in bodies:
            await producer.send(Message("orders", body.encode(), tags=tags, properties={"token": SECRET}))


def following(answer: httpx.Response) -> str:
    link = re.search(r'rel="next" class="unscripted" href="([^"]*)"', answer.text)
    assert link is not None
    assert f'data-next="{link[1]}"' in answer.text
    return html.unescape(link[1])


def bodies(answer: httpx.Response) -> list[str]:
    return [html.unescape(body) for body in re.findall(r'<td class="body">(.*?)</td>', answer.text)]


async def test_a_tail_shows_what_comes_each_once(page: Served) -> None:
    await send(page, "before")
    first = await page.get("/tail", topic="orders")
    assert (first.status_code, bodies(first), first.headers["cache-control"]) == (200, [], "no-store")
    await send(page, *(f"order {number}" for number in range(9)))
    second = await page.http.get(following(first))
    assert sorted(bodies(second)) == [f"order {number}" for number in range(9)]
    third = await page.http.get(following(second))
    assert (bodies(third), following(third)) == ([], following(second))
    assert sorted(bodies(await page.http.get(following(first)))) == sorted(bodies(second))
    for since in ("1h", "1900-01-01"):
        assert "before" in bodies(await page.get("/tail", topic="orders", since=since))
        assert following(await page.get("/tail", topic="orders", since=since)) != following(first)


async def test_a_part_that_is_full_leaves_the_rest_to_the_next(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "PART_MESSAGES", 4)
    monkeypatch.setattr(tails, "STEP_OFFSETS", 3)
    sent = [f"order {number:02}" for number in range(40)]
    await send(page, *sent)
    answer, shown, parts = await page.get("/tail", topic="orders", since="1h"), list[str](), 1
    while 'data-behind="0"' not in answer.text:
        shown += bodies(answer)
        answer, parts = await page.http.get(following(answer)), parts + 1
    assert sorted(shown + bodies(answer)) == sent
    assert parts >= 40 // (4 + 4 * 3)


@dataclass
class Slow:
    """A condition that takes seconds of a clock of its own for each message."""

    seconds: float
    now: float = 0.0
    judged: int = 0

    def holds(self, message: MessageExt) -> bool:
        self.now += self.seconds
        self.judged += 1
        return True


@pytest.mark.parametrize("seconds", [1.0, 100.0])
async def test_a_part_ends_soon_however_slow_a_condition_is(
    page: Served, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    slow, sent = Slow(seconds), [f"order {number:02}" for number in range(24)]
    monkeypatch.setattr(tails, "PART_SECONDS", 3.0)
    monkeypatch.setattr(tails, "monotonic", lambda: slow.now, raising=False)
    await send(page, *sent)
    shown, place = list[str](), TailPlace(0, {})
    async with (
        Admin(nameserver=page.cluster.nameserver) as admin,
        PullConsumer("web-tests", nameserver=page.cluster.nameserver) as consumer,
    ):
        while len(shown) < len(sent):
            before = slow.judged
            part = await read_tail(MessageReads(admin, consumer), Wanted("orders", None, None), slow, place)
            # Each of the four queues may have begun with a message when the time is over.
            assert 1 <= slow.judged - before <= 3 + 4
            shown += [message.body.decode() for message in part.found.messages]
            place = part.place
    assert (sorted(shown), part.behind) == (sent, 0)


async def test_a_broker_that_is_away_costs_no_message(page: Served) -> None:
    first = await page.get("/tail", topic="orders")
    sent = [f"order {number:02}" for number in range(12)]
    await send(page, *sent)

    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.PULL_MESSAGE):
        rule = page.cluster.control(code, cut, server="broker-b")
        during = await page.http.get(following(first))
        rule.remove()
        assert during.text.count('role="alert"') >= 1
        assert 0 < len(bodies(during)) < 12
        after = await page.http.get(following(during))
        assert sorted(bodies(during) + bodies(after)) == sent


async def test_a_broker_without_an_answer_for_the_begin_costs_its_own_part(page: Served) -> None:
    sent = [f"order {number:02}" for number in range(12)]
    await send(page, *sent)

    async def cut(request: Command, peer: Peer) -> Command:
        raise CutConnection

    rule = page.cluster.control(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, cut, server="broker-b")
    during = await page.get("/tail", topic="orders", since="1h")
    rule.remove()
    assert (during.status_code, during.text.count('role="alert"')) == (200, 1)
    assert 0 < len(bodies(during)) < 12
    after = await page.http.get(following(during))
    assert sorted(bodies(during) + bodies(after)) == sent


@pytest.mark.parametrize(("began_ms", "shown"), [(0, ["before"]), (10**13, [])])
async def test_an_end_that_moved_back_shows_what_came_since_the_begin(
    page: Served, began_ms: int, shown: list[str]
) -> None:
    await send(page, "before")
    queues = [MessageQueue("orders", name, queue_id) for name in ("broker-a", "broker-b") for queue_id in (0, 1)]
    reached = TailPlace(began_ms, dict.fromkeys(queues, 99))
    answer = await page.get("/tail", topic="orders", place=reached.text())
    assert bodies(answer) == shown
    assert 'data-behind="0"' in answer.text
    assert ".99" not in following(answer)


async def test_a_tail_has_the_filters_of_a_search(page: Served) -> None:
    first = {name: await page.get("/tail", topic="orders", **fields) for name, fields in FILTERED.items()}
    await send(page, '{"order": 1}', '{"order": 2}', "order 3")
    await send(page, '{"order": 4}', tags="Aa")
    await send(page, '{"order": 5}', tags="BB")  # of the same hash, by which brokers filter
    shown = {name: bodies(await page.http.get(following(answer))) for name, answer in first.items()}
    assert {name: sorted(texts) for name, texts in shown.items()} == {
        "where": ["order: 2", "order: 4", "order: 5"],
        "contains": ["order 3"],
        "tags": ["order: 4"],
        "both": [],
    }


FILTERED: dict[str, dict[str, str]] = {
    "where": {"where": "json.order >= 2"},
    "contains": {"contains": "order 3"},
    "tags": {"tags": "Aa"},
    "both": {"tags": "Aa", "where": "json.order == 1"},
}


async def test_a_tail_is_masked_and_escaped(page: Served) -> None:
    first = await page.get("/tail", topic="orders")
    telling = [await page.get("/tail", topic="orders", **fields) for fields in TELLING]
    await send(page, f'{{"order": 1, "card": "{SECRET}"}}', HOSTILE)
    shown = await page.http.get(following(first))
    assert sorted(bodies(shown)) == sorted([HOSTILE, "order: 1, card: ***"])
    assert SECRET not in shown.text
    assert HOSTILE not in shown.text
    for answer in telling:
        assert bodies(await page.http.get(following(answer))) == []
    refused = await page.get("/tail", topic="orders", sql=f"token = '{SECRET}'")
    assert (refused.status_code, "use where" in refused.text) == (400, True)


TELLING: list[dict[str, str]] = [
    {"contains": SECRET},
    {"where": f"json.card == '{SECRET}'"},
    {"where": f"properties.token == '{SECRET}'"},
]


@pytest.mark.parametrize(
    "fields",
    [{"key": "k"}, {"id": "x"}, {"before": "1h"}, {"place": "x"}, {"place": "1 broker-a:0"}, {"place": "1 a:0.1.2"}],
)
async def test_what_a_tail_does_not_take(page: Served, fields: dict[str, str]) -> None:
    answer = await page.get("/tail", topic="orders", **fields)
    assert (answer.status_code, 'id="tail"' in answer.text) == (400, False)


@given(
    st.integers(0, 10**14 - 1),
    st.dictionaries(
        st.builds(MessageQueue, st.just("orders"), NAMES, st.integers(0, 999)), st.integers(0, 10**18 - 1), max_size=9
    ),
)
def test_a_place_is_read_as_it_was_written(began_ms: int, offsets: dict[MessageQueue, int]) -> None:
    place = TailPlace(began_ms, offsets)
    assert TailPlace.parse(place.text(), "orders") == place


@pytest.mark.parametrize(
    "text", ["", "x", "1 a", "1 a:", "1 a:1", "1 a:1.2.3", "1  a:1.2", "1 " + "a" * MAX_CHARACTERS]
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(InvalidArgument, match="begin the tail again"):
        TailPlace.parse(text, "orders")
