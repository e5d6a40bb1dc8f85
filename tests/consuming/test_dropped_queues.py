"""Queues that are given up in the moment in which messages of theirs arrive."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from pyrmq_core import Client, Command, Message, Producer
from pyrmq_core.client.consumer.consume.assigned_queues import AssignedQueue, AssignedQueues
from pyrmq_core.client.consumer.consume.concurrently import ConcurrentService
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from pyrmq_core.testing import EmbeddedCluster, RequestCode
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh, made_topic, send, total_committed
from tests.support.lite_pull_jobs import bodies_of, lite, polled
from tests.support.waiting import until

COUNT = 100


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@dataclass
class DropsAtAnswer:
    """An RPC hook that drops a topic's queue as rebalancing does, when messages of it have arrived.

    The task that pulls runs on from the hook without a checkpoint, so that it is not cancelled before it has delivered.
    """

    topic: str
    assigned: AssignedQueues | None = None
    count: int = 0

    def do_before_request(self, address: str, request: Command) -> None:
        pass

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        if request.code != RequestCode.PULL_MESSAGE or not answer.body or self.assigned is None:
            return
        pull = PullMessage.from_command(request)
        if pull.topic == self.topic and not self.count:
            for queue in self.assigned.of_topic(self.topic):
                if queue.queue.queue_id == pull.queue_id:
                    self.count += 1
                    queue.drop()


class Turns(deque[AssignedQueue]):
    """The queues of a `ConcurrentService` that wait for their turn; raises instead of turning for ever."""

    turns = 0

    def popleft(self) -> AssignedQueue:
        self.turns += 1
        assert self.turns < 10_000, "the service turns in a circle"
        return super().popleft()


async def send_at_once(nameserver: str, topic: str) -> list[str]:
    """Sends many messages to one queue in one request, which ends a held pull, and returns their bodies."""
    bodies = [str(number) for number in range(COUNT)]
    async with Producer(fresh("senders"), nameserver=nameserver) as producer:
        queue = (await producer.message_queues(topic))[0]
        await producer.send_batch([Message(topic, body.encode()) for body in bodies], queue=queue)
    return bodies


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_works_on_and_gets_each_message_once(cluster: EmbeddedCluster, orderly: bool) -> None:
    """The consumer of such a queue once turned in a circle, and with it the process's whole loop."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=2), fresh("group"), Seen()
    drops = DropsAtAnswer(topic)
    async with (
        Client(nameserver=cluster.nameserver, rpc_hooks=[drops]) as client,
        consuming(None, group, topic, seen, orderly=orderly, client=client) as consumer,
    ):
        await send(cluster.nameserver, topic, ["first", "second"])
        await seen.wait(2)
        assert consumer._running is not None
        if isinstance(consumer._running.service, ConcurrentService):
            consumer._running.service._ready = Turns()
        drops.assigned = consumer._running.assigned
        bodies = await send_at_once(cluster.nameserver, topic)
        await until(lambda: drops.count, SECONDS)
        consumer._running.rebalancer.wake()
        await seen.wait(2 + COUNT)
    assert Counter(seen.bodies) == Counter(["first", "second", *bodies])
    assert await total_committed(cluster.nameserver, group, topic) == 2 + COUNT


async def test_a_lite_pull_consumer_works_on_and_gets_each_message_once(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver, queues=2), fresh("group")
    drops = DropsAtAnswer(topic)
    async with (
        Client(nameserver=cluster.nameserver, rpc_hooks=[drops]) as client,
        lite(None, group, client=client) as consumer,
    ):
        await consumer.subscribe(topic)
        await send(cluster.nameserver, topic, ["first", "second"])
        messages = await polled(consumer, 2)
        assert consumer._running is not None
        drops.assigned = consumer._running.assigned
        bodies = await send_at_once(cluster.nameserver, topic)
        await until(lambda: drops.count, SECONDS)
        consumer._running.rebalancer.wake()
        messages += await polled(consumer, COUNT)
    assert Counter(bodies_of(messages)) == Counter(["first", "second", *bodies])
    assert await total_committed(cluster.nameserver, group, topic) == 2 + COUNT
