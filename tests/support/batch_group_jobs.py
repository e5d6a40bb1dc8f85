"""Tests of groups that give back messages of batch records; they run alike on our servers and on RocketMQ 5.x."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import trio

from pyrmq_core import Admin, ConsumeLater, Message, MessageExt, Producer, PullConsumer
from pyrmq_core.aio import PushConsumer as AsyncioPushConsumer
from pyrmq_core.blocking import PushConsumer as BlockingPushConsumer
from tests.support.consumer_jobs import FIRST, SECONDS, Seen, consuming, fresh, made_topic, send
from tests.support.waiting import until

BODIES = [str(number) for number in range(10)]


async def batch_sent(nameserver: str) -> str:
    """Returns a new batch topic with one record of ten messages."""
    topic = fresh("batches")
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=1, batch=True)
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        results = await producer.send_batch([Message(topic, body.encode(), keys=f"k{body}") for body in BODIES])
    assert len({result.offset_msg_id for result in results}) == 1
    return topic


async def stored(nameserver: str, topic: str, count: int) -> list[MessageExt]:
    """Returns all messages of a topic when there are `count` of them."""
    async with PullConsumer("readers", nameserver=nameserver, timeout=20) as consumer:
        with trio.fail_after(SECONDS):
            while True:
                queues = (await consumer.current_queues([topic]))[topic] or ()
                messages = [message for queue in queues for message in (await consumer.pull(queue, 0)).messages]
                if len(messages) >= count:
                    return messages
                await trio.sleep(0.1)


class BatchGroupJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    async def test_the_messages_that_fail_come_again_and_no_others(self, nameserver: str) -> None:
        """Two of one record, and one of another topic of the group: its retries come, too."""
        topic, plain, group, seen = await batch_sent(nameserver), await made_topic(nameserver), fresh("group"), Seen()
        await send(nameserver, plain, ["plain"])
        seen.orders = {body: [ConsumeLater(1)] for body in ("3", "7", "plain")}
        async with consuming(nameserver, group, topic, seen) as consumer:
            await consumer.subscribe(plain)
            await seen.wait(14)
            await self.all_committed(nameserver, group)
        assert Counter(seen.bodies) == Counter([*BODIES, "plain", "3", "7", "plain"])
        again = {message.body.decode(): message for message in seen.messages if message.reconsume_times}
        assert {body: (message.topic, message.reconsume_times) for body, message in again.items()} == {
            "3": (topic, 1),
            "7": (topic, 1),
            "plain": (plain, 1),
        }
        for message in seen.messages:
            assert message.body == b"plain" or message.keys == f"k{message.body.decode()}"
        assert len({message.msg_id for message in seen.messages}) == 11

    async def test_the_message_that_failed_is_the_dead_letter(self, nameserver: str) -> None:
        """One at once, one after its tries."""
        topic, group, seen = await batch_sent(nameserver), fresh("group"), Seen()
        seen.orders = {"2": [ConsumeLater(-1)], "5": [ConsumeLater(1), ConsumeLater(1)]}
        async with consuming(nameserver, group, topic, seen, max_reconsume_times=1):
            await seen.wait(11)
            dead = await stored(nameserver, f"%DLQ%{group}", 2)
        assert sorted(message.body for message in dead) == [b"2", b"5"]
        assert Counter(seen.bodies) == Counter([*BODIES, "5"])

    async def test_an_orderly_consumer_gives_up_the_message_that_failed(self, nameserver: str) -> None:
        topic, group, seen = await batch_sent(nameserver), fresh("group"), Seen()
        seen.orders = {"4": [ValueError("once"), ValueError("twice")]}
        async with consuming(
            nameserver, group, topic, seen, orderly=True, max_reconsume_times=1, suspend_current_queue_time=0.05
        ):
            await seen.wait(11)
            dead = await stored(nameserver, f"%DLQ%{group}", 1)
        assert [message.body for message in dead] == [b"4"]
        assert seen.bodies == ["0", "1", "2", "3", "4", "4", "5", "6", "7", "8", "9"]

    async def test_a_dead_letter_is_sent_again_by_itself(self, nameserver: str) -> None:
        topic, group, seen = await batch_sent(nameserver), fresh("group"), Seen()
        seen.orders = {"6": [ConsumeLater(-1)]}
        async with consuming(nameserver, group, topic, seen), Admin(nameserver=nameserver, timeout=20) as admin:
            await stored(nameserver, f"%DLQ%{group}", 1)
            (letter,) = (await admin.messages.dead_letters(group)).messages
            await admin.messages.resend(group, letter)
            await seen.wait(11)
        assert Counter(seen.bodies) == Counter([*BODIES, "6"])

    async def test_a_blocking_consumer_gives_back_the_message(self, nameserver: str) -> None:
        topic, seen = await batch_sent(nameserver), FailsOnce("8")
        with BlockingPushConsumer(fresh("group"), nameserver=nameserver, consume_from_where=FIRST) as consumer:
            await trio.to_thread.run_sync(consumer.subscribe, topic)
            thread = threading.Thread(target=consumer.run, args=(seen,))
            thread.start()
            await until(lambda: len(seen.bodies) >= 11, SECONDS)
            await trio.to_thread.run_sync(consumer.stop)
            await trio.to_thread.run_sync(thread.join)
        assert Counter(seen.bodies) == Counter([*BODIES, "8"])

    async def test_an_asyncio_consumer_gives_back_the_message(self, nameserver: str) -> None:
        topic, seen = await batch_sent(nameserver), FailsOnce("9")

        async def consume() -> None:
            group = fresh("group")
            async with AsyncioPushConsumer(group, nameserver=nameserver, consume_from_where=FIRST) as consumer:
                await consumer.subscribe(topic)
                running = asyncio.create_task(consumer.run(seen))
                await asyncio.wait_for(asyncio.to_thread(seen.received.wait), SECONDS)
                await consumer.stop()
                await running

        await trio.to_thread.run_sync(lambda: asyncio.run(consume()))
        assert Counter(seen.bodies) == Counter([*BODIES, "9"])

    async def all_committed(self, nameserver: str, group: str) -> None:
        """Returns when the group has consumed all queues to their ends."""
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            with trio.fail_after(SECONDS):
                while any(row.lag for row in (await admin.groups.progress(group)).queues):  # noqa: ASYNC110
                    await trio.sleep(0.1)


class FailsOnce:
    """A handler for threads: it gives one body back when it comes first; `received` is set at the eleventh message."""

    def __init__(self, body: str) -> None:
        self.bodies: list[str] = []
        self.received = threading.Event()
        self._body = body

    def __call__(self, messages: Sequence[MessageExt]) -> None:
        for message in messages:
            self.bodies.append(message.body.decode())
            if len(self.bodies) == len(BODIES) + 1:
                self.received.set()
            if self.bodies[-1] == self._body and not message.reconsume_times:
                raise ConsumeLater(1)
