"""Requests and replies: the properties of a request, the brokers that know its sender, and how each wait ends."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    Client,
    InvalidArgument,
    Message,
    MessageExt,
    MessageQueue,
    Outcome,
    Producer,
    RequestTimeout,
    SendFailed,
)
from pyrmq_core.client.producer.request_reply import Replies
from pyrmq_core.errors import RecordError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.requests.broker.send_message import MessageStored, SendMessage
from pyrmq_core.protocol.requests.client.push_reply import PushReply
from tests.support.scripted import ROUTE, SEND, answer, later, refuse, topics_asked
from tests.support.stage import Stage, settled

BEAT = RequestCode.HEART_BEAT
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
A0 = MessageQueue("orders", "broker-a", 0)
Step = Callable[[Command, Peer], Awaitable[Command | None]]


def pushed(properties: dict[str, str], body: bytes = b"the reply", sys_flag: int = 0) -> PushReply:
    return PushReply(
        producer_group="repliers",
        topic="DefaultCluster_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        flag=0,
        properties=encode_properties({**properties, "PUSH_REPLY_TIME": "5"}),
        body=body,
    )


class Replier:
    """A broker that stores a request and pushes its reply, before or after the acknowledgement, over `through`."""

    def __init__(self, stage: Stage, *, before: bool = False, through: str | None = None) -> None:
        self._stage = stage
        self._before = before
        self._through = through
        self.answers: list[Command] = []
        self.requests: list[dict[str, str]] = []

    async def __call__(self, request: Command, peer: Peer) -> Command | None:
        sent = SendMessage.from_command(request)
        self.requests.append(decode_properties(sent.properties or ""))
        stored = self._stage.stores["broker-a"].store(sent)
        if not self._before:
            peer.connection.answer(request, stored)
        await self._push(peer)
        return stored if self._before else None

    async def _push(self, peer: Peer) -> None:
        if self._through is not None:  # a replier may choose any broker; that one pushes over its own connection
            server = self._stage.brokers[self._through]
            await server.wait_seen(BEAT)
            peer = server.seen[-1].peer
        push = pushed(self.requests[-1]).to_command()
        self.answers.append(await peer.connection.call(push, timeout=3))


def all_reply(stage: Stage, replier: Step) -> None:
    for server in stage.brokers.values():
        server.always(SEND, replier)


@pytest.mark.parametrize("before", [False, True])
async def test_a_reply_ends_the_wait(stage: Stage, client: Client, before: bool) -> None:
    """The reply may come before the request is acknowledged or after."""
    replier = Replier(stage, before=before)
    all_reply(stage, replier)
    async with Producer("askers", client=client) as producer:
        reply = await producer.request(Message("orders", b"how much?", tags="t"), timeout=5)
    assert (reply.body, reply.topic) == (b"the reply", "DefaultCluster_REPLY_TOPIC")
    assert reply.properties["ARRIVE_TIME"].isdecimal()
    (requested,) = replier.requests
    assert str(uuid.UUID(requested["CORRELATION_ID"])) == requested["CORRELATION_ID"]
    assert requested["REPLY_TO_CLIENT"] == client.client_id
    assert requested["TTL"] == "5000"
    assert requested["TAGS"] == "t"
    assert [answered.code for answered in replier.answers] == [0]


async def test_a_reply_may_come_through_another_broker(stage: Stage, client: Client) -> None:
    """Every broker of the cluster has the sender's heartbeat before the request."""
    all_reply(stage, Replier(stage, through="broker-b"))
    async with Producer("askers", client=client) as producer:
        reply = await producer.request(Message("orders", b"?"), queue=A0, timeout=5)
    assert reply.body == b"the reply"


async def test_brokers_of_the_reply_topic_count_too(stage: Stage, client: Client) -> None:
    """Java knows the request topic's brokers alone, and misses replies that come through others."""
    stage.topic("here", brokers=["broker-a"])
    stage.topic("DefaultCluster_REPLY_TOPIC", queues=1)
    stage.brokers["broker-a"].always(SEND, Replier(stage, through="broker-b"))
    async with Producer("askers", client=client) as producer:
        for _ in range(2):
            assert (await producer.request(Message("here", b"?"), timeout=5)).body == b"the reply"
    assert topics_asked(stage.nameserver).count("DefaultCluster_REPLY_TOPIC") == 1


async def test_many_wait_at_once_each_for_its_own(stage: Stage, client: Client) -> None:
    async def echo(request: Command, peer: Peer) -> Command | None:
        sent = SendMessage.from_command(request)
        peer.connection.answer(request, stage.stores["broker-a"].store(sent))
        push = pushed(decode_properties(sent.properties or ""), bytes(sent.body) + b"!")
        await peer.connection.call(push.to_command(), timeout=3)
        return None

    all_reply(stage, echo)
    replies: dict[int, bytes] = {}

    async def one(number: int) -> None:
        replies[number] = (await producer.request(Message("orders", b"%d" % number), timeout=5)).body

    async with Producer("askers", client=client) as producer, trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(one, number)
    assert replies == {number: b"%d!" % number for number in range(50)}


async def test_no_reply_in_time(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    async with Producer("askers", client=client) as producer:
        began = trio.current_time()
        with pytest.raises(RequestTimeout, match=r"to broker-\w OK, but wait reply message timeout, 2"):
            await producer.request(Message("orders", b"?"), timeout=2)
        assert trio.current_time() - began == pytest.approx(2, abs=0.1)
    assert RequestTimeout.outcome is Outcome.STORED
    assert client._session.callbacks(Replies)._awaited == {}


async def test_a_slow_route_for_a_selector_counts_as_time(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.nameserver.always(ROUTE, later(3, stage.table))
    async with Producer("askers", client=client) as producer:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await producer.request(Message("orders", b"?"), timeout=60, select=lambda queues, _: queues[0])
        assert trio.current_time() - began < 62


async def test_a_request_that_cannot_be_sent(stage: Stage, client: Client) -> None:
    for server in stage.brokers.values():
        server.always(SEND, refuse(16, "no"))
    async with Producer("askers", client=client) as producer:
        with pytest.raises(SendFailed, match="NO_PERMISSION"):
            await producer.request(Message("orders", b"?"), timeout=2)
    assert client._session.callbacks(Replies)._awaited == {}


async def test_a_late_or_unknown_reply_is_acknowledged_and_dropped(stage: Stage, client: Client) -> None:
    server = stage.brokers["broker-a"]
    async with Producer("askers", client=client):
        pass  # its replies may come when it has ended
    await client._session.routes.refresh("orders")
    await client._session.heartbeats.send_now(server.address)
    for properties in ({"CORRELATION_ID": "nobody"}, {}):
        answered = await server.seen[-1].peer.connection.call(pushed(properties).to_command(), timeout=3)
        assert answered.code == 0


async def test_a_reply_is_unpacked(stage: Stage, client: Client) -> None:
    async def step(request: Command, peer: Peer) -> Command | None:
        sent = SendMessage.from_command(request)
        properties = decode_properties(sent.properties or "")
        for body, sys_flag in ((b"cut short", 769), (compress(b"long " * 500, CompressionType.ZLIB), 769)):
            codes.append((await peer.connection.call(pushed(properties, body, sys_flag).to_command(), timeout=3)).code)
        return stage.stores["broker-a"].store(sent)

    codes: list[int] = []
    all_reply(stage, step)
    async with Producer("askers", client=client) as producer:
        assert (await producer.request(Message("orders", b"?"), timeout=5)).body == b"long " * 500
    assert codes == [1, 0]  # what cannot be unpacked is refused, and the wait goes on


async def test_a_timeout_names_the_reply_that_could_not_be_read(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    async def step(request: Command, peer: Peer) -> Command | None:
        properties = decode_properties(SendMessage.from_command(request).properties or "")
        await peer.connection.call(pushed(properties, b"cut short", 769).to_command(), timeout=3)
        return stage.stores["broker-a"].store(SendMessage.from_command(request))

    all_reply(stage, step)
    async with Producer("askers", client=client) as producer:
        with pytest.raises(RequestTimeout, match="a reply came that cannot be read: a body is marked") as caught:
            await producer.request(Message("orders", b"?"), timeout=5)
    assert isinstance(caught.value.__cause__, RecordError)


async def test_a_cancelled_asker_leaves_nothing(stage: Stage, client: Client) -> None:
    async with Producer("askers", client=client) as producer:
        with trio.move_on_after(0.2):
            await producer.request(Message("orders", b"?"), timeout=60)
        assert client._session.callbacks(Replies)._awaited == {}


# --- The other side


def received(**properties: str) -> MessageExt:
    """Returns a request as a consumer of broker-a read it."""
    texts = {"CLUSTER": "DefaultCluster", "CORRELATION_ID": "c-1", "REPLY_TO_CLIENT": "someone@1", "TTL": "3000"}
    merged = {**texts, **properties}
    push = pushed({})
    return replace(push.message(), properties={name: value for name, value in merged.items() if value}, msg_id="M-1")


async def test_a_reply_goes_to_the_clusters_topic(stage: Stage, client: Client) -> None:
    stage.topic("DefaultCluster_REPLY_TOPIC", queues=1)
    stored = MessageStored(msg_ids="0", queue_id=0, queue_offset=0)
    for server in stage.brokers.values():
        server.always(REPLY, answer(stored.to_command()))
    async with Producer("repliers", client=client, namespace="NS") as producer:
        await producer.reply(received(), b"forty-two", properties={"colour": "red"})
    (command,) = [
        seen.command for server in stage.brokers.values() for seen in server.seen if seen.command.code == REPLY
    ]
    sent = SendMessage.from_command(command)
    assert (sent.topic, bytes(sent.body), sent.sys_flag) == ("DefaultCluster_REPLY_TOPIC", b"forty-two", 0)
    properties = decode_properties(sent.properties or "")
    assert {name: properties[name] for name in ("MSG_TYPE", "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "colour")} == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "someone@1",
        "TTL": "3000",
        "colour": "red",
    }
    assert topics_asked(stage.nameserver) == ["DefaultCluster_REPLY_TOPIC"]


async def test_a_reply_that_is_not_pushed_is_a_failed_send(stage: Stage, client: Client) -> None:
    stage.topic("DefaultCluster_REPLY_TOPIC", queues=1)
    for server in stage.brokers.values():
        server.always(REPLY, refuse(1, "push reply message fail, channel of <someone@1> not found."))
    async with Producer("repliers", client=client) as producer:
        with pytest.raises(SendFailed, match="channel of <someone@1> not found"):
            await producer.reply(received(), b"forty-two")


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
async def test_what_is_no_request_cannot_be_answered(stage: Stage, client: Client, missing: str) -> None:
    async with Producer("repliers", client=client) as producer:
        with pytest.raises(InvalidArgument, match=rf"create reply message fail, .*property\[{missing}\] is null"):
            await producer.reply(received(**{missing: ""}), b"x")
    assert ROUTE not in stage.nameserver.codes
    await settled()
