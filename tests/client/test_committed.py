"""Committed reads against our own servers: batches as a writer commits them, and what they must not give."""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from pyrmq_core import (
    Admin,
    AnyQueue,
    Client,
    Commit,
    DataLost,
    InvalidArgument,
    ManifestError,
    Message,
    MessageQueue,
    NoRoute,
    OffsetRange,
    Producer,
    PullConsumer,
    StoredRange,
    commit_messages,
    decode,
    encode_batch,
    next_record,
    unique_ids,
)
from pyrmq_core.blocking import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    async with Client(nameserver=cluster.nameserver) as client:
        yield client


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("audit", client=client) as consumer:
        yield consumer


@pytest.fixture
async def producer(client: Client) -> AsyncIterator[Producer]:
    async with Producer("writer", client=client) as producer:
        yield producer


@pytest.fixture
async def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic with two queues on each broker, and its manifest."""
    name = str(request.node.name).partition("[")[0][:60]
    async with Admin(client=client) as admin:
        await admin.create_topic(name, queues=2)
        await admin.create_topic(f"{name}-committed", queues=1, broker="broker-a")
    return name


async def stored(producer: Producer, topic: str, numbers: Sequence[int]) -> list[StoredRange]:
    """Sends numbered messages in requests of three; returns where they are."""
    async with producer.open_window(list_ranges=True) as window:
        for first in range(0, len(numbers), 3):
            messages = [Message(topic, b"%d" % number) for number in numbers[first : first + 3]]
            await window.put(encode_batch(messages, unique_ids(len(messages))), AnyQueue())
        return (await window.drain()).ranges


async def commit(
    consumer: PullConsumer, producer: Producer, topic: str, writer: str, number: int, ranges: list[StoredRange]
) -> int | None:
    """Commits a batch; returns the offset of its record, None if it was decided before."""
    end = await consumer.manifest_end(f"{topic}-committed")
    record = next_record(
        writer,
        number,
        ranges,
        commit="c",
        seen=end.end,
        decided=end.decided,
        without_decided=end.without_decided,
    )
    if record is None:
        return None
    for message in commit_messages(record, f"{topic}-committed"):
        result = await producer.send(message, queue=end.queue)
    return result.queue_offset


async def committed(consumer: PullConsumer, topic: str, start: int | None = None, end: int | None = None) -> list[int]:
    async with consumer.read_committed(topic, start, end) as pulls:
        return sorted(
            [
                int(message.body)
                async for pull in pulls
                for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
            ]
        )


async def test_only_committed_rows_are_read(consumer: PullConsumer, producer: Producer, topic: str) -> None:
    ranges = await stored(producer, topic, range(20))
    assert sum(entry.count for entry in ranges) == 20
    await stored(producer, topic, range(100, 120))
    assert await committed(consumer, topic) == []
    assert await commit(consumer, producer, topic, "w", 0, ranges) == 0
    again = await stored(producer, topic, range(20))
    assert await commit(consumer, producer, topic, "w", 0, again) is None
    later = await stored(producer, topic, range(20, 30))
    assert await commit(consumer, producer, topic, "w", 1, later) == 1
    assert await committed(consumer, topic) == list(range(30))
    assert await committed(consumer, topic, 1) == list(range(20, 30))
    assert await committed(consumer, topic, 0, 1) == list(range(20))
    manifest = await consumer.read_manifest(f"{topic}-committed")
    assert (manifest.start, manifest.end, manifest.rows) == (0, 2, 30)
    assert [(type(entry), entry.writer, entry.number) for entry in manifest.commits] == [
        (Commit, "w", 0),
        (Commit, "w", 1),
    ]


async def test_hundreds_of_commits(consumer: PullConsumer, producer: Producer, topic: str) -> None:
    """A committer reads the last records alone, and a stranger's messages in the manifest are passed over."""
    for number in range(150):
        ranges = await stored(producer, topic, [number])
        assert await commit(consumer, producer, topic, f"w{number % 3}", number, ranges) is not None
        if number % 40 == 0:
            manifest = MessageQueue(f"{topic}-committed", "broker-a", 0)
            await producer.send(Message(manifest.topic, b"hello"), queue=manifest)
    end = await consumer.manifest_end(f"{topic}-committed")
    assert {writer: last.number for writer, last in end.decided.items()} == {"w0": 147, "w1": 148, "w2": 149}
    assert end.without_decided < 40
    assert await committed(consumer, topic) == list(range(150))


async def test_other_messages_at_the_place_of_committed_ones_are_data_loss(
    consumer: PullConsumer, producer: Producer, topic: str
) -> None:
    (stored_range,) = await stored(producer, topic, range(3))
    await stored(producer, topic, range(3))
    wrong = StoredRange(stored_range.queue, stored_range.start, stored_range.count, stored_range.first_id, "0" * 32)
    await commit(consumer, producer, topic, "w", 0, [wrong])
    with pytest.raises(DataLost, match=f"offset {stored_range.end - 1} of .* is not the committed one"):
        await committed(consumer, topic)


async def test_refusals_by_name(client: Client, consumer: PullConsumer, topic: str) -> None:
    with pytest.raises(NoRoute, match=r"nothing-committed.*no write with delivery=committed was made") as raised:
        await committed(consumer, "nothing")
    assert "create" not in str(raised.value).replace("that creates it", "")
    with pytest.raises(DataLost, match=r"records 1 to 0 of manifest .* are not kept: its broker has 0 to 0"):
        await committed(consumer, topic, 1)
    with pytest.raises(InvalidArgument, match="start"):
        await committed(consumer, topic, -1)
    async with Admin(client=client) as admin:
        await admin.create_topic("many-committed", queues=3)
        with pytest.raises(InvalidArgument, match="broker='c': the masters are broker-a, broker-b"):
            await admin.create_topic("elsewhere", broker="c")
    with pytest.raises(ManifestError, match="many-committed is no manifest: it has 6 queues"):
        await committed(consumer, "many")
