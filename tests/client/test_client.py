"""`Client`: heartbeats and unregistration, one set of connections for all, credentials, and calls outside its block."""

import ssl
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, InvalidArgument, InvalidState, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.protocol.acl import sign
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.heartbeat import HeartBeat
from tests.support.scripted import ROUTE, SEND, cut, refuse, silence
from tests.support.stage import Stage, settled

BEAT = RequestCode.HEART_BEAT
A0 = MessageQueue("orders", "broker-a", 0)


def groups_of(commands: list[Command]) -> list[tuple[str, ...]]:
    return [HeartBeat.from_command(command).producer_groups for command in commands]


async def test_every_broker_of_a_known_route_hears_from_us(stage: Stage, jumping_clock: MockClock) -> None:
    """Soon after the first send, and then every 30 s, with the client's id and its groups."""
    async with Client(nameserver=stage.nameserver.address) as client, Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await trio.sleep(95)
        for server in stage.brokers.values():
            times = server.times_of(BEAT)
            assert 4 <= len(times) <= 6
            assert times[-1] - times[-2] == pytest.approx(30, abs=1)
            assert groups_of(server.of(BEAT)) == [("g",)] * len(times)
            assert {HeartBeat.from_command(command).client_id for command in server.of(BEAT)} == {client.client_id}


async def test_a_broker_that_turns_up_later_hears_at_once(stage: Stage, jumping_clock: MockClock) -> None:
    stage.topic("orders", brokers=["broker-a"])
    async with Client(nameserver=stage.nameserver.address) as client, Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
        await trio.sleep(10)
        stage.topic("orders")
        await client._session.routes.refresh("orders")
        began = trio.current_time()
        await stage.brokers["broker-b"].wait_seen(BEAT)
        assert trio.current_time() - began < 2


async def test_a_client_without_groups_says_nothing(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    await client._session.routes.refresh("orders")
    await trio.sleep(65)
    assert stage.brokers["broker-a"].seen == []


@pytest.mark.parametrize("step", [refuse(1), cut, silence])
async def test_a_heartbeat_that_fails_never_ends_the_next(
    stage: Stage, jumping_clock: MockClock, step: Callable[..., None]
) -> None:
    stage.brokers["broker-a"].on(BEAT, *[step] * 5)
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "broker-b", 0))
        await trio.sleep(200)
        assert len(stage.brokers["broker-a"].of(BEAT)) > 5
        assert 6 <= len(stage.brokers["broker-b"].of(BEAT)) <= 9


async def test_intervals_are_the_users_choice(stage: Stage, jumping_clock: MockClock) -> None:
    async with (
        Client(nameserver=stage.nameserver.address, poll_nameserver_interval=7, heartbeat_broker_interval=5) as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("orders", b"x"))
        await trio.sleep(36)
        assert len(stage.nameserver.of(ROUTE)) == 6
        assert 7 <= len(stage.brokers["broker-a"].of(BEAT)) <= 10


async def test_closing_is_quick_beside_a_silent_broker(stage: Stage, jumping_clock: MockClock) -> None:
    async with Producer("g", nameserver=stage.nameserver.address) as producer:
        await producer.send(Message("orders", b"x"))
        await stage.heard_of()
        for server in stage.brokers.values():
            server.always(RequestCode.UNREGISTER_CLIENT, silence)
        began = trio.current_time()
    assert trio.current_time() - began <= 2.5
    for server in stage.brokers.values():
        assert len(server.of(RequestCode.UNREGISTER_CLIENT)) == 1


async def test_a_cancelled_client_just_hangs_up(stage: Stage, jumping_clock: MockClock) -> None:
    """Its connections end with it at once; a broker forgets groups with the connection."""
    listening = stage.brokers["broker-a"].listening
    assert listening is not None
    with trio.CancelScope() as scope:
        async with Producer("g", nameserver=stage.nameserver.address) as producer:
            await producer.send(Message("orders", b"x"), queue=A0)
            assert len(listening.connections) == 1
            scope.cancel()
            began = trio.current_time()
            await trio.sleep_forever()
    assert trio.current_time() - began < 1
    with trio.fail_after(30):
        while listening.connections:
            await settled()


async def test_producers_and_consumers_share_connections(stage: Stage, client: Client) -> None:
    async with (
        Producer("a", client=client) as first,
        Producer("b", client=client) as second,
        PullConsumer("c", client=client) as consumer,
    ):
        await first.send(Message("orders", b"x"), queue=A0)
        await second.send(Message("orders", b"x"), queue=A0)
        assert await consumer.max_offset(A0) == 2
        assert len({id(seen.peer.connection) for seen in stage.brokers["broker-a"].seen}) == 1
        assert len(stage.nameserver.of(ROUTE)) == 1


async def test_own_clients_share_nothing(stage: Stage) -> None:
    async with (
        Producer("g", nameserver=stage.nameserver.address) as first,
        Producer("g", nameserver=stage.nameserver.address) as second,
    ):
        for producer in (first, second):
            await producer.send(Message("orders", b"x"), queue=A0)
        assert len({id(seen.peer.connection) for seen in stage.brokers["broker-a"].seen}) == 2
        for server in stage.brokers.values():
            await server.wait_seen(BEAT, 2)
    beats = stage.brokers["broker-a"].of(BEAT)
    assert len({HeartBeat.from_command(command).client_id for command in beats}) == 2


async def test_every_request_is_signed(stage: Stage) -> None:
    async with (
        Client(nameserver=stage.nameserver.address, access_key="rocketmq2", secret_key="12345678") as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("orders", b"body"))
        requests = stage.nameserver.seen + stage.brokers["broker-a"].seen + stage.brokers["broker-b"].seen
        assert {seen.command.code for seen in requests} >= {ROUTE, SEND}
        for seen in requests:
            plain = {name: value for name, value in seen.command.ext.items() if name not in ("AccessKey", "Signature")}
            assert dict(seen.command.ext) == sign(plain, seen.command.body, "rocketmq2", "12345678", None)


def test_half_a_credential_is_refused() -> None:
    for access, secret in (("a", None), (None, "s")):
        with pytest.raises(InvalidArgument, match="access_key and secret_key belong together"):
            Client(access_key=access, secret_key=secret)


def test_no_text_of_a_client_shows_its_secrets() -> None:
    client = Client(nameserver="a:1", access_key="the-key", secret_key="the-secret", security_token="the-token")
    assert "a:1" in repr(client)
    for secret in ("the-secret", "the-token"):
        assert secret not in repr(client)
        assert secret not in client.client_id


async def test_outside_its_block_a_client_does_nothing(stage: Stage) -> None:
    client = Client(nameserver=stage.nameserver.address)

    async def every_use_is_refused() -> None:
        command = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client._session.call(stage.nameserver.address, command),
            lambda: client._session.send_oneway(stage.nameserver.address, command),
            lambda: client._session.ask_broker(A0, command),
        ]
        for call in calls:
            with pytest.raises(InvalidState, match="client"):
                await call()
        with pytest.raises(InvalidState):
            _ = client._session.routes
        with pytest.raises(InvalidState):
            _ = client._session.nameservers
        with pytest.raises(InvalidState):
            client._session.register_producer("g")

    await every_use_is_refused()
    async with client:
        await client._session.routes.refresh("orders")
    await every_use_is_refused()
    with pytest.raises(InvalidState):
        await client.__aenter__()


async def test_a_server_without_tls_is_reported_plainly(stage: Stage) -> None:
    async with Client(nameserver=stage.nameserver.address, tls=ssl.create_default_context()) as client:
        producer = Producer("g", client=client)
        async with producer:
            with pytest.raises(Exception, match="TLS") as caught:
                await producer.send(Message("orders", b"x"))
    assert stage.nameserver.address in str(caught.value)
