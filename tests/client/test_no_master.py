"""Sends while the brokers of a topic have only slaves, as during the election of a master: they wait for one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, KeyedQueue, Message, MessageQueue, NoRoute, Outcome, Producer, SendFailed
from pyrmq_core.client.producer.send.receipt import Receipt
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.model import Permission
from tests.client.sends import payload
from tests.support.scripted import SEND, route_of, silence
from tests.support.stage import AUTO_CREATE, Stage, settled, staged

ALL = Permission.READ | Permission.WRITE | Permission.INHERIT
ELECTION_SECONDS = 4.0


def take_masters(stage: Stage, topic: str, *brokers: str) -> None:
    """Leaves the brokers with a slave alone in the topic's route."""
    route = stage.table.routes[topic]
    stage.table.routes[topic] = replace(
        route,
        broker_datas=tuple(
            replace(broker, broker_addrs={1: "127.0.0.1:1"}) if broker.broker_name in brokers else broker
            for broker in route.broker_datas
        ),
    )


async def elect(stage: Stage, topic: str, **routes: object) -> None:
    await trio.sleep(ELECTION_SECONDS)
    stage.topic(topic, **routes)  # type: ignore[arg-type]


async def stored_in_time(stage: Stage, send: Callable[[], Awaitable[object]]) -> None:
    """Sends while a master is elected, and checks that the send ended with it."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(elect, stage, "orders")
        await send()
    assert ELECTION_SECONDS <= trio.current_time() - began <= ELECTION_SECONDS + 2


SENDS: dict[str, Callable[[Producer], Awaitable[object]]] = {
    "plain": lambda producer: producer.send(Message("orders", b"x"), timeout=8),
    "key": lambda producer: producer.send(Message("orders", b"x", sharding_key="order-1"), timeout=8),
    "batch": lambda producer: producer.send_batch([Message("orders", b"x")], timeout=8),
    "batch of keys": lambda producer: producer.send_batch([Message("orders", b"x", sharding_key="order-1")], timeout=8),
}


async def soon(producer: Producer) -> object:
    return await (await producer.send_soon(Message("orders", b"x"), timeout=8)).wait()


@pytest.mark.parametrize("send", [*SENDS.values(), soon], ids=[*SENDS, "soon"])
async def test_a_send_waits_for_the_only_brokers_master(
    stage: Stage, client: Client, jumping_clock: MockClock, send: Callable[[Producer], Awaitable[object]]
) -> None:
    stage.topic("orders")
    take_masters(stage, "orders", "broker-a", "broker-b")
    async with Producer("g", client=client) as producer:
        await stored_in_time(stage, lambda: send(producer))
    assert [message.body for message in stage.stored("orders")] == [b"x"]


async def test_a_send_whose_master_stays_away_ends_in_time(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    stage.topic("orders", brokers=["broker-a"])
    take_masters(stage, "orders", "broker-a")
    began = trio.current_time()
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        with pytest.raises(
            NoRoute, match=r"broker-a has no master now, only slaves.* a plain send waits for one"
        ) as caught:
            await producer.send(Message("orders", b"x"), timeout=3)
    assert trio.current_time() - began == pytest.approx(3.0, abs=0.2)
    assert caught.value.outcome is Outcome.NOT_STORED


async def test_a_key_keeps_its_queue_while_a_master_is_elected(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    """With broker-b's queues left out, the key would go to another queue at broker-a."""
    take_masters(stage, "orders", "broker-b")
    await stored_in_time(stage, lambda: sender.send(payload(), KeyedQueue("order-1"), timeout=8))
    assert [broker for broker, _ in stage.sends()] == ["broker-b"]
    assert stage.sends()[0][1].queue_id == 2


async def test_a_key_of_another_broker_does_not_wait(stage: Stage, sender: Sender, jumping_clock: MockClock) -> None:
    whole = await sender.publish_info("orders", timeout=3)
    key = next(str(n) for n in range(100) if whole.queue_of_key(str(n)).broker_name == "broker-a")
    take_masters(stage, "orders", "broker-b")
    await sender._client.routes.refresh("orders")
    began = trio.current_time()
    receipt = await sender.send(payload(), KeyedQueue(key), timeout=3)
    assert receipt.queue == whole.queue_of_key(key)
    assert trio.current_time() - began < 0.1


async def test_a_keys_broker_whose_master_stays_away_is_reported_once(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    take_masters(stage, "orders", "broker-b")
    with pytest.raises(SendFailed, match="broker broker-b has no master now, only slaves") as caught:
        await sender.send(payload(), KeyedQueue("order-1"), timeout=3)
    assert caught.value.outcome is Outcome.NOT_STORED
    assert str(caught.value).count("no master") == 1


async def test_a_plain_send_takes_the_broker_that_has_a_master(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    take_masters(stage, "orders", "broker-a")
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        results = [await producer.send(Message("orders", b"x")) for _ in range(4)]
    assert {result.message_queue.broker_name for result in results} == {"broker-b"}


async def test_a_topic_that_is_not_there_yet_waits_too(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """The queues that it borrows from TBW102 have no master either."""
    stage.auto_create()
    take_masters(stage, AUTO_CREATE, "broker-a", "broker-b")
    async with Producer("g", client=client) as producer, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: elect(stage, AUTO_CREATE, perm=ALL))
        await producer.send(Message("unheard", b"x"), timeout=8)
    assert len(stage.stored("unheard")) == 1


async def test_a_topic_without_write_permission_is_not_waited_for(
    stage: Stage, sender: Sender, jumping_clock: MockClock
) -> None:
    stage.topic("orders", perm=Permission.READ)
    began = trio.current_time()
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        with pytest.raises(NoRoute, match="read-only"):
            await producer.send(Message("orders", b"x"))
        with pytest.raises(NoRoute, match="read-only"):
            await producer.send(Message("orders", b"x", sharding_key="order-1"))
    assert trio.current_time() - began < 0.5


async def test_a_function_that_selects_is_not_called_without_queues(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    take_masters(stage, "orders", "broker-a", "broker-b")
    async with Producer("g", client=client) as producer:
        with pytest.raises(NoRoute, match="have no master now"):
            await producer.send(Message("orders", b"x"), select=lambda queues, message: queues[0])


async def test_queues_of_a_tenant_keep_their_keys(stage: Stage, jumping_clock: MockClock) -> None:
    stage.topic("tenant%orders")
    take_masters(stage, "tenant%orders", "broker-b")
    async with Producer("g", nameserver=stage.nameserver.address, namespace="tenant") as producer:
        info = await producer.publish_info("orders")
    assert info.queue_of_key("order-1") == MessageQueue("orders", "broker-b", 2)
    assert info.interleaved(0).queue_of_key("order-1") == MessageQueue("orders", "broker-b", 2)


async def test_a_key_follows_its_broker_to_a_new_master(
    jumping_clock: MockClock,
) -> None:
    """The old master is silent for ever, and its connection stays open: the next poll of routes ends the wait."""
    async with staged("broker-a", "broker-b", "broker-b-new") as stage:
        stage.topic("orders", brokers=["broker-a", "broker-b"])
        stage.brokers["broker-b"].always(SEND, silence)
        async with Client(nameserver=stage.nameserver.address, poll_nameserver_interval=5) as client:
            sender = Sender(client._session, SendSettings("senders"))
            receipts: list[Receipt] = []

            async def send() -> None:
                receipts.append(await sender.send(payload(), KeyedQueue("order-1"), timeout=30))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                await stage.brokers["broker-b"].wait_seen(SEND)
                take_masters(stage, "orders", "broker-b")
                await trio.sleep(7)
                assert receipts == []
                new = {"broker-a": stage.addresses["broker-a"], "broker-b": stage.addresses["broker-b-new"]}
                stage.table.routes["orders"] = route_of(new)
    (receipt,) = receipts
    assert receipt.queue == MessageQueue("orders", "broker-b", 2)
    assert [(attempt.address, attempt.outcome) for attempt in receipt.attempts] == [
        (stage.addresses["broker-b"], Outcome.PERHAPS_STORED)
    ]
    assert len(stage.brokers["broker-b-new"].of(SEND)) == 1


async def test_a_master_that_became_a_slave_keeps_its_connection(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    routes = client._session.routes
    await routes.refresh("orders")
    connection = await client._session.caller._pool.connection(stage.addresses["broker-b"], timeout=3)
    route = stage.table.routes["orders"]
    swapped = {0: stage.addresses["broker-a"], 1: stage.addresses["broker-b"]}
    stage.table.routes["orders"] = replace(
        route, broker_datas=(route.broker_datas[0], replace(route.broker_datas[1], broker_addrs=swapped))
    )
    await routes.refresh("orders")
    await settled()
    assert not connection.is_closed
