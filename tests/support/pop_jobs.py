"""Tests of consumers that pop, which run alike on every server that has pop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio

from pyrmq_core import Admin, ConsumeLater, MessageExt, NoRoute, PopConsumer, PopDelivery, ResponseError
from tests.support.consumer_jobs import fresh, made_topic, send

SECONDS = 40.0


def popping(nameserver: str, group: str, **settings: Any) -> PopConsumer:
    return PopConsumer(group, nameserver=nameserver, timeout=10, **settings)


async def received(
    consumer: PopConsumer, topic: str, count: int, invisible: float = 60.0, *, most: int = 32, **options: Any
) -> list[PopDelivery]:
    """Returns at least `count` deliveries, and no more than `most`, of as many calls as are necessary."""
    deliveries: list[PopDelivery] = []
    with trio.fail_after(SECONDS):
        while len(deliveries) < count:
            deliveries += await consumer.receive(topic, most - len(deliveries), invisible, 5.0, **options)
    return deliveries


def bodies_of(deliveries: Sequence[PopDelivery]) -> list[str]:
    return [delivery.message.body.decode() for delivery in deliveries]


class PopJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_what_is_acknowledged_never_comes_again_and_the_rest_does(self, nameserver: str) -> None:
        """A worker that ends without a word leaves its messages, after their invisible time, to another one."""
        topic, group = await made_topic(nameserver), fresh("workers")
        await send(nameserver, topic, [str(number) for number in range(8)])
        async with popping(nameserver, group) as killed, popping(nameserver, group) as consumer:
            *acked, as_context = await received(killed, topic, 6, most=6)
            (extended,) = await received(killed, topic, 1, 3.0, most=1)
            await extended.extend(60)
            (left,) = await received(killed, topic, 1, 2.0, most=1)
            deliveries = [*acked, as_context, extended, left]
            assert all(delivery.message.reconsume_times == 0 for delivery in deliveries)
            assert Counter(bodies_of(deliveries)) == Counter(str(number) for number in range(8))
            async with trio.open_nursery() as nursery:  # together: one request has most of them
                for delivery in acked:
                    nursery.start_soon(delivery.ack)
            async with as_context as message:
                assert message.topic == topic
            again = await received(consumer, topic, 1)
            assert [(each.message.body, each.message.reconsume_times) for each in again] == [(left.message.body, 1)]
            assert again[0].message.topic == topic
            await again[0].ack()
            assert await consumer.receive(topic, 32, wait=2.0) == []  # the extended one is invisible

    async def test_a_message_comes_again_when_it_is_given_back(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("workers")
        await send(nameserver, topic, ["back", "raised"])
        async with popping(nameserver, group) as consumer:
            for tries in (0, 1):
                deliveries = await received(consumer, topic, 2)
                assert sorted(bodies_of(deliveries)) == ["back", "raised"]
                assert {delivery.message.reconsume_times for delivery in deliveries} == {tries}
                if tries == 0:
                    for delivery in deliveries:
                        if delivery.message.body == b"back":
                            await delivery.give_back(0)
                        else:
                            async with delivery:
                                raise ConsumeLater(1)
                        assert delivery.is_settled
                else:
                    for delivery in deliveries:
                        await delivery.ack()

    async def test_tags_and_sql_choose_messages(self, nameserver: str) -> None:
        topic = await made_topic(nameserver)
        await send(nameserver, topic, ["even"], tags="even", properties={"size": "1"})
        await send(nameserver, topic, ["odd"], tags="odd", properties={"size": "7"})
        async with popping(nameserver, fresh("tags")) as consumer:
            assert bodies_of(await received(consumer, topic, 1, tags="odd || none")) == ["odd"]
        async with popping(nameserver, fresh("sql")) as consumer:
            assert bodies_of(await received(consumer, topic, 1, sql="size < 5")) == ["even"]
        async with popping(nameserver, fresh("wrong")) as consumer:
            with pytest.raises(ResponseError, match="SUBSCRIPTION_PARSE_FAILED"):
                await consumer.receive(topic, sql="size <")

    async def test_run_handles_every_message_once_and_extends_a_slow_one(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver), fresh("workers")
        bodies = ["slow", *(str(number) for number in range(60))]
        await send(nameserver, topic, bodies)
        handled: list[str] = []
        running = most = 0
        rest_done, slow_done = trio.Event(), trio.Event()
        async with popping(nameserver, group) as consumer, popping(nameserver, group) as other:

            async def handle(message: MessageExt) -> None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                body = message.body.decode()
                if body == "slow":
                    await rest_done.wait()
                    # More than its invisible time passes here, in which another worker looks for it.
                    assert await other.receive(topic, 32, wait=6.0) == []
                    slow_done.set()
                handled.append(body)
                running -= 1
                if len(handled) == 60 and body != "slow":
                    rest_done.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: consumer.run(topic, handle, at_once=5, invisible=4.0))
                with trio.fail_after(SECONDS):
                    await slow_done.wait()
                    await consumer.stop()
            assert Counter(handled) == Counter(bodies)
            assert 1 < most <= 5
            assert await other.receive(topic, 32, wait=1.0) == []

    async def test_a_message_that_failed_too_often_is_a_dead_letter(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("workers")
        await send(nameserver, topic, ["bad"])
        tries: list[int] = []
        async with popping(nameserver, group, max_reconsume_times=1) as consumer:

            async def fail(message: MessageExt) -> None:
                tries.append(message.reconsume_times)
                if len(tries) == 2:
                    await consumer.stop()
                raise ConsumeLater(1)

            with trio.fail_after(SECONDS):
                await consumer.run(topic, fail)
        assert tries == [0, 1]
        async with Admin(nameserver=nameserver, timeout=10) as admin:
            dead: list[bytes] = []
            with trio.fail_after(SECONDS):
                while not dead:
                    with suppress(NoRoute):
                        dead = [message.body for message in (await admin.messages.dead_letters(group)).messages]
                    await trio.sleep(0.1)
        assert dead == [b"bad"]


class OrderedPopJobs:
    """The promises of ordered pops, which every server has."""

    async def test_messages_of_a_queue_come_in_order(self, nameserver: str) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("ordered")
        await send(nameserver, topic, list("abcdef"), sharding_key="key")
        async with popping(nameserver, group) as consumer, popping(nameserver, group) as other:
            first = await consumer.receive(topic, 3, wait=5.0, order=True)
            assert bodies_of(first) == ["a", "b", "c"]
            assert await other.receive(topic, 3, wait=0, order=True) == []  # the queue is held
            await first[0].ack()
            await first[1].give_back(0)
            await first[2].give_back(0)
            left = await received(other, topic, 5, order=True)
            assert bodies_of(left) == ["b", "c", "d", "e", "f"]
            assert [delivery.message.reconsume_times for delivery in left] == [1, 1, 0, 0, 0]
            for delivery in left:
                await delivery.ack()

    async def test_a_handler_gets_messages_in_order_and_a_failed_one_before_those_behind_it(
        self, nameserver: str
    ) -> None:
        topic, group = await made_topic(nameserver, queues=1), fresh("ordered")
        await send(nameserver, topic, list("abcdef"), sharding_key="key")
        handled: list[str] = []
        async with popping(nameserver, group) as consumer:

            async def handle(message: MessageExt) -> None:
                body = message.body.decode()
                handled.append(body)
                if handled.count("c") == 1 and body == "c":
                    raise ZeroDivisionError
                if body == "f":
                    await consumer.stop()

            with trio.fail_after(SECONDS):
                await consumer.run(topic, handle, order=True)
        assert handled == ["a", "b", "c", "c", "d", "e", "f"]

    async def test_messages_behind_a_dead_letter_are_handled(self, nameserver: str) -> None:
        """A broker counts a pop of theirs for each pop of the message that fails before them."""
        topic, group = await made_topic(nameserver, queues=1), fresh("ordered")
        await send(nameserver, topic, list("abc"), sharding_key="key")
        handled: list[str] = []
        async with popping(nameserver, group, max_reconsume_times=1) as consumer:

            async def handle(message: MessageExt) -> None:
                handled.append(message.body.decode())
                if handled[-1] == "a":
                    raise ZeroDivisionError
                if handled[-1] == "c":
                    await consumer.stop()

            with trio.fail_after(SECONDS):
                await consumer.run(topic, handle, order=True)
        assert handled == ["a", "a", "b", "c"]
