"""Lines 30 to 46: the start of a producer, and its look-up of routes."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Client,
    InvalidArgument,
    InvalidState,
    Message,
    NoNameServer,
    NoRoute,
    Producer,
    blocking,
)
from pyrmq_core.client.routes import name_server_url as discovery
from pyrmq_core.client.routing.publish_info import publish_queues
from pyrmq_core.model import Permission
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from tests.client.conftest import client, jumping_clock, stage
from tests.support.scripted import ROUTE, SEND, later, refuse, route_of, scripted_server, silence, topics_asked
from tests.support.stage import Stage, settled
from tests.support.web import Page, web_server

__all__ = ["client", "jumping_clock", "stage"]

BEAT = RequestCode.HEART_BEAT
X = Message("orders", b"x")


def test_line_30_a_group_has_to_be_given() -> None:
    """Java's constructor without arguments takes DEFAULT_PRODUCER, which its start then refuses."""
    with pytest.raises(TypeError):
        Producer()  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="DEFAULT_PRODUCER"):
        Producer("DEFAULT_PRODUCER")


async def test_line_31_just_created_then_start_failed_then_running(stage: Stage, client: Client) -> None:
    states: list[str] = []

    def watched_register(group: str, *, transactional: bool = False) -> None:
        states.append(producer.state.value)
        register(group, transactional=transactional)

    async with Client(nameserver=stage.nameserver.address) as watched:
        register = watched._session.register_producer
        watched._session.register_producer = watched_register  # type: ignore[method-assign]
        producer = Producer("g", client=watched)
        states.append(producer.state.value)
        async with producer:
            states.append(producer.state.value)
        states.append(producer.state.value)
    assert states == ["CREATE_JUST", "START_FAILED", "RUNNING", "SHUTDOWN_ALREADY"]
    with pytest.raises(InvalidState, match="The producer service state not OK, maybe started once, SHUTDOWN_ALREADY"):
        async with producer:
            pass


@pytest.mark.parametrize("group", ["", "  ", "a b", "a.b", "x" * 256])
def test_line_32_group_checks(group: str) -> None:
    with pytest.raises(InvalidArgument):
        Producer(group)


def test_line_33_the_instance_name_becomes_the_process_id() -> None:
    """Unless it is set; 5.x adds a time, we a number of our own, so that no two clients are taken for one."""
    assert f"@{os.getpid()}#" in Client(nameserver="127.0.0.1:1").client_id
    assert f"@mine#{os.getpid()}#" in Client(nameserver="127.0.0.1:1", instance_name="mine").client_id


async def test_line_34_one_client_instance_a_client_id(stage: Stage) -> None:
    """In Java all users of an id share an instance; ours share a `Client`, made once even when two begin."""
    shared = blocking.Client(nameserver=stage.nameserver.address)
    clients: list[Client] = []
    gate = threading.Barrier(2)

    def begin() -> None:
        gate.wait()
        clients.append(shared._async())

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(trio.to_thread.run_sync, begin)
    assert clients[0] is clients[1]
    await trio.to_thread.run_sync(shared.close)
    ids = {Client(nameserver=stage.nameserver.address, instance_name="same").client_id for _ in range(20)}
    assert len(ids) == 20


async def test_line_35_a_second_producer_of_the_group_is_refused(client: Client) -> None:
    second = Producer("g", client=client)
    async with Producer("g", client=client):
        with pytest.raises(InvalidState, match=r"The producer group\[g\] has been created before"):
            async with second:
                pass
    assert second.state.value == "CREATE_JUST"


async def test_line_36_the_default_topics_route_is_asked_for_when_it_is_needed(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """4.x polls TBW102 from the start on; 5.x and our client fetch it when a topic is unknown."""
    stage.auto_create()
    async with Producer("g", client=client) as producer:
        await producer.send(X)
        await trio.sleep(65)
        assert "TBW102" not in topics_asked(stage.nameserver)
        await producer.send(Message("unheard", b"x"))
        assert topics_asked(stage.nameserver)[-2:] == ["unheard", "TBW102"]


async def test_line_37_the_start_of_a_client(stage: Stage) -> None:
    """NameServers from a URL when no address is set; then the network and the scheduled work."""
    async with web_server(Page(stage.nameserver.address.encode())) as server:
        async with Client(nameserver_url=server.url) as client, Producer("g", client=client) as producer:
            assert client._session.nameservers.addresses == (stage.nameserver.address,)
            await producer.send(X)
        async with Client(nameserver=stage.nameserver.address):
            assert len(server.paths) == 1  # a given address is used without a look-up


async def test_line_38_a_start_ends_with_a_heartbeat(stage: Stage, client: Client) -> None:
    await client._session.routes.refresh("orders")
    async with Producer("g", client=client):
        await stage.heard_of()
    for server in stage.brokers.values():
        assert HeartBeat.from_command(server.of(BEAT)[0]).producer_groups == ("g",)


async def test_line_39_scheduled_work(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """Routes and heartbeats every 30 s, the list of NameServers every 2 min (first after 10 s); a failing round never
    ends the next."""
    async with Producer("g", client=client) as producer:
        await producer.send(X)
        await stage.heard_of()
        stage.nameserver.on(ROUTE, refuse(1), silence)
        stage.brokers["broker-a"].on(BEAT, refuse(1), silence)
        began = trio.current_time()
        await trio.sleep(155)
        routes = [at for at in stage.nameserver.times_of(ROUTE) if at > began]
        assert len(routes) >= 5
        assert routes[-1] - routes[-2] == pytest.approx(30, abs=1)
        beats = [at for at in stage.brokers["broker-a"].times_of(BEAT) if at > began]
        assert 5 <= len(beats) <= 6
    assert (discovery.FIRST_SECONDS, discovery.EVERY_SECONDS) == (10, 120)


# --- Routes


async def test_line_40_the_table_first_then_the_nameserver_then_the_default_topic(stage: Stage, client: Client) -> None:
    async with Producer("g", client=client, default_topic_queue_nums=3) as producer:
        await producer.send(X)
        await producer.send(X)
        assert topics_asked(stage.nameserver) == ["orders"]
        stage.topic("TBW102", queues=8, perm=Permission.READ | Permission.WRITE | Permission.INHERIT)
        assert len(await producer.message_queues("unheard")) == 3 * 2  # min(3, 8) on each of two brokers
        assert topics_asked(stage.nameserver) == ["orders", "unheard", "TBW102"]


async def test_line_41_one_update_at_a_time_and_none_that_changes_nothing(stage: Stage, client: Client) -> None:
    stage.nameserver.always(ROUTE, later(0.05, stage.table))
    async with Producer("g", client=client) as producer, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(producer.send, X)
    assert len(stage.nameserver.of(ROUTE)) == 1
    async with Producer("g", client=client) as producer:
        before = await producer.publish_info("orders")
        route = stage.table.routes["orders"]
        stage.table.routes["orders"] = replace(
            route, queue_datas=route.queue_datas[::-1], broker_datas=route.broker_datas[::-1]
        )
        await client._session.routes.refresh("orders")
        assert await producer.publish_info("orders") is before  # the same, in another order


async def test_line_42_a_changed_route_reaches_everybody(stage: Stage, client: Client) -> None:
    stage.topic("orders", brokers=["broker-a"])
    async with Producer("one", client=client) as first, Producer("other", client=client) as other:
        for producer in (first, other):
            assert len(await producer.message_queues("orders")) == 4
        stage.topic("orders")
        await client._session.routes.refresh("orders")
        for producer in (first, other):
            assert len(await producer.message_queues("orders")) == 8
        assert client._session.routes.broker("broker-b").master == stage.brokers["broker-b"].address


def test_line_43_publish_info_from_a_route() -> None:
    """Ordered configuration first; else by broker name, with write permission, broker data and a master."""
    read_write = int(Permission.READ | Permission.WRITE)
    route = TopicRouteData(
        queue_datas=(
            QueueData("b3", 3, 2, read_write),
            QueueData("b1", 3, 2, read_write),
            QueueData("b2", 3, 2, int(Permission.READ)),
            QueueData("b4", 3, 2, read_write),
            QueueData("b5", 3, 2, int(Permission.WRITE)),
            QueueData("b6", 3, 2, read_write),
        ),
        broker_datas=tuple(
            BrokerData("c", name, {1 if name == "b4" else 0: "h:1"}) for name in ("b1", "b2", "b3", "b4", "b5")
        ),
    )
    names = [(queue.broker_name, queue.queue_id) for queue in publish_queues("T", route)]
    assert names == [("b1", 0), ("b1", 1), ("b3", 0), ("b3", 1), ("b5", 0), ("b5", 1)]
    ordered = replace(route, order_topic_conf="b2:2;b1:1")
    assert [(queue.broker_name, queue.queue_id) for queue in publish_queues("T", ordered)] == [
        ("b2", 0),
        ("b2", 1),
        ("b1", 0),
    ]


async def test_line_44_publishing_goes_to_masters_only(stage: Stage, client: Client) -> None:
    route = route_of(stage.addresses)
    only_a_slave = BrokerData("DefaultCluster", "broker-b", {1: stage.brokers["broker-b"].address})
    stage.table.routes["orders"] = replace(route, broker_datas=(route.broker_datas[0], only_a_slave))
    async with Producer("g", client=client) as producer:
        assert {queue.broker_name for queue in await producer.message_queues("orders")} == {"broker-a"}
        for _ in range(6):
            await producer.send(X)
    assert SEND not in stage.brokers["broker-b"].codes


async def test_line_45_no_route_and_no_nameserver_are_two_errors(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Producer("g", client=client) as producer:
        with pytest.raises(NoRoute, match="No route info of this topic: unheard"):
            await producer.send(Message("unheard", b"x"))
    async with Producer("g") as producer:
        with pytest.raises(NoNameServer, match="no NameServer is named"):
            await producer.send(X)


async def test_line_46_the_chosen_nameserver_is_kept_while_it_lives(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_server(stage.table) as second:
        addresses = f"{stage.nameserver.address};{second.address}"
        with caplog.at_level(logging.INFO):
            async with Client(nameserver=addresses) as client:
                for _ in range(5):
                    await client._session.routes.refresh("orders")
                servers = sorted((stage.nameserver, second), key=lambda server: -len(server.seen))
                assert [len(server.seen) for server in servers] == [5, 0]
                await servers[0].stop()
                await settled()
                await client._session.routes.refresh("orders")
                assert len(servers[1].seen) == 1
                await servers[1].stop()
                await settled()
                with pytest.raises(NoNameServer) as caught:
                    await client._session.routes.refresh("orders", timeout=2)
        assert f"NameServer {servers[0].address} does not answer; asking {servers[1].address}" in caplog.text
        for server in servers:
            assert server.address in str(caught.value)
