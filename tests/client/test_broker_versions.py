"""Delays: the properties of the three forms, and that an old broker never gets one it would deliver at once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from trio.testing import MockClock

from pyrmq_core import Client, InvalidMessage, Message, MessageQueue, NetworkError, Outcome, Producer, SendFailed
from pyrmq_core.client.producer.send.send_options import AnyQueue
from pyrmq_core.client.unique_ids import unique_ids
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import refusal, success
from pyrmq_core.protocol.messages.payload import encode_one
from pyrmq_core.protocol.messages.properties import decode_properties
from tests.support.scripted import SEND, Step, answer, silence
from tests.support.stage import Stage

BEAT = RequestCode.HEART_BEAT
A0 = MessageQueue("orders", "broker-a", 0)
V4_9_7, V5_0_0, V5_4_0 = 407, 413, 493
WHEN = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


def version(number: int) -> Step:
    return lambda request, peer: replace(success(), version=number)


def of_version(stage: Stage, number: int) -> None:
    for server in stage.brokers.values():
        server.always(BEAT, version(number))


@pytest.mark.parametrize(
    ("message", "name", "value"),
    [
        (Message("orders", b"x", delay_level=3), "DELAY", "3"),
        (Message("orders", b"x", deliver_at=WHEN), "TIMER_DELIVER_MS", "1893553445678"),
        (Message("orders", b"x", delay=timedelta(seconds=1.5)), "TIMER_DELAY_MS", "1500"),
    ],
)
async def test_what_travels(stage: Stage, client: Client, message: Message, name: str, value: str) -> None:
    of_version(stage, V5_4_0)
    async with Producer("g", client=client) as producer:
        await producer.send(message)
    assert decode_properties(stage.sends()[0][1].properties or "")[name] == value


@pytest.mark.parametrize("number", [V4_9_7, V5_0_0 - 1, 0])
async def test_an_old_broker_is_refused_by_name(stage: Stage, client: Client, number: int) -> None:
    of_version(stage, number)
    late = Message("orders", b"x", delay=timedelta(hours=1))
    async with Producer("g", client=client) as producer:
        for send in (producer.send, producer.send_oneway):
            with pytest.raises(
                InvalidMessage, match=rf"need brokers of 5.0 or later; broker-.* \(version {number}\)"
            ) as e:
                await send(late)
            assert e.value.outcome is Outcome.NOT_STORED
        pending = await producer.send_soon(late)
        with pytest.raises(InvalidMessage, match="use delay_level"):
            await pending.wait()
        async with producer.open_window() as window:
            await window.put(encode_one(late, unique_ids(1)[0]), AnyQueue())
            with pytest.raises(InvalidMessage):
                await window.drain()
        await producer.send(Message("orders", b"x", delay_level=3))  # this every broker knows
    assert len(stage.sends()) == 1


async def test_the_first_5_0_is_young_enough(stage: Stage, client: Client) -> None:
    of_version(stage, V5_0_0)
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x", delay=timedelta(hours=1)))
    assert len(stage.sends()) == 1


async def test_a_broker_without_a_version_gets_nothing(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    for server in stage.brokers.values():
        server.always(BEAT, silence)
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed, match=r"was not sent, because broker-\w did not report its version") as caught:
            await producer.send(Message("orders", b"x", deliver_at=WHEN), timeout=3)
    assert caught.value.outcome is Outcome.NOT_STORED
    assert isinstance(caught.value.__cause__, NetworkError)
    assert stage.sends() == []


async def test_a_refused_heartbeat_still_gives_the_version(stage: Stage, client: Client) -> None:
    """A broker with authentication on refuses the heartbeat of a stranger, in an answer of its version."""
    for server in stage.brokers.values():
        server.always(BEAT, answer(replace(refusal(16, "username cannot be null."), version=V5_4_0)))
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x", deliver_at=WHEN))
    assert len(stage.brokers["broker-a"].of(SEND) + stage.brokers["broker-b"].of(SEND)) == 1


async def test_the_version_is_asked_once(stage: Stage, client: Client) -> None:
    of_version(stage, V5_4_0)
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"), queue=A0)
        await stage.heard_of("broker-a")
        beats = len(stage.brokers["broker-a"].of(BEAT))
        for _ in range(5):
            await producer.send(Message("orders", b"x", delay=timedelta(seconds=9)), queue=A0)
        assert len(stage.brokers["broker-a"].of(BEAT)) == beats


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Message("T", b"x", delay_level=0), "levels are 1"),
        (Message("T", b"x", delay_level=19), "levels are 1"),
        (Message("T", b"x", delay=timedelta(0)), "more than nothing"),
        (Message("T", b"x", delay=timedelta(days=-3)), "more than nothing"),
        (Message("T", b"x", deliver_at=datetime(2030, 1, 1)), "has no time zone"),
        (Message("T", b"x", delay_level=1, delay=timedelta(1)), "exclude one another"),
    ],
)
async def test_what_cannot_be_a_delay_is_reported_before_anything_is_sent(
    stage: Stage, client: Client, message: Message, text: str
) -> None:
    async with Producer("g", client=client) as producer:
        with pytest.raises(InvalidMessage, match=text):
            await producer.send(message)
    assert stage.nameserver.seen == []
