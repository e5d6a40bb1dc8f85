"""Mistakes of users and of servers: each one clear line, with address, topic, code and what to do."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    InvalidMessage,
    Message,
    MessageQueue,
    NoNameServer,
    NoRoute,
    Outcome,
    Producer,
    PullConsumer,
    RocketMQError,
    SendFailed,
)
from pyrmq_core.protocol.framing.command import success
from tests.support.scripted import (
    ROUTE,
    SEND,
    answer,
    cut,
    raw_server,
    refuse,
    route_of,
    says,
    scripted_server,
    silence,
)
from tests.support.stage import Stage

TEXT = Message("orders", b"hello")


async def failure_of(
    nameserver: str | None, message: Message = TEXT, *, timeout: float = 20.0, queue: MessageQueue | None = None
) -> RocketMQError:
    """Returns the error of a send with a producer of its own."""
    with pytest.raises(RocketMQError) as caught:
        async with Producer("g", nameserver=nameserver) as producer:
            await producer.send(message, timeout=timeout, queue=queue)
    return caught.value


def check(error: RocketMQError, kind: type[RocketMQError], *parts: str) -> None:
    """Checks that the error is one line and contains all parts."""
    text = str(error)
    assert type(error) is kind
    assert "\n" not in text
    assert "  " not in text
    for part in parts:
        assert part in text, text


async def test_no_nameserver() -> None:
    error = await failure_of(None)
    check(error, NoNameServer, 'nameserver="host:port"', "nameServer", "NAMESRV_ADDR")
    assert (error.outcome, error.attempts) == (Outcome.NOT_STORED, ())


async def test_no_server_listens(stage: Stage) -> None:
    await stage.nameserver.stop()
    began = trio.current_time()
    error = await failure_of(stage.nameserver.address)
    check(error, NoNameServer, stage.nameserver.address, "nothing listens there", "check the addresses")
    assert trio.current_time() - began < 60
    assert (error.outcome, error.attempts) == (Outcome.NOT_STORED, ())


async def test_a_silent_nameserver(stage: Stage, jumping_clock: MockClock) -> None:
    stage.nameserver.always(ROUTE, silence)
    began = trio.current_time()
    error = await failure_of(stage.nameserver.address, timeout=2)
    assert trio.current_time() - began == pytest.approx(2, abs=0.1)
    check(error, NoNameServer, stage.nameserver.address, "GET_ROUTEINFO_BY_TOPIC (105)", "within 2 s")


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\n\r\n<html>", b"\x00" * 64, b"\xff" * 64])
async def test_a_nameserver_that_speaks_something_else(garbage: bytes) -> None:
    async with raw_server(says(garbage)) as address:
        check(await failure_of(address), NoNameServer, address, "not RocketMQ's", "check the addresses")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"queueDatas":7}', b'{"brokerDatas":[{}]}', b"\xff\xfe"])
async def test_a_nameserver_that_answers_garbage(body: bytes) -> None:
    async with scripted_server(answer(success(body=body))) as server:
        error = await failure_of(server.address)
    check(error, NoNameServer, server.address, "answered what cannot be read: route", "check the addresses")


async def test_a_body_above_the_limit(stage: Stage) -> None:
    error = await failure_of(stage.nameserver.address, replace(TEXT, body=b"x" * (4 * 1024 * 1024 + 1)))
    check(error, InvalidMessage, "topic orders", "4194305 bytes", "4194304 at most", "max_message_bytes")
    assert error.outcome is Outcome.NOT_STORED
    assert stage.sends() == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (replace(TEXT, topic="no spaces please"), "holds characters that RocketMQ does not take"),
        (replace(TEXT, topic=""), "a topic needs a name"),
        (replace(TEXT, topic="x" * 128), "has 128 characters; 127 at most"),
        (replace(TEXT, topic="SCHEDULE_TOPIC_XXXX"), "RocketMQ's own; nothing may be sent to it"),
        (replace(TEXT, body=b""), "the body is empty"),
        (replace(TEXT, body="text"), "has to be bytes"),  # type: ignore[arg-type]
    ],
)
async def test_a_message_that_breaks_the_rules(stage: Stage, message: Message, reason: str) -> None:
    check(await failure_of(stage.nameserver.address, message), InvalidMessage, reason)
    assert stage.nameserver.seen == []  # no request was sent


async def test_no_route_and_no_auto_creation(stage: Stage) -> None:
    error = await failure_of(stage.nameserver.address, replace(TEXT, topic="unheard"))
    check(
        error,
        NoRoute,
        "No route info of this topic: unheard",
        stage.nameserver.address,
        "create the topic",
        "autoCreateTopicEnable",
    )
    assert (error.outcome, error.attempts) == (Outcome.NOT_STORED, ())


async def test_reading_an_unknown_topic(stage: Stage) -> None:
    with pytest.raises(NoRoute) as caught:
        async with PullConsumer("g", nameserver=stage.nameserver.address) as consumer:
            await consumer.message_queues("unheard")
    check(caught.value, NoRoute, "unheard", stage.nameserver.address, "create the topic")


async def test_a_broker_that_refuses_the_topic(stage: Stage) -> None:
    """The NameServer's route is older than the broker's permission."""
    for server in stage.brokers.values():
        server.always(SEND, refuse(17, "topic[orders] not exist, apply first please!"))
    error = await failure_of(stage.nameserver.address)
    check(
        error,
        SendFailed,
        "Topic: orders",
        "TOPIC_NOT_EXIST (17): topic[orders] not exist",
        "create the topic",
        *stage.addresses.values(),
    )
    assert error.outcome is Outcome.NOT_STORED
    assert len(error.attempts) == 3


async def test_the_only_broker_dies_in_the_middle_of_a_write(stage: Stage) -> None:
    """It reads a part of the request and closes: the client cannot know what it stored."""

    async def read_some(stream: trio.SocketStream) -> None:
        await stream.receive_some(100)

    async with raw_server(read_some) as address:
        stage.table.routes["orders"] = route_of({"broker-a": address})
        error = await failure_of(stage.nameserver.address, replace(TEXT, body=b"x" * 2_000_000))
    check(error, SendFailed, "broker-a", address, "Topic: orders", "perhaps stored", "may store a second copy")
    assert error.outcome is Outcome.PERHAPS_STORED
    assert {attempt.broker_name for attempt in error.attempts} == {"broker-a"}


async def test_the_only_broker_is_gone(stage: Stage) -> None:
    stage.topic("orders", brokers=["broker-a"])
    await stage.brokers["broker-a"].stop()
    error = await failure_of(stage.nameserver.address)
    check(error, SendFailed, "broker-a", stage.addresses["broker-a"], "nothing listens there", "safe to send again")
    assert error.outcome is Outcome.NOT_STORED
    assert len(error.attempts) == 3


async def test_the_only_broker_cuts_every_connection(stage: Stage) -> None:
    stage.topic("orders", brokers=["broker-a"])
    stage.brokers["broker-a"].always(SEND, cut)
    error = await failure_of(stage.nameserver.address)
    check(error, SendFailed, "Send [3] times", stage.addresses["broker-a"], "may store a second copy")
    assert [attempt.outcome for attempt in error.attempts] == [Outcome.PERHAPS_STORED] * 3


async def test_a_silent_broker_without_another_beside_it(stage: Stage, jumping_clock: MockClock) -> None:
    stage.topic("orders", brokers=["broker-a"])
    stage.brokers["broker-a"].always(SEND, silence)
    began = trio.current_time()
    error = await failure_of(stage.nameserver.address, timeout=3)
    assert trio.current_time() - began == pytest.approx(3, abs=0.3)
    check(error, SendFailed, stage.addresses["broker-a"], "did not answer SEND_MESSAGE_V2 (310)", "allow more time")
    assert error.outcome is Outcome.PERHAPS_STORED


async def test_a_silent_broker_beside_another(stage: Stage, jumping_clock: MockClock) -> None:
    """The other takes over within one attempt's time, whatever the producer's own settings."""
    stage.brokers["broker-a"].always(SEND, silence)
    async with Producer("g", nameserver=stage.nameserver.address, timeout_per_attempt=0.4) as producer:
        for _ in range(8):  # each queue once
            began = trio.current_time()
            result = await producer.send(TEXT, timeout=30)
            assert trio.current_time() - began < 0.5
            assert result.message_queue.broker_name == "broker-b"


async def test_no_error_of_a_send_is_more_than_one_line(stage: Stage) -> None:
    """The error is one line, also when the broker's remark has many."""
    for server in stage.brokers.values():
        server.always(SEND, refuse(1, "java.lang.NullPointerException\n\tat a.b.C\n\tat d.e.F\n"))
    error = await failure_of(stage.nameserver.address)
    check(error, SendFailed, "NullPointerException")
