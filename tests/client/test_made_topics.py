"""Topics that an admin or the brokers create: on every broker, before keys are divided over their queues."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from pyrmq_core import Admin, Client, Message, NoRoute, Producer, PullConsumer
from pyrmq_core.embedded import PASS, CutConnection, EmbeddedCluster, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.nameserver.topic_in_namesrv import RegisterTopicInNamesrv
from tests.client.test_route_table import info_of
from tests.support.scripted import ROUTE, refuse
from tests.support.stage import Stage

REGISTRATIONS = (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV)


async def test_a_topic_that_brokers_make_is_on_all_of_them() -> None:
    """60 sends one after another: by the time of the next poll every broker has the topic."""
    async with EmbeddedCluster(brokers=3) as cluster, Client(nameserver=cluster.nameserver) as client:
        async with Producer("g", client=client) as producer:
            results = [await producer.send(Message("fresh", b"%d" % number)) for number in range(60)]
        assert Counter(result.message_queue.broker_name for result in results) == {
            "broker-a": 20,
            "broker-b": 20,
            "broker-c": 20,
        }
        async with PullConsumer("readers", client=client) as consumer:
            queues = await consumer.message_queues("fresh")
        assert Counter(queue.broker_name for queue in queues) == {"broker-a": 4, "broker-b": 4, "broker-c": 4}


def broker_of(registration: Command) -> str:
    """Returns the name of the broker that registers all its topics or one."""
    if registration.code == RequestCode.REGISTER_BROKER:
        return registration.ext["brokerName"]
    (queues,) = RegisterTopicInNamesrv.from_command(registration).queue_datas
    return queues.broker_name


async def test_a_topic_is_created_when_all_masters_are_in_its_route() -> None:
    """One broker registers it at the NameServer, and the other only when the test lets it."""
    async with EmbeddedCluster(brokers=2) as cluster, Client(nameserver=cluster.nameserver) as client:
        release, created = trio.Event(), trio.Event()

        async def cut(request: Command, peer: Peer) -> Pass:
            if broker_of(request) == "broker-b" and not release.is_set():
                raise CutConnection
            return PASS

        for code in REGISTRATIONS:
            cluster.control(code, cut, server="nameserver")
        async with Admin(client=client, timeout=30) as admin, trio.open_nursery() as nursery:

            async def create() -> None:
                await admin.create_topic("orders", queues=4)
                created.set()

            nursery.start_soon(create)
            with trio.fail_after(60):
                while not (route := await client._session.routes.refresh("orders")):  # noqa: ASYNC110 - a server sets no event
                    await trio.sleep(0.01)
            assert [data.broker_name for data in route.queue_datas] == ["broker-a"]
            with trio.move_on_after(0.5):
                await created.wait()
            assert not created.is_set()
            release.set()
        assert len((await info_of(client, "orders")).queues) == 8
        async with Admin(client=client) as admin:
            await admin.create_topic("orders", queues=2)
        assert len((await info_of(client, "orders")).queues) == 4


async def test_masters_that_are_not_heard_of_are_named() -> None:
    async with EmbeddedCluster(brokers=2) as cluster, Client(nameserver=cluster.nameserver) as client:

        async def cut(request: Command, peer: Peer) -> Pass:
            if broker_of(request) == "broker-b":
                raise CutConnection
            return PASS

        for code in REGISTRATIONS:
            cluster.control(code, cut, server="nameserver")
        async with Admin(client=client, timeout=3) as admin:
            with pytest.raises(
                NoRoute, match=r"orders is made on broker-a, broker-b, but NameServer .* not heard so from broker-b"
            ):
                await admin.create_topic("orders", queues=4)


async def test_an_admin_asks_where_a_topic_is_each_time(stage: Stage, client: Client) -> None:
    async with Admin(client=client) as admin:
        await admin.route("orders")
        del stage.table.routes["orders"]
        with pytest.raises(NoRoute):
            await admin.route("orders")


async def test_a_broker_that_is_gone_is_named_and_not_the_topic(stage: Stage, client: Client) -> None:
    """The user need not create a topic whose broker has died."""
    stage.topic("orders", brokers=["broker-a"])
    async with PullConsumer("readers", client=client) as consumer:
        await consumer.message_queues("orders")
        del stage.table.routes["orders"]
        with pytest.raises(NoRoute) as caught:
            await consumer.message_queues("orders")
    text = str(caught.value)
    assert "No route info of this topic: orders. It was on broker-a" in text
    assert stage.addresses["broker-a"] in text
    assert "start the broker if it is down" in text
    assert "mqadmin" not in text


async def test_a_nameserver_that_fails_is_no_missing_topic(stage: Stage, client: Client) -> None:
    async with Admin(client=client, timeout=10) as admin:
        stage.nameserver.always(ROUTE, refuse(1, "busy"))
        with pytest.raises(Exception, match="busy") as caught:
            await admin.route("orders")
    assert not isinstance(caught.value, NoRoute)
