"""Heartbeats: their receivers, content and times, the versions learned from them, and new connections."""

from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import CallTimeout, Client, Message, MessageQueue, Producer, ResponseError
from pyrmq_core.client.client import Client as AsyncClient
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat
from pyrmq_core.protocol.routes.route import BrokerData
from tests.client.transacting import Listener
from tests.support.memory_broker import MemoryBroker
from tests.support.scripted import Step, refuse, scripted_server, silence
from tests.support.stage import Stage, settled

BEAT = RequestCode.HEART_BEAT
GOODBYE = RequestCode.UNREGISTER_CLIENT
A0 = MessageQueue("orders", "broker-a", 0)


def saying(version: int) -> Step:
    return lambda request, peer: replace(success(), version=version)


def groups(command: Command) -> tuple[tuple[str, ...], tuple[str, ...]]:
    beat = HeartBeat.from_command(command)
    return beat.producer_groups, tuple(consumer.group_name for consumer in beat.consumers)


async def test_masters_only_while_there_are_no_consumers(stage: Stage, client: Client) -> None:
    """A slave gets no heartbeat of producers; with a consumer it gets one of all groups, and so does the master."""
    async with scripted_server(MemoryBroker("slave")) as slave:
        route = stage.topic("orders", brokers=["broker-a"])
        both = BrokerData("DefaultCluster", "broker-a", {0: stage.brokers["broker-a"].address, 1: slave.address})
        stage.table.routes["orders"] = replace(route, broker_datas=(both,))
        await client._session.routes.refresh("orders")
        async with Producer("g", client=client):
            await stage.brokers["broker-a"].wait_seen(BEAT)
            await settled()
            assert slave.of(BEAT) == []
            client._session.heartbeats.add_consumer("readers", lambda: ConsumerData("readers"))
            await client._session.heartbeats.send_round()
            assert groups(slave.of(BEAT)[-1]) == (("g",), ("readers",))
            assert groups(stage.brokers["broker-a"].of(BEAT)[-1]) == (("g",), ("readers",))
            await client._session.heartbeats.remove(consumer="readers")
            assert slave.of(GOODBYE)[-1].ext["consumerGroup"] == "readers"
            await client._session.heartbeats.send_round()
            assert groups(stage.brokers["broker-a"].of(BEAT)[-1]) == (("g",), ())  # one that left does not come back


async def test_a_start_ends_with_a_heartbeat(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """Brokers that are known get the new group at once, not with the next round."""
    await client._session.routes.refresh("orders")
    async with Producer("first", client=client):
        await stage.heard_of()
        began = trio.current_time()
        async with Producer("second", client=client):
            for server in stage.brokers.values():
                await server.wait_seen(BEAT, 2)
                assert groups(server.of(BEAT)[-1]) == (("first", "second"), ())
        assert trio.current_time() - began < 1


async def test_a_new_connection_begins_with_a_heartbeat(stage: Stage, client: Client) -> None:
    """A restarted broker knows no group; it gets ours as soon as we are connected again."""
    server = stage.brokers["broker-a"]
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
        heard = len(server.of(BEAT))
        await server.stop()
        await server.start()
        await settled()
        await producer.send(Message("orders", b"x"), queue=A0)
        await server.wait_seen(BEAT, heard + 1)
        await settled()
        assert client._session.heartbeats.was_reached(server.address)


async def test_a_transactional_producer_returns_to_a_broker_that_restarted(stage: Stage) -> None:
    """At once, also while nothing is sent: no other client can answer the checks of its transactions."""
    server = stage.brokers["broker-a"]
    rare = Client(nameserver=stage.nameserver.address, heartbeat_broker_interval=3600)
    async with rare as client, Producer("g", client=client, transaction_listener=Listener()) as producer:
        await producer.send(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
        for times in (1, 2):
            heard = len(server.of(BEAT))
            await server.stop()
            await settled()
            assert not client._session.heartbeats.was_reached(server.address)
            await server.start()
            with trio.fail_after(60):
                await server.wait_seen(BEAT, heard + 1)
            assert groups(server.of(BEAT)[-1]) == (("g",), ()), times


async def test_no_other_client_returns_to_a_broker_by_itself(stage: Stage, client: Client) -> None:
    """Nor does a transactional one to a broker that no route names any more."""
    server, heartbeats = stage.brokers["broker-a"], client._session.heartbeats
    await client._session.routes.refresh("orders")
    heartbeats.add_producer("g")
    await heartbeats.send_now(server.address)
    assert not heartbeats.disconnected(server.address)
    heartbeats.add_producer("h", transactional=True)
    await heartbeats.send_now(server.address)
    assert heartbeats.disconnected(server.address)
    assert not heartbeats.disconnected(server.address)
    heard = len(server.of(BEAT))
    await heartbeats.return_to("127.0.0.1:1")
    await heartbeats.remove(producer="h")
    await heartbeats.return_to(server.address)
    assert len(server.of(BEAT)) == heard


async def test_the_version_of_a_broker_is_remembered(stage: Stage, client: Client) -> None:
    server = stage.brokers["broker-a"]
    server.on(BEAT, saying(407), saying(493))
    assert client._session.heartbeats.version_of(server.address) is None
    assert await client._session.heartbeats.send_now(server.address) == 407
    assert client._session.heartbeats.version_of(server.address) == 407
    assert await client._session.heartbeats.send_now(server.address) == 493
    assert client._session.heartbeats.version_of(server.address) == 493


async def test_a_refused_heartbeat_gives_the_version_too(stage: Stage, client: Client) -> None:
    """With authentication on, a broker answers 16 and its version; the group is not known there then."""
    server = stage.brokers["broker-a"]
    server.on(BEAT, refuse(16, "username cannot be null."))
    with pytest.raises(ResponseError, match=r"NO_PERMISSION \(16\): username cannot be null"):
        await client._session.heartbeats.send_now(server.address)
    assert client._session.heartbeats.version_of(server.address) is not None
    assert not client._session.heartbeats.was_reached(server.address)


async def test_a_silent_broker_does_not_hold_up_the_others(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(BEAT, silence)
    await client._session.routes.refresh("orders")
    client._session.heartbeats.add_producer("g")
    began = trio.current_time()
    await client._session.heartbeats.send_round()
    assert trio.current_time() - began == pytest.approx(3, abs=0.2)
    assert client._session.heartbeats.was_reached(stage.brokers["broker-b"].address)
    with pytest.raises(CallTimeout):
        await client._session.heartbeats.send_now(stage.brokers["broker-a"].address, timeout=1)


async def test_unregistrations_go_to_brokers_that_may_know_the_client(stage: Stage, client: Client) -> None:
    """Leaving opens no connection to any other broker."""
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
        client._session.heartbeats.disconnected(stage.brokers["broker-b"].address)
    assert len(stage.brokers["broker-a"].of(GOODBYE)) == 1
    assert stage.brokers["broker-a"].of(GOODBYE)[0].ext == {"clientID": client.client_id, "producerGroup": "g"}
    assert stage.brokers["broker-b"].of(GOODBYE) == []


async def test_a_silent_broker_does_not_hold_up_the_unregistrations_at_others(
    stage: Stage, jumping_clock: MockClock
) -> None:
    async with AsyncClient(nameserver=stage.nameserver.address) as client:
        session = client._session
        await session.routes.refresh("orders")
        for group in ("g", "h"):
            session.heartbeats.add_producer(group)
            session.heartbeats.add_consumer(group, partial(ConsumerData, group))
        await session.heartbeats.send_round()
        stage.brokers["broker-a"].always(GOODBYE, silence)
    removed = [
        (goodbye.ext.get("producerGroup"), goodbye.ext.get("consumerGroup"))
        for goodbye in stage.brokers["broker-b"].of(GOODBYE)
    ]
    assert sorted(removed, key=str) == [("g", None), ("h", None), (None, "g"), (None, "h")]


async def test_a_request_without_a_handler_is_refused(stage: Stage, client: Client) -> None:
    """A request of a broker that no part of the client serves: code 3, as in Java."""
    peers: list[Peer] = []

    def note(request: Command, peer: Peer) -> Command:
        peers.append(peer)
        return success()

    stage.brokers["broker-a"].always(BEAT, note)
    await client._session.heartbeats.send_now(stage.brokers["broker-a"].address)
    answer = await peers[0].connection.call(Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET), timeout=3)
    assert (answer.code, answer.remark) == (3, " request type 222 not supported")
    assert isinstance(client, AsyncClient)
    client._session.serve(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, lambda request, peer: success({"served": "yes"}))
    answer = await peers[0].connection.call(Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET), timeout=3)
    assert answer.ext == {"served": "yes"}
