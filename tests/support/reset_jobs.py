"""Tests of resets of a group that is online, which run alike on our servers and on each release of RocketMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio

from pyrmq_core import Admin, Message, MessageExt, MessageQueue, Producer
from tests.support.consumer_jobs import Seen, committed, consuming, fresh, made_topic
from tests.support.lite_pull_jobs import lite
from tests.support.waiting import POLL_SECONDS, until, until_readable

SECONDS = 50.0
COUNT = 2000
# A member holds so many messages of a queue before it pulls no more, and some answers on their way.
HELD = 100
BATCH = 500


class HeldUp(Seen):
    """A handler that waits after some messages until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = trio.Event()

    async def __call__(self, messages: Sequence[MessageExt]) -> None:
        await super().__call__(messages)
        if len(self.messages) > HELD:
            await self.go_on.wait()

    def times(self, offset: int) -> int:
        return [message.queue_offset for message in self.messages].count(offset)


@asynccontextmanager
async def member(nameserver: str, kind: str, group: str, topic: str, seen: HeldUp) -> AsyncIterator[None]:
    """Runs a member of the group for the time of the block: a push consumer, or a lite pull consumer that is polled."""
    settings: dict[str, Any] = {"pull_threshold_for_queue": HELD}
    if kind == "push":
        settings["persist_consumer_offset_interval"] = 1
        async with consuming(nameserver, group, topic, seen, **settings):
            yield
        return
    settings["auto_commit_interval"] = 1
    async with lite(nameserver, group, **settings) as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe(topic)

        async def poll() -> None:
            while True:
                await seen(await consumer.poll(1.0))

        nursery.start_soon(poll)
        yield
        nursery.cancel_scope.cancel()


class ResetJobs:
    """One test a promise; `nameserver` is a fixture of the class that inherits these."""

    @pytest.mark.parametrize("kind", ["push", "lite"])
    @pytest.mark.parametrize("to", ["latest", "earliest"])
    async def test_a_member_that_is_far_behind_follows_a_reset(
        self, nameserver: str, kind: str, to: Literal["latest", "earliest"]
    ) -> None:
        """It reads ahead, with many pulls at once: the reset is in the answer to one of them."""
        topic, group, seen = await made_topic(nameserver, queues=1), fresh("group"), HeldUp()
        queue = MessageQueue(topic, "broker-a", 0)
        async with (
            Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer,
            Admin(nameserver=nameserver, timeout=20) as admin,
        ):
            for start in range(0, COUNT, BATCH):
                messages = [Message(topic, b"%d" % number) for number in range(start, start + BATCH)]
                await producer.send_batch(messages, queue=queue, timeout=20)
            await until_readable(nameserver, topic, COUNT)
            async with member(nameserver, kind, group, topic, seen):
                await seen.wait(HELD + 1)
                with trio.fail_after(SECONDS):  # 4.9.7 resets no group without offsets
                    while not (await committed(nameserver, group, topic))[queue]:  # noqa: ASYNC110
                        await trio.sleep(POLL_SECONDS)
                await admin.groups.reset(group, topic, to)
                seen.go_on.set()
                if to == "earliest":
                    await until(lambda: seen.times(0) == 2, SECONDS)
                else:
                    await producer.send(Message(topic, b"behind the reset"), queue=queue, timeout=20)
                    await until(lambda: seen.times(COUNT) == 1, SECONDS)
        assert len(seen.messages) < COUNT
