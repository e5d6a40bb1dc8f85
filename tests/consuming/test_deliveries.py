"""Deliveries of a push consumer whose blocks fail or are cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import trio

from pyrmq_core import PushConsumer
from pyrmq_core.testing import EmbeddedCluster, RequestCode
from tests.consuming.test_failures import passing
from tests.support.consumer_jobs import FIRST, SECONDS, fresh, made_topic, send, total_committed
from tests.support.waiting import until, until_readable


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_message_whose_block_is_cancelled_is_retried(cluster: EmbeddedCluster, orderly: bool) -> None:
    topic, group, bodies = await made_topic(cluster.nameserver, queues=1), fresh("group"), list[bytes]()
    await send(cluster.nameserver, topic, ["a", "b"])
    back = cluster.control(RequestCode.CONSUMER_SEND_MSG_BACK, passing)
    async with PushConsumer(
        group, nameserver=cluster.nameserver, consume_from_where=FIRST, suspend_current_queue_time=0.01
    ) as consumer:
        await consumer.subscribe(topic)
        with trio.fail_after(SECONDS):
            async for delivery in consumer.deliveries(orderly=orderly):
                with trio.CancelScope() as scope:
                    async with delivery as message:
                        bodies.append(message.body)
                        if len(bodies) == 1:
                            scope.cancel()
                            await trio.sleep_forever()
                if len(bodies) == (3 if orderly else 2):
                    break
            await until(lambda: orderly or back.seen, SECONDS)
        await consumer.stop()
    assert bodies == ([b"a", b"a", b"b"] if orderly else [b"a", b"b"])
    assert await total_committed(cluster.nameserver, group, topic) == 2


async def test_only_the_message_whose_block_raised_comes_again(cluster: EmbeddedCluster) -> None:
    topic, group, bodies = await made_topic(cluster.nameserver, queues=1), fresh("group"), list[str]()
    await send(cluster.nameserver, topic, ["a", "b", "c"])
    await until_readable(cluster.nameserver, topic, 3)  # one pull gets all of them
    async with PushConsumer(
        group,
        nameserver=cluster.nameserver,
        consume_from_where=FIRST,
        consume_message_batch_max_size=3,
        suspend_current_queue_time=0.01,
    ) as consumer:
        await consumer.subscribe(topic)
        with trio.fail_after(SECONDS):
            async for delivery in consumer.deliveries(orderly=True):
                with suppress(ZeroDivisionError):
                    async with delivery as message:
                        bodies.append(message.body.decode())
                        if bodies == ["a", "b"]:
                            raise ZeroDivisionError
                if bodies[-1] == "c":
                    break
    assert bodies == ["a", "b", "b", "c"]
