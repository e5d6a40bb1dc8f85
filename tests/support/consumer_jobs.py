"""Tests of push consumers that run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from pyrmq_core import (
    Admin,
    ConsumeFromWhere,
    ConsumeLater,
    InvalidState,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    SuspendCurrentQueue,
)
from tests.support.proxies import administered, topic_attributes
from tests.support.waiting import until, until_readable

NUMBERS = itertools.count(1)
FIRST = ConsumeFromWhere.FIRST_OFFSET
SECONDS = 30.0


def fresh(word: str) -> str:
    return f"{word}-{os.getpid()}-{next(NUMBERS)}"


async def made_topic(nameserver: str, queues: int = 2) -> str:
    topic = fresh("consumed")
    async with Admin(nameserver=administered(nameserver), timeout=20) as admin:
        await admin.create_topic(topic, queues=queues, attributes=topic_attributes(nameserver))
    return topic


async def send(nameserver: str, topic: str, bodies: Sequence[str], **fields: Any) -> None:
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        for body in bodies:
            await producer.send(Message(topic, body.encode(), **fields), timeout=10)


class Seen:
    """A handler that records the bodies of messages, and raises what `orders` has for a body."""

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self.batches: list[int] = []
        self.orders: dict[str, list[BaseException]] = {}

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def __call__(self, messages: Sequence[MessageExt]) -> None:
        self.batches.append(len(messages))
        for message in messages:
            self.messages.append(message)
            if orders := self.orders.get(message.body.decode()):
                raise orders.pop(0)

    async def wait(self, count: int) -> None:
        await until(lambda: len(self.messages) >= count, SECONDS)


@asynccontextmanager
async def consuming(
    nameserver: str | None,
    group: str,
    topic: str,
    seen: Seen,
    *,
    tags: str = "*",
    orderly: bool = False,
    **settings: Any,
) -> AsyncIterator[PushConsumer]:
    """Runs a consumer of the topic for the time of the block."""
    settings = {"consume_from_where": FIRST, **settings}
    async with PushConsumer(group, nameserver=nameserver, **settings) as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe(topic, tags=tags)

        async def run() -> None:
            await consumer.run(seen, orderly=orderly)

        nursery.start_soon(run)
        try:
            yield consumer
        finally:
            with trio.CancelScope(shield=True):
                await consumer.stop(5)


async def committed(nameserver: str, group: str, topic: str) -> dict[MessageQueue, int | None]:
    async with PullConsumer(group, nameserver=nameserver, timeout=20) as consumer:
        return await consumer.committed_offsets(await consumer.message_queues(topic))


async def total_committed(nameserver: str, group: str, topic: str) -> int:
    return sum(offset or 0 for offset in (await committed(nameserver, group, topic)).values())


class ConsumerJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_each_message_is_consumed_once_and_its_offset_is_stored(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        bodies = [str(number) for number in range(50)]
        await send(nameserver, topic, bodies)
        async with consuming(nameserver, group, topic, seen):
            await seen.wait(50)
            await send(nameserver, topic, ["late"])
            await seen.wait(51)
        assert Counter(seen.bodies) == Counter([*bodies, "late"])
        assert {message.topic for message in seen.messages} == {topic}
        assert await total_committed(nameserver, group, topic) == 51

    async def test_a_message_that_fails_comes_again_under_its_own_topic(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        seen.orders = {"b": [ConsumeLater(1), ConsumeLater(1)]}
        async with consuming(nameserver, group, topic, seen):
            await send(nameserver, topic, ["a", "b", "c"])
            await seen.wait(5)
        again = [message for message in seen.messages if message.body == b"b"]
        assert [message.reconsume_times for message in again] == [0, 1, 2]
        assert {message.topic for message in again} == {topic}
        assert len({message.msg_id for message in again}) == 1
        assert await total_committed(nameserver, group, topic) == 3

    async def test_after_the_last_try_a_message_is_a_dead_letter(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        seen.orders = {"poison": [ConsumeLater(1), ConsumeLater(1)], "thrown away": [ConsumeLater(-1)]}
        async with consuming(nameserver, group, topic, seen, max_reconsume_times=1):
            await send(nameserver, topic, ["poison", "thrown away"])
            await seen.wait(3)
            dead = await self.dead_letters(nameserver, group, 2)
        assert sorted(dead) == ["poison", "thrown away"]

    async def dead_letters(self, nameserver: str, group: str, count: int) -> list[str]:
        topic = f"%DLQ%{group}"
        async with PullConsumer("undertakers", nameserver=nameserver, timeout=20) as consumer:
            bodies: list[str] = []
            with trio.fail_after(SECONDS):
                while len(bodies) < count:
                    bodies = []
                    queues = (await consumer.current_queues([topic]))[topic] or ()
                    for queue in queues:
                        pulled = await consumer.pull(queue, 0)
                        bodies += [message.body.decode() for message in pulled.messages]
                    await trio.sleep(0.1)
        return bodies

    async def test_a_batch_is_acknowledged_up_to_an_index(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("group")
        batches: list[list[str]] = []

        class InBatches(Seen):
            async def __call__(self, messages: Sequence[MessageExt]) -> None:
                batches.append([message.body.decode() for message in messages])
                self.messages += messages
                if len(batches) == 1:
                    raise ConsumeLater(1, ack_index=1)

        seen = InBatches()
        await send(nameserver, topic, ["a", "b", "c", "d"], sharding_key="one queue")
        await until_readable(nameserver, topic, 4)  # one pull gets all of them
        async with consuming(nameserver, group, topic, seen, consume_message_batch_max_size=4):
            await seen.wait(6)
        assert batches[0] == ["a", "b", "c", "d"]
        assert sorted(seen.bodies[4:]) == ["c", "d"]

    async def test_two_members_share_the_queues_and_one_takes_all_when_the_other_leaves(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=4), fresh("group")
        first_handler, second_handler = Seen(), Seen()
        async with consuming(nameserver, group, topic, first_handler) as first:
            await until(lambda: len(self.of(first, topic)) == len(self.all_queues(first, topic)) > 0, SECONDS)
            everything = len(self.of(first, topic))
            async with consuming(nameserver, group, topic, second_handler) as second:
                half = everything // 2
                await until(lambda: len(self.of(first, topic)) == len(self.of(second, topic)) == half, SECONDS)
                assert not set(self.of(first, topic)) & set(self.of(second, topic))
                await send(nameserver, topic, [str(number) for number in range(40)])
                await until(lambda: len(first_handler.messages) + len(second_handler.messages) >= 40, SECONDS)
                assert first_handler.messages
                assert second_handler.messages
            await until(lambda: len(self.of(first, topic)) == everything, SECONDS)
        assert Counter(first_handler.bodies + second_handler.bodies) == Counter(map(str, range(40)))

    @staticmethod
    def of(consumer: PushConsumer, topic: str) -> list[MessageQueue]:
        return [queue for queue in consumer.assigned_queues if queue.topic == topic]

    @staticmethod
    def all_queues(consumer: PushConsumer, topic: str) -> Sequence[MessageQueue]:
        running = consumer._running
        return () if running is None else running.rebalancer.known_queues.get(topic, ())

    async def test_a_broadcasting_consumer_receives_everything(self, nameserver: str, tmp_path: Any) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        first_handler, second_handler = Seen(), Seen()
        own = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": tmp_path}
        async with (
            consuming(nameserver, group, topic, first_handler, **own),
            consuming(nameserver, group, topic, second_handler, **own),
        ):
            await send(nameserver, topic, ["a", "b", "c"])
            await first_handler.wait(3)
            await second_handler.wait(3)
        assert sorted(first_handler.bodies) == sorted(second_handler.bodies) == ["a", "b", "c"]

    async def test_tags_are_filtered_and_may_be_changed_while_it_runs(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        async with consuming(nameserver, group, topic, seen, tags="paid || sent") as consumer:
            await send(nameserver, topic, ["1"], tags="paid")
            await send(nameserver, topic, ["2"], tags="lost")
            await send(nameserver, topic, ["3"], tags="sent")
            await seen.wait(2)
            assert sorted(seen.bodies) == ["1", "3"]
            await consumer.subscribe(topic, tags="lost")
            await send(nameserver, topic, ["4"], tags="paid")
            await send(nameserver, topic, ["5"], tags="lost")
            await until(lambda: "5" in seen.bodies, SECONDS)
        assert "4" not in seen.bodies  # a pull with the first tags may not have passed "2" yet

    async def test_an_orderly_consumer_keeps_the_order_through_failures(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        seen.orders = {"3": [SuspendCurrentQueue(0.05), ValueError("again"), SuspendCurrentQueue(0.05)]}
        bodies = [str(number) for number in range(8)]
        await send(nameserver, topic, bodies, sharding_key="one queue")
        async with consuming(nameserver, group, topic, seen, orderly=True, suspend_current_queue_time=0.05):
            await seen.wait(11)
        assert seen.bodies == ["0", "1", "2", "3", "3", "3", "3", "4", "5", "6", "7"]
        assert [message.reconsume_times for message in seen.messages if message.body == b"3"] == [0, 1, 2, 3]
        assert await total_committed(nameserver, group, topic) == 8

    async def test_an_orderly_consumer_gives_up_after_the_tries_that_were_set(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        seen.orders = {"b": [ValueError("once"), ValueError("twice")]}
        await send(nameserver, topic, ["a", "b", "c"], sharding_key="one queue")
        async with consuming(
            nameserver, group, topic, seen, orderly=True, max_reconsume_times=1, suspend_current_queue_time=0.05
        ):
            await seen.wait(4)
            assert await self.dead_letters(nameserver, group, 1) == ["b"]
        assert seen.bodies == ["a", "b", "b", "c"]

    async def test_deliveries_are_acknowledged_by_leaving_their_block(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        await send(nameserver, topic, ["a", "b", "c"])
        seen: list[tuple[str, int]] = []
        async with PushConsumer(group, nameserver=nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)
            with trio.fail_after(SECONDS):
                async for delivery in consumer:
                    async with delivery as message:
                        seen.append((message.body.decode(), message.reconsume_times))
                        if seen[-1] == ("b", 0):
                            raise ConsumeLater(1)
                    if len(seen) == 4:
                        break
        assert sorted(seen) == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]
        assert await total_committed(nameserver, group, topic) == 3

    async def test_stop_waits_for_the_handlers_at_work(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        began, done = trio.Event(), False

        async def handler(messages: Sequence[MessageExt]) -> None:
            nonlocal done
            began.set()
            await trio.sleep(0.3)
            done = True

        await send(nameserver, topic, ["a"])
        async with PushConsumer(group, nameserver=nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, handler)
                with trio.fail_after(SECONDS):
                    await began.wait()
                await consumer.stop(10)
                assert done
        assert await total_committed(nameserver, group, topic) == 1

    async def test_messages_of_a_handler_that_does_not_end_in_time_come_again(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("group")
        began = trio.Event()

        async def hangs(messages: Sequence[MessageExt]) -> None:
            began.set()
            await trio.sleep_forever()

        await send(nameserver, topic, ["a"])
        async with PushConsumer(group, nameserver=nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(consumer.run, hangs)
                with trio.fail_after(SECONDS):
                    await began.wait()
                await consumer.stop(0.05)
        seen = Seen()
        async with consuming(nameserver, group, topic, seen):
            await seen.wait(1)
        assert seen.bodies == ["a"]

    async def test_one_client_has_one_consumer_of_a_group(self, nameserver: str) -> None:
        topic, group, seen = await made_topic(nameserver), fresh("group"), Seen()
        async with PushConsumer(group, nameserver=nameserver) as consumer, trio.open_nursery() as nursery:
            await consumer.subscribe(topic)
            nursery.start_soon(consumer.run, seen)
            await until(lambda: consumer.assigned_queues, SECONDS)
            with pytest.raises(InvalidState, match="runs once"):
                await consumer.run(seen)
            await consumer.stop()
