"""mqadmin's commands about consumers and messages: it reaches our push consumer, and finds what our producer sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import trio

from pyrmq_core import Admin, ConsumeFromWhere, Message, MessageExt, MessageQueue, Producer, PullConsumer, PushConsumer
from pyrmq_core.testing import EmbeddedCluster
from tests.support import java_programs
from tests.support.apache import NEWEST_AND_LONG_OLDER
from tests.support.client_jobs import topic

__all__ = ["topic"]

SECONDS = 60.0


class Handled:
    """A handler that keeps the bodies it got; `until` waits for them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._more = trio.Event()

    async def __call__(self, messages: Sequence[MessageExt]) -> None:
        self.bodies += [message.body for message in messages]
        more, self._more = self._more, trio.Event()
        more.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(SECONDS):
            while not holds():
                await self._more.wait()


@pytest.mark.parametrize("tool", NEWEST_AND_LONG_OLDER)
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "Apache's"])
async def test_mqadmin_reaches_our_consumer_through_a_broker(
    request: pytest.FixtureRequest, topic: str, is_ours: bool, tool: str
) -> None:
    """It shows the consumer's queues, has it consume one message again, and resets its offsets."""
    if is_ours:
        async with EmbeddedCluster(brokers=1) as cluster:
            await reaches_our_consumer(cluster.nameserver, tool, topic)
    else:
        await reaches_our_consumer(request.getfixturevalue(f"apache_{tool[0]}").nameserver.address, tool, topic)


async def reaches_our_consumer(nameserver: str, tool: str, topic: str) -> None:
    handled, group = Handled(), f"g_{topic}"

    async def mqadmin(*arguments: str) -> str:
        return await trio.to_thread.run_sync(partial(java_programs.mqadmin, tool, *arguments, nameserver=nameserver))

    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=2)
    async with (
        Producer("P", nameserver=nameserver, send_timeout=20) as producer,
        PullConsumer(group, nameserver=nameserver, timeout=20) as reader,
        PushConsumer(group, nameserver=nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET) as consumer,
        trio.open_nursery() as nursery,
    ):
        queues = await reader.message_queues(topic)
        sent = [await producer.send(Message(topic, str(queue).encode()), queue=queue) for queue in queues]
        everything = sorted(str(queue).encode() for queue in queues)
        await consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handled)
        await handled.until(lambda: sorted(handled.bodies) == everything)
        client_id = consumer._session.client_id
        shown = await mqadmin("consumerStatus", "-g", group, "-i", client_id, "-s", "true")
        for queue in queues:
            assert re.search(rf"^{topic} +{queue.broker_name} +{queue.queue_id} +1 *$", shown, re.MULTILINE), shown
        assert "PROP_CONSUMEORDERLY                     : false" in shown
        assert f"Topic: {topic} " in shown
        assert "#Consumer jstack#" in shown
        new = ["-t", topic] if tool == "5.4.0" else []
        shown = await mqadmin("queryMsgById", "-i", sent[1].offset_msg_id, "-g", group, "-d", client_id, *new)
        assert "consumeResult=CR_SUCCESS" in shown
        assert handled.bodies[len(queues) :] == [str(queues[1]).encode()]
        await all_committed(reader, queues)  # a broker of 4.9 resets only groups with commits
        shown = await mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        for queue in queues:
            assert re.search(rf"^{queue.broker_name} +{queue.queue_id} +0 *$", shown, re.MULTILINE), shown
        await handled.until(lambda: sorted(handled.bodies[len(queues) + 1 :]) == everything)
        await consumer.stop()


async def all_committed(reader: PullConsumer, queues: Sequence[MessageQueue]) -> None:
    """Returns when the group's consumer has committed its message of each queue."""
    with trio.fail_after(SECONDS):
        while set((await reader.committed_offsets(queues)).values()) != {1}:  # noqa: ASYNC110 - a broker's table
            await trio.sleep(0.2)


@pytest.mark.parametrize("tool", NEWEST_AND_LONG_OLDER)
async def test_mqadmin_finds_messages_on_our_brokers(topic: str, tool: str) -> None:
    """By key, by unique key, and the trace of a message by its id."""
    async with EmbeddedCluster(brokers=2) as cluster:
        await finds_messages(cluster.nameserver, tool, topic)


async def finds_messages(nameserver: str, tool: str, topic: str) -> None:
    async with Admin(nameserver=nameserver, timeout=20) as admin:
        await admin.create_topic(topic, queues=2)
    async with Producer("traced", nameserver=nameserver, trace=True, send_timeout=20) as producer:
        sent = [await producer.send(Message(topic, b"%d" % n, keys=["all", f"k{n}"], tags="t")) for n in range(8)]
    printed: str

    async def until(holds: Callable[[], bool], *arguments: str) -> None:
        """Repeats a command until its output is right: a broker indexes messages a moment after it stores them."""
        nonlocal printed
        with trio.fail_after(SECONDS):
            while True:
                printed = await trio.to_thread.run_sync(
                    partial(java_programs.mqadmin, tool, *arguments, nameserver=nameserver)
                )
                if holds():
                    return

    await until(lambda: all(result.msg_id in printed for result in sent), "queryMsgByKey", "-t", topic, "-k", "all")
    await until(lambda: sent[3].msg_id in printed, "queryMsgByKey", "-t", topic, "-k", "k3")
    assert [result.msg_id for result in sent if result.msg_id in printed] == [sent[3].msg_id]
    by_id = ("queryMsgByUniqueKey", "-t", topic, "-i", sent[3].msg_id)
    await until(lambda: re.search(r"Keys: +\[all k3\]", printed) is not None, *by_id)
    assert re.search(rf"Queue Offset: +{sent[3].queue_offset}$", printed, re.MULTILINE), printed
    await until(lambda: "Pub" in printed, "queryMsgTraceById", "-i", sent[3].msg_id)
    assert re.search(r"Pub\s+traced", printed), printed
