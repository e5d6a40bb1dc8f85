"""A broker of 5.4.0 that stands still for a while: what each call does, and how many copies it stores; beside Java.

docs/producer.md has the outcomes in words.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio

from pyrmq_core import (
    Admin,
    Client,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    OffsetRange,
    Outcome,
    Producer,
    PullConsumer,
    SendFailed,
    SendResult,
    aio,
    blocking,
    decode,
)
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import ApacheCluster

PROGRAM = Path(__file__).parent / "java" / "SlowBroker.java"
PAUSES = (0.5, 1.3, 2.0, 6.0)  # Java ends an asynchronous send between 1 and 2 s after its time-out
SEND_SECONDS = 3.0  # both defaults
# Of calls that wait for a broker: how much later than its answer, or than the time-out, they may end on a busy machine.
LATE_SECONDS = 5.0

GATE_SECONDS = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    with cluster_or_skip("5.4.0", ("broker-a",)) as cluster:
        yield cluster


@dataclass(frozen=True)
class Gate:
    """The point at which threads wait until the broker is stopped."""

    ready: threading.Barrier
    stopped: threading.Event

    def wait_stopped(self) -> None:
        self.ready.wait(GATE_SECONDS)
        assert self.stopped.wait(GATE_SECONDS)


class Committing:
    """A listener; checks of half messages whose producer had an error roll them back."""

    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.ROLLBACK_MESSAGE


def commit(message: Message, result: SendResult) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE


async def soon(producer: Producer, message: Message) -> None:
    await (await producer.send_soon(message)).wait()


CALLS: dict[str, Callable[[Producer, Message], Awaitable[object]]] = {
    "`send`": lambda producer, message: producer.send(message),
    "`send` to a queue": lambda producer, message: producer.send(
        message, queue=MessageQueue(message.topic, "broker-a", 0)
    ),
    "`send` with a sharding key": lambda producer, message: producer.send(
        Message(message.topic, message.body, sharding_key="key")
    ),
    "`send_soon`": soon,
    "`send_batch`": lambda producer, message: producer.send_batch([message]),
    "`send_oneway`": lambda producer, message: producer.send_oneway(message),
    "`send_in_transaction`": lambda producer, message: producer.send_in_transaction(message, commit),
}


@pytest.mark.parametrize("pause", PAUSES)
async def test_each_call_stores_one_copy_at_most(cluster: ApacheCluster, pause: float) -> None:
    topic, broker = f"slow-{pause:g}".replace(".", "-"), cluster.brokers["broker-a"]
    ends: dict[str, str] = {}
    async with (
        Client(nameserver=cluster.nameserver.address) as client,
        Admin(client=client) as admin,
        Producer("slow", client=client, transaction_listener=Committing()) as producer,
    ):
        await admin.create_topic(topic, queues=1)
        await producer.send_in_transaction(Message(topic, b"warm"), commit, timeout=20)
        async with trio.open_nursery() as nursery:
            gate = Gate(threading.Barrier(3), threading.Event())
            for face in (from_a_thread, from_asyncio):
                nursery.start_soon(trio.to_thread.run_sync, face, cluster.nameserver.address, topic, gate, ends)
            await trio.to_thread.run_sync(gate.ready.wait, GATE_SECONDS)
            await trio.to_thread.run_sync(broker.pause)
            gate.stopped.set()
            for name, call in CALLS.items():
                nursery.start_soon(timed, ends, name, partial(call, producer, Message(topic, name.encode())))
            await trio.sleep(pause)
            broker.resume()
        copies = await copies_in(client, producer, topic, ends)
    assert ends.keys() == {*CALLS, "`blocking`: `send`", "`aio`: `send`"}
    assert {name: f"{error}{copies[name]}" for name, error in ends.items()} == outcomes(ends, pause)


@pytest.mark.parametrize("pause", PAUSES)
async def test_javas_calls(cluster: ApacheCluster, pause: float) -> None:
    topic, process = f"slow-java-{pause:g}".replace(".", "-"), cluster.brokers["broker-a"].process.pid
    async with (
        Client(nameserver=cluster.nameserver.address) as client,
        Admin(client=client) as admin,
        Producer("counting", client=client) as producer,
    ):
        await admin.create_topic(topic, queues=1)
        arguments = (cluster.nameserver.address, topic, str(process), f"{pause * 1000:.0f}")
        printed = await trio.to_thread.run_sync(partial(cluster.run_java, PROGRAM, *arguments))
        lines = re.findall(r"^(Java: .*);(\d+);(\w+)$", printed, re.MULTILINE)
        ends = {name: "" if end == "ok" else "error, " for name, _, end in lines}
        copies = await copies_in(client, producer, topic, ends)
    assert len(ends) == 6
    assert {name: f"{error}{copies[name]}" for name, error in ends.items()} == outcomes(ends, pause)


async def timed(ends: dict[str, str], name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Notes how the call ended, and checks when."""
    began, error = trio.current_time(), None
    try:
        await call()
    except SendFailed as failed:
        error = failed
    noted(ends, name, trio.current_time() - began, error)


def noted(ends: dict[str, str], name: str, seconds: float, error: SendFailed | None) -> None:
    if error is None:
        ends[name] = ""
        return
    ends[name] = "error, "
    assert error.outcome is Outcome.PERHAPS_STORED
    assert len(error.attempts) == 1
    assert SEND_SECONDS - 0.1 <= seconds <= SEND_SECONDS + LATE_SECONDS


def from_a_thread(nameserver: str, topic: str, gate: Gate, ends: dict[str, str]) -> None:
    name = "`blocking`: `send`"
    with blocking.Producer("slow-thread", nameserver=nameserver) as producer:
        producer.send(Message(topic, b"warm"), timeout=20)
        gate.wait_stopped()
        began, error = time.monotonic(), None
        try:
            producer.send(Message(topic, name.encode()))
        except SendFailed as failed:
            error = failed
        noted(ends, name, time.monotonic() - began, error)


def from_asyncio(nameserver: str, topic: str, gate: Gate, ends: dict[str, str]) -> None:
    async def send() -> None:
        name = "`aio`: `send`"
        async with aio.Producer("slow-asyncio", nameserver=nameserver) as producer:
            await producer.send(Message(topic, b"warm"), timeout=20)
            await asyncio.to_thread(gate.wait_stopped)
            began, error = time.monotonic(), None
            try:
                await producer.send(Message(topic, name.encode()))
            except SendFailed as failed:
                error = failed
            noted(ends, name, time.monotonic() - began, error)

    asyncio.run(send())


async def copies_in(client: Client, producer: Producer, topic: str, ends: Mapping[str, str]) -> Counter[str]:
    """Returns how often each body is in the topic's queue, when the broker has stored all that had reached it.

    Messages that were sent after those of the calls are stored after them; a transaction is delivered after its end.
    """
    queue = MessageQueue(topic, "broker-a", 0)
    async with PullConsumer("counting", client=client, timeout=15) as consumer:
        with trio.fail_after(60):
            while True:
                fences = [await producer.send(Message(topic, b"fence"), queue=queue, timeout=20) for _ in range(3)]
                end = fences[-1].queue_offset + 1
                copies = Counter(message.body.decode() for message in await read_to(consumer, queue, end))
                if all(copies[name] for name, error in ends.items() if not error):
                    return copies


async def read_to(consumer: PullConsumer, queue: MessageQueue, end: int) -> list[MessageExt]:
    messages: list[MessageExt] = []
    async with consumer.read(queue, 0, end) as pulls:
        async for pull in pulls:
            messages += decode(pull, OffsetRange(pull.start, pull.next_offset))
    return messages


def outcomes(names: Iterable[str], pause: float) -> dict[str, str]:
    """Returns what `docs/producer.md` says of each call: one copy, and an error if the pause outlasts the time-out."""
    if pause < SEND_SECONDS:
        return dict.fromkeys(names, "1")
    ends = {"`send_oneway`": "1", "Java: `sendOneway(msg)`": "1"}
    # the listener's checks decide about a half message
    ends |= {"`send_in_transaction`": "error, 0", "Java: `sendMessageInTransaction`": "error, 0"}
    return {name: ends.get(name, "error, 1") for name in names}
