"""Brokers that are killed or stopped while the client works: another takes over, nothing acknowledged is lost."""

import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pytest
import trio

from pyrmq_core import (
    Admin,
    AnyQueue,
    Client,
    Message,
    MessageExt,
    MessageQueue,
    OffsetRange,
    Outcome,
    Payload,
    Producer,
    PullConsumer,
    ReadWindow,
    SendFailed,
    decode,
    encode_one,
    unique_ids,
)
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.errors import RocketMQError
from tests.support.apache import NEWEST_AND_LONG_OLDER, boot_cluster
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import boot_our_cluster

BROKERS = ("broker-a", "broker-b")
# Less than a busy machine needs for a send would cost a second try, at the broker that takes over.
ATTEMPT_SECONDS = 4.0


class Server(Protocol):
    """A process of ours or of RocketMQ's."""

    @property
    def address(self) -> str: ...

    def kill(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def restart(self) -> None: ...


@dataclass(frozen=True)
class Cluster:
    """A NameServer's address and its brokers, which tests kill and stop."""

    nameserver: str
    brokers: dict[str, Server]


@pytest.fixture(scope="module", params=("ours", *NEWEST_AND_LONG_OLDER))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    try:
        if request.param == "ours":
            with boot_our_cluster(BROKERS) as ours:
                yield Cluster(ours.nameserver.address, dict(ours.brokers))
        else:
            with boot_cluster(request.param, BROKERS) as apache:
                yield Cluster(apache.nameserver.address, dict(apache.brokers))
    except ApacheUnavailable as reason:
        pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(nameserver=cluster.nameserver) as client:
        yield client


@pytest.fixture
async def topic(client: Client) -> str:
    """A topic with queues on both brokers."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    sender = Sender(client._session, SendSettings("makers"))
    async with Admin(client=client, timeout=20) as admin:
        with trio.fail_after(60):
            while True:  # a broker may still register
                await admin.create_topic(name, queues=4)
                if {queue.broker_name for queue in (await sender.publish_info(name, timeout=5)).queues} == set(BROKERS):
                    return name


def one_of(topic: str, body: bytes) -> Payload:
    return encode_one(Message(topic, body), unique_ids(1)[0])


@dataclass
class Stream:
    """Sends without a pause from several tasks, and their results."""

    acknowledged: dict[str, Receipt] = field(default_factory=dict)
    acknowledged_at: list[float] = field(default_factory=list)
    failed: dict[str, SendFailed] = field(default_factory=dict)
    stopped: bool = False

    async def run(self, sender: Sender, topic: str) -> None:
        number = 0
        while not self.stopped:
            number += 1
            payload = one_of(topic, b"%d" % number)
            try:
                receipt = await sender.send(payload, AnyQueue(), timeout=20)
            except SendFailed as error:
                self.failed[(payload.unique_ids or ("",))[0]] = error
            else:
                self.acknowledged[receipt.results()[0].msg_id] = receipt
                self.acknowledged_at.append(trio.current_time())

    @property
    def retried(self) -> set[str]:
        return {unique_id for unique_id, receipt in self.acknowledged.items() if receipt.attempts}

    async def wait_acknowledged(self, count: int) -> None:
        with trio.fail_after(90):
            while len(self.acknowledged) < count:  # noqa: ASYNC110 - counted by several tasks
                await trio.sleep(0.01)


async def all_of(client: Client, topic: str, acknowledged: Iterable[Receipt]) -> list[MessageExt]:
    """Returns all stored messages, when the acknowledged ones are readable and the queues do not grow any more."""
    results = [result for receipt in acknowledged for result in receipt.results()]
    messages: list[MessageExt] = []
    async with PullConsumer("readers", client=client, timeout=15) as consumer:
        with trio.fail_after(60):
            queues = await queues_of_both(client, consumer, topic)
            bounds = await bounds_of(consumer, queues)
            while True:
                await trio.sleep(0.5)
                again = await bounds_of(consumer, queues)
                if again == bounds and all(
                    result.queue_offset < bounds[result.message_queue].end for result in results
                ):
                    break
                bounds = again
        for queue, bound in bounds.items():
            async with consumer.read(queue, bound.start, bound.end) as pulls:
                async for pull in pulls:
                    messages += decode(pull, OffsetRange(pull.start, pull.next_offset))
    return messages


async def queues_of_both(client: Client, consumer: PullConsumer, topic: str) -> tuple[MessageQueue, ...]:
    """Returns the topic's queues when the NameServer knows both brokers (again)."""
    while True:
        await client._session.routes.refresh(topic)
        queues = await consumer.message_queues(topic)
        if {queue.broker_name for queue in queues} == set(BROKERS):
            return queues
        await trio.sleep(0.1)


async def bounds_of(consumer: PullConsumer, queues: tuple[MessageQueue, ...]) -> dict[MessageQueue, OffsetRange]:
    while True:
        try:
            return await consumer.offset_bounds(queues)
        except RocketMQError:  # a broker that was just restarted
            await trio.sleep(0.2)


async def check_story(client: Client, topic: str, stream: Stream) -> None:
    """Checks that every acknowledged message is stored, and a copy only where an earlier try may have stored one."""
    stored = await all_of(client, topic, stream.acknowledged.values())
    copies = Counter(message.msg_id for message in stored if message.body != b"make it")
    assert set(stream.acknowledged) <= set(copies)
    extra = {unique_id for unique_id, count in copies.items() if count > 1}
    assert extra <= stream.retried
    for unique_id in extra:
        assert stream.acknowledged[unique_id].perhaps_repeated
    unknown = set(copies) - set(stream.acknowledged)
    assert {stream.failed[unique_id].outcome for unique_id in unknown} <= {Outcome.PERHAPS_STORED}


async def test_a_stopped_broker_costs_one_try(cluster: Cluster, client: Client, topic: str) -> None:
    """SIGSTOP: it accepts and never answers. The other broker takes over within one attempt's time."""
    sender = Sender(client._session, SendSettings("senders", timeout_per_attempt=ATTEMPT_SECONDS))
    stream = Stream()
    stopped = cluster.brokers["broker-a"]
    stopped.pause()
    try:
        for queue_id in range(2):
            payload = one_of(topic, b"%d" % queue_id)
            began = trio.current_time()
            receipt = await sender.send(payload, AnyQueue(MessageQueue(topic, "broker-a", queue_id)), timeout=60)
            seconds = trio.current_time() - began
            stream.acknowledged[receipt.results()[0].msg_id] = receipt
            assert receipt.queue.broker_name == "broker-b"
            (attempt,) = receipt.attempts
            assert (attempt.broker_name, attempt.address) == ("broker-a", stopped.address)
            assert attempt.outcome is Outcome.PERHAPS_STORED
            assert attempt.seconds >= ATTEMPT_SECONDS - 0.01
            assert seconds < 30  # half of the whole time
    finally:
        stopped.resume()
    await check_story(client, topic, stream)


async def test_a_killed_broker_loses_nothing_acknowledged(cluster: Cluster, client: Client, topic: str) -> None:
    """SIGKILL during a stream of sends."""
    sender = Sender(client._session, SendSettings("senders", timeout_per_attempt=15))
    stream = Stream()
    victim = cluster.brokers["broker-a"]
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(stream.run, sender, topic)
        await stream.wait_acknowledged(200)
        killed_at = trio.current_time()
        await trio.to_thread.run_sync(victim.kill)
        await stream.wait_acknowledged(len(stream.acknowledged) + 300)
        stream.stopped = True
    assert stream.acknowledged_at[0] < killed_at < stream.acknowledged_at[-1]
    assert len(stream.retried) >= 1
    assert stream.failed == {}
    before = Counter(receipt.queue.broker_name for receipt in stream.acknowledged.values())
    assert before["broker-a"] > 0
    for unique_id in stream.retried:
        receipt = stream.acknowledged[unique_id]
        assert receipt.queue.broker_name == "broker-b"
        assert {attempt.broker_name for attempt in receipt.attempts} == {"broker-a"}
    await trio.to_thread.run_sync(victim.restart)
    await check_story(client, topic, stream)


async def test_a_read_goes_on_when_its_broker_comes_back(cluster: Cluster, client: Client, topic: str) -> None:
    """SIGKILL in the middle of a range; the same offsets are read on from the broker that is started again."""
    queue = MessageQueue(topic, "broker-b", 0)
    async with PullConsumer("readers", client=client, timeout=15) as consumer:
        async with Producer("fillers", client=client, send_timeout=20) as producer:
            sent = await producer.send_batch([Message(topic, b"%d" % number) for number in range(3000)], queue=queue)
            start = sent[0].queue_offset
        with trio.fail_after(60):
            while await consumer.max_offset(queue) < start + 3000:  # noqa: ASYNC110
                await trio.sleep(0.05)
        bodies: list[int] = []
        async with (
            consumer.read(queue, start, start + 3000, window=ReadWindow(messages=320, patience=90)) as pulls,
            trio.open_nursery() as nursery,
        ):
            victim, is_killed = cluster.brokers["broker-b"], False
            async for pull in pulls:
                bodies += [int(message.body) for message in decode(pull, OffsetRange(pull.start, pull.next_offset))]
                if len(bodies) >= 64 and not is_killed:
                    is_killed = True
                    await trio.to_thread.run_sync(victim.kill)
                    nursery.start_soon(trio.to_thread.run_sync, victim.restart)
    assert bodies == list(range(3000))
