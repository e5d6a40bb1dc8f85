"""`LitePullConsumer` on the embedded cluster: what it promises, wrong use, and brokers that answer oddly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    InvalidArgument,
    InvalidState,
    LitePullConsumer,
    Message,
    MessageQueue,
    Producer,
    ServiceState,
    with_namespace,
)
from pyrmq_core.client.consumer.rebalance import rebalancer
from pyrmq_core.model import ConsumeFromWhere, MessageModel
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode, ResponseCode, refusal
from tests.support.lite_pull_jobs import (
    LitePullJobs,
    bodies_of,
    lite,
    made_topic,
    polled,
    queues_of,
    send,
    total_committed,
)
from tests.support.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2, settings={"enablePropertyFilter": "true"}) as cluster:
        yield cluster


@pytest.fixture
def nameserver(cluster: EmbeddedCluster) -> str:
    return cluster.nameserver


class TestOnOurCluster(LitePullJobs):
    """The jobs of every server."""


async def test_wrong_use(nameserver: str) -> None:
    topic = await made_topic(nameserver)
    queues = await queues_of(nameserver, topic)
    consumer = lite(nameserver, "g")
    with pytest.raises(InvalidState, match="CREATE_JUST"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(InvalidState, match="call subscribe or assign first"):
            await consumer.poll()
        for call in (consumer.unsubscribe(topic), consumer.commit(), consumer.committed(queues[0])):
            with pytest.raises(InvalidState, match="call subscribe or assign first"):
                await call
        with pytest.raises(InvalidArgument, match="queues is empty"):
            await consumer.assign([])
        with pytest.raises(InvalidArgument, match="exclude each other"):
            await consumer.subscribe(topic, tags="a", sql="a = 1")
        with pytest.raises(InvalidArgument, match="RocketMQ's own"):
            await consumer.subscribe("SCHEDULE_TOPIC_XXXX")
        await consumer.subscribe(topic)
        with pytest.raises(InvalidState, match="mutually exclusive"):
            await consumer.assign(queues)
        with pytest.raises(InvalidArgument, match="another member may read it"):
            await consumer.seek(MessageQueue("other", "broker-a", 0), 0)
        with pytest.raises(InvalidArgument, match="is not assigned"):
            consumer.pause([MessageQueue("other", "broker-a", 0)])
        await until(lambda: len(consumer.assigned_queues) == 4)
        with pytest.raises(InvalidArgument, match="is not assigned"):
            await consumer.commit({MessageQueue("other", "broker-a", 0): 1})
        with pytest.raises(InvalidArgument, match="the offset of"):
            await consumer.commit({queues[0]: -1})
        for timeout in (-1, float("nan"), float("inf"), "1"):
            with pytest.raises(InvalidArgument, match="timeout"):
                await consumer.poll(timeout)  # type: ignore[arg-type]  # one of them is a text
    assert consumer.state is ServiceState.SHUTDOWN_ALREADY
    with pytest.raises(InvalidState, match="SHUTDOWN_ALREADY"):
        await consumer.poll()
    async with lite(nameserver, "g") as other:
        await other.assign(queues)
        with pytest.raises(InvalidState, match="mutually exclusive"):
            await other.subscribe(topic)


async def test_one_task_polls(nameserver: str) -> None:
    topic = await made_topic(nameserver)
    async with lite(nameserver, "g") as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe(topic)
        nursery.start_soon(consumer.poll, 60.0)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InvalidState, match="polled in another task"):
            await consumer.poll()
        nursery.cancel_scope.cancel()


async def test_one_consumer_a_group_and_client(nameserver: str) -> None:
    topic = await made_topic(nameserver)
    await send(nameserver, topic, ["one"])
    async with Client(nameserver=nameserver) as client, LitePullConsumer("g", client=client) as first:
        await first.subscribe(topic)
        async with LitePullConsumer("g", client=client) as second:
            with pytest.raises(InvalidState, match="has been created before"):
                await second.subscribe(topic)
            with pytest.raises(InvalidState, match="call subscribe or assign first"):
                await second.poll()
        await until(lambda: len(first.assigned_queues) == 4)
        async with LitePullConsumer("h", client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET) as other:
            await other.subscribe(topic)
            assert bodies_of(await polled(other, 1)) == ["one"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"auto_commit_interval": 0.5}, "auto_commit_interval=0.5"),
        ({"auto_commit": 1}, "auto_commit=1"),
        ({"pull_batch_size": 0}, "pull_batch_size=0"),
        ({"pull_batch_size": 1025}, "pull_batch_size=1025"),
        ({"pull_threshold_for_queue": 65_536}, "pull_threshold_for_queue"),
        ({"consume_max_span": 0}, "consume_max_span=0"),
        ({"message_model": "CLUSTERING"}, "message_model='CLUSTERING'"),
        ({"message_queue_listener": 5}, "message_queue_listener=5"),
        ({"consume_timestamp": 5}, "consume_timestamp=5"),
        ({"allocate_message_queue_strategy": 5}, "allocate_message_queue_strategy=5"),
        ({"hooks": [5]}, "int is no hook"),
        ({"trace": "no topic"}, "topic"),
        ({"topic_metadata_check_interval": 0}, "topic_metadata_check_interval=0"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        LitePullConsumer("g", nameserver="127.0.0.1:1", **settings)


async def test_a_namespace_stays_out_of_sight(nameserver: str) -> None:
    async with Admin(nameserver=nameserver) as admin:
        await admin.create_topic(with_namespace("orders", "ns"), queues=1)
    async with Producer("p", nameserver=nameserver, namespace="ns") as producer:
        await producer.send(Message("orders", b"one"), timeout=10)
    changes: list[tuple[str, Sequence[MessageQueue]]] = []

    def listener(topic: str, every: Sequence[MessageQueue], own: Sequence[MessageQueue]) -> None:
        assert set(own) == set(every)
        changes.append((topic, own))

    async with lite(nameserver, "g", namespace="ns", message_queue_listener=listener) as consumer:
        await consumer.subscribe("orders")
        (message,) = await polled(consumer, 1)
        assert message.topic == "orders"
        assert {queue.topic for queue in consumer.assigned_queues} == {"orders"}
        queues = await consumer.message_queues("orders")
        assert set(queues) == set(consumer.assigned_queues)
        await consumer.seek(message.queue, 0)
        assert bodies_of(await polled(consumer, 1)) == ["one"]
        await consumer.commit()
        assert await consumer.committed(message.queue) == 1
        topic, own = changes[-1]
        assert (topic, set(own)) == ("orders", set(queues))
    assert await total_committed(nameserver, "ns%g", "ns%orders") == 1


async def test_a_listener_of_a_topic_whose_queues_change(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=1)
    seen: list[tuple[str, Sequence[MessageQueue]]] = []
    async with lite(nameserver, "g", topic_metadata_check_interval=0.05) as consumer:
        await consumer.on_topic_changed(topic, lambda *change: seen.append(change))
        async with Admin(nameserver=nameserver) as admin:
            await admin.create_topic(topic, queues=2)
        await until(lambda: seen and len(seen[-1][1]) == 4)
        assert {name for name, _ in seen} == {topic}
        count = len(seen)
        await consumer.on_topic_changed(topic, None)
        async with Admin(nameserver=nameserver) as admin:
            await admin.create_topic(topic, queues=3)
        await until(lambda: len(seen) == count)
        with pytest.raises(InvalidArgument, match="listener=5"):
            await consumer.on_topic_changed(topic, 5)  # type: ignore[arg-type]  # on purpose


async def test_all_queues_together_hold_no_more_than_the_limit(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=4)
    async with Producer("p", nameserver=nameserver) as producer:
        for queue in await queues_of(nameserver, topic):
            await producer.send_batch([Message(topic, b"x") for _ in range(200)], queue=queue)
    settings = {"pull_threshold_for_all": 300, "pull_threshold_for_queue": 100}
    async with lite(nameserver, "g", **settings) as consumer:
        await consumer.subscribe(topic)
        await consumer.poll()
        running = consumer._running
        assert running is not None
        await until(lambda: running._is_full)

        def held() -> int:
            return sum(len(assigned.process_queue) for assigned in running.assigned)

        await trio.testing.wait_all_tasks_blocked(0.1)
        assert 300 < held() < 900  # a pull that is under way adds to it
        assert len(await polled(consumer, 1600 - 32)) == 1600 - 32


async def test_an_offset_that_the_broker_does_not_keep(cluster: EmbeddedCluster) -> None:
    nameserver = cluster.nameserver
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    await send(nameserver, topic, map(str, range(10)), queue)

    async def moved(request: Command, peer: Peer) -> Command:
        offsets = {"nextBeginOffset": "6", "minOffset": "6", "maxOffset": "10", "suggestWhichBrokerId": "0"}
        return refusal(ResponseCode.PULL_OFFSET_MOVED, "moved", offsets)

    cluster.control(RequestCode.PULL_MESSAGE, moved, times=1)
    async with lite(nameserver, "g") as consumer:
        await consumer.assign([queue])
        assert bodies_of(await polled(consumer, 4)) == ["6", "7", "8", "9"]


async def test_an_answer_to_a_pull_before_a_seek_is_dropped(cluster: EmbeddedCluster) -> None:
    nameserver = cluster.nameserver
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    await send(nameserver, topic, map(str, range(10)), queue)
    held, answered = trio.Event(), trio.Event()

    async def late(request: Command, peer: Peer) -> Any:
        held.set()
        await answered.wait()
        return PASS

    cluster.control(RequestCode.PULL_MESSAGE, late, times=1)
    async with lite(nameserver, "g") as consumer:
        await consumer.assign([queue])
        with trio.fail_after(60):
            await held.wait()
        await consumer.seek(queue, 8)
        answered.set()
        assert bodies_of(await polled(consumer, 2)) == ["8", "9"]
        assert await consumer.poll(0.2) == []


async def test_a_queue_without_a_known_offset_is_started_later(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebalancer, "ROUND_SECONDS", 3600.0)  # the next round of queues that are all there
    nameserver = cluster.nameserver
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    await send(nameserver, topic, ["one"], queue)

    async def broken(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_ERROR, "not now")

    rule = cluster.control(RequestCode.QUERY_CONSUMER_OFFSET, broken)
    async with lite(nameserver, "g") as consumer:
        await consumer.assign([queue])
        assert consumer.assigned_queues == ()
        with pytest.raises(InvalidArgument, match="assign it first"):
            await consumer.seek(queue, 0)
        await until(lambda: len(rule.seen) >= 2)
        rule.remove()
        assert bodies_of(await polled(consumer, 1)) == ["one"]


async def test_a_failed_commit_is_raised(cluster: EmbeddedCluster) -> None:
    nameserver = cluster.nameserver
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    await send(nameserver, topic, ["one"], queue)

    async def full(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.SYSTEM_ERROR, "no room")

    async with lite(nameserver, "g", auto_commit=False) as consumer:
        await consumer.assign([queue])
        await polled(consumer, 1)
        cluster.control(RequestCode.UPDATE_CONSUMER_OFFSET, full, times=1)
        with pytest.raises(Exception, match="no room"):
            await consumer.commit()
        await consumer.commit()
        assert await consumer.committed(queue) == 1


async def test_an_assigned_consumer_is_no_member(nameserver: str) -> None:
    """A group's members would leave queues to it."""
    topic = await made_topic(nameserver)
    queues = await queues_of(nameserver, topic)
    async with lite(nameserver, "g") as by_hand, lite(nameserver, "g") as member:
        await by_hand.assign(queues[:1])
        await member.subscribe(topic)
        await until(lambda: set(member.assigned_queues) == set(queues))


async def test_broadcasting_goes_on_where_its_file_says(nameserver: str, tmp_path: Path) -> None:
    topic = await made_topic(nameserver)
    settings: dict[str, Any] = {"message_model": MessageModel.BROADCASTING, "local_offset_store_dir": tmp_path}
    async with Client(nameserver=nameserver) as client:
        for expected in (["one"], ["two"]):
            await send(nameserver, topic, expected)
            consumer = LitePullConsumer(
                "g", client=client, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, **settings
            )
            async with consumer:
                await consumer.subscribe(topic)
                assert bodies_of(await polled(consumer, 1)) == expected
                if expected == ["two"]:
                    await consumer.commit()
                    queue = [queue for queue in consumer.assigned_queues if await consumer.committed(queue)]
                    assert queue


async def test_polling_goes_on_when_a_broker_comes_back(cluster: EmbeddedCluster) -> None:
    nameserver = cluster.nameserver
    topic = await made_topic(nameserver, queues=1)
    queues = {queue.broker_name: queue for queue in await queues_of(nameserver, topic)}
    async with lite(nameserver, "g", auto_commit=False) as consumer:
        await consumer.assign(tuple(queues.values()))
        await send(nameserver, topic, ["one"], queues["broker-a"])
        assert bodies_of(await polled(consumer, 1)) == ["one"]
        await cluster.kill("broker-a")
        await send(nameserver, topic, ["two"], queues["broker-b"])
        assert bodies_of(await polled(consumer, 1)) == ["two"]
        await cluster.start("broker-a")
        await send(nameserver, topic, ["three"], queues["broker-a"])
        assert bodies_of(await polled(consumer, 1)) == ["three"]
        await consumer.commit()
    assert await total_committed(nameserver, "g", topic) == 3


async def test_queues_take_turns(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=1)
    queues = await queues_of(nameserver, topic)
    for queue in queues:
        await send(nameserver, topic, map(str, range(6)), queue)
    async with lite(nameserver, "g", pull_batch_size=2) as consumer:
        await consumer.assign(queues)
        running = consumer._running
        assert running is not None
        await until(lambda: all(len(assigned.process_queue) == 6 for assigned in running.assigned))
        turns = [(await consumer.poll())[0].queue for _ in range(6)]
        assert turns in (list(queues) * 3, list(queues)[::-1] * 3)


async def test_a_cancelled_poll_loses_nothing(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    async with lite(nameserver, "g", pull_batch_size=1) as consumer:
        await consumer.assign([queue])
        with trio.move_on_after(0.05) as scope:
            await consumer.poll(60)
        assert scope.cancelled_caught
        await send(nameserver, topic, ["0", "1"], queue)
        assert bodies_of(await polled(consumer, 1)) == ["0"]
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.poll(60)
        assert scope.cancelled_caught
        assert bodies_of(await polled(consumer, 1)) == ["1"]
