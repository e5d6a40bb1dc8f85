"""Lines 61 to 71: a producer's choice of queues, its handling of a broker that is down, and its connections."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    CallTimeout,
    Client,
    Command,
    ConnectFailed,
    ConnectionClosed,
    Message,
    MessageQueue,
    Producer,
)
from pyrmq_core.client.producer.send.fault_latency import FaultLatency, FaultLatencySettings
from pyrmq_core.client.routing.publish_info import COUNTER_MASK, TopicPublishInfo
from pyrmq_core.network import ConnectionPool, serve
from pyrmq_core.network.pool import MAX_CALLS
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import success
from tests.client.conftest import client, jumping_clock, stage
from tests.support.scripted import ROUTE, SEND, refuse, silence
from tests.support.stage import Stage, settled

__all__ = ["client", "jumping_clock", "stage"]

X = Message("orders", b"x")


def info_of(*brokers: str, queues: int = 2, start: int = 0) -> TopicPublishInfo:
    every = [MessageQueue("T", broker, number) for broker in brokers for number in range(queues)]
    return TopicPublishInfo("T", every, counter_start=start)


def test_line_61_the_counter() -> None:
    info = info_of("a", "b", start=COUNTER_MASK - 1)
    numbers = [info.next_number() for _ in range(3)]
    assert numbers == [COUNTER_MASK, 0, 1]
    assert [info.select_one_message_queue() for _ in range(4)] == [info.queues[(number + 2) % 4] for number in range(4)]


def test_lines_62_and_63_after_a_failure_another_broker_and_only_the_very_last_is_avoided() -> None:
    info = info_of("a", "b", "c")
    assert "a" not in {info.select_one_message_queue("a").broker_name for _ in range(12)}
    assert "a" in {info.select_one_message_queue("b").broker_name for _ in range(6)}
    assert info_of("a").select_one_message_queue("a").broker_name == "a"


def test_line_64_fault_latency() -> None:
    settings = FaultLatencySettings()
    assert settings.latency_max == (0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0)
    assert settings.not_available_duration == (0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0)
    assert not Producer("g", nameserver="127.0.0.1:1")._settings.send_latency_fault_enable  # off by default
    faults = FaultLatency(settings, draw=lambda below: 0)
    faults.update("a", 0.01, isolation=True, reachable=True, now=0)
    info = info_of("a", "b", "c")
    assert {faults.select(info, None, 1).broker_name for _ in range(12)} == {"b", "c"}
    for name in ("b", "c"):
        faults.update(name, 0.01, isolation=True, reachable=False, now=0)
    assert {faults.select(info, None, 1).broker_name for _ in range(6)} == {"a"}  # the least bad


async def test_line_65_every_try_teaches(stage: Stage, client: Client) -> None:
    stage.brokers["broker-a"].always(SEND, refuse(14))
    async with Producer("g", client=client, send_latency_fault_enable=True) as producer:
        for _ in range(12):
            await producer.send(X)
    assert len(stage.brokers["broker-a"].of(SEND)) == 1


async def test_line_66_a_dead_broker_leaves_with_the_next_round(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """At most 30 s of our own polling after the NameServer knows."""
    async with Producer("g", client=client) as producer:
        await producer.send(X)
        stage.topic("orders", brokers=["broker-b"])
        await trio.sleep(31)
        stage.brokers["broker-a"].seen.clear()
        assert Counter([(await producer.send(X)).message_queue.broker_name for _ in range(8)]) == {"broker-b": 8}
        await trio.sleep(60)
        assert [broker.broker_name for broker in client._session.routes.brokers] == ["broker-b"]
        assert stage.brokers["broker-a"].of(SEND, RequestCode.HEART_BEAT) == []


# --- Connection


async def test_lines_67_to_69_answers_find_their_callers_and_no_call_waits_for_ever(jumping_clock: MockClock) -> None:
    """By opaque, in any order; a broken wire and a silent peer end differently; no entry is left."""

    async def backwards(request: Command, peer: object) -> Command:
        await trio.sleep(1 - request.code / 100)
        return success({"code": str(request.code)})

    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(serve, backwards, "127.0.0.1", 0))
        pool = ConnectionPool(nursery)
        answers: dict[int, str] = {}

        async def ask(code: int) -> None:
            answers[code] = (await pool.call(listening.address, Command(code), timeout=5)).ext["code"]

        async with trio.open_nursery() as callers:
            for code in range(1, 50):
                callers.start_soon(ask, code)
        assert answers == {code: str(code) for code in range(1, 50)}
        with pytest.raises(CallTimeout, match="did not answer"):
            await pool.call(listening.address, Command(1), timeout=0.2)
        (connection,) = pool.connections
        assert connection.calls_under_way == 0
        async with trio.open_nursery() as callers:

            async def broken() -> None:
                with pytest.raises(ConnectionClosed) as caught:
                    await pool.call(listening.address, Command(1), timeout=5)
                assert caught.value.request_left

            callers.start_soon(broken)
            await settled()
            await listening.aclose()
        assert pool.connections == ()
        await pool.aclose()
        nursery.cancel_scope.cancel()


async def test_line_70_calls_are_bounded(jumping_clock: MockClock) -> None:
    assert MAX_CALLS == 65_535
    async with trio.open_nursery() as nursery:
        listening = await nursery.start(partial(serve, silence, "127.0.0.1", 0))
        pool = ConnectionPool(nursery, max_calls=2)

        async def hold() -> None:
            with pytest.raises(CallTimeout):
                await pool.call(listening.address, Command(1), timeout=10)

        for _ in range(2):
            nursery.start_soon(hold)
        await settled()
        with pytest.raises(CallTimeout, match="2 calls were under way") as caught:
            await pool.call(listening.address, Command(1), timeout=1)
        assert not caught.value.request_left
        await trio.sleep(11)
        await pool.aclose()
        nursery.cancel_scope.cancel()


async def test_line_71_an_absent_server_is_named(stage: Stage, client: Client) -> None:
    await client._session.routes.refresh("orders")
    address = stage.brokers["broker-a"].address
    await stage.brokers["broker-a"].stop()
    with pytest.raises(ConnectFailed, match=f"no connection to {address}") as caught:
        await client._session.call(address, Command(1))
    assert not caught.value.request_left
    assert ROUTE in stage.nameserver.codes
