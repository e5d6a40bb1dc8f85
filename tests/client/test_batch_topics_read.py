"""A batch topic reads as a plain one: the same rows of every range, tag and SQL expression, in columns or not."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from pyrmq_core import Admin, Client, Message, MessageExt, MessageQueue, OffsetRange, Producer, PullConsumer, decode
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound
from tests.client.test_broker_versions import V5_4_0

COUNT = 900
TAGS = ("a", "b", None)
SETTINGS = {"enablePropertyFilter": "true"}


@dataclass
class Both:
    """A plain topic and a batch topic with equal messages, in one queue each and in one order."""

    cluster: EmbeddedCluster
    client: Client
    consumer: PullConsumer
    plain: MessageQueue
    batch: MessageQueue


def some_messages(topic: str) -> list[Message]:
    """Returns messages sorted by tag, as a batch topic stores them."""
    numbers = sorted(range(COUNT), key=lambda number: number % 3)
    return [Message(topic, b"%d" % number, tags=TAGS[number % 3], properties={"n": str(number)}) for number in numbers]


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    async with EmbeddedCluster(settings=SETTINGS) as cluster, Client(nameserver=cluster.nameserver) as client:
        async with Admin(client=client) as admin:
            await admin.create_topic("plain", queues=1)
            await admin.create_topic("batch", queues=1, batch=True)
        async with Producer("g", client=client) as producer, PullConsumer("c", client=client) as consumer:
            queues = [MessageQueue(topic, "broker-a", 0) for topic in ("plain", "batch")]
            for queue in queues:
                given = some_messages(queue.topic)
                for first in range(0, COUNT, 250):  # a record has 250 messages of one tag, or fewer
                    await producer.send_batch(given[first : first + 250], queue=queue)
            yield Both(cluster, client, consumer, *queues)


def row(message: MessageExt) -> tuple[int, bytes, str | None, str]:
    return message.queue_offset, message.body, message.tags, message.properties["n"]


@pytest.mark.parametrize(
    ("tags", "sql", "has_rows"),
    [
        ("*", None, True),
        ("a", None, True),
        ("a || b", None, True),
        ("none", None, False),
        ("*", "n > 300 AND TAGS = 'b'", True),
    ],
)
async def test_tags_and_sql_give_the_same_rows(both: Both, tags: str, sql: str | None, has_rows: bool) -> None:
    """Though a broker filters the records of a batch topic as wholes, by their own properties alone."""
    consumer = both.consumer
    rows = []
    for queue in (both.plain, both.batch):
        one_by_one, by_columns = [], []
        async with consumer.read(queue, 0, COUNT, tags=tags, sql=sql) as pulls:
            async for pull in pulls:
                messages = decode(pull, OffsetRange(pull.start, pull.next_offset))
                one_by_one += [row(message) for message in messages]
        columns = ["queueOffset", "body", "tags", "properties"]
        async with consumer.read_arrow(queue, 0, COUNT, columns=columns, tags=tags, sql=sql) as batches:
            async for batch in batches:
                for offset, body, tag, properties in zip(*batch.to_pydict().values(), strict=True):
                    by_columns.append((offset, body, tag, dict(properties)["n"]))
        assert by_columns == one_by_one
        rows.append(one_by_one)
    assert rows[0] == rows[1]
    assert bool(rows[0]) == has_rows


async def test_ranges_that_begin_and_end_inside_records(both: Both) -> None:
    chance = random.Random(5)
    every = sorted(range(COUNT), key=lambda number: number % 3)
    for tags in ("*", "a", "b") * 10:
        start, end = sorted(chance.sample(range(COUNT + 1), 2))
        expected = [number for number in every[start:end] if tags in ("*", TAGS[number % 3])]
        async with both.consumer.read_arrow(both.batch, start, end, columns=["body"], tags=tags) as batches:
            numbers = [int(body) async for batch in batches for body in batch["body"].to_pylist()]
        assert numbers == expected


async def test_one_pull_inside_a_record(both: Both) -> None:
    pulled = await both.consumer.pull(both.batch, 100)
    assert [message.queue_offset for message in pulled.messages] == list(range(100, 250))
    tagged = await both.consumer.pull(both.batch, 290, tags="b")
    assert [message.tags for message in tagged.messages] == ["b"] * len(tagged.messages)
    assert pulled.next_offset == 250


async def test_a_time_after_the_last_record_is_the_end(both: Both) -> None:
    """5.4.0 answers the beginning of the last record then; the search of our broker is made to do so."""
    (message, *_) = (await both.consumer.pull(both.batch, COUNT - 1)).messages
    stored = datetime.fromtimestamp(message.store_timestamp_ms / 1000, UTC)
    last_record = replace(OffsetFound(750).to_command(), version=V5_4_0)

    async def answered(request: Command, peer: Peer) -> Command:
        return last_record

    both.cluster.control(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, answered)
    assert await both.consumer.offset_at(both.batch, stored + timedelta(milliseconds=1)) == COUNT
    assert await both.consumer.offset_at(both.batch, stored) == 750
    assert await both.consumer.offset_at(both.plain, stored + timedelta(days=1)) == 750


async def test_sql_that_cannot_be_read_is_reported(both: Both) -> None:
    with pytest.raises(InvalidArgument, match="SQL expression"):
        async with both.consumer.read(both.batch, 0, 10, sql="n >>> 3") as pulls:
            await anext(pulls)
