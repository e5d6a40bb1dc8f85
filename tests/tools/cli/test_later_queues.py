"""`pyrmq tail -f` on queues that a topic gets while it runs, and on those of a broker that joins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from pyrmq_core import Admin, Message, MessageExt, MessageQueue, Producer, PullConsumer
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.tools.cli.tail import Wanted, tail_topic

SECONDS = 60


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyrmq_core.tools.cli.tail.LOOK_SECONDS", 0.05)


class CountedLooks(PullConsumer):
    """A consumer that counts how often a topic's queues are looked up."""

    looks = 0

    async def current_queues(self, topics: Iterable[str]) -> dict[str, tuple[MessageQueue, ...] | None]:
        self.looks += 1
        return await super().current_queues(topics)


class Printed:
    """The bodies that a tail has printed, with a way to wait for one."""

    def __init__(self, consumer: CountedLooks) -> None:
        self._consumer = consumer
        self.bodies: list[str] = []
        self._more = trio.Event()

    def __call__(self, message: MessageExt) -> str:
        self.bodies.append(message.body.decode())
        self._more.set()
        self._more = trio.Event()
        return self.bodies[-1]

    async def wait(self, body: str) -> None:
        with trio.fail_after(SECONDS):
            while body not in self.bodies:
                await self._more.wait()

    async def wait_looks(self, more: int) -> None:
        """Waits until the tail has looked for new queues so many times more."""
        wanted = self._consumer.looks + more
        with trio.fail_after(SECONDS):
            while self._consumer.looks < wanted:  # noqa: ASYNC110 - the tail has its own pause
                await trio.sleep(0.01)


async def send(producer: Producer, broker: str, queue_id: int, body: str) -> None:
    await producer.send(Message("T", body.encode()), queue=MessageQueue("T", broker, queue_id), timeout=SECONDS)


@asynccontextmanager
async def tailing(cluster: EmbeddedCluster, producer: Producer, **wanted: object) -> AsyncIterator[Printed]:
    """Runs a tail of queue 0 at broker-a, and of queues that come; begins the block when it reads."""
    async with CountedLooks("tail", nameserver=cluster.nameserver) as consumer, trio.open_nursery() as nursery:
        printed = Printed(consumer)
        nursery.start_soon(tail_topic, consumer, "T", Wanted(**{"start": "latest", "follow": True, **wanted}), printed)  # type: ignore[arg-type]
        with trio.fail_after(SECONDS):
            while not printed.bodies:
                await send(producer, "broker-a", 0, "mark")
                await trio.testing.wait_all_tasks_blocked(0.02)
        yield printed
        nursery.cancel_scope.cancel()


async def test_a_queue_that_is_added_is_read_from_its_first_message() -> None:
    async with (
        EmbeddedCluster(brokers=1, topics={"T": 1}) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
        Admin(nameserver=cluster.nameserver) as admin,
    ):
        await send(producer, "broker-a", 0, "old")
        async with tailing(cluster, producer) as printed, tailing(cluster, producer, queues=["0"]) as queue_tail:
            await admin.create_topic("T", queues=2)
            await send(producer, "broker-a", 1, "new")
            await printed.wait("new")
            for tail in (printed, queue_tail):
                await tail.wait_looks(3)
            await send(producer, "broker-a", 1, "newer")
            await printed.wait("newer")
            await send(producer, "broker-a", 0, "last")
            await queue_tail.wait("last")
    assert "old" not in printed.bodies
    assert printed.bodies.count("new") == 1
    assert set(queue_tail.bodies) == {"mark", "last"}


@pytest.mark.parametrize(("wanted", "before"), [({}, False), ({"start": "earliest"}, True), ({"offset": -2}, False)])
async def test_a_broker_that_joins_is_read_from_where_the_tail_began(wanted: dict[str, object], before: bool) -> None:
    async with (
        EmbeddedCluster(brokers=2, topics={"T": 1}) as cluster,
        Producer("p", nameserver=cluster.nameserver) as producer,
    ):
        await send(producer, "broker-b", 0, "before")
        await cluster.stop("broker-b")
        async with tailing(cluster, producer, **wanted) as printed:
            await cluster.start("broker-b")
            await send(producer, "broker-b", 0, "after")
            await printed.wait("after")
    assert ("before" in printed.bodies) is before
    assert printed.bodies.count("after") == 1
