"""Every call in an asyncio program: the same results and errors as under trio, from the first use to the end."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
import trio

from pyrmq_core import (
    AnyQueue,
    InvalidArgument,
    InvalidMessage,
    InvalidState,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    NoRoute,
    PullStatus,
    RocketMQError,
    SendFailed,
    SendResult,
    WindowFull,
    blocking,
    encode_one,
    unique_ids,
)
from pyrmq_core.aio import Admin, Client, LitePullConsumer, Producer, PullConsumer
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.client.service_state import ServiceState
from tests.support.scripted import SEND, refuse, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
B3 = MessageQueue("orders", "broker-b", 3)

Program = Callable[[], Coroutine[Any, Any, None]]


def test_send(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            result = await producer.send(Message("orders", b"x", tags="t"), queue=B3, timeout=5)
            assert result.message_queue == B3
            chosen = await producer.send(Message("orders", b"y"), select=lambda queues, _: queues[-1])
            assert chosen.message_queue == B3
            await producer.send_oneway(Message("orders", b"z"), queue=B3)
            assert (await producer.send(Message("orders", b"last"), queue=B3)).queue_offset == 3
            results = await producer.send_batch([Message("orders", b"b")] * 3, queue=A0)
            assert [outcome.queue_offset for outcome in results] == [0, 1, 2]

    asyncio.run(main(), debug=True)
    assert [stored.body for stored in stage.stores["broker-b"].queues["orders", 3]] == [b"x", b"y", b"z", b"last"]


def test_send_soon_gives_a_future_of_this_loop(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            futures = [await producer.send_soon(Message("orders", b"%d" % number)) for number in range(200)]
            assert all(future.get_loop() is asyncio.get_running_loop() for future in futures)
            results = await asyncio.gather(*futures)
            assert all(isinstance(result, SendResult) for result in results)
            chosen = await producer.send_soon(Message("orders", b"y"), select=lambda queues, _: queues[0])
            assert (await chosen).message_queue == A0
            batch = await producer.send_batch_soon([Message("orders", b"b")] * 3)
            assert len(await batch) == 3

    asyncio.run(main())
    assert len(stage.stored("orders")) == 204


def test_a_task_that_only_sends_lets_others_run(stage: Stage) -> None:
    async def main() -> None:
        turns, stop = 0, asyncio.Event()

        async def other() -> None:
            nonlocal turns
            while not stop.is_set():
                turns += 1
                await asyncio.sleep(0)

        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            await producer.send(Message("orders", b"first"))
            task = asyncio.create_task(other())
            await asyncio.sleep(0)
            before = turns
            for _ in range(640):
                await producer.send_soon(Message("orders", b"x"))
            assert turns - before >= 10
            stop.set()
            await task

    asyncio.run(main())


def test_a_full_window(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address, max_in_flight=1) as producer:
            await producer.send(Message("orders", b"first"))
            stage.brokers["broker-a"].on(SEND, silence)
            first = await producer.send_soon(Message("orders", b"x"), queue=A0, timeout=0.5)
            with pytest.raises(WindowFull):
                await producer.send_soon(Message("orders", b"y"), queue=A0, wait=False)
            waiting = asyncio.create_task(producer.send_soon(Message("orders", b"z"), queue=A0))
            with pytest.raises(SendFailed):
                await first
            await (await waiting)

    asyncio.run(main())
    assert {b"x", b"y"}.isdisjoint(stage.stored_bodies())


def test_errors_are_those_of_the_trio_face(stage: Stage) -> None:
    async def main() -> None:
        with pytest.raises(InvalidArgument):
            Producer("g", nameserver=stage.nameserver.address, send_timeout=-1)
        with pytest.raises(InvalidArgument, match=r"a pyrmq_core\.aio\.Client"):
            Producer("g", client=blocking.Client(nameserver=stage.nameserver.address))  # type: ignore[arg-type]
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            with pytest.raises(InvalidMessage):
                await producer.send(Message("a b", b"x"))
            with pytest.raises(NoRoute):
                await producer.send(Message("unknown", b"x"))
            stage.brokers["broker-a"].always(SEND, refuse(13))
            for future in [await producer.send_soon(Message("orders", b"x"), queue=A0) for _ in range(2)]:
                with pytest.raises(SendFailed):
                    await future
        with pytest.raises(InvalidState, match="closed"):
            await producer.send(Message("orders", b"x"))
        with pytest.raises(RocketMQError):
            async with Producer("g", nameserver="127.0.0.1:1") as other:
                await other.send(Message("orders", b"x"), timeout=0.5)

    asyncio.run(main())


def test_the_first_call_opens_and_states_are_told(stage: Stage) -> None:
    async def main() -> None:
        client = Client(nameserver=stage.nameserver.address)
        with pytest.raises(InvalidState, match="open"):
            client.client_id  # noqa: B018 - it raises
        producer = Producer("g", client=client)
        assert producer.state is ServiceState.CREATE_JUST
        results = await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(5)))
        assert len(results) == 5
        assert client.client_id.startswith("127.") or "@" in client.client_id
        assert (producer.state, client.state) == (ServiceState.RUNNING, ServiceState.RUNNING)
        await producer.close()
        await producer.close()
        await client.close()
        assert (producer.state, client.state) == (ServiceState.SHUTDOWN_ALREADY, ServiceState.SHUTDOWN_ALREADY)

    asyncio.run(main())


def test_without_an_asyncio_loop_it_is_refused_by_name(stage: Stage) -> None:
    producer = Producer("g", nameserver=stage.nameserver.address)

    async def main() -> None:
        with pytest.raises(InvalidState, match="no asyncio loop runs here"):
            await producer.open()

    trio.run(main)


def test_reading(stage: Stage) -> None:
    async def main() -> None:
        async with Client(nameserver=stage.nameserver.address) as client:
            async with Producer("g", client=client) as producer:
                for number in range(100):
                    await producer.send_soon(Message("orders", b"%d" % number), queue=A0)
            async with PullConsumer("c", client=client) as consumer:
                assert len(await consumer.message_queues("orders")) == 8
                assert await consumer.max_offset(A0) == 100
                pulled = await consumer.pull(A0, 0)
                assert pulled.status is PullStatus.FOUND
                async with consumer.read(A0, 0, 100) as pulls:
                    offsets = [(pull.start, pull.next_offset) async for pull in pulls]
                assert (offsets[0][0], offsets[-1][1]) == (0, 100)
                async with consumer.read_joined(A0, 0, 100) as lists:
                    assert sum([len(pulls) async for pulls in lists]) == len(offsets)
                async with consumer.read_arrow(A0, 0, 100) as batches:
                    assert sum([batch.num_rows async for batch in batches]) == 100
                with pytest.raises(InvalidState, match="block"):
                    await anext(consumer.read(A0, 0, 100))
                await consumer.commit(A0, 7)
                assert await consumer.committed(A0) == 7

    asyncio.run(main(), debug=True)


def test_a_window(stage: Stage) -> None:
    async def main() -> None:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            ids = unique_ids(50)
            async with producer.open_window(max_requests=2, max_bytes=100) as window:
                for number in range(50):
                    await window.put(encode_one(Message("orders", b"%020d" % number), ids[number]), AnyQueue())
                summary = await window.drain()
                assert (summary.messages, window.summary.requests) == (50, 50)
                assert window.take_refused() == []

    asyncio.run(main())
    assert len(stage.stored("orders")) == 50


@pytest.fixture(scope="module")
def cluster() -> Any:
    with EmbeddedCluster(topics={"lite": 2, "paid": 1, "replies": 1}) as cluster:
        yield cluster


def test_lite_pull_and_admin(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        async with Admin(nameserver=cluster.nameserver) as admin:
            assert "lite" in await admin.topics.list()
            assert len((await admin.topics.stats("lite")).queues) == 2
            assert await admin.brokers.list()
        async with Producer("g", nameserver=cluster.nameserver) as producer:
            queues = await producer.message_queues("lite")
            for number in range(10):
                await producer.send(Message("lite", b"%d" % number), queue=queues[number % 2])
        async with LitePullConsumer("reader", nameserver=cluster.nameserver) as consumer:
            assert consumer.assigned_queues == ()
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            await consumer.pause([queues[0]])
            bodies: list[bytes] = []
            while len(bodies) < 5:
                bodies += [message.body for message in await consumer.poll()]
            await consumer.resume([queues[0]])
            while len(bodies) < 10:
                bodies += [message.body for message in await consumer.poll()]
            assert set(bodies) == {b"%d" % number for number in range(10)}
            assert set(consumer.assigned_queues) == set(queues)
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [5, 5]

    asyncio.run(main())


class Listener:
    """A listener whose function waits for something of asyncio's."""

    def __init__(self) -> None:
        self.checked = asyncio.Event()

    async def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        await asyncio.sleep(0)
        self.checked.set()
        return LocalTransactionState.COMMIT_MESSAGE


def test_transactions_call_functions_on_the_users_loop(cluster: EmbeddedCluster) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def local(message: Message, result: SendResult) -> LocalTransactionState:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            return LocalTransactionState.COMMIT_MESSAGE

        listener = Listener()
        async with Producer("payers", nameserver=cluster.nameserver, transaction_listener=listener) as producer:
            sent = await producer.send_in_transaction(Message("paid", b"x"), local)
            assert sent.local_transaction_state is LocalTransactionState.COMMIT_MESSAGE
            plain = await producer.send_in_transaction(
                Message("paid", b"y"), lambda *_: LocalTransactionState.ROLLBACK_MESSAGE
            )
            assert plain.local_transaction_state is LocalTransactionState.ROLLBACK_MESSAGE
            failed = await producer.send_in_transaction(Message("paid", b"z"), lambda *_: 1 / 0)  # type: ignore[arg-type]
            assert isinstance(failed.error, ZeroDivisionError)

    asyncio.run(main())


def test_a_broker_that_checks_reaches_a_coroutine_listener() -> None:
    settings = {"transactionCheckInterval": "200", "transactionTimeOut": "0"}

    async def main(nameserver: str) -> None:
        listener = Listener()
        async with Producer("checked", nameserver=nameserver, transaction_listener=listener) as producer:
            await producer.begin_transaction(Message("paid", b"x"))
            async with asyncio.timeout(timedelta(seconds=30).total_seconds()):
                await listener.checked.wait()

    with EmbeddedCluster(topics={"paid": 1}, settings=settings) as cluster:
        asyncio.run(main(cluster.nameserver))
