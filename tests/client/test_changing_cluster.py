"""Changes that a producer is not notified of: NameServers that disagree, masters and queues that are gone."""

from __future__ import annotations

import pytest

from pyrmq_core import Client, Message, NoRoute, Outcome, Producer, QueueNotFound
from pyrmq_core.protocol.routes.route import TopicRouteData
from tests.support.scripted import SEND, Table, refuse, route_of, scripted_server
from tests.support.stage import Stage, staged


async def test_of_nameservers_that_disagree_the_chosen_one_is_believed_until_it_is_gone(stage: Stage) -> None:
    """The first knows broker-a alone, the second broker-b alone: no send goes by both, and none fails."""
    only = {name: route_of({name: address}) for name, address in stage.addresses.items()}
    stage.table.routes["orders"] = only["broker-a"]
    other = Table()
    other.routes["orders"] = only["broker-b"]
    async with scripted_server(other) as second:
        client = Client(nameserver=[stage.nameserver.address, second.address])
        async with client, Producer("g", client=client) as producer:
            first = {(await producer.send(Message("orders", b"1"))).message_queue.broker_name for _ in range(8)}
            chosen, left = (stage.nameserver, second) if stage.nameserver.seen else (second, stage.nameserver)
            assert not left.seen
            assert len(first) == 1
            await chosen.stop()
            await client._session.routes.refresh("orders")
            later = {(await producer.send(Message("orders", b"2"))).message_queue.broker_name for _ in range(8)}
    assert first | later == {"broker-a", "broker-b"}
    assert left.seen


async def test_a_nameserver_that_does_not_know_the_topic_yet_is_believed(stage: Stage) -> None:
    """Java does the same: the chosen NameServer's answer counts; the next request goes to another one."""
    async with scripted_server(Table()) as ignorant:
        client = Client(nameserver=[ignorant.address])
        async with client, Producer("g", client=client) as producer:
            with pytest.raises(NoRoute, match="orders"):
                await producer.send(Message("orders", b"1"))
            client._session.nameservers.set_addresses([stage.nameserver.address], random_start=0)
            assert (await producer.send(Message("orders", b"1"))).message_queue.topic == "orders"


def without_masters(route: TopicRouteData, *names: str) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=route.queue_datas,
        broker_datas=tuple(
            type(broker)(broker.cluster, broker.broker_name, {1: broker.broker_addrs[0]})
            if broker.broker_name in names
            else broker
            for broker in route.broker_datas
        ),
    )


async def test_a_broker_without_a_master_gets_nothing(stage: Stage, client: Client) -> None:
    stage.table.routes["orders"] = without_masters(stage.table.routes["orders"], "broker-a")
    async with Producer("g", client=client) as producer:
        results = [await producer.send(Message("orders", b"x")) for _ in range(8)]
    assert {result.message_queue.broker_name for result in results} == {"broker-b"}


async def test_a_route_without_any_master_is_reported(stage: Stage, client: Client) -> None:
    stage.table.routes["orders"] = without_masters(stage.table.routes["orders"], "broker-a", "broker-b")
    async with Producer("g", client=client) as producer:
        with pytest.raises(
            NoRoute, match="topic orders has no queue to write to: broker-a, broker-b have no master now"
        ) as caught:
            await producer.send(Message("orders", b"x"))
        assert "\n" not in str(caught.value)
        stage.topic("orders")
        await client._session.routes.refresh("orders")
        await producer.send(Message("orders", b"x"))
    assert len(stage.sends()) == 1


@pytest.mark.parametrize("code", [29, 1])
async def test_a_queue_that_went_between_look_up_and_send(code: int) -> None:
    """5.x answers 29, 4.9 code 1: one try, an error that names the queues there are now, and the new route."""
    async with staged("broker-a") as stage, Client(nameserver=stage.nameserver.address) as client:
        stage.topic("orders", queues=8)
        async with Producer("g", client=client, retry_times_when_send_failed=0) as producer:
            await producer.send(Message("orders", b"x"))
            gone = (await producer.message_queues("orders"))[7]
            stage.topic("orders", queues=2)
            stage.brokers["broker-a"].on(SEND, refuse(code, "request queueId[7] is illegal"))
            with pytest.raises(QueueNotFound, match=r"request queueId\[7\] is illegal") as caught:
                await producer.send(Message("orders", b"x"), queue=gone)
            assert "orders has no queue 7 on broker-a; by the route of this moment it has 0 to 1" in str(caught.value)
            assert (caught.value.outcome, caught.value.queue) == (Outcome.NOT_STORED, gone)
            assert len(caught.value.attempts) == 1
            assert {queue.queue_id for queue in await producer.message_queues("orders")} == {0, 1}
            assert (await producer.send(Message("orders", b"x"))).message_queue.queue_id in (0, 1)
