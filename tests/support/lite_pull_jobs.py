"""Tests of lite pull consumers that run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrmq_core import (
    Admin,
    InvalidArgument,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    ResponseError,
)
from pyrmq_core.model import ConsumeFromWhere, MessageModel
from tests.support.consumer_jobs import fresh  # one count: the jobs share clusters
from tests.support.proxies import administered, topic_attributes
from tests.support.waiting import until, until_readable

SECONDS = 60.0


async def made_topic(nameserver: str, queues: int = 2) -> str:
    topic = fresh("polled")
    async with Admin(nameserver=administered(nameserver), timeout=20) as admin:
        await admin.create_topic(topic, queues=queues, attributes=topic_attributes(nameserver))
    return topic


async def queues_of(nameserver: str, topic: str) -> tuple[MessageQueue, ...]:
    async with PullConsumer("lookups", nameserver=nameserver, timeout=20) as consumer:
        return await consumer.message_queues(topic)


async def send(
    nameserver: str, topic: str, bodies: Iterable[str], queue: MessageQueue | None = None, **fields: Any
) -> None:
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        for body in bodies:
            await producer.send(Message(topic, body.encode(), **fields), queue=queue, timeout=10)


def lite(nameserver: str | None, group: str, **settings: Any) -> LitePullConsumer:
    settings = {"consume_from_where": ConsumeFromWhere.FIRST_OFFSET, **settings}
    return LitePullConsumer(group, nameserver=nameserver, timeout=10, **settings)


async def polled(consumer: LitePullConsumer, count: int) -> list[MessageExt]:
    """Returns at least so many messages of as many polls as are necessary."""
    messages: list[MessageExt] = []
    with trio.fail_after(SECONDS):
        while len(messages) < count:
            messages += await consumer.poll(1.0)
    return messages


def bodies_of(messages: Sequence[MessageExt]) -> list[str]:
    return [message.body.decode() for message in messages]


async def total_committed(nameserver: str, group: str, topic: str) -> int:
    async with PullConsumer(group, nameserver=nameserver, timeout=20) as consumer:
        offsets = await consumer.committed_offsets(await consumer.message_queues(topic))
    return sum(offset or 0 for offset in offsets.values())


async def until_committed(nameserver: str, group: str, topic: str, right: Callable[[int], bool]) -> None:
    with trio.fail_after(SECONDS):
        while not right(await total_committed(nameserver, group, topic)):  # noqa: ASYNC110 - a broker sets no event
            await trio.sleep(0.1)


class LitePullJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_each_message_is_returned_once_and_a_clean_end_commits_all(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        bodies = [str(number) for number in range(100)]
        await send(nameserver, topic, bodies)
        async with lite(nameserver, group) as consumer:
            await consumer.subscribe(topic)
            messages = await polled(consumer, 100)
            await send(nameserver, topic, ["late"])
            messages += await polled(consumer, 1)
            assert await consumer.poll(0) == []
        assert Counter(bodies_of(messages)) == Counter([*bodies, "late"])
        for queue in {message.queue for message in messages}:
            offsets = [message.queue_offset for message in messages if message.queue == queue]
            assert offsets == sorted(offsets)
        assert await total_committed(nameserver, group, topic) == 101
        async with lite(nameserver, group) as consumer:
            await consumer.subscribe(topic)
            await until(lambda: len(consumer.assigned_queues) > 0, SECONDS)
            assert await consumer.poll(1.0) == []

    async def test_what_the_last_poll_returned_comes_again_after_a_failure(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("group")
        queue = (await queues_of(nameserver, topic))[0]
        await send(nameserver, topic, map(str, range(10)), queue)
        await until_readable(nameserver, topic, 10)

        async def fail() -> None:
            async with lite(nameserver, group, pull_batch_size=4) as consumer:
                await consumer.assign([queue])
                assert bodies_of(await polled(consumer, 4)) == ["0", "1", "2", "3"]
                assert bodies_of(await polled(consumer, 4)) == ["4", "5", "6", "7"]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await total_committed(nameserver, group, topic) == 4
        async with lite(nameserver, group) as consumer:
            await consumer.assign([queue])
            assert bodies_of(await polled(consumer, 6)) == ["4", "5", "6", "7", "8", "9"]

    async def test_offsets_are_committed_by_time_without_those_of_the_last_poll(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("group")
        queue = (await queues_of(nameserver, topic))[0]
        await send(nameserver, topic, map(str, range(10)), queue)
        await until_readable(nameserver, topic, 10)
        async with lite(nameserver, group, pull_batch_size=3, auto_commit_interval=1.0) as consumer:
            await consumer.subscribe(topic)
            assert len(await polled(consumer, 3)) == 3
            assert len(await polled(consumer, 3)) == 3
            await until_committed(nameserver, group, topic, lambda offset: offset == 3)
            await polled(consumer, 3)
            await until_committed(nameserver, group, topic, lambda offset: offset == 6)

    async def test_without_auto_commit_only_commit_stores(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("group")
        queue = (await queues_of(nameserver, topic))[0]
        await send(nameserver, topic, map(str, range(10)), queue)
        await until_readable(nameserver, topic, 10)
        async with lite(nameserver, group, auto_commit=False, pull_batch_size=4) as consumer:
            await consumer.assign([queue])
            await polled(consumer, 4)
            await polled(consumer, 4)
        assert await total_committed(nameserver, group, topic) == 0
        async with lite(nameserver, group, auto_commit=False, pull_batch_size=4) as consumer:
            await consumer.assign([queue])
            assert len(await polled(consumer, 4)) == 4
            await consumer.commit()
            assert await consumer.committed(queue) == 4
            assert bodies_of(await polled(consumer, 4)) == ["4", "5", "6", "7"]
            await consumer.commit({queue: 2})
            assert await consumer.committed(queue) == 2
        assert await total_committed(nameserver, group, topic) == 2

    async def test_seek(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("group")
        queue = (await queues_of(nameserver, topic))[0]
        await send(nameserver, topic, map(str, range(50)), queue)
        async with lite(nameserver, group, pull_batch_size=50) as consumer:
            await consumer.assign([queue])
            await polled(consumer, 50)  # the next pull is held by the broker
            await consumer.seek(queue, 45)
            assert bodies_of(await polled(consumer, 5)) == ["45", "46", "47", "48", "49"]
            await consumer.seek_to_begin(queue)
            assert (await polled(consumer, 1))[0].body == b"0"
            await consumer.seek_to_end(queue)
            assert await consumer.poll(0.5) == []
            await send(nameserver, topic, ["new"], queue)
            assert bodies_of(await polled(consumer, 1)) == ["new"]
            await consumer.seek(queue, 51)
            for offset in (52, 1000):
                with pytest.raises(InvalidArgument, match=f"offset={offset}.*from 0 on.*will be 51"):
                    await consumer.seek(queue, offset)
            with pytest.raises(InvalidArgument, match="assign it first"):
                await consumer.seek(MessageQueue(topic, queue.broker_name, 99), 0)
            await consumer.commit()
            assert await consumer.committed(queue) == 51
            await consumer.seek(queue, 7)
        assert await total_committed(nameserver, group, topic) == 7  # a lower one than before

    async def test_a_paused_queue_returns_nothing_until_it_is_resumed(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        first, *others = await queues_of(nameserver, topic)
        async with lite(nameserver, group) as consumer:
            await consumer.assign([first, *others])
            consumer.pause([first])
            await send(nameserver, topic, ["paused"], first)
            await send(nameserver, topic, ["read"], others[0])
            assert bodies_of(await polled(consumer, 1)) == ["read"]
            assert await consumer.poll(0.5) == []
            consumer.resume([first])
            assert bodies_of(await polled(consumer, 1)) == ["paused"]

    async def test_assign_replaces_the_queues(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        first, second, *_ = await queues_of(nameserver, topic)
        async with lite(nameserver, group) as consumer:
            await consumer.assign([first])
            await send(nameserver, topic, ["one"], first)
            await send(nameserver, topic, ["two"], second)
            assert bodies_of(await polled(consumer, 1)) == ["one"]
            await consumer.assign([second])
            assert consumer.assigned_queues == (second,)
            assert bodies_of(await polled(consumer, 1)) == ["two"]

    async def test_members_share_the_queues(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=4), fresh("group")
        queues = set(await queues_of(nameserver, topic))
        arrivals: list[str] = []

        async def read(consumer: LitePullConsumer) -> None:
            while True:
                arrivals.extend(bodies_of(await consumer.poll(1.0)))

        async with lite(nameserver, group) as first, lite(nameserver, group) as second:
            for consumer in (first, second):
                await consumer.subscribe(topic)
            half = len(queues) // 2
            await until(lambda: [len(first.assigned_queues), len(second.assigned_queues)] == [half, half], 2 * SECONDS)
            assert {*first.assigned_queues, *second.assigned_queues} == queues
            async with trio.open_nursery() as nursery:
                for consumer in (first, second):
                    nursery.start_soon(read, consumer)
                bodies = [str(number) for number in range(40)]
                await send(nameserver, topic, bodies)
                await until(lambda: len(arrivals) >= 40, SECONDS)
                nursery.cancel_scope.cancel()
        assert Counter(arrivals) == Counter(bodies)

    async def test_tags(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        queue = (await queues_of(nameserver, topic))[0]
        for tag in ("a", "b", "c"):  # in one queue: "b" is passed over before "c" comes
            await send(nameserver, topic, [tag], queue, tags=tag)
        async with lite(nameserver, group) as consumer:
            await consumer.subscribe(topic, tags="a || c")
            assert sorted(bodies_of(await polled(consumer, 2))) == ["a", "c"]
            assert await consumer.poll(0.2) == []
            await consumer.subscribe(topic, tags="b")
            await send(nameserver, topic, ["a"], tags="a")
            await send(nameserver, topic, ["later"], tags="b")
            assert bodies_of(await polled(consumer, 1)) == ["later"]
            await consumer.unsubscribe(topic)
            assert consumer.assigned_queues == ()
        async with lite(nameserver, fresh("group")) as consumer:
            await consumer.assign(await queues_of(nameserver, topic), tags="b")
            assert sorted(bodies_of(await polled(consumer, 2))) == ["b", "later"]

    async def test_sql(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        for amount in ("1", "5", "9"):
            await send(nameserver, topic, [amount], properties={"amount": amount})
        async with lite(nameserver, group) as consumer:
            with pytest.raises(ResponseError, match="SUBSCRIPTION_PARSE_FAILED"):
                await consumer.subscribe(topic, sql="amount >")
            await consumer.subscribe(topic, sql="amount > 3")
            assert sorted(bodies_of(await polled(consumer, 2))) == ["5", "9"]
        async with lite(nameserver, fresh("group")) as consumer:
            queues = await queues_of(nameserver, topic)
            with pytest.raises(ResponseError, match="SUBSCRIPTION_PARSE_FAILED"):
                await consumer.assign(queues, sql="amount >")
            await consumer.assign(queues, sql="amount < 3")
            assert bodies_of(await polled(consumer, 1)) == ["1"]
            assert await consumer.poll(0.2) == []

    async def test_every_broadcasting_member_reads_all(self, nameserver: str, tmp_path: Path) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        await send(nameserver, topic, map(str, range(10)))
        settings: dict[str, Any] = {
            "message_model": MessageModel.BROADCASTING,
            "local_offset_store_dir": tmp_path,
            "instance_name": "kept",
        }
        for _ in range(2):
            async with lite(nameserver, group, **{**settings, "instance_name": fresh("name")}) as consumer:
                await consumer.subscribe(topic)
                assert len(await polled(consumer, 10)) == 10
        assert len([name for _, _, names in os.walk(tmp_path) for name in names if name == "offsets.json"]) == 2
        assert await total_committed(nameserver, group, topic) == 0

    async def test_questions_about_queues(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        queues = await queues_of(nameserver, topic)
        await send(nameserver, topic, ["one"], queues[0])
        await trio.sleep(0.01)
        between = datetime.now(UTC)
        await trio.sleep(0.01)
        await send(nameserver, topic, ["two"], queues[0])
        await until_readable(nameserver, topic, 2)
        async with lite(nameserver, group) as consumer:
            assert set(await consumer.message_queues(topic)) == set(queues)
            assert await consumer.offset_for_timestamp(queues[0], between) == 1
            await consumer.assign(queues[:1])
            assert not await consumer.committed(queues[0])
