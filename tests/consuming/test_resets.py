"""Groups whose offsets are reset while their members consume."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from pyrmq_core import Admin, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode, ResponseCode
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh, made_topic, send
from tests.support.reset_jobs import COUNT, HeldUp, ResetJobs, member
from tests.support.waiting import a_second, until


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def nameserver(cluster: EmbeddedCluster) -> str:
    return cluster.nameserver


class TestOurs(ResetJobs):
    """The jobs of every server."""


@pytest.mark.parametrize("kind", ["push", "lite"])
async def test_a_reset_that_a_broker_gives_once_is_followed_amid_a_read_ahead(
    cluster: EmbeddedCluster, kind: str
) -> None:
    """Apache's brokers give it once; ours would give it again."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), HeldUp()
    seen.go_on.set()
    moved: list[int] = []

    async def move_once(request: Command, peer: Peer) -> object:
        pull = PullMessage.from_command(request)
        if moved or pull.topic != topic or pull.sys_flag & PullSysFlag.SUSPEND or pull.queue_offset < COUNT // 2:
            return PASS
        moved.append(pull.queue_offset)
        return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", 0, COUNT, 0).to_command()

    async with Producer(fresh("senders"), nameserver=cluster.nameserver) as producer:
        await producer.send_batch([Message(topic, b"%d" % number) for number in range(COUNT)], timeout=20)
    cluster.control(RequestCode.PULL_MESSAGE, move_once)  # type: ignore[arg-type]
    async with member(cluster.nameserver, kind, group, topic, seen):
        await until(lambda: seen.times(0) == 2, SECONDS)
    assert moved


@pytest.mark.parametrize("kind", ["push", "lite"])
async def test_a_broker_that_moves_every_pull_is_not_asked_in_a_busy_loop(cluster: EmbeddedCluster, kind: str) -> None:
    topic, group = await made_topic(cluster.nameserver, queues=1), fresh("group")

    async def move(request: Command, peer: Peer) -> Command:
        return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", 0, 3, 0).to_command()

    rule = cluster.control(RequestCode.PULL_MESSAGE, move)
    async with member(cluster.nameserver, kind, group, topic, HeldUp()):
        await until(lambda: rule.seen, SECONDS)
        assert await a_second(lambda: len(rule.seen)) < 50


async def test_a_queue_that_is_given_up_as_a_reset_arrives_stores_the_reset(cluster: EmbeddedCluster) -> None:
    """A rebalancing came first: it stored its own offset over the reset, which then moved the queue's successor."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
    queue, go_on, moved = MessageQueue(topic, "broker-a", 0), trio.Event(), trio.Event()
    commits: list[int] = []

    async def move(request: Command, peer: Peer) -> object:
        pull = PullMessage.from_command(request)
        if pull.topic != topic or pull.queue_offset < 3 or moved.is_set():
            return PASS
        await go_on.wait()
        moved.set()
        return PullAnswer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", 0, 3, 0).to_command()

    async def note(request: Command, peer: Peer) -> object:
        header = UpdateConsumerOffset.from_command(request)
        if header.topic == topic:
            commits.append(header.commit_offset)
        return PASS

    cluster.control(RequestCode.PULL_MESSAGE, move)  # type: ignore[arg-type]
    cluster.control(RequestCode.UPDATE_CONSUMER_OFFSET, note)  # type: ignore[arg-type]
    # The commits of every 5 s would be among those that are looked at.
    consumption = consuming(cluster.nameserver, group, topic, seen, persist_consumer_offset_interval=600)
    async with consumption as consumer, trio.open_nursery() as nursery:
        await send(cluster.nameserver, topic, ["a", "b", "c"])
        await seen.wait(3)
        assert consumer._running is not None
        assigned = consumer._running.assigned
        former = assigned.get(queue)
        assert former is not None
        async with assigned._changing:  # what follows waits for its turn, in this order
            for wanted in ([], [queue]):
                nursery.start_soon(assigned.update, topic, wanted)
                await trio.testing.wait_all_tasks_blocked()
            go_on.set()
            await until(lambda: assigned._changing.statistics().tasks_waiting == 3, SECONDS)
            commits.clear()
        await seen.wait(6)
        assert commits[0] == 0
        successor = assigned.get(queue)
        assert successor is not None
        await assigned.move({queue: 1}, former.process_queue)
        assert assigned.get(queue) is successor
        assert not successor.process_queue.is_dropped
    assert sorted(seen.bodies) == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("kind", ["push", "lite"])
async def test_a_topic_that_is_made_again_is_read_from_its_beginning(cluster: EmbeddedCluster, kind: str) -> None:
    """The members of Apache's brokers go on at their own offsets, and pass over as many messages of the new topic."""
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), HeldUp()
    seen.go_on.set()
    bodies = [f"new {number}" for number in range(8)]
    async with member(cluster.nameserver, kind, group, topic, seen):
        await send(cluster.nameserver, topic, [f"old {number}" for number in range(3)])
        await seen.wait(3)
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.delete_topic(topic)
            await admin.create_topic(topic, queues=1)
        await send(cluster.nameserver, topic, bodies)
        await until(lambda: set(bodies) <= set(seen.bodies), 60)
    async with PullConsumer(group, nameserver=cluster.nameserver) as reader:
        assert await reader.committed(MessageQueue(topic, "broker-a", 0)) == len(bodies)
    assert list(dict.fromkeys(seen.bodies[3:])) == bodies
