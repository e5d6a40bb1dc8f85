"""`LitePullConsumer` as a member of its group, its hooks and traces, and its face for threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from pyrmq_core import (
    Admin,
    ConsumeContext,
    ConsumeFromWhere,
    InvalidState,
    Message,
    MessageQueue,
    Producer,
    ServiceState,
    blocking,
)
from pyrmq_core.client.consumer import lite_pull_consumer
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode
from tests.support.lite_pull_jobs import bodies_of, lite, made_topic, polled, queues_of, send
from tests.support.waiting import until


@pytest.fixture
async def nameserver() -> AsyncIterator[str]:
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster.nameserver


@pytest.mark.parametrize("seconds", [0.0, 1e9])
async def test_quick_polls_give_other_tasks_their_turn(
    nameserver: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Before each poll, or once in a while; a cancelled poll takes no messages."""
    topic = await made_topic(nameserver, queues=1)
    async with Producer("p", nameserver=nameserver) as producer:
        await producer.send_batch([Message(topic, b"%d" % number) for number in range(320)])
    async with lite(nameserver, "g") as consumer, trio.open_nursery() as nursery:
        await consumer.subscribe(topic)
        messages = list(await consumer.poll(30))
        running = consumer._running
        assert running is not None
        await until(lambda: sum(len(assigned.process_queue) for assigned in running.assigned) == 320)
        monkeypatch.setattr(lite_pull_consumer, "TURN_SECONDS", seconds)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(other)
        messages += [message for _ in range(4) for message in await consumer.poll(0)]
        assert (turns == 0) == (seconds > 0)
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.poll(0)
        assert scope.cancelled_caught
        messages += [message for _ in range(5) for message in await consumer.poll(0)]
        assert [int(message.body) for message in messages] == list(range(320))
        nursery.cancel_scope.cancel()


async def test_a_new_member_has_its_queues_at_once(nameserver: str) -> None:
    """Brokers report it to the others, whose next round would come after 20 s."""
    topic = await made_topic(nameserver, queues=2)
    async with lite(nameserver, "g") as first, lite(nameserver, "g") as second:
        await first.subscribe(topic)
        await until(lambda: len(first.assigned_queues) == 4)
        await second.subscribe(topic)
        await until(lambda: len(first.assigned_queues) == len(second.assigned_queues) == 2)


async def test_what_brokers_ask_of_a_member(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=1)
    first, second = await queues_of(nameserver, topic)
    await send(nameserver, topic, ["0", "1", "2"], first)
    async with lite(nameserver, "g") as consumer:
        await consumer.subscribe(topic)
        await until(lambda: len(consumer.assigned_queues) == 2)
        await polled(consumer, 3)
        await consumer.commit()
        assert consumer._running is not None
        member = consumer._running._member
        assert member.consumer_status(topic) == {first: 3, second: 0}
        info = member.running_info(jstack=False)
        assert [data.topic for data in info.subscriptions] == [topic]
        assert {queue: queue_info.commit_offset for queue, queue_info in info.queues.items()} == {first: 3, second: 0}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.statuses[topic].consume_failed_msgs == 0
        member.reset_offsets(topic, {first: 1, MessageQueue(topic, "elsewhere", 0): 5})
        assert bodies_of(await polled(consumer, 2)) == ["1", "2"]
        assert await consumer.committed(first) == 1


async def test_a_queue_whose_broker_refuses_the_sql_expression_is_not_read() -> None:
    """A broker without property filters would answer the pulls with every message."""
    async with EmbeddedCluster() as cluster, lite(cluster.nameserver, "g") as consumer:

        async def count(request: Command, peer: Peer) -> Any:
            return PASS

        checks = cluster.control(RequestCode.CHECK_CLIENT_CONFIG, count)
        await consumer.assign([MessageQueue("later", "broker-a", 0)], sql="a = 1")  # no broker has the topic yet
        async with Admin(nameserver=cluster.nameserver) as admin:
            await admin.create_topic("later", queues=1)
        await send(cluster.nameserver, "later", ["one"])
        await until(lambda: len(checks.seen) >= 2)  # it is tried again
        assert consumer.assigned_queues == ()
        assert await consumer.poll(0) == []


class Recorder:
    """A hook that records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str], bool]] = []

    def consume_message_before(self, context: ConsumeContext) -> None:
        assert context.queue.topic == context.messages[0].topic
        self.calls.append(("before", bodies_of(context.messages), context.success))

    def consume_message_after(self, context: ConsumeContext) -> None:
        self.calls.append(("after", bodies_of(context.messages), context.success))


async def test_hooks_are_called_around_the_work_of_a_poll(nameserver: str) -> None:
    topic = await made_topic(nameserver, queues=1)
    queue = (await queues_of(nameserver, topic))[0]
    await send(nameserver, topic, ["0", "1"], queue)
    recorder = Recorder()

    async def fail() -> None:
        async with lite(nameserver, "g", pull_batch_size=1, hooks=[recorder]) as consumer:
            await consumer.assign([queue])
            await consumer.poll()
            assert recorder.calls == [("before", ["0"], False)]
            await consumer.poll()
            assert recorder.calls[1:] == [("after", ["0"], True), ("before", ["1"], False)]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert recorder.calls[3:] == [("after", ["1"], False)]


async def test_a_traced_consumer(nameserver: str) -> None:
    topic, traces = await made_topic(nameserver, queues=1), await made_topic(nameserver, queues=1)
    await send(nameserver, topic, ["one"])
    async with lite(nameserver, "g", trace=traces) as consumer:
        await consumer.subscribe(topic)
        (message,) = await polled(consumer, 1)
    async with lite(nameserver, "h") as consumer:
        await consumer.assign(await queues_of(nameserver, traces))
        text = "".join(bodies_of(await polled(consumer, 1)))
        assert text.count(message.msg_id) == 2
        assert "SubBefore" in text
        assert "SubAfter" in text


class TestBlocking:
    """The face for threads."""

    def test_polling(self) -> None:
        with blocking.EmbeddedCluster() as cluster, blocking.Producer("p", nameserver=cluster.nameserver) as producer:
            for number in range(10):
                producer.send(Message("orders", str(number).encode()), timeout=10)
            with blocking.LitePullConsumer(
                "g", nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
            ) as consumer:
                consumer.subscribe("orders")
                bodies: list[str] = []
                while len(bodies) < 10:
                    bodies += bodies_of(consumer.poll())
                assert sorted(bodies) == sorted(map(str, range(10)))
                queue = consumer.assigned_queues[0]
                assert consumer.state is ServiceState.RUNNING
                consumer.pause([queue])
                consumer.seek_to_begin(queue)
                assert consumer.poll(0.1) == []
                consumer.resume([queue])
                consumer.seek_to_end(queue)
                consumer.seek(queue, 0)
                consumer.commit()
                assert consumer.committed(queue) == 0
                assert set(consumer.message_queues("orders")) == set(consumer.assigned_queues)
                consumer.on_topic_changed("orders", None)
            with pytest.raises(InvalidState, match="is closed"):
                consumer.poll()

    @pytest.mark.parametrize("then", ["poll", "commit", "close"])
    def test_messages_of_an_interrupted_poll_come_again(self, then: str) -> None:
        with blocking.EmbeddedCluster() as cluster, blocking.Producer("p", nameserver=cluster.nameserver) as producer:
            for number in range(4):
                producer.send(Message("orders", str(number).encode(), sharding_key="k"), timeout=10)
            settings: dict[str, Any] = {
                "nameserver": cluster.nameserver,
                "consume_from_where": ConsumeFromWhere.FIRST_OFFSET,
                "pull_batch_size": 2,
            }
            consumer = blocking.LitePullConsumer("g", **settings).open()
            consumer.subscribe("orders")
            assert bodies_of(consumer.poll()) == ["0", "1"]
            received = consumer._received
            lost = consumer.poll()
            assert bodies_of(lost) == ["2", "3"]
            consumer._received = received  # the thread was interrupted before it had them
            if then == "poll":
                assert bodies_of(consumer.poll()) == ["2", "3"]
            elif then == "commit":
                consumer.commit()
                assert consumer.committed(lost[0].queue) == 2
                assert bodies_of(consumer.poll()) == ["2", "3"]
            consumer.close()
            with blocking.PullConsumer("g", nameserver=cluster.nameserver) as reader:
                assert reader.committed(lost[0].queue) == (2 if then == "close" else 4)
