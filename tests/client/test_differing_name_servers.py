"""Several NameServers of which one lost its brokers, or does not answer: what another one has is found all the same."""

import logging
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Admin, Client, Message, NoRoute, Producer, PullConsumer
from pyrmq_core.client.routes.name_servers import NameServers
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.requests.nameserver.cluster_info import ClusterInfo
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_core.protocol.routes.route import BrokerData
from tests.support.scripted import ROUTE, ScriptedServer, Table, answer, cut, refuse, scripted_server, silence
from tests.support.stage import Stage


@pytest.fixture
async def empty() -> AsyncIterator[ScriptedServer]:
    """A NameServer at which no broker registers."""
    async with scripted_server(Table()) as server:
        server.always(RequestCode.GET_BROKER_CLUSTER_INFO, answer(ClusterInfo({}, {}).to_command()))
        server.always(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, answer(TopicList(()).to_command()))
        server.always(RequestCode.GET_KVLIST_BY_NAMESPACE, refuse(ResponseCode.QUERY_NOT_FOUND))
        yield server


@pytest.fixture
async def client(stage: Stage, empty: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client that chose the empty one of two."""
    stage.table.brokers = {"broker-a": BrokerData("DefaultCluster", "broker-a", {0: stage.addresses["broker-a"]})}
    stage.table.kv["ORDER_TOPIC_CONFIG"] = {"orders": "broker-a:4"}
    async with Client(nameserver=[empty.address, stage.nameserver.address]) as client:
        choosing_first(client._session.nameservers)
        yield client


def choosing_first(nameservers: NameServers) -> None:
    while nameservers._choice.chosen != 0:
        nameservers._choice = nameservers._choice.next()


async def test_a_send_finds_its_topic(stage: Stage, empty: ScriptedServer, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
    assert len(stage.stored("orders")) == 1
    assert empty.codes[0] == ROUTE


async def test_auto_creation_finds_its_template(stage: Stage, client: Client) -> None:
    stage.auto_create()
    async with Producer("g", client=client) as producer:
        await producer.send(Message("fresh", b"x"))
    assert len(stage.stored("fresh")) == 1


async def test_lists_and_values_are_found(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Admin(client=client) as admin, PullConsumer("g", client=client) as consumer:
        assert await admin.topics.list() == ("orders",)
        assert [broker.broker_name for broker in await admin.brokers.list()] == ["broker-a"]
        assert await admin.kv_values("ORDER_TOPIC_CONFIG") == {"orders": "broker-a:4"}
        assert await consumer.topics() == ("orders",)
        assert list((await consumer.cluster_info()).broker_addr_table) == ["broker-a"]
    assert caplog.text.count("lacks what another has") == 1


async def test_the_error_names_those_that_said_so_alone(stage: Stage, empty: ScriptedServer, client: Client) -> None:
    both = f"NameServer {empty.address};{stage.nameserver.address} knows neither it"
    with pytest.raises(NoRoute, match=f"{both} nor a topic that creates it; create the topic"):
        await client._session.routes.route("fresh")
    stage.nameserver.always(ROUTE, cut)
    with pytest.raises(NoRoute) as caught:
        await client._session.routes.route("fresh")
    text = str(caught.value)
    assert f"NameServer {empty.address} knows neither it nor" in text
    assert f"({stage.nameserver.address} gave none: " in text
    assert len(stage.nameserver.of(ROUTE)) == 3  # a closed connection is tried twice


async def test_a_silent_one_takes_half_of_the_time_at_most(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.nameserver.always(ROUTE, silence)
    began = trio.current_time()
    assert await client._session.routes.refresh("orders", timeout=3) is None
    assert trio.current_time() - began == pytest.approx(1.0, abs=0.1)
    assert await client._session.routes.refresh("orders", timeout=0.4) is None
    assert trio.current_time() - began == pytest.approx(1.2, abs=0.1)


async def test_one_that_failed_before_is_not_queried_twice(
    stage: Stage, empty: ScriptedServer, jumping_clock: MockClock
) -> None:
    stage.nameserver.always(ROUTE, silence)
    async with Client(nameserver=[stage.nameserver.address, empty.address]) as client:
        choosing_first(client._session.nameservers)
        assert await client._session.routes.refresh("orders", timeout=3) is None
    assert len(stage.nameserver.of(ROUTE)) == 1
