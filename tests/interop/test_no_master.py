"""A broker of 5.4.0 whose master is away, with a slave in the route: sends wait for it, and a key keeps its queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from pyrmq_core import Admin, Client, Message, NoRoute, Outcome, Producer, SendResult
from tests.interop.conftest import cluster_or_skip
from tests.support.apache import ApacheBroker, boot_broker

Send = Callable[[Producer], Awaitable[SendResult]]
SENDS: dict[str, Send] = {
    "plain": lambda producer: producer.send(Message("orders", b"x"), timeout=120),
    "key": lambda producer: producer.send(Message("orders", b"x", sharding_key="order-1"), timeout=120),
}


async def test_sends_wait_for_the_only_master() -> None:
    slave = {"brokerId": "1", "brokerRole": "SLAVE"}
    with (
        cluster_or_skip("5.4.0", ("broker-a",)) as cluster,
        boot_broker("5.4.0", cluster.nameserver.address, settings=slave),
    ):
        async with (
            Client(nameserver=cluster.nameserver.address) as client,
            Admin(client=client) as admin,
            Producer("g", client=client) as producer,
        ):
            await admin.create_topic("orders", queues=4)
            before = {name: await send(producer) for name, send in SENDS.items()}
            await without_master(client, cluster.brokers["broker-a"])
            with pytest.raises(NoRoute, match="broker-a has no master now, only slaves") as caught:
                await producer.send(Message("orders", b"x"), timeout=5)
            assert caught.value.outcome is Outcome.NOT_STORED
            after: dict[str, SendResult] = {}

            async def sent(name: str, send: Send) -> None:
                after[name] = await send(producer)

            async with trio.open_nursery() as nursery:
                for name, send in SENDS.items():
                    nursery.start_soon(sent, name, send)
                await trio.testing.wait_all_tasks_blocked()
                assert after == {}
                await trio.to_thread.run_sync(cluster.brokers["broker-a"].restart)
    assert after["key"].message_queue == before["key"].message_queue
    assert after["plain"].message_queue.broker_name == "broker-a"


async def without_master(client: Client, master: ApacheBroker) -> None:
    """Kills the master, and returns when the route has its slave alone."""
    await trio.to_thread.run_sync(master.kill)
    with trio.fail_after(60):
        while True:
            route = await client._session.routes.refresh("orders")
            if route is not None and list(route.broker_datas[0].broker_addrs) == [1]:
                return
            await trio.sleep(0.1)
