"""Consumers of ours whose next messages the broker removed: each says what is gone, and goes on with what is left."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest
import trio

from pyrmq_core import Admin, DataLost, MessageQueue, OffsetRange, Producer, PullConsumer, ReadWindow, decode
from pyrmq_core.model import PullStatus
from pyrmq_core.testing import EmbeddedCluster
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh
from tests.support.lite_pull_jobs import bodies_of, lite, polled
from tests.support.removal import MESSAGES, SETTINGS, messages, remove_old, segments

COMMITTED = 10


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(settings=SETTINGS) as cluster:
        yield cluster


async def filled(cluster: EmbeddedCluster) -> MessageQueue:
    """Returns a queue with messages in several segments."""
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("orders", queues=1)
    queue = MessageQueue("orders", "broker-a", 0)
    async with Producer("setup", nameserver=cluster.nameserver) as producer:
        for at in range(0, MESSAGES, 50):
            await producer.send_batch(messages("orders")[at : at + 50], queue=queue)
    return queue


async def removed(cluster: EmbeddedCluster, queue: MessageQueue) -> int:
    """Has the old messages removed; returns the queue's minimum offset."""
    with trio.fail_after(SECONDS):
        while segments(cluster.directory / "broker-a") > 1:
            await trio.to_thread.run_sync(partial(remove_old, cluster.brokers["broker-a"]))
            await trio.sleep(0.05)
    async with PullConsumer("looks", nameserver=cluster.nameserver) as consumer:
        low = await consumer.min_offset(queue)
    assert COMMITTED < low < MESSAGES
    return low


async def commit(cluster: EmbeddedCluster, group: str, queue: MessageQueue) -> None:
    async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        await consumer.pull(queue, 0)  # makes the group
        await consumer.commit(queue, COMMITTED)


async def test_a_pull_consumer_is_told_the_range_that_is_gone(cluster: EmbeddedCluster) -> None:
    queue = await filled(cluster)
    async with PullConsumer("pulls", nameserver=cluster.nameserver) as consumer:
        result = await consumer.pull(queue, COMMITTED)
        assert result.status is PullStatus.FOUND
        low = await removed(cluster, queue)
        moved = await consumer.pull(queue, COMMITTED)
        assert (moved.status, moved.next_offset, moved.messages) == (PullStatus.OFFSET_ILLEGAL, low, ())
        with pytest.raises(DataLost, match="expired") as lost:
            await offsets_of(consumer, queue, COMMITTED)
        assert (lost.value.start, lost.value.min_offset, lost.value.max_offset) == (COMMITTED, low, MESSAGES)


async def test_a_range_that_is_being_read_when_it_goes_ends_with_an_error(cluster: EmbeddedCluster) -> None:
    """Messages yielded before are right, and none is left out without a word."""
    queue = await filled(cluster)
    offsets: list[int] = []
    async with PullConsumer("pulls", nameserver=cluster.nameserver) as consumer:
        with pytest.raises(DataLost) as lost:
            await offsets_of(consumer, queue, 0, offsets, partial(removed, cluster, queue))
    assert offsets == list(range(lost.value.start))
    assert 0 < len(offsets) < MESSAGES


async def offsets_of(
    consumer: PullConsumer,
    queue: MessageQueue,
    start: int,
    offsets: list[int] | None = None,
    after_first: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Reads to the end with small pulls; adds the offsets to `found`."""
    offsets = [] if offsets is None else offsets
    window = ReadWindow(messages=8, max_messages_a_pull=4)
    async with consumer.read(queue, start, MESSAGES, window=window) as pulls:
        async for pull in pulls:
            offsets += [message.queue_offset for message in decode(pull, OffsetRange(pull.start, pull.next_offset))]
            if after_first is not None:
                await after_first()
                after_first = None


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_goes_on_and_warns(
    cluster: EmbeddedCluster, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue, group, seen = await filled(cluster), fresh("group"), Seen()
    await commit(cluster, group, queue)
    low = await removed(cluster, queue)
    async with consuming(cluster.nameserver, group, "orders", seen, orderly=orderly):
        await seen.wait(MESSAGES - low)
    assert sorted(message.queue_offset for message in seen.messages) == list(range(low, MESSAGES))
    assert f"offsets {COMMITTED} to {low} of orders/broker-a/0 are gone" in caplog.text


async def test_a_new_group_misses_nothing_and_warns_of_nothing(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue, seen = await filled(cluster), Seen()
    low = await removed(cluster, queue)
    async with consuming(cluster.nameserver, fresh("group"), "orders", seen):
        await seen.wait(MESSAGES - low)
    assert "are gone" not in caplog.text


async def test_a_lite_pull_consumer_goes_on_and_warns(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue, group = await filled(cluster), fresh("group")
    await commit(cluster, group, queue)
    low = await removed(cluster, queue)
    async with lite(cluster.nameserver, group) as consumer:
        await consumer.subscribe("orders")
        arrivals = await polled(consumer, MESSAGES - low)
    assert [int(body) for body in bodies_of(arrivals)] == list(range(low, MESSAGES))
    assert f"offsets {COMMITTED} to {low} of orders/broker-a/0 are gone" in caplog.text
