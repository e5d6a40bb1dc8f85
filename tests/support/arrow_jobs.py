"""Rows sent and read as columns on every cluster, ours and RocketMQ's own; subclasses supply the cluster's fixtures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
import trio

from pyrmq_core import Admin, Client, InvalidMessage, MessageQueue, NoRoute, Producer, PullConsumer, blocking
from pyrmq_core.columnar import SOURCE_COLUMNS
from tests.support.client_jobs import READABLE_SECONDS, stored_in
from tests.support.proxies import administered, topic_attributes

STRING_MAP = pa.map_(pa.string(), pa.string())


def some_rows(count: int, *, seed: int = 0) -> pa.RecordBatch:
    """Returns rows with nulls in every column that may have them; `keys` names each row."""
    chance = random.Random(seed)

    def mostly(value: Any) -> Any:
        return value if chance.random() < 0.7 else None

    return pa.record_batch(
        {
            "body": pa.array([chance.randbytes(chance.randrange(1, 300)) for _ in range(count)], pa.binary()),
            "tags": pa.array([mostly(f"tag{number % 3}") for number in range(count)]),
            "keys": pa.array([[f"key-{number}", "größe"] for number in range(count)], pa.list_(pa.string())),
            "properties": pa.array([mostly([("n", f"{n}"), ("名", "值")]) for n in range(count)], STRING_MAP),
            "flag": pa.array([mostly(number) for number in range(count)], pa.int32()),
        }
    )


@pytest.fixture
async def made_topic(client: Client, topic: str) -> str:
    """A topic with four queues on each of two brokers, whose route the NameServer has."""
    return await make_topic(client, topic)


async def make_topic(client: Client, topic: str) -> str:
    nameserver = client._session.nameservers.addresses[0]
    async with Admin(nameserver=administered(nameserver), timeout=20) as admin:
        await admin.create_topic(topic, queues=4, attributes=topic_attributes(nameserver))
    with trio.fail_after(READABLE_SECONDS):
        while True:
            with suppress(NoRoute):
                await client._session.routes.refresh(topic)
                if len((await client._session.routes.route(topic, timeout=5)).broker_datas) == 2:
                    return topic
            await trio.sleep(0.05)


async def read_back(
    consumer: PullConsumer, topic: str, count: int, columns: Sequence[str] | None = None, **options: Any
) -> pa.Table:
    """Returns all rows of a topic when `count` messages are readable."""
    await stored_in(consumer, topic, count)
    batches = []
    for queue, bound in (await consumer.offset_bounds(await consumer.message_queues(topic))).items():
        async with consumer.read_arrow(queue, bound.start, bound.end, columns=columns, **options) as source:
            batches += [batch async for batch in source]
    return pa.Table.from_batches(batches)


class ArrowJobs:
    """The tests of columns on a cluster."""

    async def test_rows_come_back_as_they_were(
        self, producer: Producer, consumer: PullConsumer, made_topic: str
    ) -> None:
        rows = some_rows(5000)
        summary = await producer.send_arrow(rows, topic=made_topic)
        assert (summary.messages, summary.requests, summary.retries) == (5000, 2, 0)
        assert sum(summary.messages_by_queue.values()) == 5000
        assert len(summary.messages_by_queue) > 1
        table = await read_back(consumer, made_topic, 5000, ["keys", "body", "tags", "flag", "properties", "msgId"])
        table = table.take(sorting(table, rows.column("keys").to_pylist()))
        assert table.column("body").to_pylist() == rows.column("body").to_pylist()
        assert table.column("tags").to_pylist() == rows.column("tags").to_pylist()
        assert table.column("flag").to_pylist() == [flag or 0 for flag in rows.column("flag").to_pylist()]
        assert len(set(table.column("msgId").to_pylist())) == 5000
        for pairs, sent in zip(
            table.column("properties").to_pylist(), rows.column("properties").to_pylist(), strict=True
        ):
            assert {name: value for name, value in pairs if name in ("n", "名")} == dict(sent or [])

    async def test_the_same_as_message_by_message(
        self, producer: Producer, consumer: PullConsumer, made_topic: str
    ) -> None:
        await producer.send_arrow(some_rows(700), topic=made_topic)
        messages = await stored_in(consumer, made_topic, 700)
        table = await read_back(consumer, made_topic, 700, list(SOURCE_COLUMNS))
        by_id = {row["msgId"]: row for row in table.to_pylist()}
        assert len(by_id) == 700
        for message in messages:
            row = by_id[message.msg_id]
            assert (row["brokerName"], row["queueId"], row["queueOffset"]) == (
                message.broker_name,
                message.queue_id,
                message.queue_offset,
            )
            assert (row["body"], row["tags"], row["keys"]) == (message.body, message.tags, message.keys)
            assert dict(row["properties"]) == message.user_properties
            assert row["storeTimestamp"] == message.store_timestamp
            assert (row["bornHost"], row["storeHost"]) == (message.born_host, message.store_host)
            assert (row["bodyCrc"], row["storeSize"]) == (message.body_crc, message.store_size)
            assert (row["offsetMsgId"], row["commitLogOffset"]) == (message.offset_msg_id, message.commit_log_offset)

    async def test_rows_of_one_key_stay_in_order(
        self, producer: Producer, consumer: PullConsumer, made_topic: str
    ) -> None:
        keys = [f"customer-{number % 17}" if number % 5 else None for number in range(4000)]
        rows = pa.record_batch({"body": pa.array([b"%d" % n for n in range(4000)]), "shardingKey": pa.array(keys)})
        await producer.send_arrow(rows, topic=made_topic)
        info = await producer.publish_info(made_topic)
        table = await read_back(consumer, made_topic, 4000, ["shardingKey", "body", "brokerName", "queueId"])
        seen: dict[str, int] = {}
        for row in table.to_pylist():
            if (key := row["shardingKey"]) is not None:
                assert MessageQueue(made_topic, row["brokerName"], row["queueId"]) == info.queue_of_key(key)
                assert seen.get(key, -1) < int(row["body"])
                seen[key] = int(row["body"])
        assert len(seen) == 17

    async def test_one_queue_keeps_all_in_order(
        self, producer: Producer, consumer: PullConsumer, made_topic: str
    ) -> None:
        queue = (await producer.message_queues(made_topic))[1]
        bodies = [b"%d" % number for number in range(3500)]
        summary = await producer.send_arrow(pa.record_batch({"body": bodies}), topic=made_topic, queue=queue)
        assert summary.messages_by_queue == {queue: 3500}
        await stored_in(consumer, made_topic, 3500)
        end = await consumer.max_offset(queue)
        async with consumer.read_arrow(queue, end - 3500, end, columns=["body"]) as batches:
            read = [body for batch in [b async for b in batches] for body in batch.column("body").to_pylist()]
        assert read == bodies

    async def test_a_range_is_exact_and_tags_choose(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        queue = await one_queue(producer, consumer, topic, [f"tag{number % 4}" for number in range(1000)])
        begin = await consumer.max_offset(queue) - 1000
        async with consumer.read_arrow(queue, begin + 111, begin + 888, columns=["queueOffset", "tags"]) as batches:
            offsets = [o for batch in [b async for b in batches] for o in batch.column("queueOffset").to_pylist()]
        assert offsets == list(range(begin + 111, begin + 888))
        async with consumer.read_arrow(
            queue, begin, begin + 1000, columns=["queueOffset", "tags"], tags="tag1 || tag3"
        ) as batches:
            tags = [tag for batch in [b async for b in batches] for tag in batch.column("tags").to_pylist()]
        assert tags == ["tag1", "tag3"] * 250

    async def test_large_and_compressed_bodies(self, client: Client, consumer: PullConsumer, made_topic: str) -> None:
        bodies = [
            b"small",
            b"large " * 2000,
            b"x",
            b"larger " * 200_000,
            b"random" + random.Random(1).randbytes(900_000),
        ]
        async with Producer("g_compressing", client=client, send_timeout=15) as producer:
            await producer.send_arrow(pa.table({"body": bodies, "keys": [str(n) for n in range(5)]}), topic=made_topic)
        table = await read_back(consumer, made_topic, 5, ["keys", "body", "storeSize"])
        assert {row["keys"]: row["body"] for row in table.to_pylist()} == {
            str(n): body for n, body in enumerate(bodies)
        }
        assert min(table.column("storeSize").to_pylist()[1:]) < 1000

    async def test_several_topics_of_a_frame(self, producer: Producer, consumer: PullConsumer, made_topic: str) -> None:
        topics = [f"{made_topic}_{number % 3}" for number in range(600)]
        rows = pa.record_batch({"topic": topics, "body": [b"%d" % number for number in range(600)]})
        assert (await producer.send_arrow(rows)).messages == 600
        for number in range(3):
            table = await read_back(consumer, f"{made_topic}_{number}", 200, ["topic", "body"])
            assert {int(body) % 3 for body in table.column("body").to_pylist()} == {number}

    async def test_nothing_is_sent_when_a_row_cannot_be(
        self, producer: Producer, consumer: PullConsumer, topic: str
    ) -> None:
        await producer.send_arrow(pa.record_batch({"body": [b"first"]}), topic=topic)
        rows = pa.record_batch({"body": [b"x"] * 5000, "tags": ["t"] * 4999 + ["\x01"]})
        with pytest.raises(InvalidMessage, match="row 4999, column tags: it holds U\\+0001"):
            await producer.send_arrow(rows, topic=topic)
        assert len(await stored_in(consumer, topic, 1)) == 1

    def test_the_same_for_threads(self, nameserver: str, topic: str) -> None:
        rows = some_rows(3000)
        with (
            blocking.Client(nameserver=nameserver) as client,
            blocking.Producer("g_threads", client=client, send_timeout=15) as producer,
            blocking.PullConsumer("g_threads", client=client, timeout=20) as consumer,
        ):
            assert producer.send_arrow(rows, topic=topic).messages == 3000
            trio.run(wait_readable, nameserver, topic, 3000)
            batches = []
            for queue, bound in consumer.offset_bounds(consumer.message_queues(topic)).items():
                with consumer.read_arrow(queue, bound.start, bound.end, columns=["keys", "body"]) as source:
                    batches += list(source)
        table = pa.Table.from_batches(batches)
        table = table.take(sorting(table, rows.column("keys").to_pylist()))
        assert table.column("body").to_pylist() == rows.column("body").to_pylist()


def sorting(table: pa.Table, keys: list[list[str]]) -> pa.Array:
    """Returns the indices that put the table's rows in the order they were sent in."""
    places = {key: place for place, key in enumerate(table.column("keys").to_pylist())}
    return pa.array([places[" ".join(words)] for words in keys])


async def one_queue(producer: Producer, consumer: PullConsumer, topic: str, tags: list[str]) -> MessageQueue:
    """Sends rows with these tags to one queue, in order, and returns it."""
    queue = (await producer.message_queues(topic))[0]
    rows = pa.record_batch({"body": [b"x"] * len(tags), "tags": tags})
    await producer.send_arrow(rows, topic=topic, queue=queue)
    await stored_in(consumer, topic, len(tags))
    return queue


async def wait_readable(nameserver: str, topic: str, count: int) -> None:
    async with PullConsumer("g_waiting", nameserver=nameserver, timeout=20) as consumer:
        await stored_in(consumer, topic, count)
