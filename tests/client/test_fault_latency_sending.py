"""Fault latency on the send path: the times it learns, the queues it chooses next, and the detector."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import FaultLatencySettings, Message, MessageQueue, Producer, SendFailed
from pyrmq_core.client.client import Client
from pyrmq_core.protocol.framing.codes import RequestCode
from tests.support.scripted import SEND, later, refuse, silence
from tests.support.stage import Stage, staged

MAX_OFFSET = RequestCode.GET_MAX_OFFSET


async def sent_to(producer: Producer, count: int) -> Counter[str]:
    results = [await producer.send(Message("orders", b"x")) for _ in range(count)]
    return Counter(result.message_queue.broker_name for result in results)


async def test_a_broker_that_failed_is_left_alone_for_its_time(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].on(SEND, refuse(14))
    async with Producer("g", client=client, send_latency_fault_enable=True) as producer:
        await sent_to(producer, 8)
        assert len(stage.brokers["broker-a"].of(SEND)) == 1  # the one that failed, and none for 10 s
        await trio.sleep(9)
        assert await sent_to(producer, 8) == {"broker-b": 8}
        await trio.sleep(2)
        # Reachable again only with a success; without the detector that comes when nothing better is left.
        assert set(await sent_to(producer, 8)) == {"broker-a", "broker-b"}


async def test_without_it_the_failed_broker_is_tried_again_at_once(stage: Stage, client: Client) -> None:
    stage.brokers["broker-a"].on(SEND, refuse(14))
    async with Producer("g", client=client) as producer:
        assert set(await sent_to(producer, 12)) == {"broker-a", "broker-b"}


async def test_a_slow_broker_is_left_alone(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    stage.brokers["broker-a"].on(SEND, later(0.6, stage.stores["broker-a"]))
    async with Producer("g", client=client, send_latency_fault_enable=True) as producer:
        await sent_to(producer, 10)
        slow = len(stage.brokers["broker-a"].of(SEND))
        assert slow == 1
        assert await sent_to(producer, 10) == {"broker-b": 10}
        await trio.sleep(2)
        assert set(await sent_to(producer, 12)) == {"broker-a", "broker-b"}


async def test_the_numbers_of_4_are_a_setting(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    stage.brokers["broker-a"].on(SEND, refuse(14))
    async with Producer(
        "g", client=client, send_latency_fault_enable=True, fault_latency=FaultLatencySettings.release_4()
    ) as producer:
        await sent_to(producer, 10)
        await trio.sleep(590)
        assert await sent_to(producer, 10) == {"broker-b": 10}


async def test_the_only_broker_is_tried_all_the_same(stage: Stage, client: Client) -> None:
    stage.topic("orders", brokers=["broker-a"])
    stage.brokers["broker-a"].on(SEND, refuse(14), refuse(14), refuse(14))
    async with Producer("g", client=client, send_latency_fault_enable=True) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("orders", b"x"))
        assert await sent_to(producer, 1) == {"broker-a": 1}


async def test_a_given_queue_is_not_questioned(stage: Stage, client: Client) -> None:
    """Its failure is not recorded either: only free choices count, as in Java."""
    queue = MessageQueue("orders", "broker-a", 0)
    stage.brokers["broker-a"].on(SEND, refuse(14))
    async with Producer("g", client=client, send_latency_fault_enable=True) as producer:
        with pytest.raises(SendFailed):
            await producer.send(Message("orders", b"x"), queue=queue)
        await producer.send(Message("orders", b"x"), queue=queue)
        assert set(await sent_to(producer, 8)) == {"broker-a", "broker-b"}


async def test_the_detector_finds_a_broker_again(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    """With it a timed-out broker is unreachable until a probe every 3 s is answered within 0.2 s."""
    server = stage.brokers["broker-a"]
    server.on(SEND, silence)
    server.on(MAX_OFFSET, silence, later(0.3, stage.stores["broker-a"]))
    async with Producer(
        "g",
        client=client,
        send_latency_fault_enable=True,
        start_detector_enable=True,
        timeout_per_attempt=0.5,
    ) as producer:
        await sent_to(producer, 6)
        await server.wait_seen(MAX_OFFSET, 3)
        times = server.times_of(MAX_OFFSET)
        assert [after - before for before, after in itertools.pairwise(times)] == pytest.approx([3, 3], abs=0.4)
        await trio.sleep(2)
        assert set(await sent_to(producer, 12)) == {"broker-a", "broker-b"}


async def test_eight_brokers_with_bad_ones_among_them(jumping_clock: MockClock) -> None:
    """In real sends: the silent and the refusing broker each cost one try in ten seconds."""
    names = [f"broker-{letter}" for letter in "abcdefgh"]
    async with staged(*names) as stage:
        stage.topic("orders", queues=1)
        stage.brokers["broker-c"].always(SEND, later(0.8, stage.stores["broker-c"]))
        stage.brokers["broker-e"].always(SEND, silence)
        await stage.brokers["broker-g"].stop()
        async with Producer(
            "g", nameserver=stage.nameserver.address, send_latency_fault_enable=True, timeout_per_attempt=1.0
        ) as producer:
            stored = await sent_to(producer, 150)
        tries = {name: len(stage.brokers[name].of(SEND)) for name in names}
        assert tries["broker-e"] <= 2
        assert stored["broker-g"] == 0
        assert tries["broker-c"] <= 5
        for name in names:
            if name not in ("broker-c", "broker-e", "broker-g"):
                assert 24 <= stored[name] <= 36, stored
