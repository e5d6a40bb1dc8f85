"""The life of clients and producers: when each may start, send and end, in the words of Java's client."""

import pytest
import trio

from pyrmq_core import Client, InvalidArgument, InvalidState, Message, Producer, ServiceState
from pyrmq_core.client.service_state import Life
from tests.support.stage import Stage


def state_of(living: Client | Producer | Life) -> str:
    return living.state.value


def test_a_life() -> None:
    life = Life("producer", "g")
    assert state_of(life) == "CREATE_JUST"
    with pytest.raises(InvalidState, match="The producer service state not OK, CREATE_JUST: producer g is used inside"):
        life.check_running()
    life.starting()
    assert state_of(life) == "START_FAILED"  # until the start has succeeded
    life.started()
    life.check_running()
    with pytest.raises(InvalidState, match="The producer service state not OK, maybe started once, RUNNING"):
        life.starting()
    life.ended()
    with pytest.raises(InvalidState, match="maybe started once, SHUTDOWN_ALREADY"):
        life.starting()
    with pytest.raises(InvalidState, match="not OK, SHUTDOWN_ALREADY"):
        life.check_running()


async def test_a_producer_from_start_to_end(stage: Stage, client: Client) -> None:
    producer = Producer("g", client=client)
    assert state_of(producer) == "CREATE_JUST"
    with pytest.raises(InvalidState, match="CREATE_JUST"):
        await producer.send(Message("orders", b"x"))
    async with producer:
        assert state_of(producer) == "RUNNING"
        with pytest.raises(InvalidState, match="maybe started once, RUNNING"):
            await producer.__aenter__()
        await producer.send(Message("orders", b"x"))
    assert state_of(producer) == "SHUTDOWN_ALREADY"
    for use in (lambda: producer.send(Message("orders", b"x")), lambda: producer.send_soon(Message("orders", b"x"))):
        with pytest.raises(InvalidState, match="SHUTDOWN_ALREADY"):
            await use()
    with pytest.raises(InvalidState, match="maybe started once, SHUTDOWN_ALREADY"):
        async with producer:
            pass


async def test_a_start_that_is_cancelled_stays_failed(stage: Stage) -> None:
    producer = Producer("g", nameserver=stage.nameserver.address)
    with trio.CancelScope() as scope:
        scope.cancel()
        async with producer:
            await trio.lowlevel.checkpoint()
    assert producer.state in (ServiceState.START_FAILED, ServiceState.SHUTDOWN_ALREADY)
    with pytest.raises(InvalidState, match="maybe started once"):
        async with producer:
            pass


async def test_a_refused_second_producer_may_start_later(client: Client) -> None:
    """The state goes back to just created, as in Java: once the first one is gone, it starts."""
    second = Producer("g", client=client)
    async with Producer("g", client=client):
        with pytest.raises(InvalidState, match=r"The producer group\[g\] has been created before, specify"):
            async with second:
                pass
        assert state_of(second) == "CREATE_JUST"
    async with second:
        assert state_of(second) == "RUNNING"


async def test_a_producer_on_a_closed_client_may_start_later(stage: Stage) -> None:
    client = Client(nameserver=stage.nameserver.address)
    producer = Producer("g", client=client)
    with pytest.raises(InvalidState, match="The client service state not OK, CREATE_JUST"):
        async with producer:
            pass
    async with client, producer:
        await producer.send(Message("orders", b"x"))


async def test_a_client_lives_once(stage: Stage) -> None:
    client = Client(nameserver=stage.nameserver.address)
    async with client:
        assert state_of(client) == "RUNNING"
        with pytest.raises(InvalidState, match="The client service state not OK, maybe started once, RUNNING"):
            await client.__aenter__()
    assert state_of(client) == "SHUTDOWN_ALREADY"


@pytest.mark.parametrize("group", ["", " ", "DEFAULT_PRODUCER", "DEFAULT_CONSUMER", "a b", "a.b", "g" * 256, "中"])
def test_groups_that_are_refused(group: str) -> None:
    with pytest.raises(InvalidArgument, match="group"):
        Producer(group)


def test_a_group_has_to_be_given() -> None:
    with pytest.raises(TypeError, match="group"):
        Producer()  # type: ignore[call-arg]
