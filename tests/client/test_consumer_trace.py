"""The trace of a consumer: two records a message and call of the handler, sent as a producer's are."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from pyrmq_core import Client, ConsumeContext, ConsumeReturnType, MessageExt, MessageQueue
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.client.consumer.consume.message_trace import ConsumerTracer
from pyrmq_core.client.producer import trace_dispatcher
from pyrmq_core.client.producer.send.send_options import SendSettings
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.producer.trace_dispatcher import CONSUME, open_tracing
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.properties import decode_properties
from tests.support.scripted import SEND, after
from tests.support.stage import Stage, settled
from tests.support.waiting import until

TRACE = "RMQ_SYS_TRACE_TOPIC"
QUEUE = MessageQueue("orders", "broker-a", 0)
FIRST = MessageExt(
    topic="orders",
    broker_name="broker-a",
    queue_id=0,
    queue_offset=0,
    body=b"x",
    properties={"KEYS": "k l", "MSG_REGION": "east", "TRACE_ON": "true"},
    flag=0,
    sys_flag=0,
    born_timestamp_ms=1,
    born_host="127.0.0.1:1",
    store_timestamp_ms=1,
    store_host="127.0.0.1:2",
    commit_log_offset=0,
    store_size=100,
    body_crc=0,
    reconsume_times=2,
    prepared_transaction_offset=0,
    msg_id="ID-1",
    offset_msg_id="O-1",
)
SECOND = replace(FIRST, properties={"MSG_REGION": "east"}, reconsume_times=0, msg_id="ID-2")


@pytest.fixture
def traced(stage: Stage) -> Stage:
    stage.topic(TRACE, queues=1)
    return stage


@asynccontextmanager
async def tracing(client: Client) -> AsyncIterator[tuple[ConsumerHooks, ConsumerTracer]]:
    async with open_owned_nursery() as nursery:
        tracer = ConsumerTracer(TRACE)
        async with open_tracing(tracer, nursery, client._session, "audit", CONSUME):
            yield ConsumerHooks([tracer]), tracer


def consume(
    hooks: ConsumerHooks,
    messages: Sequence[MessageExt],
    status: ConsumeReturnType = ConsumeReturnType.SUCCESS,
    seconds: float = 0.0,
) -> None:
    context = ConsumeContext("audit", None, tuple(messages), QUEUE)
    hooks.before(context)
    hooks.after(context.ended(status, seconds))


def records(stage: Stage) -> list[list[str]]:
    bodies = [bytes(sent.body).decode() for _, sent in stage.sends() if sent.topic == TRACE]
    return [record.split("\x01") for body in bodies for record in body.split("\x02") if record]


async def test_a_call_has_two_records_a_message(traced: Stage, client: Client) -> None:
    async with tracing(client) as (hooks, _):
        consume(hooks, [FIRST, SECOND], ConsumeReturnType.FAILED, 0.5)
    first, second, *after = records(traced)
    assert (first[0], first[2:4], first[5:]) == ("SubBefore", ["east", "audit"], ["ID-1", "2", "k l"])
    assert (second[0], second[2:4], second[5:]) == ("SubBefore", ["east", "audit"], ["ID-2", "0", "null"])
    request_id = first[4]
    assert second[4] == request_id
    assert [record[:7] for record in after] == [
        ["SubAfter", request_id, "ID-1", "250", "false", "k l", "4"],
        ["SubAfter", request_id, "ID-2", "250", "false", "null", "4"],
    ]
    assert [record[8:] for record in after] == [["audit"], ["audit"]]
    assert all(text.isdecimal() for text in (first[1], second[1], after[0][7], after[1][7]))
    ((_, sent),) = traced.sends()
    assert sent.producer_group.startswith("_INNER_TRACE_PRODUCER-audit-CONSUME-")
    assert decode_properties(sent.properties or "")["KEYS"].split() == ["ID-1", "k", "l", "ID-2"]


async def test_each_call_has_an_id_of_its_own(traced: Stage, client: Client) -> None:
    async with tracing(client) as (hooks, _):
        consume(hooks, [FIRST])
        consume(hooks, [FIRST])
    first, first_after, second, second_after = records(traced)
    assert first[4] == first_after[1] != second[4] == second_after[1]


@pytest.mark.parametrize("status", ConsumeReturnType)
async def test_the_record_after_says_how_it_ended(traced: Stage, client: Client, status: ConsumeReturnType) -> None:
    async with tracing(client) as (hooks, _):
        consume(hooks, [FIRST], status)
    success = "true" if status is ConsumeReturnType.SUCCESS else "false"
    assert (records(traced)[1][4], records(traced)[1][6]) == (success, str(status.value))


async def test_untraced_messages(traced: Stage, client: Client) -> None:
    """Messages that the broker does not want traced, and trace messages: else each would make two more for ever."""
    off = replace(SECOND, properties={"MSG_REGION": "east", "TRACE_ON": "false"})
    async with tracing(client) as (hooks, _):
        consume(hooks, [off])
        consume(hooks, [replace(FIRST, topic=TRACE)])
        consume(hooks, [off, FIRST], seconds=0.5)
    before, after = records(traced)
    assert (before[5], after[2], after[3]) == ("ID-1", "ID-1", "250")  # the time is divided among all of them


async def test_a_message_without_a_region_is_traced(traced: Stage, client: Client) -> None:
    async with tracing(client) as (hooks, _):
        consume(hooks, [replace(FIRST, properties={})])
    assert records(traced)[0][2] == "null"


async def test_ten_leave_together_with_a_producers_pace(traced: Stage, client: Client) -> None:
    async with tracing(client) as (hooks, _):
        for _ in range(5):
            consume(hooks, [FIRST])
        await until(lambda: records(traced))
        assert len(records(traced)) == 10


async def test_too_many_are_dropped_as_pairs(
    traced: Stage, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A consumer may be faster than its trace; a record without the other one would say little."""
    monkeypatch.setattr(trace_dispatcher, "QUEUE_RECORDS", 5)
    with caplog.at_level(logging.INFO):
        async with tracing(client) as (hooks, _):
            for _ in range(4):
                consume(hooks, [FIRST])
    assert [record[0] for record in records(traced)] == ["SubBefore", "SubAfter"] * 2
    assert "4 trace records were dropped" in caplog.text


async def test_a_trace_that_cannot_be_sent_is_logged_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with tracing(client) as (hooks, tracer):
            sender = Sender(client._session, SendSettings("g"))
            for _ in range(3):
                consume(hooks, [FIRST])
                await tracer.flush(sender)
    assert caplog.text.count("they could not be sent: No route info of this topic: RMQ_SYS_TRACE_TOPIC") == 1


async def test_the_end_waits_for_records_being_sent(traced: Stage, client: Client) -> None:
    answered, ended = trio.Event(), trio.Event()
    for server, store in zip(traced.brokers.values(), traced.stores.values(), strict=True):
        server.always(SEND, after(answered, store))

    async def trace() -> None:
        async with tracing(client) as (hooks, _):
            for _ in range(5):
                consume(hooks, [FIRST])
            await until(lambda: records(traced))
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trace)
        await until(lambda: records(traced))
        await settled()
        assert not ended.is_set()
        answered.set()
        with trio.fail_after(60):
            await ended.wait()
