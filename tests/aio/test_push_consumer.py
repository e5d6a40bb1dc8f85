"""The asyncio `PushConsumer`: handlers as tasks of the user's loop, the ends of `run`, and iteration."""

import asyncio
import contextvars
import re
import threading
from collections.abc import Iterator, Sequence

import pytest

from pyrmq_core import ConsumeFromWhere, ConsumeLater, InvalidState, Message, MessageExt
from pyrmq_core.aio import Admin, Client, Producer, PullConsumer, PushConsumer
from pyrmq_core.aio.loop_returns import on_library_loop
from pyrmq_core.blocking import EmbeddedCluster

FIRST = ConsumeFromWhere.FIRST_OFFSET
Messages = Sequence[MessageExt]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "_", request.node.name)


async def sent(cluster: EmbeddedCluster, topic: str, count: int) -> set[bytes]:
    """Creates the topic with two queues on each broker, and sends so many messages."""
    async with Client(nameserver=cluster.nameserver) as client:
        async with Admin(client=client) as admin:
            await admin.create_topic(topic, queues=2)
        async with Producer("senders", client=client) as producer:
            for number in range(count):
                await producer.send_soon(Message(topic, b"%d" % number))
    return {b"%d" % number for number in range(count)}


async def committed(cluster: EmbeddedCluster, group: str, topic: str) -> int:
    async with PullConsumer(group, nameserver=cluster.nameserver) as consumer:
        offsets = await consumer.committed_offsets(await consumer.message_queues(topic))
        return sum(offset or 0 for offset in offsets.values())


@pytest.mark.parametrize("orderly", [False, True])
def test_a_coroutine_handler_runs_on_the_users_loop(cluster: EmbeddedCluster, topic: str, orderly: bool) -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen")

    async def main() -> None:
        bodies = await sent(cluster, topic, 100)
        loop, arrivals = asyncio.get_running_loop(), list[bytes]()
        seen.set("by handlers")
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)

            async def handler(messages: Messages) -> None:
                assert (asyncio.get_running_loop(), seen.get()) == (loop, "by handlers")
                await asyncio.sleep(0.001)
                arrivals.extend(message.body for message in messages)
                assert consumer.assigned_queues
                if len(arrivals) == len(bodies):
                    with pytest.raises(InvalidState, match="cannot close"):
                        await consumer.close()
                    await consumer.stop()

            await consumer.run(handler, orderly=orderly)
        assert (set(arrivals), len(arrivals)) == (bodies, len(bodies))
        assert await committed(cluster, topic, topic) == len(bodies)

    asyncio.run(main(), debug=True)


def test_as_many_handlers_run_at_once_as_the_setting_says(cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        await sent(cluster, topic, 12)
        at_work = most = done = 0
        together = asyncio.Barrier(4)
        async with PushConsumer(
            topic, nameserver=cluster.nameserver, consume_from_where=FIRST, consume_threads=4
        ) as consumer:
            await consumer.subscribe(topic)

            async def handler(messages: Messages) -> None:
                nonlocal at_work, most, done
                at_work += 1
                most = max(most, at_work)
                async with asyncio.timeout(30):
                    await together.wait()
                at_work -= 1
                done += 1
                if done == 12:
                    await consumer.stop()

            await consumer.run(handler)
        assert most == 4

    asyncio.run(main())


def test_a_plain_handler_runs_in_threads(cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        await sent(cluster, topic, 3)
        threads: set[int] = set()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)

            def handler(messages: Messages) -> None:
                threads.add(threading.get_ident())
                loop.call_soon_threadsafe(done.set)

            running = asyncio.create_task(consumer.run(handler))
            await done.wait()
            await consumer.stop()
            await running
        assert threads
        assert threading.get_ident() not in threads

    asyncio.run(main())


def test_a_message_whose_handler_raises_comes_again(cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        await sent(cluster, topic, 1)
        tries: list[int] = []
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)

            async def handler(messages: Messages) -> None:
                tries.append(messages[0].reconsume_times)
                if len(tries) == 1:
                    raise ConsumeLater(1)
                await consumer.stop()

            await consumer.run(handler)
        assert tries == [0, 1]

    asyncio.run(main())


@pytest.mark.parametrize("way", ["cancelled", "stopped at once", "task cancelled by hand"])
def test_a_handler_that_is_cancelled_leaves_its_message(cluster: EmbeddedCluster, topic: str, way: str) -> None:
    async def main() -> None:
        await sent(cluster, topic, 1)
        begun, ends = asyncio.Event(), list[str]()
        tasks: list[asyncio.Task[None] | None] = []
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)

            async def handler(messages: Messages) -> None:
                tasks.append(asyncio.current_task())
                begun.set()
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    await asyncio.sleep(0.01)
                    ends.append("cancelled")
                    raise

            running = asyncio.create_task(consumer.run(handler))
            await begun.wait()
            if way == "cancelled":
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            elif way == "stopped at once":
                await consumer.stop(0)
                await running
            else:
                assert tasks[0] is not None
                tasks[0].cancel()
                await consumer.stop(1)
                await running
            assert ends == ["cancelled"]
        assert await committed(cluster, topic, topic) == 0

    asyncio.run(main())


def test_a_loop_that_closes_stops_the_consumer(
    cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's task can never end; the consumer leaves its group all the same, and says why."""
    begun = threading.Event()
    consumer = PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST)

    async def handler(messages: Messages) -> None:
        begun.set()
        await asyncio.sleep(600)

    async def begin() -> None:
        await sent(cluster, topic, 1)
        await consumer.subscribe(topic)
        tasks.append(asyncio.create_task(consumer.run(handler)))
        await asyncio.to_thread(begun.wait, 30)

    async def look() -> None:
        async with asyncio.timeout(30):
            await on_library_loop((await consumer._async())._ended.wait)
        await consumer.close()
        assert await committed(cluster, topic, topic) == 0

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    asyncio.run(look())
    assert "asyncio loop of its handler was closed" in caplog.text
    for task in left:  # the test's own: nothing can end them now
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()


@pytest.mark.parametrize("orderly", [False, True])
def test_iteration_under_time_outs_loses_nothing(cluster: EmbeddedCluster, topic: str, orderly: bool) -> None:
    async def main() -> None:
        bodies = await sent(cluster, topic, 60)
        arrivals: list[bytes] = []
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)
            deliveries = consumer.deliveries(orderly=orderly)
            while len(arrivals) < len(bodies):
                try:
                    async with asyncio.timeout(0.003):
                        delivery = await anext(deliveries)
                except TimeoutError:
                    continue
                async with delivery as message:
                    arrivals.append(message.body)
            await consumer.stop()
            assert [delivery async for delivery in deliveries] == []
        assert (set(arrivals), len(arrivals)) == (bodies, len(bodies))
        assert await committed(cluster, topic, topic) == len(bodies)

    asyncio.run(main())


def test_several_tasks_iterate_and_failures_come_again(cluster: EmbeddedCluster, topic: str) -> None:
    async def main() -> None:
        bodies = await sent(cluster, topic, 40)
        arrivals: list[bytes] = []
        async with PushConsumer(topic, nameserver=cluster.nameserver, consume_from_where=FIRST) as consumer:
            await consumer.subscribe(topic)

            deliveries = consumer.deliveries()

            async def work() -> None:
                async for delivery in deliveries:
                    async with delivery as message:
                        if message.body == b"7" and not message.reconsume_times:
                            raise ConsumeLater(1)
                        arrivals.append(message.body)
                        if len(arrivals) == len(bodies):
                            stop.set()

            stop = asyncio.Event()
            workers = [asyncio.create_task(work()) for _ in range(5)]
            await stop.wait()
            await consumer.stop()
            await asyncio.gather(*workers)
        assert (set(arrivals), arrivals[-1], len(arrivals)) == (bodies, b"7", len(bodies))

    asyncio.run(main())
