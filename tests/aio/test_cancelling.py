"""Cancelled tasks and time-outs: the call ends on the library's loop, and no element or room is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from pyrmq_core import InvalidState, Message, MessageQueue, SendFailed
from pyrmq_core.aio import LitePullConsumer, Producer, PullConsumer
from pyrmq_core.aio.face import LoopElements
from pyrmq_core.aio.loop_returns import on_library_loop
from pyrmq_core.aio.producer import CALLS_BETWEEN_TURNS
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.loop_thread.portal import portal
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from tests.support.held_loop import held_loop
from tests.support.scripted import PULL, SEND, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)


def test_a_cancelled_call_has_ended_when_its_task_ends() -> None:
    ends: list[str] = []

    async def call(begun: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.call_soon_threadsafe(begun.set)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
            ends.append("ended")

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(on_library_loop(call, begun, asyncio.get_running_loop()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ends == ["ended"]

    asyncio.run(main(), debug=True)


def test_a_call_that_was_cancelled_before_it_began() -> None:
    async def main() -> None:
        running_for_others = set(portal()._started)
        task = asyncio.create_task(on_library_loop(trio.sleep_forever))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert portal()._started <= running_for_others

    asyncio.run(main())


@pytest.mark.parametrize("batching", [False, True])
def test_a_send_that_times_out_keeps_no_room(stage: Stage, batching: bool) -> None:
    async def main() -> None:
        async with Producer(
            "g", nameserver=stage.nameserver.address, max_in_flight=1, batching=batching, send_timeout=600
        ) as producer:
            await producer.send(Message("orders", b"first"))
            parts = (await producer._async())._parts
            assert parts is not None
            for name in stage.brokers:
                stage.brokers[name].always(SEND, silence)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await producer.send(Message("orders", b"x"), timeout=600)
            await on_library_loop(trio.lowlevel.checkpoint)
            assert parts.longest_seconds(portal().now()) == 0, "the request is still waited for"
            for name in stage.brokers:
                stage.brokers[name].always(SEND, stage.stores[name])
            await (await producer.send_soon(Message("orders", b"y")))
            assert not parts.in_flight._entered

    asyncio.run(main())


def test_a_send_that_is_cancelled_before_it_is_written_is_withdrawn(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            await producer.send(Message("orders", b"first"), queue=A0)
            with held_loop():
                task = asyncio.create_task(producer.send(Message("orders", b"x"), queue=A0))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await producer.send(Message("orders", b"y"), queue=A0)).queue_offset == 1

    asyncio.run(main())
    assert b"x" not in stage.stored_bodies()


def test_a_task_cancelled_while_it_waits_for_room(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address, max_in_flight=1) as producer:
            await producer.send(Message("orders", b"first"))
            stage.brokers["broker-a"].always(SEND, silence)
            under_way = await producer.send_soon(Message("orders", b"x"), queue=A0, timeout=1)
            waiting = asyncio.create_task(producer.send_soon(Message("orders", b"y"), queue=A0))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(SendFailed):
                await under_way
            stage.brokers["broker-a"].always(SEND, stage.stores["broker-a"])
            await (await producer.send_soon(Message("orders", b"z"), queue=A0, wait=False))

    asyncio.run(main())
    assert b"y" not in stage.stored_bodies()


def test_a_task_cancelled_at_the_turn_of_others_keeps_no_room(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address, max_in_flight=1) as producer:
            await producer.send(Message("orders", b"first"))
            producer._sent = CALLS_BETWEEN_TURNS - 1
            task = asyncio.create_task(producer.send_soon(Message("orders", b"x")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await (await producer.send_soon(Message("orders", b"y"), wait=True, timeout=5))

    asyncio.run(main())
    assert b"x" not in stage.stored_bodies()


def test_a_cancelled_future_leaves_its_send_alone(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            (await producer.send_soon(Message("orders", b"x"))).cancel()
            await (await producer.send_soon(Message("orders", b"y")))

    asyncio.run(main())
    assert stage.stored_bodies() == {b"x", b"y"}


def test_a_block_that_was_cancelled_abandons_its_calls(stage: Stage) -> None:
    async def work() -> None:
        async with PullConsumer("c", nameserver=stage.nameserver.address, timeout=600) as consumer:
            await consumer.pull(A0, 0, wait=600)

    async def main() -> None:
        pulled, loop = asyncio.Event(), asyncio.get_running_loop()

        def pull(request: Command, peer: Peer) -> None:
            loop.call_soon_threadsafe(pulled.set)

        stage.brokers["broker-a"].always(PULL, pull)
        task = asyncio.create_task(work())
        await pulled.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_an_opening_that_was_cancelled_is_abandoned(stage: Stage) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        try:
            opened.append("opening")
            await trio.sleep(600)
            yield
        finally:
            opened.append("ended")

    async def main() -> None:
        producer = Producer("g", nameserver=stage.nameserver.address)
        make = producer._make
        producer._make = lambda _: slow()  # type: ignore[assignment,return-value]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), producer:
                opened.append("open")
        assert opened == ["opening", "ended"]
        producer._make = make
        await producer.send(Message("orders", b"x"))  # a new attempt
        await producer.close()
        with pytest.raises(InvalidState):
            await producer.open()

    asyncio.run(main())


def test_an_element_whose_wait_was_cancelled_comes_with_the_next() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await trio.sleep(0.05)
            yield number

    async def main() -> None:
        elements, values = LoopElements(numbers()), []
        while True:
            try:
                async with asyncio.timeout(0.01):
                    values.append(await elements.next())
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        assert values == [0, 1, 2]

    asyncio.run(main())


def test_polls_that_time_out_lose_no_message() -> None:
    async def main(nameserver: str) -> None:
        async with (
            Producer("g", nameserver=nameserver) as producer,
            LitePullConsumer("reader", nameserver=nameserver) as consumer,
        ):
            queues = await producer.message_queues("orders")
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            bodies: list[bytes] = []

            async def send() -> None:
                for number in range(200):
                    await producer.send(Message("orders", b"%d" % number), queue=queues[0])

            sending = asyncio.create_task(send())
            timed_out, seconds = 0, 0.001
            while len(bodies) < 200:
                try:
                    async with asyncio.timeout(seconds):
                        bodies += [message.body for message in await consumer.poll(30)]
                    seconds = 0.001
                except TimeoutError:
                    timed_out, seconds = timed_out + 1, 2 * seconds
            assert timed_out
            await sending
            assert bodies == [b"%d" % number for number in range(200)]

    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        asyncio.run(main(cluster.nameserver))
