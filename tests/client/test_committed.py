"""Committed reads against our own servers: batches as a writer commits them, and what they must not give."""

import json
import re
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
from pyrmq_core.client.consumer import manifest_reader
from pyrmq_core.committed.records import MANIFEST_VERSION


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
    name = re.sub("[^a-z0-9_]", "-", str(request.node.name).lower())[:60]
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


async def append(producer: Producer, topic: str, body: bytes, version: str | None = "1") -> int:
    """Appends a message to the topic's manifest, as a stranger may; returns its offset."""
    queue = MessageQueue(f"{topic}-committed", "broker-a", 0)
    properties = {} if version is None else {MANIFEST_VERSION: version}
    return (await producer.send(Message(queue.topic, body, properties=properties), queue=queue)).queue_offset


async def test_messages_that_are_no_records_are_passed_over(
    client: Client, consumer: PullConsumer, producer: Producer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers and writers alike; a record of a newer release stops both."""
    await commit(consumer, producer, topic, "w", 0, await stored(producer, topic, [0]))
    await append(producer, topic, b"garbage")
    await append(producer, topic, b"hello", version=None)
    await append(producer, topic, b" " * 3_000_000 + b"{}")  # is compressed
    assert await commit(consumer, producer, topic, "w", 1, await stored(producer, topic, [1])) == 4
    assert await commit(consumer, producer, topic, "w", 0, []) is None
    assert await committed(consumer, topic) == [0, 1]
    assert (await consumer.read_manifest(f"{topic}-committed")).passed_over == 3
    named = re.findall("no commit records are passed over: ([0-9]+)", caplog.text)
    assert sum(map(int, named)) == 3  # each once, however often it is read
    await append(producer, topic, b"{}", version="2")
    with pytest.raises(ManifestError, match=r"offset 5 of manifest .*-committed is of version 2, .*: update it"):
        await committed(consumer, topic)
    with pytest.raises(ManifestError, match="update it"):
        await consumer.manifest_end(f"{topic}-committed")


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("where", [None, 0, 10**6])
async def test_a_list_without_records_is_not_believed(
    consumer: PullConsumer,
    producer: Producer,
    topic: str,
    times: int,
    where: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stranger's record says that a batch of another writer is decided; honest writers do not pass that on."""
    manifest = f"{topic}-committed"
    for number in range(3):
        await commit(consumer, producer, topic, "job", number, await stored(producer, topic, [number]))
    for number in range(times):
        seen = 3 + number
        lists = {"decided": [["job", 10**9, 0]]} | ({} if where is None else {"decidedAt": [[where, 5]]})
        forged = {"writer": "evil", "number": number, "rows": 0, "seen": seen, "commit": "e", "parts": 0, "ranges": {}}
        await append(producer, topic, json.dumps(forged | lists).encode())
    assert (await consumer.manifest_end(manifest)).decided["job"].number == 2
    assert "says that batch 1000000000 of 'job' is decided, and there is no record of it" in caplog.text
    assert await commit(consumer, producer, topic, "other", 0, await stored(producer, topic, [3])) is not None
    assert await commit(consumer, producer, topic, "job", 3, await stored(producer, topic, [4])) is not None
    assert await commit(consumer, producer, topic, "job", 2, []) is None
    assert await committed(consumer, topic) == [0, 1, 2, 3, 4]


async def test_a_batch_that_is_long_decided_is_looked_for_at_its_record(
    client: Client, consumer: PullConsumer, producer: Producer, topic: str
) -> None:
    """A reader that knows nothing yet, and lists of a release that did not say where the records are."""
    await commit(consumer, producer, topic, "monthly", 7, await stored(producer, topic, [0]))
    for number in range(80):
        assert await commit(consumer, producer, topic, "often", number, []) is not None
    async with PullConsumer("audit", client=client) as fresh:
        assert await commit(fresh, producer, topic, "monthly", 7, []) is None
    without = {"writer": "v", "number": 0, "rows": 0, "seen": 81, "commit": "v", "parts": 0, "ranges": {}}
    decided = [["monthly", 7, 1], ["often", 79, 0]]
    await append(producer, topic, json.dumps(without | {"decided": decided}).encode())
    async with PullConsumer("audit", client=client) as fresh:
        assert await commit(fresh, producer, topic, "monthly", 7, []) is None
        assert await commit(fresh, producer, topic, "v", 0, []) is None


async def test_a_part_that_two_records_name_is_an_error(consumer: PullConsumer, producer: Producer, topic: str) -> None:
    ranges = {topic: {"broker-a": {"0": [[number, 1, "a", "a"] for number in range(1000)]}}}
    await append(producer, topic, json.dumps({"commit": "big", "ranges": ranges}).encode())
    record = {"number": 0, "rows": 1000, "seen": 0, "commit": "big", "parts": 1, "ranges": {}}
    for writer in ("x", "y"):
        await append(producer, topic, json.dumps(record | {"writer": writer}).encode())
    assert (await consumer.read_manifest(f"{topic}-committed", 0, 2)).rows == 1000
    with pytest.raises(ManifestError, match=r"record at offset 2 of .* belong to a record before it"):
        await consumer.read_manifest(f"{topic}-committed")
    with pytest.raises(ManifestError, match="belong to a record before it"):
        await consumer.read_manifest(f"{topic}-committed", 2)
    assert await commit(consumer, producer, topic, "w", 0, await stored(producer, topic, [0])) == 3
    assert await committed(consumer, topic, 3) == [0]


async def test_a_plan_of_many_ranges_is_an_error(
    consumer: PullConsumer, producer: Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_reader, "MOST_RANGES", 100)
    ranges = [StoredRange(MessageQueue(topic, "broker-a", 0), 2 * number, 1, "a", "a") for number in range(60)]
    for number in range(2):
        await commit(consumer, producer, topic, "w", number, ranges)
    with pytest.raises(ManifestError, match="have more than 100 ranges: read fewer records at once"):
        await consumer.read_manifest(f"{topic}-committed")
    assert (await consumer.read_manifest(f"{topic}-committed", 1)).rows == 60


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
