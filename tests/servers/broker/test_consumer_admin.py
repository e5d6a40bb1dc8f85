"""An administrator's requests about consumers: offsets reset, requests passed on to a client, offsets in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pyrmq_core.model import MessageQueue
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.object_keys import load_object_keys
from pyrmq_core.protocol.messages.queue_tables import queue_table_from
from pyrmq_core.protocol.requests.broker.consumer_admin import GetStatusOfConsumers, OffsetsReset, ResetOffset
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.requests.broker.send_message import MessageStored
from pyrmq_core.protocol.requests.client.consume_message_directly import (
    CMResult,
    ConsumeDirectlyResult,
    ConsumeMessageDirectly,
)
from pyrmq_core.protocol.requests.client.get_consumer_running_info import ConsumerRunningInfo, GetConsumerRunningInfo
from pyrmq_core.protocol.requests.client.get_consumer_status import ConsumerStatus
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset
from pyrmq_core.servers.broker.clients import consumer_calls
from pyrmq_core.servers.broker.processors import called_consumers
from pyrmq_core.servers.broker.tables.consumer_offsets import RESET_SECONDS, GroupOffsets
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import Served, serving, until

Answers = Callable[[Command, Peer], Command | Awaitable[Command | None] | None]
Q0 = MessageQueue("T", "broker-a", 0)
INFO = GetConsumerRunningInfo("g", "c1").to_command()


async def member(served: Served, answers: Answers, *, group: str = "g", client_id: str = "c1") -> Served:
    """Returns a connection that is a member of the group, and answers the broker's requests."""
    other = served.another(answers)
    data = ConsumerData(group, "CONSUME_PASSIVELY", subscriptions=(SubscriptionData("T"),))
    assert (await other.ask(HeartBeat(client_id, (), (data,)).to_command())).code == ResponseCode.SUCCESS
    return other


async def commit(served: Served, offset: int, queue_id: int = 0) -> Command:
    return await served.ask(UpdateConsumerOffset("g", "T", queue_id, offset).to_command())


async def committed(served: Served, queue_id: int = 0) -> int:
    return OffsetFound.from_command(await served.ask(QueryConsumerOffset("g", "T", queue_id).to_command())).offset


async def reset(served: Served, **fields: object) -> Command:
    return await served.ask(ResetOffset(**{"topic": "T", "group": "g", **fields}).to_command())  # type: ignore[arg-type]


async def pull(served: Served, offset: int, flags: int = 4, **fields: object) -> PullAnswer:
    request = PullMessage("g", "T", 0, offset, 32, flags, **fields)  # type: ignore[arg-type]
    return PullAnswer.from_command(await served.ask(request.to_command()))


async def with_messages(served: Served, count: int = 4) -> None:
    """Stores so many messages in queue 0, and makes the group."""
    for number in range(count):
        await served.send("T", b"%d" % number)
    await pull(served, 0)


async def test_a_reset_is_committed_and_the_next_pull_learns_of_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        await commit(served, 3)
        answer = await reset(served, queue_id=0, offset=1)
        assert OffsetsReset.from_command(answer).offsets == {Q0: 1}
        assert await committed(served) == 1
        late = await commit(served, 4)  # the consumer does not know of the reset yet
        assert (late.code, late.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
        assert await committed(served) == 1
        moved = await pull(served, 4, 5, commit_offset=4)
        assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert (moved.next_begin_offset, moved.min_offset, moved.max_offset) == (1, 0, 4)
        assert await committed(served) == 1
        assert (await pull(served, 1)).code == ResponseCode.SUCCESS  # once
        assert (await commit(served, 4)).remark is None
        assert await committed(served) == 4


async def test_a_reset_is_given_to_the_members_until_one_of_them_goes_on_there(tmp_path: Path) -> None:
    """The answer to one pull may be lost, or reach a client that has given the queue up."""
    async with serving(tmp_path) as served:
        await with_messages(served)
        owner = await member(served, lambda request, peer: None)
        await commit(owner, 3)
        await reset(served, queue_id=0, offset=1)
        assert (await pull(served, 2)).code == ResponseCode.SUCCESS  # not a member: it keeps an offset of its own
        for _ in range(3):
            moved = await pull(owner, 4, 5, commit_offset=3)
            assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)
            assert (await commit(owner, 4)).remark == "Offset has been previously reset"
        assert await committed(served) == 1
        assert (await pull(owner, 1)).code == ResponseCode.SUCCESS
        assert (await commit(owner, 2)).remark is None
        assert (await pull(owner, 2)).code == ResponseCode.SUCCESS
        assert await committed(served) == 2


async def test_a_commit_of_the_reset_offset_ends_the_reset(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        owner = await member(served, lambda request, peer: None)
        await reset(served, queue_id=0, offset=1)
        assert (await commit(owner, 1)).remark is not None  # it does not know of the reset yet
        await pull(owner, 4)
        assert (await commit(owner, 1)).remark is None
        assert (await commit(owner, 3)).remark is None
        assert await committed(served) == 3


async def test_the_pull_of_a_former_owner_does_not_take_a_reset_from_the_present_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        await with_messages(served)
        former, present = [await member(served, lambda request, peer: None, client_id=name) for name in ("a", "b")]
        answers: list[PullAnswer] = []

        async def wait(at: Served) -> None:
            answers.append(await pull(at, 4, 6, suspend_timeout_ms=60_000))

        for number, at in enumerate((former, present), 1):
            nursery.start_soon(wait, at)
            await until(lambda number=number: served.running.broker.clients.held.count == number)  # type: ignore[misc]
        await reset(served, queue_id=0, offset=4)  # also to where both are
        await until(lambda: len(answers) == 2)
        assert {(answer.code, answer.next_begin_offset) for answer in answers} == {(ResponseCode.PULL_OFFSET_MOVED, 4)}
        assert (await pull(present, 4)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("behind", [0, 3])
async def test_a_second_member_that_does_not_know_of_a_reset_is_moved_too(behind: int, tmp_path: Path) -> None:
    """Two members have one queue for a while when their views of the group differ, as after the end of a broker."""
    async with serving(tmp_path) as served:
        await with_messages(served)
        former, owner, heir = [await member(served, lambda request, peer: None, client_id=name) for name in "abc"]
        await reset(served, queue_id=0, offset=1)
        assert (await pull(former, 2)).next_begin_offset == 1
        assert (await pull(former, 1)).code == ResponseCode.SUCCESS
        for _ in range(2):  # the answer to the first may be lost
            assert (await commit(owner, behind)).remark == "Offset has been previously reset"
            moved = await pull(owner, behind, 5, commit_offset=behind)
            assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 1)
        assert await committed(served) == 1
        assert (await pull(owner, 1)).code == ResponseCode.SUCCESS
        assert (await commit(owner, 2)).remark is None
        assert (await pull(heir, 2)).code == ResponseCode.SUCCESS  # it begins at the committed offset
        assert (await commit(heir, 3)).remark is None
        for at in (former, owner, heir):  # a member that has followed may go where it wants
            assert (await pull(at, 0)).code == ResponseCode.SUCCESS


def test_members_that_do_not_follow_a_reset_are_let_go_after_a_while() -> None:
    offsets, queue = GroupOffsets(MemoryFiles()), ("g", "T", 0)
    offsets.reset(*queue, 5)
    assert offsets.moved_to(*queue, 9, now=1000.0) == 5
    assert offsets.moved_to(*queue, 9, now=1000.0 + RESET_SECONDS) == 5
    assert not offsets.may_commit(*queue, 9, now=1000.0 + RESET_SECONDS)
    assert offsets.moved_to(*queue, 9, now=1001.0 + RESET_SECONDS) is None
    assert offsets.may_commit(*queue, 9, now=1001.0 + RESET_SECONDS)
    assert offsets.moved_to(*queue, 3, now=1001.0 + RESET_SECONDS) is None


async def test_all_queues_are_reset_to_a_time_or_to_their_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        queues = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(4)]
        for timestamp_ms, expected in ((0, 0), (-1, 4), (2**62, 4)):
            answer = await reset(served, timestamp_ms=timestamp_ms, is_force=True)
            assert OffsetsReset.from_command(answer).offsets == {queue: (queue == Q0) * expected for queue in queues}
        assert (await reset(served, queue_id=0, timestamp_ms=0)).code == ResponseCode.SUCCESS
        assert await committed(served) == 0


async def test_a_held_pull_of_the_group_learns_of_the_reset_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        await with_messages(served)
        answers: list[PullAnswer] = []
        other = PullMessage("other", "T", 0, 4, 32, 6, suspend_timeout_ms=60_000).to_command()

        async def wait() -> None:
            answers.append(await pull(served, 4, 6, suspend_timeout_ms=60_000))

        nursery.start_soon(wait)
        nursery.start_soon(served.ask, other)
        await until(lambda: served.running.broker.clients.held.count == 2)
        await reset(served, queue_id=0, offset=0)
        await until(lambda: bool(answers))
        assert (answers[0].code, answers[0].next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
        assert served.running.broker.clients.held.count == 1
        await served.send("T")


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "Nothing"}, 17, "Topic Nothing does not exist"),
        ({"group": "nobody"}, 26, "Group nobody does not exist"),
        ({"queue_id": 0, "offset": -5}, 1, "Target offset -5 not in consume queue range [0-4]"),
        ({"queue_id": 0, "offset": 6}, 1, "Target offset 6 not in consume queue range [0-4]"),
        ({"queue_id": 65_535}, 29, "queueId[65535] is illegal, no topic has it"),
    ],
)
async def test_a_reset_that_cannot_be_is_refused(
    tmp_path: Path, fields: dict[str, object], code: int, remark: str
) -> None:
    """The codes and remarks are those of a released 5.4.0 broker, but for the last one, which stores it."""
    async with serving(tmp_path) as served:
        await with_messages(served)
        answer = await reset(served, **fields)
        assert (answer.code, answer.remark) == (code, remark)
        assert (await reset(served, queue_id=0, offset=5)).code == ResponseCode.SUCCESS


async def test_a_deleted_topic_forgets_its_resets(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await with_messages(served)
        await reset(served, queue_id=0, offset=1)
        await served.ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
        await served.send("T")
        assert (await pull(served, 0)).code == ResponseCode.SUCCESS


async def test_members_get_the_offsets_if_the_broker_does_not_keep_them(tmp_path: Path) -> None:
    heard: list[Command] = []

    def hear(request: Command, _: Peer) -> None:
        heard.append(request)

    async with serving(tmp_path, useServerSideResetOffset="false", defaultTopicQueueNums="1") as served:
        await with_messages(served)
        assert (await reset(served)).remark == "THe consumer group <g> not exist"
        await commit(served, 2)
        offline = await reset(served, timestamp_ms=-1, is_force=True)
        assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
        assert offline.remark == "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: -1"
        await member(served, hear)
        for fields, expected in (({"timestamp_ms": -1}, 2), ({"timestamp_ms": -1, "is_force": True}, 4), ({}, 0)):
            heard.clear()
            assert OffsetsReset.from_command(await reset(served, **fields)).offsets == {Q0: expected}
            await until(lambda: any(command.code == 220 for command in heard))
            (pushed,) = [ResetConsumerOffset.from_command(command) for command in heard if command.code == 220]
            assert (pushed.topic, pushed.group, pushed.offsets) == ("T", "g", {Q0: expected})
        assert await committed(served) == 2
        assert (await pull(served, 4)).code == ResponseCode.PULL_NOT_FOUND


async def test_a_request_reaches_the_named_client_and_its_answer_returns(tmp_path: Path) -> None:
    heard: list[Command] = []

    def answer(request: Command, _: Peer) -> Command | None:
        if request.is_oneway:
            return None
        heard.append(request)
        return ConsumerRunningInfo({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}, jstack="x").to_command()

    async with serving(tmp_path) as served:
        await member(served, lambda *_: refusal(1, "the wrong client"), client_id="c0")
        await member(served, answer)
        await member(served, lambda *_: refusal(1, "the wrong group"), group="h")
        reply = await served.ask(GetConsumerRunningInfo("g", "c1", jstack_enable=True).to_command())
        assert ConsumerRunningInfo.from_command(reply).jstack == "x"
        (request,) = heard
        assert dict(request.ext) == {"consumerGroup": "g", "clientId": "c1", "jstackEnable": "true"}


async def test_a_message_is_consumed_directly(tmp_path: Path) -> None:
    heard: list[ConsumeMessageDirectly] = []

    def answer(request: Command, _: Peer) -> Command | None:
        if request.is_oneway:
            return None
        heard.append(ConsumeMessageDirectly.from_command(request))
        return ConsumeDirectlyResult(consume_result=CMResult.LATER, spent_time_ms=7).to_command()

    async with serving(tmp_path) as served:
        stored = MessageStored.from_command(await served.send("T", b"again", "TAGS\x01a\x02"))
        await member(served, answer)
        request = ConsumeMessageDirectly("g", "c1", stored.msg_ids, topic="T")
        result = ConsumeDirectlyResult.from_command(await served.ask(request.to_command()))
        assert (result.consume_result, result.spent_time_ms) == (CMResult.LATER, 7)
        (passed,) = heard
        assert (passed.broker_name, passed.topic_sys_flag, passed.group_sys_flag) == ("broker-a", 0, 0)
        message = passed.message()
        assert (message.topic, message.body, message.tags, message.offset_msg_id) == (
            "T",
            b"again",
            "a",
            stored.msg_ids,
        )


@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (INFO, "The Consumer <g> <c1> not online"),
        (ConsumeMessageDirectly("g", "c1", "zz").to_command(), "offset message id"),
        (ConsumeMessageDirectly("g", "c1").to_command(), "offset message id"),
        (ConsumeMessageDirectly("g", "c1", "7F00000100002A9F0000010000000000").to_command(), "can not find message by"),
        (GetStatusOfConsumers("T", "g").to_command(), "No Any Consumer online in the consumer group: [g]"),
    ],
)
async def test_what_reaches_no_consumer_is_refused(tmp_path: Path, request_: Command, remark: str) -> None:
    async with serving(tmp_path) as served:
        await served.send("T")
        await member(served, lambda *_: None, client_id="another", group="h")
        answer = await served.ask(request_)
        assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
        assert remark in (answer.remark or "")


async def test_a_client_that_does_not_answer_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_consumers, "CALL_SECONDS", 0.05)
    async with serving(tmp_path) as served:
        await member(served, lambda *_: None)
        answer = await served.ask(INFO)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert (answer.remark or "").startswith("consumer <g> <c1> Timeout: ")


async def test_a_client_that_leaves_meanwhile_is_reported(tmp_path: Path) -> None:
    def leave(request: Command, peer: Peer) -> None:
        if not request.is_oneway:
            peer.connection.close()

    async with serving(tmp_path) as served:
        await member(served, leave)
        answer = await served.ask(INFO)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("invoke consumer <g> <c1> Exception: ")


async def test_few_requests_are_passed_on_at_once_and_no_giant_answer(tmp_path: Path) -> None:
    go = trio.Event()

    async def answer_later(request: Command, _: Peer) -> Command | None:
        await go.wait()
        return success(body=b"x" * (consumer_calls.MAX_ANSWER_BYTES + 1))

    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        served.running.broker.clients.calls.limits = replace(consumer_calls.ADMINISTRATION, calls=2)
        await member(served, answer_later)
        answers: list[Command] = []

        async def ask() -> None:
            answers.append(await served.ask(INFO))

        for _ in range(3):
            nursery.start_soon(ask)
        await until(lambda: bool(answers))
        assert answers[0].code == ResponseCode.SYSTEM_BUSY
        go.set()
        await until(lambda: len(answers) == 3)
        assert [answer.code for answer in answers[1:]] == [ResponseCode.SYSTEM_ERROR] * 2
        assert "at most are passed on" in (answers[1].remark or "")
        assert not served.running.broker.clients.calls.waiting


async def test_offsets_in_memory_of_all_members_or_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_consumers, "STATUS_SECONDS", 2.0)

    def with_offset(offset: int) -> Answers:
        return lambda request, _: None if request.is_oneway else ConsumerStatus({Q0: offset}).to_command()

    async with serving(tmp_path) as served:
        await member(served, with_offset(1), client_id="one")
        await member(served, with_offset(2), client_id="two")
        await member(served, lambda *_: None, client_id="silent")
        await member(served, lambda *_: refusal(1, "no"), client_id="refuses")
        await member(served, lambda *_: success(body=b'{"messageQueueTable":{{}:1}}'), client_id="nonsense")
        status = ConsumerStatus.from_command(await served.ask(GetStatusOfConsumers("T", "g").to_command()))
        assert status.clients == {"one": {Q0: 1}, "two": {Q0: 2}}
        answer = await served.ask(GetStatusOfConsumers("T", "g", "two").to_command())
        assert ConsumerStatus.from_command(answer).clients == {"two": {Q0: 2}}
        no = await served.ask(GetStatusOfConsumers("T", "g", "nobody").to_command())
        assert bytes(no.body) == b'{"consumerTable":{},"messageQueueTable":{}}'


async def test_silent_members_cost_one_wait_in_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(called_consumers, "STATUS_SECONDS", 3.0)
    monkeypatch.setattr(called_consumers, "MEMBERS_AT_ONCE", 1)
    async with serving(tmp_path) as served:
        for number in range(20):
            await member(served, lambda *_: None, client_id=f"silent-{number}")
        with trio.fail_after(50):  # one wait each would be 60 s
            answer = await served.ask(GetStatusOfConsumers("T", "g").to_command())
        assert ConsumerStatus.from_command(answer).clients == {}
        monkeypatch.setattr(called_consumers, "MOST_MEMBERS", 19)
        answer = await served.ask(GetStatusOfConsumers("T", "g").to_command())
        assert answer.remark == "the group has 20 members; name one of them, 19 at most are called at a time"


async def test_consume_stats_of_an_online_group_are_those_of_its_subscriptions(tmp_path: Path) -> None:
    async def topics(**fields: str) -> set[str]:
        request = Command(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", **fields})
        table = load_object_keys((await served.ask(request)).body, "statistics")["offsetTable"]
        return {queue.topic for queue in queue_table_from(table)}

    async with serving(tmp_path) as served:
        await with_messages(served)
        await served.send("U")
        for topic in ("T", "U"):
            await served.ask(UpdateConsumerOffset("g", topic, 0, 1).to_command())
        assert await topics() == {"T", "U"}
        await member(served, lambda *_: None)  # it subscribes to T
        assert await topics() == {"T"}
        assert await topics(topic="U") == set()
        assert await topics(topicList="U;T") == {"T", "U"}
