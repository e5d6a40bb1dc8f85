"""The trace of a producer: sent together, later and never at the cost of the sends."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, LocalTransactionState, Message, MessageExt, MessageQueue, Producer, SendFailed
from pyrmq_core.client.producer import trace_dispatcher as tracing
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from tests.support.scripted import BATCH, SEND, Step, answer, later, refuse, silence
from tests.support.stage import Stage
from tests.support.waiting import until

TRACE = "RMQ_SYS_TRACE_TOPIC"
A0 = MessageQueue("orders", "broker-a", 0)


def storing(**changes: object) -> Step:
    """Returns a step that stores any message at Java's place, and sets `changes` in the answer."""

    def step(request: Command, peer: Peer) -> Command:
        sent = SendMessage.from_command(request)
        stored = MessageStored(msg_ids="O", queue_id=sent.queue_id, queue_offset=7, region_id="east", trace_on="true")
        fields = {**stored.to_command().ext, **{name: str(value) for name, value in changes.items()}}
        return Command(0, {name: text for name, text in fields.items() if text != "None"})

    return step


@pytest.fixture
def traced(stage: Stage) -> Stage:
    stage.topic(TRACE, queues=1)
    for server in stage.brokers.values():
        server.always(SEND, storing())
    return stage


def traces(stage: Stage) -> list[SendMessage]:
    return [sent for _, sent in stage.sends() if sent.topic == TRACE]


def records(stage: Stage) -> list[list[str]]:
    """Returns every record's fields."""
    texts = [bytes(sent.body).decode() for sent in traces(stage)]
    return [record.split("\x01") for text in texts for record in text.split("\x02") if record]


async def test_a_send_is_traced_when_the_producer_ends_at_the_latest(traced: Stage, client: Client) -> None:
    async with Producer("g", client=client, trace=True) as producer:
        result = await producer.send(Message("orders", b"hello", tags="t", keys=["a", "b"]), queue=A0)
        assert traces(traced) == []
    (trace,) = traces(traced)
    (record,) = records(traced)
    assert (record[0], record[2:6]) == ("Pub", ["east", "g", "orders", result.msg_id])
    assert record[6:10] == ["t", "a b", traced.brokers["broker-a"].address, "5"]
    assert record[11:] == ["0", "O", "true"]
    assert record[1].isdecimal()
    assert record[10].isdecimal()
    assert trace.producer_group.startswith("_INNER_TRACE_PRODUCER-g-PRODUCE-")
    assert decode_properties(trace.properties or "")["KEYS"].split() == [result.msg_id, "a", "b"]


async def test_ten_leave_together(traced: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, trace=True) as producer:
        for _ in range(10):
            await producer.send(Message("orders", b"x"), queue=A0)
        await until(lambda: traces(traced), seconds=3)  # sooner than the 5 s after which any would leave
        assert len(records(traced)) == 10


async def test_fewer_leave_after_five_seconds(traced: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client, trace=True) as producer:
        await producer.send(Message("orders", b"x"))
        await trio.sleep(4)
        assert traces(traced) == []
        await trio.sleep(2)
        assert len(records(traced)) == 1


async def test_every_message_of_a_batch_has_a_record(traced: Stage, client: Client) -> None:
    for server in traced.brokers.values():
        server.always(BATCH, storing(msgId="O1,O2"))
    async with Producer("g", client=client, trace=True) as producer:
        results = await producer.send_batch(
            [Message("orders", b"1", tags="t", keys="k1"), Message("orders", b"22", tags="t", keys="k2")]
        )
    assert [[record[5], record[6], record[7], record[9], record[12]] for record in records(traced)] == [
        [results[0].msg_id, "t", "k1", "1", "O1"],
        [results[1].msg_id, "t", "k2", "2", "O2"],
    ]


@pytest.mark.parametrize("step", [refuse(13), storing(MSG_REGION=None), storing(TRACE_ON="false")])
async def test_what_is_not_traced(stage: Stage, client: Client, step: Step) -> None:
    """A send that failed, one without a region, and what the broker does not want traced, as in Java."""
    stage.topic(TRACE)
    for server in stage.brokers.values():
        server.always(SEND, step)
    async with Producer("g", client=client, trace=True) as producer:
        try:
            await producer.send(Message("orders", b"x"))
        except SendFailed:
            assert step is not None
    assert traces(stage) == []


async def test_a_status_other_than_ok_is_traced_as_such(traced: Stage, client: Client) -> None:
    stored = storing()
    for server in traced.brokers.values():
        server.on(SEND, lambda request, peer: Command(10, stored(request, peer).ext))  # type: ignore[union-attr]
    async with Producer("g", client=client, trace=True) as producer:
        await producer.send(Message("orders", b"x"))
    assert records(traced)[0][13] == "false"


async def test_kinds_and_costs(traced: Stage, client: Client, jumping_clock: MockClock) -> None:
    for server in traced.brokers.values():
        server.on(SEND, later(0.25, storing()))
    async with Producer("g", client=client, trace=True) as producer:
        await producer.send(Message("orders", b"x", delay_level=3), queue=A0)
    assert records(traced)[0][11] == "3"
    assert 250 <= int(records(traced)[0][10]) < 400


class Listener:
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


async def test_transactions_and_recalls_are_traced(traced: Stage, client: Client) -> None:
    for server in traced.brokers.values():
        server.always(SEND, storing(msgId="7F00000100002A9F0000000000001A0C", transactionId="TID"))
        server.always(RequestCode.RECALL_MESSAGE, answer(MessageRecalled("M-9").to_command()))
    async with Producer("g", client=client, trace=True, transaction_listener=Listener()) as producer:
        ended = await producer.send_in_transaction(
            Message("orders", b"x", tags="t", keys="k"), lambda *_: LocalTransactionState.COMMIT_MESSAGE
        )
        await producer.recall("orders", RecallHandle("orders", "broker-a", 1, "M-9").encode())
    pub, end, recall = records(traced)
    assert (pub[0], pub[11]) == ("Pub", "1")
    address = traced.brokers[ended.result.message_queue.broker_name].address
    assert end[0] == "EndTransaction"
    assert end[2:] == [
        "east",
        "g",
        "orders",
        ended.result.msg_id,
        "t",
        "k",
        address,
        "2",
        "TID",
        "COMMIT_MESSAGE",
        "false",
    ]
    assert (recall[0], recall[2:]) == ("Recall", ["east", "g", "orders", "M-9", "true"])


async def test_another_topic_may_take_them(traced: Stage, client: Client) -> None:
    traced.topic("my_traces")
    async with Producer("g", client=client, trace="my_traces") as producer:
        await producer.send(Message("orders", b"x"))
    assert [sent.topic for _, sent in traced.sends()] == ["orders", "my_traces"]


async def test_a_tenants_trace_names_what_the_tenant_knows(traced: Stage, client: Client) -> None:
    traced.topic("NS%orders")
    async with Producer("g", client=client, namespace="NS", trace=True) as producer:
        await producer.send(Message("orders", b"x"))
    assert records(traced)[0][3:5] == ["g", "orders"]


async def test_a_trace_that_cannot_be_sent_harms_nothing(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """First there is no trace topic, and no broker creates one; then its broker is silent."""
    async with Producer("g", client=client, trace=True) as producer:
        await producer.send(Message("orders", b"x"))
        await trio.sleep(6)
        stage.topic(TRACE)
        began = trio.current_time()
        await producer.send(Message("orders", b"x"))
        for server in stage.brokers.values():
            server.always(SEND, silence)
    assert trio.current_time() - began < 6  # leaving is bounded too


async def test_too_many_are_dropped(traced: Stage, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "QUEUE_RECORDS", 5)
    async with Producer("g", client=client, trace=True) as producer:
        for _ in range(8):
            await producer.send(Message("orders", b"x"))
    assert len(records(traced)) == 5


async def test_large_traces_are_divided(traced: Stage, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, count in (("MAX_TRACE_BYTES", 500, 3), ("MAX_KEYS_BYTES", 100, 3)):
        monkeypatch.setattr(tracing, name, value)
        before = len(traces(traced))
        async with Producer("g", client=client, trace=True) as producer:
            for _ in range(count * 2):
                await producer.send(Message("orders", b"x"))
        assert len(traces(traced)) - before >= count - 1
        monkeypatch.undo()
    assert len(records(traced)) == 12


async def test_without_it_nothing_is_traced(traced: Stage, client: Client) -> None:
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x"))
    assert traces(traced) == []
