"""Lines 47 to 60: the sends of a producer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    AnyQueue,
    Client,
    Command,
    InvalidMessage,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    ResponseError,
    SendContext,
    SendFailed,
    SendForbidden,
    SendStatus,
)
from pyrmq_core.client.producer.send.retry_policy import RETRY_RESPONSE_CODES
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from tests.client.conftest import client, jumping_clock, stage
from tests.support.scripted import BATCH, SEND, Step, answer, cut, refuse, silence, topics_asked
from tests.support.stage import Stage, settled
from tests.support.wire_forms import send_of_code_10

__all__ = ["client", "jumping_clock", "stage"]

X = Message("orders", b"x")
A0 = MessageQueue("orders", "broker-a", 0)
STORED = MessageStored(
    msg_ids="7F00000100002A9F0000000000001A0C", queue_id=2, queue_offset=5, transaction_id="T", region_id="east"
)


def always(stage: Stage, step: Step) -> None:
    for server in stage.brokers.values():
        server.always(SEND, step)
        server.always(BATCH, step)


def tried(stage: Stage) -> list[str]:
    return [name for name, _ in stage.sends()]


async def test_line_47_messages_are_checked_and_the_namespace_added(stage: Stage, client: Client) -> None:
    stage.topic("NS%orders")
    async with Producer("g", client=client, namespace="NS") as producer:
        for bad in (Message("or ders", b"x"), Message("orders", b""), Message("orders", b"x" * (4 * 1024 * 1024 + 1))):
            with pytest.raises(InvalidMessage):
                await producer.send(bad)
        await producer.send(X)
    assert [sent.topic for _, sent in stage.sends()] == ["NS%orders"]


async def test_line_48_three_modes_each_with_a_timeout(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("g", client=client) as producer:
        assert (await producer.send(X)).status is SendStatus.SEND_OK
        assert (await (await producer.send_soon(X)).wait()).status is SendStatus.SEND_OK
        await producer.send_oneway(X)
        await settled()
        assert [command.is_oneway for server in stage.brokers.values() for command in server.of(SEND)].count(True) == 1
        always(stage, silence)
        began = trio.current_time()
        with pytest.raises(SendFailed):
            await producer.send(X, timeout=1.5)
        assert trio.current_time() - began == pytest.approx(1.5, abs=0.2)
        pending = await producer.send_soon(X, timeout=2.5)
        with pytest.raises(SendFailed):
            await pending.wait()
        assert trio.current_time() - began == pytest.approx(4.0, abs=0.4)


async def test_line_49_how_often_each_mode_tries(stage: Stage, client: Client) -> None:
    always(stage, cut)
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed, match=r"Send \[3\] times"):
            await producer.send(X)
        with pytest.raises(SendFailed, match=r"Send \[3\] times"):
            await (await producer.send_soon(X)).wait()
        sends = len(stage.sends())
        await producer.send_oneway(X)
        await settled()
        assert len(stage.sends()) == sends + 1
    async with Producer(
        "h", client=client, retry_times_when_send_failed=1, retry_times_when_send_async_failed=0
    ) as producer:
        with pytest.raises(SendFailed, match=r"Send \[2\] times"):
            await producer.send(X)
        with pytest.raises(SendFailed, match=r"Send \[1\] times"):
            await (await producer.send_soon(X)).wait()


async def test_line_50_each_try_goes_elsewhere_until_the_time_is_over(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """In Java the first try may eat the whole time; ours shares it among the tries."""
    always(stage, silence)
    async with Producer("g", client=client) as producer:
        began = trio.current_time()
        with pytest.raises(SendFailed) as caught:
            await producer.send(X, timeout=3)
        assert trio.current_time() - began == pytest.approx(3, abs=0.3)
    names = [attempt.broker_name for attempt in caught.value.attempts]
    assert all(name != other for name, other in itertools.pairwise(names))
    assert f"BrokersSent: [{', '.join(names)}]" in str(caught.value)


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_line_51_another_broker_for_what_is_not_send_ok_only_with_the_setting(
    stage: Stage, client: Client, code: int
) -> None:
    always(stage, lambda request, peer: Command(code, STORED.to_command().ext))
    async with Producer("g", client=client) as plain:
        assert (await plain.send(X)).status is SendStatus(code)
        assert len(stage.sends()) == 1
    async with Producer("h", client=client, retry_another_broker_when_not_store_ok=True) as producer:
        assert (await producer.send(X)).status is SendStatus(code)
        assert len(stage.sends()) == 1 + 3


@pytest.mark.parametrize("code", [1, 2, 13, 14, 16, 17, 29, 204, 205])
async def test_line_52_which_codes_are_tried_again(stage: Stage, client: Client, code: int) -> None:
    """Sync: retryResponseCodes; async: none."""
    always(stage, refuse(code))
    async with Producer("g", client=client) as producer:
        with pytest.raises(SendFailed):
            await producer.send(X)
        assert len(stage.sends()) == (3 if code in RETRY_RESPONSE_CODES else 1)
        before = len(stage.sends())
        with pytest.raises(SendFailed):
            await (await producer.send_soon(X)).wait()
        assert len(stage.sends()) == before + 1
    assert set(RETRY_RESPONSE_CODES) == {17, 14, 1, 2, 16, 204, 205, 1500}


async def test_line_53_without_an_address_the_route_is_asked_for_once_more(stage: Stage, client: Client) -> None:
    stage.topic("orders", brokers=["broker-a"])
    async with Producer("g", client=client) as producer:
        await producer.send(X)
        stage.topic("orders")
        result = await producer.send(X, queue=MessageQueue("orders", "broker-b", 1))
        assert result.message_queue.broker_name == "broker-b"
        assert topics_asked(stage.nameserver) == ["orders", "orders"]


async def test_line_54_the_vip_channel_is_not_ours(stage: Stage, client: Client) -> None:
    """Sends go to the port of the route, never to port - 2."""
    async with Producer("g", client=client) as producer:
        await producer.send(X, queue=A0)
    assert len(stage.brokers["broker-a"].of(SEND)) == 1


class Listener:
    def check_local_transaction(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW


async def test_line_55_ids_compression_and_the_prepared_bit(stage: Stage, client: Client) -> None:
    always(stage, answer(STORED.to_command()))
    async with Producer("g", client=client, transaction_listener=Listener()) as producer:
        await producer.send(Message("orders", b"x" * 4095))
        await producer.send(Message("orders", b"x" * 4096))
        await producer.begin_transaction(X)
    (small, large, half) = [sent for _, sent in stage.sends()]
    assert [small.sys_flag, large.sys_flag, half.sys_flag] == [0, 769, 4]
    assert len({decode_properties(sent.properties or "")["UNIQ_KEY"] for sent in (small, large, half)}) == 3
    assert decode_properties(half.properties or "")["TRAN_MSG"] == "true"
    always(stage, answer(MessageStored(msg_ids="A,B", queue_id=0, queue_offset=0).to_command()))
    async with Producer("h", client=client) as producer:
        await producer.send_batch([X, X])
    assert "UNIQ_KEY" not in (stage.sends()[-1][1].properties or "")


async def test_line_56_hooks(stage: Stage) -> None:
    heard: list[str] = []

    class Everything:
        def check_forbidden(self, context: SendContext) -> None:
            heard.append("check")
            if bytes(context.payload.body) == b"no":
                raise ValueError("not this one")

        def send_message_before(self, context: SendContext) -> None:
            heard.append("before")

        def send_message_after(self, context: SendContext) -> None:
            heard.append("after")

    class Around:
        def do_before_request(self, address: str, request: Command) -> Command | None:
            heard.append(f"-> {request.code}")
            return None

        def do_after_response(self, address: str, request: Command, answer: Command) -> None:
            heard.append(f"<- {request.code}")

    async with (
        Client(nameserver=stage.nameserver.address, rpc_hooks=[Around()]) as client,
        Producer("g", client=client, hooks=[Everything()]) as producer,
    ):
        await producer.publish_info("orders")
        heard.clear()
        await producer.send(X)
        assert [word for word in heard if not word.endswith(" 34")] == ["check", "before", "-> 310", "<- 310", "after"]
        with pytest.raises(SendForbidden):
            await producer.send(Message("orders", b"no"))


async def test_line_57_the_header(stage: Stage, client: Client) -> None:
    stage.topic("%RETRY%g")
    async with Producer("g", client=client) as producer:
        await producer.send(Message("orders", b"x", flag=3), queue=A0)
        properties = "RECONSUME_TIME\x013\x02MAX_RECONSUME_TIMES\x0116\x02WAIT\x01true\x02"
        async with producer.open_window() as window:
            await window.put(Payload("%RETRY%g", b"x", 1, properties, unique_ids=("U",)), AnyQueue())
            await window.drain()
    (_, plain), (_, retried) = stage.sends()
    (command,) = stage.brokers["broker-a"].of(SEND)[:1]
    assert set(command.ext) == set("abcdefghijkmn")
    assert (plain.producer_group, plain.topic, plain.default_topic, plain.default_topic_queue_nums) == (
        "g",
        "orders",
        "TBW102",
        4,
    )
    assert (plain.queue_id, plain.sys_flag, plain.flag, plain.reconsume_times, plain.unit_mode, plain.batch) == (
        0,
        0,
        3,
        0,
        False,
        False,
    )
    assert plain.broker_name == "broker-a"
    assert (retried.reconsume_times, retried.max_reconsume_times) == (3, 16)
    assert decode_properties(retried.properties or "") == {"WAIT": "true"}


async def test_line_58_which_code(stage: Stage, client: Client) -> None:
    """310 for one message, 320 for a batch, 325 for a reply; 10 and 324 are read by our broker and never sent."""
    stage.topic("DefaultCluster_REPLY_TOPIC")
    reply = RequestCode.SEND_REPLY_MESSAGE_V2
    for server in stage.brokers.values():
        server.always(reply, answer(STORED.to_command()))
    requested = {"CLUSTER": "DefaultCluster", "CORRELATION_ID": "c", "REPLY_TO_CLIENT": "r"}
    async with Producer("g", client=client) as producer:
        await producer.send(X)
        await producer.send_batch([X, X])
        await producer.reply(read_message(requested), b"x")
    # Heartbeats and unregistration, and before a batch the query for the kind of the topic (351).
    beside = {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_TOPIC_CONFIG}
    codes = {code for server in stage.brokers.values() for code in server.codes} - beside
    assert codes == {310, 320, 325}
    long = send_of_code_10(SendMessage("g", "orders", "TBW102", 4, 0, 0, 1, 0, body=b"x"))
    assert (long.code, long.ext["producerGroup"]) == (10, "g")
    assert SendMessage.from_command(replace(long, code=324)).producer_group == "g"


def read_message(properties: dict[str, str]) -> MessageExt:
    return MessageExt("T", "b", 0, 0, b"", properties, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "M", "O")


async def test_line_59_a_message_is_never_changed(stage: Stage, client: Client) -> None:
    """Java puts the body back after it was compressed; our values do not change."""
    message = Message("orders", b"x" * 5000, keys="k")
    kept = replace(message)
    async with Producer("g", client=client, namespace=None) as producer:
        await producer.send(message)
    assert message == kept


async def test_line_60_the_answer(stage: Stage, client: Client) -> None:
    always(stage, answer(STORED.to_command()))
    async with Producer("g", client=client) as producer:
        result = await producer.send(X, queue=MessageQueue("orders", "broker-a", 2))
        ((_, sent),) = stage.sends()
        assert result.status is SendStatus.SEND_OK
        assert result.msg_id == decode_properties(sent.properties or "")["UNIQ_KEY"]
        assert result.offset_msg_id == "7F00000100002A9F0000000000001A0C"
        assert result.message_queue == MessageQueue("orders", "broker-a", 2)
        assert (result.queue_offset, result.region_id, result.transaction_id) == (5, "east", "T")
        always(stage, refuse(29, "request queueId[9] is illegal"))
        with pytest.raises(SendFailed, match=r"INVALID_PARAMETER \(29\): request queueId\[9\] is illegal") as caught:
            await producer.send(X)
    assert isinstance(caught.value.__cause__, ResponseError)
