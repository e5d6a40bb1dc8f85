"""Push consumers beside brokers that fail, refuse, go back, or answer nonsense, and handlers that misbehave."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio

from pyrmq_core import (
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeLater,
    InvalidArgument,
    InvalidState,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    ResponseError,
)
from pyrmq_core.client.consumer.consume import concurrently
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.testing import (
    PASS,
    Command,
    CutConnection,
    EmbeddedCluster,
    Peer,
    RequestCode,
    ResponseCode,
    refusal,
)
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh, made_topic, send, total_committed
from tests.support.waiting import a_second, until

PULL = RequestCode.PULL_MESSAGE
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
Answer = Any


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


def refuse(code: int, remark: str = "refused by the test") -> Answer:
    async def answer(request: Command, peer: Peer) -> Command:
        return refusal(code, remark)

    return answer


async def test_it_goes_on_when_its_broker_is_back(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()
    async with consuming(cluster.nameserver, group, topic, seen):
        await send(cluster.nameserver, topic, ["a", "b"])
        await seen.wait(2)
        await cluster.kill("broker-a")
        await cluster.start("broker-a")
        await send(cluster.nameserver, topic, ["c", "d", "e", "f"])
        await seen.wait(6)
    assert sorted(set(seen.bodies)) == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 24, 215])
async def test_pulls_that_are_refused_are_tried_again_and_not_in_a_busy_loop(
    cluster: EmbeddedCluster, code: int
) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
    await send(cluster.nameserver, topic, ["a", "b"])
    rule = cluster.control(PULL, refuse(code))
    async with consuming(cluster.nameserver, group, topic, seen):
        await until(lambda: rule.seen, SECONDS)
        assert await a_second(lambda: len(rule.seen)) < 200
        rule.remove()
        await seen.wait(2)


async def test_a_broker_that_answers_held_pulls_at_once_is_not_asked_in_a_busy_loop(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()

    async def nothing_new(request: Command, peer: Peer) -> Command:
        offset = PullMessage.from_command(request).queue_offset
        return PullAnswer(19, "", offset, offset, 0).to_command()

    rule = cluster.control(PULL, nothing_new)
    async with consuming(cluster.nameserver, group, topic, seen):
        await until(lambda: rule.seen, SECONDS)
        assert await a_second(lambda: len(rule.seen)) < 100


@pytest.mark.parametrize("code", [0, 20])
async def test_an_answer_that_goes_back_neither_repeats_messages_nor_stops_the_queue(
    cluster: EmbeddedCluster, code: int
) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
    await send(cluster.nameserver, topic, ["a", "b", "c", "d"])
    async with consuming(cluster.nameserver, group, topic, seen):
        await seen.wait(4)

        async def goes_back(request: Command, peer: Peer) -> Command:
            return PullAnswer(code, "", 0, 2, 0).to_command()

        rule = cluster.control(PULL, goes_back, times=4)
        await send(cluster.nameserver, topic, ["e", "f"])
        await until(lambda: len(rule.seen) == 4, SECONDS)
        await send(cluster.nameserver, topic, ["g"])
        await seen.wait(7)
    assert sorted(seen.bodies) == ["a", "b", "c", "d", "e", "f", "g"]


async def test_an_offset_that_the_broker_does_not_keep_is_corrected_and_stored(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
    await send(cluster.nameserver, topic, ["a", "b"])
    async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        queues = await consumer.message_queues(topic)
        await consumer.pull(queues[0], 0)
        await consumer.pull(queues[1], 0)
        await consumer.commit_offsets(dict.fromkeys(queues, 1000))
    async with consuming(cluster.nameserver, group, topic, seen) as push:
        await until(lambda: len([queue for queue in push.assigned_queues if queue.topic == topic]) == 2, SECONDS)

        async def moved() -> int:
            return await total_committed(cluster.nameserver, group, topic)

        with trio.fail_after(SECONDS):
            while await moved() != 2:  # noqa: ASYNC110 - a broker sets no event here
                await trio.sleep(0.05)
        await send(cluster.nameserver, topic, ["c", "d"])
        await seen.wait(2)
    assert sorted(seen.bodies) == ["c", "d"]


async def test_a_send_back_that_is_refused_is_sent_to_the_retry_topic(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()
    seen.orders = {"a": [ConsumeLater(1)]}
    cluster.control(BACK, refuse(ResponseCode.SYSTEM_ERROR))
    async with consuming(cluster.nameserver, group, topic, seen):
        await send(cluster.nameserver, topic, ["a"], keys="k", properties={"colour": "red"})
        await seen.wait(2)
    first, second = seen.messages
    assert (second.body, second.topic, second.reconsume_times) == (b"a", topic, 1)
    assert (second.msg_id, second.keys, second.properties["colour"]) == (first.msg_id, "k", "red")
    assert await total_committed(cluster.nameserver, group, topic) == 1


async def test_a_message_that_no_broker_takes_back_is_consumed_here_again(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrently, "CONSUME_AGAIN_SECONDS", 0.05)
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()
    seen.orders = {"a": [ValueError("no"), ValueError("no")]}
    cluster.control(BACK, refuse(ResponseCode.SYSTEM_ERROR))
    await send(cluster.nameserver, topic, ["a"])
    cluster.control(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.NO_PERMISSION))  # also to the retry topic
    async with consuming(cluster.nameserver, group, topic, seen):
        await seen.wait(3)
    assert [message.reconsume_times for message in seen.messages] == [0, 1, 2]
    assert await total_committed(cluster.nameserver, group, topic) == 1


async def test_a_handler_that_hangs_is_ended_and_its_message_sent_back(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver), fresh("group")
    times: list[int] = []

    async def handler(messages: Sequence[MessageExt]) -> None:
        times.append(messages[0].reconsume_times)
        if messages[0].reconsume_times == 0:
            await trio.sleep_forever()

    rule = cluster.control(BACK, passing)
    async with PushConsumer(
        group,
        nameserver=cluster.nameserver,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        consume_timeout=0.2,
        consume_threads=1,
    ) as consumer:
        await consumer.subscribe(topic)
        await send(cluster.nameserver, topic, ["a"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handler)
            await until(lambda: rule.seen, SECONDS)
            assert int(rule.seen[0].ext["delayLevel"]) == 3
            await send(cluster.nameserver, topic, ["b", "c"])  # the only worker is free again
            await until(lambda: len(times) >= 3, SECONDS)
            await consumer.stop(0)


async def passing(request: Command, peer: Peer) -> Answer:
    return PASS


async def test_stop_inside_a_handler_ends_the_consumer_and_acknowledges_its_message(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver), fresh("group")
    await send(cluster.nameserver, topic, ["a"])
    async with PushConsumer(
        group, nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
    ) as consumer:
        await consumer.subscribe(topic)

        async def handler(messages: Sequence[MessageExt]) -> None:
            await consumer.stop()

        with trio.fail_after(SECONDS):
            await consumer.run(handler)
    assert await total_committed(cluster.nameserver, group, topic) == 1


async def test_a_plain_handler_runs_in_threads_and_several_at_once(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver), fresh("group")
    barrier = threading.Barrier(4, timeout=SECONDS)
    bodies: list[bytes] = []

    def handler(messages: Sequence[MessageExt]) -> None:
        barrier.wait()  # passes only if four calls are at work together
        bodies.append(messages[0].body)

    await send(cluster.nameserver, topic, ["a", "b", "c", "d"])
    async with PushConsumer(
        group, nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, consume_threads=4
    ) as consumer:
        await consumer.subscribe(topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handler)
            await until(lambda: len(bodies) == 4, SECONDS)
            await consumer.stop()
    assert sorted(bodies) == [b"a", b"b", b"c", b"d"]
    assert await total_committed(cluster.nameserver, group, topic) == 4


async def test_a_slow_handler_bounds_what_is_pulled(cluster: EmbeddedCluster) -> None:
    topic, group = await made_topic(cluster.nameserver, queues=1), fresh("group")
    async with Producer("filling", nameserver=cluster.nameserver) as producer:
        await producer.send_batch([Message(topic, b"%d" % number, sharding_key="k") for number in range(2000)])
    release = trio.Event()
    consumed = 0

    async def handler(messages: Sequence[MessageExt]) -> None:
        nonlocal consumed
        await release.wait()
        consumed += len(messages)

    async with PushConsumer(
        group,
        nameserver=cluster.nameserver,
        consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
        pull_threshold_for_queue=100,
    ) as consumer:
        await consumer.subscribe(topic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handler)
            held_back: list[Any] = []

            def is_held_back() -> bool:
                running = consumer._running
                held_back[:] = (
                    []
                    if running is None
                    else [assignment for assignment in running.assigned if assignment.intake.is_held_back]
                )
                return bool(held_back)

            await until(is_held_back, SECONDS)
            assert 100 < len(held_back[0].process_queue) <= 100 + 32
            release.set()
            await until(lambda: consumed == 2000, SECONDS)
            await consumer.stop()
    assert await total_committed(cluster.nameserver, group, topic) == 2000


async def test_a_broken_connection_loses_and_repeats_nothing(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()

    async def cut(request: Command, peer: Peer) -> Answer:
        raise CutConnection

    async with consuming(cluster.nameserver, group, topic, seen):
        for number in range(5):
            cluster.control(PULL, cut, times=1)
            await send(cluster.nameserver, topic, [str(number)])
        await seen.wait(5)
    assert sorted(seen.bodies) == ["0", "1", "2", "3", "4"]


async def test_a_bad_sql_expression_is_refused_before_anything_is_pulled(cluster: EmbeddedCluster) -> None:
    topic = await made_topic(cluster.nameserver)
    async with PushConsumer(fresh("group"), nameserver=cluster.nameserver) as consumer:
        with pytest.raises(ResponseError, match="enablePropertyFilter"):
            await consumer.subscribe(topic, sql="amount > 3")  # the brokers of this cluster have it off
        with pytest.raises(InvalidArgument, match="exclude each other"):
            await consumer.subscribe(topic, sql="amount > 3", tags="paid")
    async with EmbeddedCluster(settings={"enablePropertyFilter": "true"}) as able:
        topic = await made_topic(able.nameserver)
        async with PushConsumer(fresh("group"), nameserver=able.nameserver) as consumer:
            with pytest.raises(ResponseError, match="amount >") as refused:
                await consumer.subscribe(topic, sql="amount >")
            assert refused.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


@pytest.mark.parametrize(
    "topic", ["", "a b", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "%RETRY%other"]
)
async def test_impossible_topics_are_refused(cluster: EmbeddedCluster, topic: str) -> None:
    async with PushConsumer("group", nameserver=cluster.nameserver) as consumer:
        with pytest.raises(InvalidArgument):
            await consumer.subscribe(topic)


async def test_a_consumer_is_used_inside_its_block(cluster: EmbeddedCluster) -> None:
    consumer = PushConsumer("group", nameserver=cluster.nameserver)
    with pytest.raises(InvalidState, match="CREATE_JUST"):
        await consumer.subscribe("orders")
    async with consumer:
        pass
    with pytest.raises(InvalidState, match="SHUTDOWN_ALREADY"):
        await consumer.run(Seen())


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("consume_threads", 0, r"Out of range \[1, 1000\]"),
        ("consume_threads", 1001, r"Out of range \[1, 1000\]"),
        ("consume_message_batch_max_size", 1025, r"Out of range \[1, 1024\]"),
        ("consume_concurrently_max_span", 65_536, r"Out of range \[1, 65535\]"),
        ("pull_batch_size", 0, r"Out of range \[1, 1024\]"),
        ("pull_threshold_for_queue", 65_536, r"Out of range \[1, 65535\]"),
        ("pull_threshold_size_for_queue", 0, "Out of range"),
        ("pull_threshold_for_topic", 6_553_501, "Out of range"),
        ("pull_threshold_size_for_topic", 0, "Out of range"),
        ("pull_interval", 66, r"Out of range \[0, 65.535\]"),
        ("max_reconsume_times", -1, "max_reconsume_times"),
        ("consume_timeout", 0, "consume_timeout"),
        ("consume_from_where", "first", "ConsumeFromWhere"),
        ("message_model", "CLUSTERING", "MessageModel"),
        ("allocate_message_queue_strategy", object(), "allocate"),
        ("message_queue_listener", 3, "listener"),
        ("hooks", [object()], "no hook"),
        ("consume_threads", "20", "whole number"),
    ],
)
def test_wrong_settings_are_refused_with_their_value(setting: str, value: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        PushConsumer("group", nameserver="127.0.0.1:9876", **{setting: value})


def test_the_group_is_required_and_not_a_placeholder() -> None:
    for group in ("", "DEFAULT_CONSUMER", "a b"):
        with pytest.raises(InvalidArgument):
            PushConsumer(group, nameserver="127.0.0.1:9876")


async def test_hooks_and_trace_see_each_call_with_its_end(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()
    seen.orders = {"later": [ConsumeLater(-1)], "broken": [ValueError("no")]}
    calls: list[tuple[str, str, bool]] = []

    class Hook:
        def consume_message_before(self, context: ConsumeContext) -> None:
            context.properties["seen"] = True

        def consume_message_after(self, context: ConsumeContext) -> None:
            assert context.properties["seen"] is True
            assert context.status is not None
            calls.append((context.messages[0].body.decode(), context.status.name, context.success))

    await send(cluster.nameserver, topic, ["good", "later", "broken"])
    async with consuming(cluster.nameserver, group, topic, seen, hooks=[Hook()], trace=True):
        await until(lambda: len(calls) == 3, SECONDS)
    assert sorted(calls) == [("broken", "EXCEPTION", False), ("good", "SUCCESS", True), ("later", "FAILED", False)]
    async with PullConsumer("tracers", nameserver=cluster.nameserver) as tracers:
        texts = ""
        for queue in await tracers.message_queues("RMQ_SYS_TRACE_TOPIC"):
            for message in (await tracers.pull(queue, 0)).messages:
                texts += message.body.decode()
    assert texts.count("SubBefore") == texts.count("SubAfter") == 3


async def test_a_cancelled_consumer_stores_what_it_has_acknowledged(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver, queues=1), fresh("group"), Seen()
    await send(cluster.nameserver, topic, ["a", "b", "c"])
    left = cluster.control(RequestCode.UNREGISTER_CLIENT, passing)
    with trio.CancelScope() as scope:
        async with PushConsumer(
            group, nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            await consumer.subscribe(topic)

            async def handler(messages: Sequence[MessageExt]) -> None:
                await seen(messages)
                if len(seen.messages) == 3:
                    scope.cancel()

            await consumer.run(handler)
    assert await total_committed(cluster.nameserver, group, topic) >= 2  # the call that was cancelled may come again
    assert any(request.ext.get("consumerGroup") == group for request in left.seen)
