"""Servers that answer nonsense: each call ends by name and in its time, and the client goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Admin, Client, Message, MessageQueue, Producer, PullConsumer
from pyrmq_core.blocking import Producer as BlockingProducer
from pyrmq_core.errors import NetworkError, NoNameServer, RocketMQError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.routes.route import MAX_QUEUES_PER_ROUTE
from tests.support.scripted import ROUTE, SEND, Step, answer, raw_server, says
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
# A deadline of calls, and what they may take beyond it on a busy machine.
SECONDS, SLACK = 2.0, 60.0


def queue_data(**members: Any) -> dict[str, Any]:
    plain = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
    return plain | members


def route(address: str = "127.0.0.1:1", **members: Any) -> bytes:
    brokers = [{"brokerAddrs": {"0": address}, "brokerName": "broker-a", "cluster": "C"}]
    plain = {"brokerDatas": brokers, "filterServerTable": {}, "queueDatas": [queue_data()]}
    return json.dumps(plain | members).encode()


def with_queues(count: Any) -> bytes:
    return route(queueDatas=[queue_data(readQueueNums=count, writeQueueNums=count)])


UNREADABLE = {
    "20 million queues": with_queues(20_000_000),
    "a few too many": with_queues(MAX_QUEUES_PER_ROUTE + 1),
    "billions of queues": with_queues(9 * 10**9),
    "too many together": route(
        queueDatas=[queue_data(brokerName=f"b{number}", readQueueNums=65_535) for number in range(5)],
        orderTopicConf=";".join(f"b{number}:65535" for number in range(5)),
    ),
    "an order of billions": route(orderTopicConf="broker-a:9000000000"),
    "an order of 5,000 digits": route(orderTopicConf="broker-a:" + "9" * 5000),
    "an order of words": route(orderTopicConf="broker-a:many"),
    "a count of 5,000 digits": with_queues("9" * 5000),
    "infinitely many": with_queues(float("inf")),
    "no number": with_queues(float("nan")),
    "an id of 5,000 digits": route(brokerDatas=[{"brokerAddrs": {"9" * 5000: "127.0.0.1:1"}, "brokerName": "b"}]),
    "addresses as a list": route(brokerDatas=[{"brokerAddrs": ["127.0.0.1:1"], "brokerName": "b"}]),
    "null among queues": route(queueDatas=[None]),
    "nested deeply": b'{"queueDatas":' * 5000 + b"1" + b"}" * 5000,
    "a list": b"[]",
    "null": b"null",
    "nothing": b"",
    "no text": b"\xff\xfe\x00",
}
BAD_ADDRESSES = ["127.0.0.1:" + "1" * 5000, "127.0.0.1:70000", "127.0.0.1:-1", "nonsense", "a\0b:1", "a" * 300 + ":1"]


def instead_of(stage: Stage, topic: str, body: bytes) -> Step:
    """This route for the topic; others have theirs."""

    def step(request: Command, peer: Peer) -> Command:
        return Command(0, {}, body) if request.ext["topic"] == topic else stage.table(request, peer)

    return step


async def ends_in_time(call: Callable[[], Awaitable[object]], *kinds: type[RocketMQError]) -> RocketMQError:
    began = time.monotonic()
    with pytest.raises(kinds or RocketMQError) as caught:
        await call()
    assert time.monotonic() - began < SECONDS + SLACK
    return caught.value


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_route_that_cannot_be_ends_the_calls_that_need_it(stage: Stage, body: bytes) -> None:
    stage.nameserver.always(ROUTE, instead_of(stage, "bad", body))
    address = stage.nameserver.address
    async with (
        Producer("g", nameserver=address, send_timeout=SECONDS) as producer,
        PullConsumer("c", nameserver=address, timeout=SECONDS) as consumer,
    ):
        await ends_in_time(lambda: producer.send(Message("bad", b"x")), NoNameServer)
        pending = await producer.send_soon(Message("bad", b"x"))
        await ends_in_time(pending.wait)
        await ends_in_time(lambda: consumer.message_queues("bad"), NoNameServer)
        assert (await producer.send(Message("orders", b"x"))).queue_offset == 0
        assert len(await consumer.message_queues("orders")) == 8


@pytest.mark.parametrize("address", BAD_ADDRESSES, ids=range(len(BAD_ADDRESSES)))
async def test_a_broker_without_a_real_address_is_reported_as_the_servers_mistake(stage: Stage, address: str) -> None:
    """The error is no bug of the caller: it names the route or the broker that it came from."""
    stage.nameserver.always(ROUTE, instead_of(stage, "bad", route(address)))
    nameserver = stage.nameserver.address
    async with (
        Producer("g", nameserver=nameserver, send_timeout=SECONDS) as producer,
        PullConsumer("c", nameserver=nameserver, timeout=SECONDS) as consumer,
    ):
        queue = MessageQueue("bad", "broker-a", 0)
        for error in (
            await ends_in_time(lambda: producer.send(Message("bad", b"x"))),
            await ends_in_time(lambda: consumer.max_offset(queue), NetworkError, NoNameServer),
            await ends_in_time(lambda: consumer.pull(queue, 0), NetworkError, NoNameServer),
        ):
            assert not isinstance(error, ValueError)
        stage.nameserver.always(ROUTE, None)
        assert len(await consumer.message_queues("orders")) == 8
        assert (await producer.send(Message("orders", b"x"))).queue_offset == 0


ANSWERS = {
    "nothing": Command(0, {}),
    "no number": Command(0, {"offset": "x", "queueOffset": "x", "queueId": "x", "msgId": "x"}, b"x"),
    "5,000 digits": Command(0, {"offset": "9" * 5000, "queueOffset": "9" * 5000, "queueId": "9" * 5000, "msgId": ""}),
    "beyond 64 bits": Command(0, {"offset": str(2**63), "queueOffset": str(2**63), "queueId": "0", "msgId": "m"}),
    "far below nothing": Command(0, {"offset": str(-(2**63)), "nextBeginOffset": "x"}, b"\xff" * 99),
    "nested": Command(0, {}, b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "a list": Command(0, {}, b"[1,2,3]"),
    "a strange code": Command(2**31 - 1, {}, b"", remark="what"),
}


@pytest.mark.parametrize("nonsense", ANSWERS.values(), ids=ANSWERS)
async def test_any_answer_of_a_broker_ends_its_call_alone(
    stage: Stage, client: Client, jumping_clock: MockClock, nonsense: Command
) -> None:
    broker = stage.brokers["broker-a"]
    codes = (
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
    )
    async with PullConsumer("c", client=client, timeout=SECONDS) as consumer:
        await consumer.message_queues("orders")
        for code in codes:
            broker.always(code, answer(nonsense))
        for call in (
            lambda: consumer.max_offset(A0),
            lambda: consumer.min_offset(A0),
            lambda: consumer.offset_bounds([A0]),
            lambda: consumer.offsets_at({A0: 5}),
            lambda: consumer.committed(A0),
            lambda: consumer.pull(A0, 0),
            lambda: consumer.mean_sizes({A0: 0}),
        ):
            await ends_in_time(call)
        for code in codes:
            broker.always(code, None)
        assert await consumer.max_offset(A0) == 0


async def test_a_queue_that_begins_behind_its_end_is_named(stage: Stage, client: Client) -> None:
    stage.brokers["broker-a"].always(RequestCode.GET_MIN_OFFSET, answer(Command(0, {"offset": "7"})))
    async with PullConsumer("c", client=client) as consumer:
        await consumer.message_queues("orders")
        error = await ends_in_time(lambda: consumer.offset_bounds([A0]))
    assert "orders/broker-a/0 begins at offset 7 and ends at 0" in str(error)


@pytest.mark.parametrize("nonsense", ANSWERS.values(), ids=ANSWERS)
async def test_any_answer_of_a_nameserver_ends_its_call_alone(
    stage: Stage, jumping_clock: MockClock, nonsense: Command
) -> None:
    async with Admin(nameserver=stage.nameserver.address, timeout=SECONDS) as admin:
        for code in (RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ROUTE):
            stage.nameserver.always(code, answer(nonsense))
        if nonsense.body or nonsense.code:
            await ends_in_time(lambda: admin.topics.list())
        await ends_in_time(lambda: admin.cluster_info())
        await ends_in_time(lambda: admin.route("orders"))
        await ends_in_time(lambda: admin.create_topic("new"))
        stage.nameserver.always(ROUTE, None)
        assert len((await admin.route("orders")).queue_datas) == 2


NESTED = b'{"code":0,"extFields":{"a":' + b"[" * 3000 + b"]" * 3000 + b"}}"
FRAMES = {
    "a nested header": (4 + len(NESTED)).to_bytes(4, "big") + len(NESTED).to_bytes(4, "big") + NESTED,
    "garbage": b"\x00\x00\x00\x20" + b"\xff" * 32,
    "no frame": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an endless frame": b"\x7f\xff\xff\xff" + b"\x00" * 100,
    "a negative frame": b"\xff\xff\xff\xff" + b"\x00" * 100,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_bytes_that_are_no_answer_end_the_call_and_not_the_client(stage: Stage, frame: bytes) -> None:
    async with raw_server(says(frame)) as stranger, Client(nameserver=stage.nameserver.address) as client:
        stage.nameserver.always(ROUTE, instead_of(stage, "bad", route(stranger)))
        async with (
            Producer("g", client=client, send_timeout=SECONDS) as producer,
            PullConsumer("c", client=client, timeout=SECONDS) as consumer,
        ):
            await ends_in_time(lambda: producer.send(Message("bad", b"x")))
            await ends_in_time(lambda: consumer.max_offset(MessageQueue("bad", "broker-a", 0)))
            stage.nameserver.always(ROUTE, None)
            await consumer.message_queues("orders")
            assert (await producer.send(Message("orders", b"x"))).queue_offset == 0
        async with Producer("g", nameserver=stranger, send_timeout=SECONDS) as lost:
            await ends_in_time(lambda: lost.send(Message("orders", b"x")), NoNameServer)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_the_loop_of_blocking_clients_outlives_what_it_is_answered(stage: Stage, frame: bytes) -> None:
    def blocked(stranger: str) -> int:
        with (
            BlockingProducer("b", nameserver=stranger, send_timeout=SECONDS) as lost,
            BlockingProducer("b", nameserver=stage.nameserver.address, send_timeout=SECONDS) as honest,
        ):
            for _ in range(3):
                with pytest.raises(RocketMQError):
                    lost.send(Message("orders", b"x"))
                with pytest.raises(RocketMQError):
                    lost.send_soon(Message("orders", b"x")).result(timeout=SECONDS + SLACK)
            return honest.send(Message("orders", b"x")).queue_offset

    async with raw_server(says(frame)) as stranger:
        assert await trio.to_thread.run_sync(blocked, stranger) == 0


@pytest.mark.parametrize("nonsense", ANSWERS.values(), ids=ANSWERS)
async def test_a_send_that_is_answered_nonsense_fails_alone(stage: Stage, nonsense: Command) -> None:
    async with Producer("g", nameserver=stage.nameserver.address, send_timeout=SECONDS) as producer:
        await producer.send(Message("orders", b"first"))
        for broker in stage.brokers.values():
            broker.always(SEND, answer(nonsense))
        await ends_in_time(lambda: producer.send(Message("orders", b"x")))
        pending = await producer.send_soon(Message("orders", b"x"))
        await ends_in_time(pending.wait)
        for broker in stage.brokers.values():
            broker.always(SEND, None)
        assert (await producer.send(Message("orders", b"x"))).queue_offset >= 0
