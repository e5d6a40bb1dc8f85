"""A client that knows many topics and brokers: its work grows with them, and not with their product."""

from __future__ import annotations

from dataclasses import replace

import trio
import trio.testing
from trio.testing import MockClock

from pyrmq_core import Client, Producer
from pyrmq_core.client.client_session import LEAST_SECONDS
from pyrmq_core.client.routes.route_table import REFRESHES_AT_ONCE
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData
from pyrmq_core.protocol.routes.route import BrokerData
from tests.client.test_route_table import info_of
from tests.support.scripted import ROUTE, after, topics_asked
from tests.support.stage import Stage, settled

BEAT = RequestCode.HEART_BEAT


async def test_a_poll_that_brings_the_same_route_does_not_read_it(stage: Stage, client: Client) -> None:
    routes = client._session.routes
    first = await routes.refresh("orders")
    assert await routes.refresh("orders") is first
    stage.topic("orders", queues=5)
    changed = await routes.refresh("orders")
    assert changed is not first
    assert await routes.route("orders") is changed
    assert topics_asked(stage.nameserver) == ["orders"] * 3


async def test_topics_share_what_is_the_same(stage: Stage, client: Client) -> None:
    stage.topic("bills")
    orders, bills = [await client._session.routes.route(topic) for topic in ("orders", "bills")]
    for broker, same in zip(orders.broker_datas, bills.broker_datas, strict=True):
        assert broker is same
    for data, broker in zip(orders.queue_datas, bills.broker_datas, strict=True):
        assert data.broker_name is broker.broker_name
    info = await info_of(client, "orders")
    assert info.keyed_queues is info.queues


async def test_a_round_of_polls_has_few_tasks(stage: Stage, client: Client) -> None:
    topics = [f"t{number}" for number in range(200)]
    for topic in topics:
        stage.topic(topic)
        await client._session.routes.refresh(topic)
    go_on = trio.Event()
    stage.nameserver.always(ROUTE, after(go_on, stage.table))
    before = trio.lowlevel.current_statistics().tasks_living
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client._session.routes.refresh_all)
        await stage.nameserver.wait_seen(ROUTE, len(topics) + REFRESHES_AT_ONCE)
        await settled()
        living = trio.lowlevel.current_statistics().tasks_living
        assert living - before <= 3 * REFRESHES_AT_ONCE  # with the servers' own tasks
        go_on.set()
    assert sorted(topics_asked(stage.nameserver)) == sorted(topics * 2)


async def test_a_heartbeat_is_encoded_once_for_all_brokers(stage: Stage, client: Client) -> None:
    encoded = []

    def data() -> ConsumerData:
        encoded.append(1)
        return ConsumerData("readers")

    await client._session.routes.refresh("orders")
    heartbeats = client._session.heartbeats
    heartbeats.add_consumer("readers", data)
    for _ in range(3):
        await heartbeats.send_round()
    assert [len(server.of(BEAT)) for server in stage.brokers.values()] == [3, 3]
    assert len(encoded) == 1
    heartbeats.add_producer("senders")
    await heartbeats.send_round()
    assert len(encoded) == 2


async def test_brokers_that_come_one_after_the_other_share_rounds(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """With a round for each new broker, 1,000 brokers would get half a million heartbeats."""
    address = stage.brokers["broker-a"].address
    async with Producer("g", client=client):
        for number in range(40):
            route = stage.topic(f"t{number}", brokers=["broker-a"])
            broker = BrokerData("DefaultCluster", f"broker-{number}", {0: address})
            stage.table.routes[f"t{number}"] = replace(route, broker_datas=(broker,))
            await client._session.routes.refresh(f"t{number}")
            await trio.sleep(LEAST_SECONDS / 10)
        assert 2 <= len(stage.brokers["broker-a"].of(BEAT)) <= 7


async def test_addresses_that_no_route_names_any_more_are_forgotten(stage: Stage, client: Client) -> None:
    """Brokers in containers have another address after each start."""
    heartbeats, address = client._session.heartbeats, stage.brokers["broker-a"].address
    await client._session.routes.refresh("orders")
    heartbeats.add_producer("g")
    await heartbeats.send_round()
    assert heartbeats.version_of(address) is not None
    stage.topic("orders", brokers=["broker-b"])
    await client._session.routes.refresh("orders")
    client._session.routes.forget_offline_brokers()
    await heartbeats.send_round()
    assert heartbeats.version_of(address) is None
    assert set(heartbeats._locks) == {stage.brokers["broker-b"].address}
    await stage.brokers["broker-b"].stop()
    await settled()
    assert stage.brokers["broker-b"].address not in client._session.caller._versions
