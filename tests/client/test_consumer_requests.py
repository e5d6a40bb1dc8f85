"""Brokers' requests to a client's consumers: the member of their group, Java's answers without one, and nonsense."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
import trio

from pyrmq_core import Client, InvalidState, MessageExt, MessageQueue
from pyrmq_core.client.consumer.group import consumer_requests
from pyrmq_core.client.consumer.group.consumer_requests import ConsumerRequests
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.client.consume_message_directly import (
    CMResult,
    ConsumeDirectlyResult,
    ConsumeMessageDirectly,
)
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo, GetConsumerRunningInfo
from pyrmq_core.protocol.requests.client.get_consumer_status import ConsumerStatus, GetConsumerStatus
from pyrmq_core.protocol.requests.client.notify_consumer_ids_changed import NotifyConsumerIdsChanged
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset
from tests.client.transacting import checking_peer, half_record
from tests.support.stage import Stage

Q0 = MessageQueue("orders", "broker-a", 0)
DIRECT = ConsumeMessageDirectly("g", client_id="me", broker_name="broker-a", record=half_record())


@dataclass
class Member:
    """Records what it hears. `go` lets its listener end; `begun` counts the messages it got."""

    heard: list[object] = field(default_factory=list)
    go: trio.Event = field(default_factory=trio.Event)
    begun: int = 0

    def consumer_ids_changed(self) -> None:
        self.heard.append("changed")

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.heard.append((topic, offsets))

    def consumer_status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {Q0: 5} if topic == "orders" else {}

    def running_info(self, *, jstack: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo({"PROP_CONSUMEORDERLY": "false"}, jstack="main" if jstack else None)

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        self.begun += 1
        self.heard.append((message.topic, message.broker_name, message.body))
        await self.go.wait()
        return ConsumeDirectlyResult(consume_result=CMResult.LATER, spent_time_ms=3)


async def connected(stage: Stage, client: Client, **members: Member) -> Peer:
    """Returns broker-a's end of a connection to a client with these members."""
    for group, member in members.items():
        client._session.callbacks(ConsumerRequests).register(group, member)
    return await checking_peer(stage, client)


async def ask(peer: Peer, command: Command) -> Command:
    return await peer.connection.call(command, timeout=5)


async def test_each_request_reaches_the_member_of_its_group(stage: Stage, client: Client) -> None:
    member, other = Member(), Member()
    peer = await connected(stage, client, g=member, h=other)
    await peer.connection.send_oneway(NotifyConsumerIdsChanged("g").to_command(), timeout=3)
    reset = ResetConsumerOffset("orders", "g", -1, True, offsets={Q0: 7})
    await peer.connection.send_oneway(reset.to_command(), timeout=3)
    status = ConsumerStatus.from_command(await ask(peer, GetConsumerStatus("orders", "g").to_command()))
    assert (status.offsets, status.clients) == ({Q0: 5}, {})
    for jstack in (False, True):
        answer = await ask(peer, GetConsumerRunningInfo("g", "me", jstack).to_command())
        assert ConsumerRunningInfo.from_command(answer).jstack == ("main" if jstack else None)
    member.go.set()
    result = ConsumeDirectlyResult.from_command(await ask(peer, DIRECT.to_command()))
    assert (result.consume_result, result.spent_time_ms) == (CMResult.LATER, 3)
    assert member.heard == ["changed", ("orders", {Q0: 7}), ("orders", "broker-a", b"half")]
    assert other.heard == []


async def test_an_unknown_group_is_answered_as_java_does(stage: Stage, client: Client) -> None:
    member = Member()
    peer = await connected(stage, client, other=member)
    for command in (GetConsumerRunningInfo("g", "me").to_command(), DIRECT.to_command()):
        answer = await ask(peer, command)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "The Consumer Group <g> not exist in this consumer"
    status = await ask(peer, GetConsumerStatus("orders", "g").to_command())
    assert bytes(status.body) == b'{"consumerTable":{},"messageQueueTable":{}}'
    await peer.connection.send_oneway(NotifyConsumerIdsChanged("g").to_command(), timeout=3)
    await peer.connection.send_oneway(ResetConsumerOffset("orders", "g").to_command(), timeout=3)
    assert (await ask(peer, GetConsumerStatus("orders", "g").to_command())).code == ResponseCode.SUCCESS
    assert member.heard == []


async def test_a_member_that_left_hears_nothing(stage: Stage, client: Client) -> None:
    member = Member()
    peer = await connected(stage, client, g=member)
    client._session.callbacks(ConsumerRequests).unregister("g")
    client._session.callbacks(ConsumerRequests).unregister("g")
    assert (await ask(peer, DIRECT.to_command())).code == ResponseCode.SYSTEM_ERROR
    assert member.heard == []


def test_one_consumer_a_group() -> None:
    requests = ConsumerRequests()
    requests.register("g", Member())
    with pytest.raises(InvalidState, match=r"consumer group\[g\] has been created before"):
        requests.register("g", Member())


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (Command(307), "consumerGroup is missing"),
        (Command(221, {"group": "g"}), "topic is missing"),
        (Command(309, {"consumerGroup": "g"}), "0 bytes at byte 0 are no record"),
        (replace(DIRECT.to_command(), body=half_record() * 2), "2 messages"),
        (replace(DIRECT.to_command(), body=b"\x00" * 200), "begins no record"),
    ],
)
async def test_nonsense_is_refused_by_its_name(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture, command: Command, named: str
) -> None:
    caplog.set_level(logging.CRITICAL, "pyrmq_core.network")
    peer = await connected(stage, client, g=Member())
    answer = await ask(peer, command)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert named in (answer.remark or "")
    assert (await ask(peer, GetConsumerStatus("orders", "g").to_command())).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("body", [b"", b"{", b'{"offsetTable":{{"topic":5}:1}}', b"[" * 100_000])
async def test_a_reset_of_nonsense_changes_nothing(
    stage: Stage, client: Client, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    caplog.set_level(logging.CRITICAL, "pyrmq_core.network")
    member = Member()
    peer = await connected(stage, client, g=member)
    command = Command(220, {"topic": "orders", "group": "g", "timestamp": "0"}, body)
    await peer.connection.send_oneway(command, timeout=3)
    assert (await ask(peer, GetConsumerStatus("orders", "g").to_command())).code == ResponseCode.SUCCESS
    assert member.heard == ([] if body else [("orders", {})])


async def test_a_slow_listener_does_not_hold_the_connection(stage: Stage, client: Client) -> None:
    member = Member()
    peer = await connected(stage, client, g=member)
    answers: list[Command] = []

    async def consume() -> None:
        answers.append(await ask(peer, DIRECT.to_command()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        status = await ask(peer, GetConsumerStatus("orders", "g").to_command())
        assert ConsumerStatus.from_command(status).offsets == {Q0: 5}
        assert answers == []
        member.go.set()
    assert answers[0].code == ResponseCode.SUCCESS


async def test_a_listener_that_never_ends_has_a_bound(stage: Stage, client: Client) -> None:
    slow = ConsumerRequests(consume_seconds=0.01)
    for code, handler in slow.handlers().items():
        client._session.serve(code, handler)  # type: ignore[arg-type]  # the codes are RequestCodes
    slow.register("g", Member())
    peer = await checking_peer(stage, client)
    answer = await ask(peer, DIRECT.to_command())
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert answer.remark == "consumer <g> Timeout: its listener did not end within 0.01 s"


async def test_few_messages_are_consumed_directly_at_once(
    stage: Stage, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_requests, "CONSUMED_AT_ONCE", 2)
    member = Member()
    peer = await connected(stage, client, g=member)
    answers: list[Command] = []
    refused = trio.Event()

    async def consume() -> None:
        answers.append(await ask(peer, DIRECT.to_command()))
        refused.set()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(consume)
        with trio.fail_after(60):
            await refused.wait()
        assert answers[0].code == ResponseCode.SYSTEM_BUSY
        assert member.begun == 2
        member.go.set()
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY, 0, 0]
    assert (await ask(peer, DIRECT.to_command())).code == ResponseCode.SUCCESS
