"""The broker for taskiq: taskiq's own receiver takes tasks from the embedded cluster, whose requests are seen."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from taskiq import BrokerMessage, Context, SmartRetryMiddleware, TaskiqDepends, TaskiqMiddleware
from taskiq.acks import AcknowledgeType
from taskiq.api import run_receiver_task
from taskiq.exceptions import SendTaskError

from pyrmq_core.aio import PopConsumer, PopDelivery
from pyrmq_core.aio.loop_returns import on_library_loop
from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.errors import InvalidArgument, InvalidMessage, InvalidState, ResponseError
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.testing import PASS
from pyrmq_core.tools import taskiq as taskiq_broker
from pyrmq_core.tools.taskiq import RocketMQBroker, _HeldTask, message_of

EXAMPLE = Path(__file__).parent.parent / "examples" / "task_queue.py"
SECONDS = 60.0
ACKS = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE)
CONTEXT: Any = TaskiqDepends()
Log = list[str]


class Requests:
    """Counts requests with these codes, and refuses the first ones. The cluster's thread sees them."""

    def __init__(self, cluster: EmbeddedCluster, *codes: int, refuse: int = 0) -> None:
        self.count = 0
        self.came = threading.Event()
        self._refuse = refuse
        self._rules = [cluster.control(code, self._see) for code in codes]

    async def _see(self, request: Command, peer: object) -> Any:
        self.count += 1
        if self.count <= self._refuse:
            return refusal(ResponseCode.SYSTEM_BUSY, "busy")
        self.came.set()
        return PASS

    def __enter__(self) -> Requests:
        return self

    def __exit__(self, *_: object) -> None:
        for rule in self._rules:
            rule.remove()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.came.wait, SECONDS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> str:
    name: str = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic(name, queues=4)
    return name


@pytest.fixture
def acks(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[Requests]:
    with Requests(cluster, *ACKS, refuse=getattr(request, "param", 0)) as requests:
        yield requests


@asynccontextmanager
async def started(cluster: EmbeddedCluster, topic: str, **settings: Any) -> AsyncIterator[RocketMQBroker]:
    broker = RocketMQBroker(topic, topic, nameserver=cluster.nameserver, **settings)
    await broker.startup()
    try:
        yield broker
    finally:
        await broker.shutdown()


@asynccontextmanager
async def working(broker: RocketMQBroker, ack_type: AcknowledgeType | None = None) -> AsyncIterator[None]:
    """Runs taskiq's receiver, as `taskiq worker` does in its process."""
    receiver = asyncio.create_task(run_receiver_task(broker, ack_time=ack_type))
    try:
        yield
    finally:
        receiver.cancel()
        with suppress(asyncio.CancelledError):
            await receiver


@pytest.mark.parametrize("acks", [1], indirect=True)  # refused first
def test_a_task_runs_once_and_is_acknowledged_though_the_first_try_fails(
    cluster: EmbeddedCluster, acks: Requests, topic: str
) -> None:
    runs = Log()

    async def main() -> None:
        async with started(cluster, topic) as broker:

            @broker.task
            async def greet(name: str) -> None:
                runs.append(name)

            async with working(broker):
                await greet.kiq("ann")
                await acks.wait()

    asyncio.run(main())
    assert runs == ["ann"]
    assert acks.count == 2


def test_a_task_is_extended_even_while_it_blocks_the_loop(cluster: EmbeddedCluster, acks: Requests, topic: str) -> None:

    async def main(extensions: Requests) -> None:
        async with started(cluster, topic, invisible=6) as broker:  # three seconds are left

            @broker.task
            async def block() -> None:
                assert extensions.came.wait(SECONDS)  # the loop stands still

            async with working(broker):
                await block.kiq()
                await acks.wait()

    with Requests(cluster, RequestCode.CHANGE_MESSAGE_INVISIBLETIME) as extensions:
        asyncio.run(main(extensions))
    assert extensions.count > 0


@pytest.mark.parametrize("kind", [kind for kind in AcknowledgeType if kind is not AcknowledgeType.MANUAL])
def test_a_task_is_acknowledged_when_its_type_says(
    cluster: EmbeddedCluster, acks: Requests, topic: str, kind: AcknowledgeType
) -> None:
    counts, saved = dict[str, int](), asyncio.Event()

    class Looks(TaskiqMiddleware):
        def post_execute(self, *_: Any) -> None:
            counts["executed"] = acks.count

        def post_save(self, *_: Any) -> None:
            counts["saved"] = acks.count
            saved.set()

    async def main() -> None:
        async with started(cluster, topic) as broker:
            broker.add_middlewares(Looks())

            @broker.task
            async def look() -> None:
                counts["running"] = acks.count

            async with working(broker, kind):
                await look.kiq()
                await acks.wait()
                await saved.wait()

    asyncio.run(main())
    acknowledged = [name for name, count in counts.items() if count]
    assert (
        acknowledged
        == {
            AcknowledgeType.WHEN_RECEIVED: ["running", "executed", "saved"],
            AcknowledgeType.WHEN_EXECUTED: ["executed", "saved"],
            AcknowledgeType.WHEN_SAVED: [],
        }[kind]
    )


@pytest.mark.parametrize("ends", ["without an acknowledgement", "with an error of a middleware"])
def test_a_task_that_is_not_acknowledged_runs_again(
    cluster: EmbeddedCluster, acks: Requests, topic: str, ends: str
) -> None:
    """Its receiver is done with it, so it is extended no more."""
    runs = Log()
    is_manual = ends == "without an acknowledgement"

    class Fails(TaskiqMiddleware):
        def post_execute(self, *_: Any) -> None:
            if len(runs) == 1 and not is_manual:
                raise ValueError("of the middleware")

    async def main() -> None:
        async with started(cluster, topic, invisible=1) as broker:
            broker.add_middlewares(Fails())

            @broker.task
            async def count(context: Context = CONTEXT) -> None:
                runs.append(context.message.task_id)
                if is_manual and len(runs) > 1:
                    await context.ack()

            async with working(broker, AcknowledgeType.MANUAL if is_manual else None):
                await count.kiq()
                await acks.wait()

    asyncio.run(main())
    assert len(runs) > 1
    assert len(set(runs)) == 1


def test_a_worker_that_shuts_down_gives_its_unfinished_tasks_back(
    cluster: EmbeddedCluster, acks: Requests, topic: str
) -> None:
    """They would be invisible for ten minutes."""

    async def main() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async with started(cluster, topic, invisible=600) as other:
            async with started(cluster, topic, invisible=600) as first:

                @first.task("wait")
                async def wait() -> None:
                    began.set()
                    await ended.wait()

                async with working(first):
                    await wait.kiq()
                    await began.wait()

            assert acks.count == 0

            @other.task("wait")
            async def end() -> None:
                ended.set()

            async with working(other):
                await acks.wait()
                assert ended.is_set()

    asyncio.run(main())


def test_giving_back_waits_for_a_sent_extension(cluster: EmbeddedCluster, topic: str) -> None:
    """The extension's answer has a new receipt: the one before it gives nothing back any more."""
    receipts = list[str]()
    came, go = threading.Event(), trio.Event()

    async def hold(request: Command, peer: object) -> Any:
        receipts.append(request.ext["extraInfo"])
        came.set()
        await go.wait()
        return PASS

    async def main() -> None:
        async with started(cluster, topic) as broker, PopConsumer(topic, nameserver=cluster.nameserver) as consumer:
            await broker.kick(BrokerMessage(task_id="1", task_name="n", message=b"body", labels={}))
            deliveries: list[PopDelivery] = []
            while not deliveries:
                deliveries = await consumer.receive(topic, 1, 600)
            (delivery,) = deliveries
            delivery._delivery._half_over_at = 0.0  # so it is extended now
            held = _HeldTask(delivery, 600, set())
            assert await asyncio.to_thread(came.wait, SECONDS)
            giving = asyncio.create_task(held.give_back())
            await on_library_loop(trio.lowlevel.checkpoint)
            await on_library_loop(set_go)
            await giving

    async def set_go() -> None:
        go.set()

    rule = cluster.control(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, hold)
    asyncio.run(main())
    rule.remove()
    extended, given_back = receipts
    assert extended != given_back


def test_a_task_that_the_end_of_its_loop_cancels_is_given_back(
    cluster: EmbeddedCluster, acks: Requests, topic: str
) -> None:
    """Ctrl-C cancels every task of the loop like this."""
    began = asyncio.Event()
    first = RocketMQBroker(topic, topic, nameserver=cluster.nameserver, invisible=600)

    @first.task("wait")
    async def wait() -> None:
        began.set()
        await asyncio.Event().wait()

    async def interrupted() -> asyncio.Task[None]:
        await first.startup()
        receiver = asyncio.create_task(run_receiver_task(first))
        await wait.kiq()
        await began.wait()
        return receiver

    async def main() -> None:
        async with started(cluster, topic) as other:
            ended = asyncio.Event()

            @other.task("wait")
            async def end() -> None:
                ended.set()

            async with working(other):
                await asyncio.wait_for(ended.wait(), SECONDS)
                await acks.wait()

    assert asyncio.run(interrupted()).cancelled()
    assert acks.count == 0
    asyncio.run(main())
    asyncio.run(first.shutdown())


def test_a_task_that_failed_is_sent_anew_after_its_delay(cluster: EmbeddedCluster, acks: Requests, topic: str) -> None:
    times = list[float]()

    async def main() -> None:
        done = asyncio.Event()
        async with started(cluster, topic) as broker:
            broker.add_middlewares(SmartRetryMiddleware(default_delay=1, default_retry_label=True))

            @broker.task
            async def fail_once() -> None:
                times.append(time.monotonic())
                if len(times) == 1:
                    raise ValueError("the first time")
                done.set()

            async with working(broker):
                await fail_once.kiq()
                await asyncio.wait_for(done.wait(), SECONDS)
                await acks.wait()

    asyncio.run(main())
    first, second = times
    assert second - first > 0.5


def test_labels_choose_delay_and_priority() -> None:
    def sent(**labels: Any) -> tuple[timedelta | None, int | None]:
        message = message_of("t", BrokerMessage(task_id="id 7", task_name="n", message=b"body", labels=labels))
        assert (message.topic, message.body, message.keys) == ("t", b"body", "id 7")
        return message.delay, message.priority

    assert sent() == (None, None)
    assert sent(priority="7", delay="0") == (None, 7)
    assert sent(priority=0) == (None, 0)
    assert sent(delay="2.5", priority=3) == (timedelta(seconds=2.5), None)


@pytest.mark.parametrize(
    ("label", "value"), [("delay", "soon"), ("delay", "inf"), ("delay", "nan"), ("priority", "high"), ("priority", 2.9)]
)
def test_a_label_that_is_no_number_is_named(label: str, value: object) -> None:
    with pytest.raises(InvalidMessage, match=f"label {label} is {value!r}; it has to be a "):
        message_of("t", BrokerMessage(task_id="i", task_name="n", message=b"body", labels={label: value}))


def test_the_id_of_a_task_cannot_write_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    # Each producer of the topic chooses it.
    taskiq_broker.log.warning("task %s ended", "1\nWARNING all is well")
    assert caplog.messages == [r"task 1\nWARNING all is well ended"]


def test_wrong_arguments_and_sends_before_the_start_are_refused(cluster: EmbeddedCluster, topic: str) -> None:
    for wrong in ({"nameserver": "127.0.0.1:0"}, {"invisible": 0}, {"max_reconsume_times": -1}, {"color": "red"}):
        with pytest.raises((InvalidArgument, TypeError)):
            RocketMQBroker(topic, **wrong)
    broker = RocketMQBroker(topic, nameserver=cluster.nameserver)

    @broker.task
    async def never() -> None: ...

    with pytest.raises(SendTaskError) as refused:
        asyncio.run(never.kiq())
    assert isinstance(refused.value.__cause__, InvalidState)


def test_a_refusal_that_no_later_try_changes_is_raised(cluster: EmbeddedCluster, topic: str) -> None:
    """taskiq's receiver then starts and listens again. A pause keeps that from a loop, and the producer stays."""
    times = list[float]()
    again = threading.Event()

    async def refuse(request: Command, peer: object) -> Command:
        times.append(time.monotonic())
        if len(times) > 2:
            again.set()
        return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "a broker before 5.0")

    async def main() -> None:
        async with started(cluster, topic) as broker:
            with pytest.raises(ResponseError):
                await asyncio.wait_for(anext(broker.listen()), SECONDS)
            producer = broker._producer
            receiver = asyncio.create_task(run_receiver_task(broker, run_startup=True))
            assert await asyncio.to_thread(again.wait, SECONDS)
            assert broker._producer is producer
        await asyncio.wait([receiver], timeout=SECONDS)  # the shutdown ends it
        assert receiver.cancelled()
        assert broker._consumer is None

    rule = cluster.control(RequestCode.POP_MESSAGE, refuse)
    asyncio.run(main())
    rule.remove()
    assert times[2] - times[1] > 0.5


def test_the_task_of_a_killed_worker_runs_again(cluster: EmbeddedCluster) -> None:
    """The example, which kills the first of two workers that begins a task."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), cluster.nameserver, "2"],
        env=os.environ | {"TASK_SECONDS": "5"},  # time enough to kill the worker that printed a line
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    (killed,) = [line.split()[1] for line in lines if line.startswith("killed ")]
    assert lines.count(f"begins {killed}") > 1
    assert {line.split()[1] for line in lines if line.startswith("ends ")} == {str(number) for number in range(8)}
