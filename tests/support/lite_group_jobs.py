"""Tests of groups of lite topics, which run alike on Apache's broker of 5.5 and on ours."""

from __future__ import annotations

import pytest
import trio

from pyrmq_core import Admin, ConsumeFromWhere, Message, MessageExt, Producer, ResponseError
from tests.support.consumer_jobs import fresh
from tests.support.pop_jobs import SECONDS, bodies_of, popping, received

LITE = {"message.type": "LITE", "lite.topic.expiration": "30"}


class LiteGroupJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_each_lite_topic_comes_in_order_to_its_subscriber(self, nameserver: str) -> None:
        topic, group = await made(nameserver)
        await sent(nameserver, topic, "a1 b1 a2 c1 a3 b2")
        async with popping(nameserver, group) as consumer, popping(nameserver, group) as other:
            await consumer.subscribe_lite(topic, ["a", "none"])
            await other.subscribe_lite(topic, "b")
            first = await received(consumer, topic, 2, most=2, lite=True)
            assert bodies_of(first) == ["a1", "a2"]
            assert [(each.message.topic, each.message.queue_offset) for each in first] == [(topic, 0), (topic, 1)]
            assert await consumer.receive(topic, 2, wait=0, lite=True) == []  # until those before are settled
            await first[0].ack()
            await first[1].extend(120)
            assert await consumer.receive(topic, 2, wait=0, lite=True) == []
            await first[1].ack()
            assert bodies_of(await received(consumer, topic, 1, lite=True)) == ["a3"]
            assert bodies_of(await received(other, topic, 2, lite=True)) == ["b1", "b2"]
            await sent(nameserver, topic, "none1")
            assert bodies_of(await received(consumer, topic, 1, lite=True)) == ["none1"]
            assert await consumer.lite_topics(topic) == {"a", "none"}
        async with Admin(nameserver=nameserver, timeout=10) as admin:
            infos = (await admin.lite_topics.info(topic, "a")).answers.values()
            assert {info.subscribers for info in infos} == {()}  # a consumer that closes leaves
            lags = (await admin.lite_topics.group(topic, group, "a")).answers.values()
            assert max(lag.lag for lag in lags) == 1

    async def test_messages_come_again_with_their_tries(self, nameserver: str) -> None:
        topic, group = await made(nameserver)
        await sent(nameserver, topic, "a1 a2 b1")
        async with popping(nameserver, group) as consumer:
            await consumer.subscribe_lite(topic, ["a", "b"])
            for tries in (0, 1):
                deliveries = await received(consumer, topic, 3, lite=True)
                assert sorted(bodies_of(deliveries)) == ["a1", "a2", "b1"]
                assert {each.message.reconsume_times for each in deliveries} == {tries}
                for delivery in deliveries:
                    await delivery.give_back(0)
            await received(consumer, topic, 3, 1.0, lite=True)
            again = bodies_of(await received(consumer, topic, 3, lite=True))  # when the invisible time has ended
            assert again.index("a1") < again.index("a2")

    async def test_a_handler_gets_each_lite_topic_in_order(self, nameserver: str) -> None:
        topic, group = await made(nameserver)
        names = [f"session-{number}" for number in range(5)]
        handled: dict[str, list[str]] = {name: [] for name in names}
        async with popping(nameserver, group) as consumer:
            await consumer.subscribe_lite(topic, names)

            async def handle(message: MessageExt) -> None:
                bodies = handled[message.properties["__LITE_TOPIC"]]
                bodies.append(message.body.decode())
                if bodies[-1] == "2" and bodies.count("2") == 1:
                    raise ZeroDivisionError
                if all(bodies[-1:] == ["4"] for bodies in handled.values()):
                    await consumer.stop()

            with trio.fail_after(SECONDS):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: consumer.run(topic, handle, lite=True))
                    async with Producer("p", nameserver=nameserver, send_timeout=20) as producer:
                        for number in range(5):
                            for name in names:
                                await producer.send(Message(topic, b"%d" % number, lite_topic=name))
        assert handled == {name: ["0", "1", "2", "2", "3", "4"] for name in names}

    async def test_a_subscription_chooses_its_start_and_ends(self, nameserver: str) -> None:
        topic, group = await made(nameserver)
        await sent(nameserver, topic, "a1 a2 a3 a4 b1 b2")
        async with popping(nameserver, group) as consumer:
            await consumer.subscribe_lite(topic, "a", start=2)
            deliveries = await received(consumer, topic, 2, lite=True)
            assert bodies_of(deliveries) == ["a3", "a4"]
            for delivery in deliveries:
                await delivery.ack()
            await consumer.subscribe_lite(topic, "a", start=ConsumeFromWhere.FIRST_OFFSET)
            assert bodies_of(await received(consumer, topic, 4, lite=True)) == ["a1", "a2", "a3", "a4"]
            await consumer.subscribe_lite(topic, "b", start=ConsumeFromWhere.LAST_OFFSET)
            await sent(nameserver, topic, "b3")
            assert bodies_of(await received(consumer, topic, 1, lite=True)) == ["b3"]
            await consumer.unsubscribe_lite(topic, ["a", "b"])
            await sent(nameserver, topic, "c1 b4")
            assert await consumer.receive(topic, wait=1.0, lite=True) == []
            assert await consumer.lite_topics(topic) == frozenset()

    async def test_the_last_subscriber_of_an_exclusive_group_takes_over(self, nameserver: str) -> None:
        topic, group = await made(nameserver, {"lite.sub.model": "Exclusive"})
        async with popping(nameserver, group) as first, popping(nameserver, group) as second:
            await first.subscribe_lite(topic, ["a", "b"])
            await second.subscribe_lite(topic, "a")
            with trio.fail_after(SECONDS):
                while await first.lite_topics(topic) != {"b"}:  # noqa: ASYNC110 - the notice sets no event
                    await trio.sleep(0.01)
            await sent(nameserver, topic, "a1 b1")
            assert bodies_of(await received(second, topic, 1, lite=True)) == ["a1"]
            assert bodies_of(await received(first, topic, 1, lite=True)) == ["b1"]

    async def test_a_wildcard_group_gets_every_lite_topic(self, nameserver: str) -> None:
        topic, group = await made(nameserver, {"lite.sub.wildcard": "true"})
        async with popping(nameserver, group) as consumer:
            with pytest.raises(ResponseError, match=r"ILLEGAL_OPERATION.*not supported for this group"):
                await consumer.subscribe_lite(topic, "a")
            assert await consumer.receive(topic, wait=0, lite=True) == []  # which registers it
            await sent(nameserver, topic, "a1 b1")
            assert sorted(bodies_of(await received(consumer, topic, 2, lite=True))) == ["a1", "b1"]

    async def test_a_message_that_fails_too_often_is_a_dead_letter(self, nameserver: str) -> None:
        topic, group = await made(nameserver)
        await sent(nameserver, topic, "a1 a2")
        handled: list[str] = []
        async with popping(nameserver, group, max_reconsume_times=1) as consumer:
            await consumer.subscribe_lite(topic, "a")

            async def handle(message: MessageExt) -> None:
                handled.append(message.body.decode())
                if message.body == b"a2":
                    await consumer.stop()
                else:
                    raise ZeroDivisionError

            with trio.fail_after(SECONDS):
                await consumer.run(topic, handle, lite=True)
        assert handled == ["a1", "a1", "a2"]

    async def test_wrong_topics_and_groups_are_refused_by_name(self, nameserver: str) -> None:
        _, group = await made(nameserver)
        other, _ = await made(nameserver)
        async with popping(nameserver, group) as consumer:
            with pytest.raises(ResponseError, match=r"bind topic not match.*lite\.bind\.topic has to name the topic"):
                await consumer.receive(other, lite=True)
            with pytest.raises(ResponseError, match="bind topic not match"):
                await consumer.run(other, print, lite=True)
        async with Admin(nameserver=nameserver, timeout=10) as admin:
            await admin.create_topic(plain := fresh("plain"), queues=2)
            await admin.groups.create(bound := fresh("bound"), attributes={"lite.bind.topic": plain})
        async with popping(nameserver, bound) as consumer:
            with pytest.raises(ResponseError, match="message type not match"):
                await consumer.receive(plain, lite=True)


async def made(nameserver: str, attributes: dict[str, str] | None = None) -> tuple[str, str]:
    """Returns a new parent topic, and a new group of it."""
    topic, group = fresh("parent"), fresh("lite")
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=4, attributes=LITE)
        await admin.groups.create(group, attributes={"lite.bind.topic": topic, **(attributes or {})})
    return topic, group


async def sent(nameserver: str, topic: str, bodies: str) -> None:
    """Sends each body to the lite topic that its letters name."""
    async with Producer(fresh("p"), nameserver=nameserver, send_timeout=20) as producer:
        for body in bodies.split():
            await producer.send(Message(topic, body.encode(), lite_topic=body.rstrip("0123456789")))
