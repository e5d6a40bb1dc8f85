"""The search over ranges of a broker: by columns and by messages alike, with filters, bounds and a broker's loss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import trio

from pyrmq_core import Message, MessageExt, MessageQueue, OffsetRange, Producer, PullConsumer
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.tools.search import search as search_module
from pyrmq_core.tools.search.conditions import Condition, Members, Pattern, TextIn
from pyrmq_core.tools.search.ranges import ranges_of
from pyrmq_core.tools.search.search import Search, SearchForm
from pyrmq_core.tools.search.where import Where

TOPIC = "Orders"
COUNT = 600
BIG = 5000  # bytes of a body that is compressed


def body(number: int) -> bytes:
    """Returns a body: every third is no JSON, every hundredth so large that it is stored compressed."""
    if number % 3 == 2:
        return f"order {number} needle".encode()
    more = "x" * BIG if number % 100 == 0 else ""
    return f'{{"order": {number}, "text": "needle {number}", "more": "{more}"}}'.encode()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1, topics={TOPIC: 2}, settings={"enablePropertyFilter": "true"}) as cluster:
        async with Producer("G", nameserver=cluster.nameserver) as producer:
            queues = await producer.message_queues(TOPIC)
            for start in range(0, COUNT, 100):
                batch = [
                    Message(
                        TOPIC, body(number), tags="even" if number % 2 == 0 else "odd", properties={"n": str(number)}
                    )
                    for number in range(start, start + 100)
                ]
                large = [message for message in batch if len(message.body) > BIG]
                for message in large:
                    await producer.send(message, queue=queues[1])
                rest = [message for message in batch if message not in large]
                for queue, part in zip(queues, (rest[:50], rest[50:]), strict=True):
                    await producer.send_batch(part, queue=queue)
        yield cluster


@pytest.fixture
async def consumer(cluster: EmbeddedCluster) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("readers", nameserver=cluster.nameserver) as consumer:
        yield consumer


async def everything(consumer: PullConsumer) -> list[tuple[MessageQueue, OffsetRange]]:
    return await ranges_of(consumer, await consumer.message_queues(TOPIC), None, None)


async def matches(search: Search) -> list[MessageExt]:
    async with search.matches() as lists:
        return [message async for messages in lists for message in messages]


def numbers(messages: list[MessageExt]) -> list[int]:
    return sorted(int(message.properties["n"]) for message in messages)


@pytest.fixture(params=["by columns", "by messages"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    way: str = request.param
    if way == "by messages":
        monkeypatch.setattr(search_module, "_columnar_or_none", lambda: None)
    return way


CONDITIONS: tuple[tuple[Condition, list[int]], ...] = (
    (TextIn("needle 4"), [n for n in range(COUNT) if n % 3 != 2 and str(n).startswith("4")]),
    (TextIn("needle"), list(range(COUNT))),
    (TextIn("x" * BIG), [n for n in range(0, COUNT, 100) if n % 3 != 2]),
    (TextIn("no such text"), []),
    (Pattern(r"^order \d+8 needle$"), [n for n in range(COUNT) if n % 3 == 2 and n > 9 and n % 10 == 8]),
    (Pattern(r"x{900}\"}$"), [n for n in range(0, COUNT, 100) if n % 3 != 2]),
    (Pattern("no such text"), []),
    (Members(Where.parse("json.order in [1, 100, 599]")), [1, 100]),
)


async def test_both_ways_find_the_same(consumer: PullConsumer, way: str) -> None:
    for condition, expected in CONDITIONS:
        search = Search(consumer, await everything(consumer), condition)
        matching = await matches(search)
        assert numbers(matching) == expected
        assert all(message.body == body(int(message.properties["n"])) for message in matching)
        account = search.account
        assert (account.searched, account.total, account.matches) == (COUNT, COUNT, len(expected))
        assert account.no_json == (200 if isinstance(condition, Members) else 0)
        assert not search.unsearched()


async def test_the_broker_filters_first(consumer: PullConsumer, way: str) -> None:
    tagged = Search(consumer, await everything(consumer), TextIn("needle"), SearchForm(tags="odd"))
    assert numbers(await matches(tagged)) == list(range(1, COUNT, 2))
    chosen = Search(consumer, await everything(consumer), TextIn("needle"), SearchForm(sql="n > 590"))
    assert numbers(await matches(chosen)) == list(range(591, COUNT))
    assert tagged.account.searched == chosen.account.searched == COUNT
    # Nine of 300 messages pass. Slices of time overlap at their ends, by how much depends on the times of storing.
    assert chosen.account.received_bytes < tagged.account.received_bytes / 5


async def test_a_pattern_of_messages_that_the_broker_filtered(consumer: PullConsumer) -> None:
    tagged = Search(consumer, await everything(consumer), Pattern("needle"), SearchForm(tags="odd"))
    assert numbers(await matches(tagged)) == list(range(1, COUNT, 2))
    chosen = Search(consumer, await everything(consumer), Pattern(r"\b59\d\b"), SearchForm(sql="n > 595"))
    assert numbers(await matches(chosen)) == list(range(596, COUNT))


async def test_others_go_on_while_a_pattern_is_compared(cluster: EmbeddedCluster, consumer: PullConsumer) -> None:
    """The worst patterns take seconds for a message of these: a loop that waited would turn 20 times in the search."""
    async with Producer("G", nameserver=cluster.nameserver) as producer:
        for _ in range(20):
            await producer.send(Message("Slow", b"a" * 65536))
    ranges = await ranges_of(consumer, await consumer.message_queues("Slow"), None, None)
    search = Search(consumer, ranges, Pattern("(.?){900}z"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(matches, search)
        for _ in range(200):
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert search.unsearched()


async def test_a_bound_ends_it_and_the_rest_is_named(consumer: PullConsumer) -> None:
    """The first slice is read whole, and with it the bound is reached; the search goes on where it says."""
    ranges = await everything(consumer)
    search = Search(consumer, ranges, TextIn("needle"), SearchForm(max_bytes=1))
    matching = await matches(search)
    account = search.account
    assert account.is_bounded
    assert account.bound is not None
    assert account.searched == len(matching) == COUNT - sum(len(left) for _, left in search.unsearched())
    first = next(queue for queue, _ in search.unsearched())
    assert f"not searched: {first.broker_name}/{first.queue_id} before " in search.rest_text()
    rest_ranges = await ranges_of(consumer, await consumer.message_queues(TOPIC), None, account.bound)
    assert rest_ranges == search.unsearched()
    rest = Search(consumer, rest_ranges, TextIn("needle"), begin=account.bound)
    assert numbers(matching + await matches(rest)) == list(range(COUNT))
    assert not rest.account.is_bounded
    assert rest.account.bound is None


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_matches_come_in_the_order_of_time(consumer: PullConsumer, way: str, *, oldest_first: bool) -> None:
    """Reads all queues in turn: the order of a queue alone would be the wrong one."""
    search = Search(consumer, await everything(consumer), TextIn("needle"), SearchForm(oldest_first=oldest_first))
    matching = await matches(search)
    times = [message.store_timestamp_ms for message in matching]
    assert times == sorted(times, reverse=not oldest_first)
    assert numbers(matching) == list(range(COUNT))


async def test_times_bound_the_ranges(consumer: PullConsumer) -> None:
    queues = await consumer.message_queues(TOPIC)
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    assert await ranges_of(consumer, queues, now - hour, now + hour) == await everything(consumer)
    assert await ranges_of(consumer, queues, now + hour, None) == []
    assert await ranges_of(consumer, queues, None, now - hour) == []


async def test_a_broker_that_goes_away_is_named(cluster: EmbeddedCluster, consumer: PullConsumer) -> None:
    ranges = await everything(consumer)
    address = cluster.brokers["broker-a"]
    await cluster.kill("broker-a")
    search = Search(consumer, ranges, TextIn("needle"), SearchForm(patience=0.1))
    with trio.fail_after(30):
        assert await matches(search) == []
    assert address in str(search.account.failures["broker-a"])
    assert search.unsearched() == ranges
    assert search.rest_text().startswith(f"0 of {COUNT} messages (0.0 MiB) searched, not searched: broker-a/")
