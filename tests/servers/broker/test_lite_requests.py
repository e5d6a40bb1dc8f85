"""Requests about lite topics: sends, pulls and offsets as 5.5.0 answers them, their bounds, ages and permissions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.properties import decode_properties
from pyrmq_core.protocol.messages.record import iterate_records
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.group_admin import CloneGroupOffset
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.protocol.requests.broker.offsets import GetEarliestStoreTime, GetMaxOffset, GetMinOffset, SearchOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.topic_admin import DeleteTopic, UpdateTopic
from pyrmq_core.servers.access.plain.needs import needs_of as plain_needs_of
from pyrmq_core.servers.access.users.needs import needs_of
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.store_services import queue_removal
from pyrmq_core.servers.broker.upkeep import remove_old_lite_queues
from tests.servers.broker.serving import Served, message, serving

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
S = "%LMQ%$T$s"
MINUTE_MS = 60_000


async def made(served: Served, attributes: str = "+message.type=LITE,+lite.topic.expiration=30") -> None:
    assert (await served.ask(UpdateTopic("T", 3, 3, 6, attributes=attributes).to_command())).code == 0


def lite(name: str, more: str = "") -> str:
    return f"{more}__LITE_TOPIC\x01{name}\x02"


def pull(topic: str, queue_id: int = 0, offset: int = 0, flags: int = int(PullSysFlag.SUBSCRIPTION)) -> Command:
    return PullMessage("G", topic, queue_id, offset, 32, flags, commit_offset=1).to_command()


def of(name: str, request: Command) -> Command:
    return Command(request.code, {**request.ext, "liteTopic": name}, body=request.body)


async def offset(served: Served, request: Command) -> int:
    answer = await served.ask(request)
    assert answer.code == ResponseCode.SUCCESS
    return int(answer.ext.get("offset") or answer.ext["timestamp"])


async def test_a_message_is_in_its_parent_and_in_the_queue_of_its_lite_topic(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        for number, name in enumerate("sts"):
            stored = await served.send("T", b"%d" % number, lite(name, "TAGS\x01a\x02"), queue_id=2)
            assert (stored.ext["queueId"], stored.ext["queueOffset"]) == ("2", str(number))
        await served.send("T", b"plain", queue_id=2)
        assert len(list(iterate_records((await served.pull("T", 2)).records))) == 4
        for request in (pull(S), of("s", pull("T"))):
            answer = PullAnswer.from_command(await served.ask(request))
            assert (answer.code, answer.next_begin_offset, answer.min_offset, answer.max_offset) == (0, 2, 0, 2)
            records = list(iterate_records(answer.records))
            assert [(record.topic, record.queue_id, record.queue_offset, record.body) for record in records] == [
                ("T", 2, 0, b"0"),
                ("T", 2, 2, b"2"),
            ]
            named = [decode_properties(record.properties) for record in records]
            assert [properties["INNER_MULTI_DISPATCH"] for properties in named] == [S, S]
            assert [properties["INNER_MULTI_QUEUE_OFFSET"] for properties in named] == ["0", "1"]


async def test_answers_are_those_of_rocketmq(tmp_path: Path) -> None:
    """Each was seen on 5.5.0: of 29 to 32 only 29 knows `liteTopic`, and no pull of a name fails."""
    async with serving(tmp_path, **ON) as served:
        await made(served)
        for body in (b"0", b"1", b"2"):
            await served.send("T", body, lite("s"), queue_id=1)
        far_ms = clock.now_ms() + 1_000_000
        assert await offset(served, GetMaxOffset(S, 0).to_command()) == 3
        assert await offset(served, GetMinOffset(S, 0).to_command()) == 0
        assert await offset(served, SearchOffset(S, 0, far_ms).to_command()) == 3
        assert await offset(served, SearchOffset(S, 0, 1).to_command()) == 0
        assert await offset(served, of("s", SearchOffset("T", 0, far_ms).to_command())) == 3
        assert await offset(served, SearchOffset("T", 0, far_ms).to_command()) == 0
        assert await offset(served, GetEarliestStoreTime(S, 0).to_command()) > 1
        assert await offset(served, GetEarliestStoreTime("%LMQ%$T$none", 0).to_command()) == -1
        assert await offset(served, of("s", GetMaxOffset("T", 1).to_command())) == 3
        assert await offset(served, of("s", GetMaxOffset("T", 0).to_command())) == 0
        await served.ask(pull("T"))  # makes the group
        assert await offset(served, QueryConsumerOffset("G", S, 0).to_command()) == 0
        assert (await served.ask(UpdateConsumerOffset("G", S, 0, 2).to_command())).code == ResponseCode.SUCCESS
        assert await offset(served, QueryConsumerOffset("G", S, 0).to_command()) == 2
        for request in (of("none", pull("T")), of("a b$", pull("T")), pull("%LMQ%$T$none"), of("s", pull("T", 2))):
            answer = await served.ask(request)
            assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE")
            assert (answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) == ("0", "0")
        other_queue = await served.ask(pull(S, 1))
        assert other_queue.code == ResponseCode.INVALID_PARAMETER
        assert "topicConfig.readQueueNums:[1]" in (other_queue.remark or "")
        beyond = await served.ask(pull(S, offset=99))
        assert (beyond.code, beyond.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "3")
        filtered = PullMessage("G", S, 0, 0, 32, int(PullSysFlag.SUBSCRIPTION), subscription="x").to_command()
        assert (await served.ask(filtered)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_reading_makes_no_queue_and_no_offset(tmp_path: Path) -> None:
    """5.5.0 makes both, of any name."""
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await served.send("T", properties=lite("s"))
        flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
        for name in ("none", "s"):
            await served.ask(pull(f"%LMQ%$T${name}", flags=flags))
        broker = served.running.broker
        assert broker.store.queues.lite_queues == 1
        assert broker.tables.offsets.topics_of("G") == [S]
        committed = await served.ask(UpdateConsumerOffset("G", "%LMQ%$T$none", 0, 2).to_command())
        assert committed.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await served.ask(pull("%LMQ%$other$s"))).code == ResponseCode.TOPIC_NOT_EXIST
        wrong_name = await served.ask(GetMaxOffset("%LMQ%$T$a$b", 0).to_command())
        assert wrong_name.code == ResponseCode.INVALID_PARAMETER


async def test_a_pull_waits_for_the_first_message_of_a_lite_topic(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served, trio.open_nursery() as nursery:
        await made(served)
        answers: list[PullAnswer] = []

        async def wait() -> None:
            answers.append(await served.another().pull(S, wait_ms=30_000))

        nursery.start_soon(wait)
        while not served.running.broker.clients.held.count:
            await trio.lowlevel.checkpoint()
        await served.send("T", b"other", lite("t"))
        await served.send("T", b"mine", lite("s"))
        with trio.fail_after(60):
            while not answers:  # noqa: ASYNC110 - the answer sets no event
                await trio.sleep(0.005)
        (record,) = iterate_records(answers[0].records)
        assert record.body == b"mine"


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        (lite("a$b"), ResponseCode.MESSAGE_ILLEGAL, "a lite topic's name has 1 to 64 letters"),
        (lite("x" * 65), ResponseCode.MESSAGE_ILLEGAL, "a lite topic's name has 1 to 64 letters"),
        (lite("s", "DELAY\x013\x02"), ResponseCode.MESSAGE_ILLEGAL, "has no delay"),
        (lite("s", "TIMER_DELAY_SEC\x0160\x02"), ResponseCode.MESSAGE_ILLEGAL, "has no delay"),
        (lite("s", "TRAN_MSG\x01true\x02"), ResponseCode.MESSAGE_ILLEGAL, "is in no transaction"),
        (lite("third"), ResponseCode.SYSTEM_ERROR, "maxLmqConsumeQueueNum is 2"),
        (lite("one"), ResponseCode.SUCCESS, ""),
    ],
)
async def test_what_no_lite_queue_may_have_is_refused(
    tmp_path: Path, properties: str, code: ResponseCode, remark: str
) -> None:
    async with serving(tmp_path, **ON, maxLmqConsumeQueueNum="2") as served:
        await made(served)
        for name in ("one", "two"):
            await served.send("T", properties=lite(name))
        answer = await served.send("T", properties=properties)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert served.running.broker.store.queues.lite_queues == 2


async def test_a_parent_with_a_long_name_has_short_lite_topics_alone(tmp_path: Path) -> None:
    """The name of a queue is a folder's, of 255 bytes at most."""
    parent = "%DLQ%" + "x" * 185
    async with serving(tmp_path, **ON) as served:
        request = UpdateTopic(parent, 1, 1, 6, attributes="+message.type=LITE")
        assert (await served.ask(request.to_command())).code == ResponseCode.SUCCESS
        refused = await served.send(parent, properties=lite("s" * 60))
        assert (refused.code, "Its parent's name is too long" in (refused.remark or "")) == (13, True)
        assert (await served.send(parent, properties=lite("s" * 58))).code == ResponseCode.SUCCESS
        assert await offset(served, GetMaxOffset(f"%LMQ%${parent}${'s' * 58}", 0).to_command()) == 1


async def test_a_sender_chooses_no_place_in_a_lite_queue(tmp_path: Path) -> None:
    """A start that reads the log finds no queue that the broker did not make itself."""
    own = f"INNER_MULTI_DISPATCH\x01{S}\x02INNER_MULTI_QUEUE_OFFSET\x010\x02"
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await served.send("T", b"single", own)
        body = encode_batch_body([BatchItem(0, b"inside", own.encode()), BatchItem(0, b"lite", lite("s").encode())])
        batch = Command(RequestCode.SEND_BATCH_MESSAGE, {**message("T", body).to_command().ext, "m": "true"}, body=body)
        assert (await served.ask(batch)).code == ResponseCode.SUCCESS
        await served.send("T", b"both", own + lite("t"))
        batches = UpdateTopic("B", 1, 1, 6, attributes="+queue.type=BatchCQ")
        assert (await served.ask(batches.to_command())).code == ResponseCode.SUCCESS
        whole = message("B", body, f"UNIQ_KEY\x01U\x02{own.replace('$T$', '$B$')}").to_command()
        assert (await served.ask(replace(batch, ext={**whole.ext, "m": "true"}))).code == ResponseCode.SUCCESS
        (stored,) = iterate_records((await served.pull("B")).records)
        assert not decode_properties(stored.properties).keys() & {"INNER_MULTI_DISPATCH", "OTHER_MULTI_QUEUE_OFFSET"}
        assert served.running.broker.store.queues.lite_queues == 1
    for name in ("checkpoint", "checkpoint.pyrmq"):
        await trio.Path(tmp_path / name).unlink()
    async with serving(tmp_path, **ON) as served:
        store = served.running.broker.store
        assert (store.queues.lite_queues, store.reader.bounds(("%LMQ%$T$t", 0)), store.reader.bounds(("T", 0))) == (
            1,
            (0, 1),
            (0, 4),
        )


@pytest.mark.parametrize("settings", [{}, {"enableLmq": "true"}, {"enableMultiDispatch": "true"}])
async def test_without_both_settings_there_is_no_lite_queue(tmp_path: Path, settings: dict[str, str]) -> None:
    async with serving(tmp_path, **settings) as served:
        await made(served)
        assert (await served.send("T", properties=lite("s"))).code == ResponseCode.SUCCESS
        assert served.running.broker.store.queues.lite_queues == 0
        for request in (
            pull("T"),
            Command(RequestCode.LITE_PULL_MESSAGE, pull("T").ext),
            SearchOffset("T", 0, 1).to_command(),
        ):
            answer = await served.ask(of("s", request))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert (answer.remark or "").startswith(
                "liteTopic[s]: this broker has no queues of lite topics without enable"
            )
            assert (await served.ask(request)).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await served.ask(pull(S))).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_of_another_type_has_no_lite_queues(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served, "+message.type=NORMAL")
        await served.send("T", properties=lite("s"))
        assert served.running.broker.store.queues.lite_queues == 0


async def test_lite_queues_go_with_their_topic_and_their_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await served.send("T", properties=lite("s"))
        await served.ask(pull(S))
        await served.ask(UpdateConsumerOffset("G", S, 0, 1).to_command())
        await served.ask(Command(RequestCode.CLEAN_UNUSED_TOPIC))
        assert served.running.broker.store.queues.lite_queues == 1
        await served.ask(DeleteTopic("T").to_command())
        assert served.running.broker.store.queues.lite_queues == 0
        assert not served.running.broker.tables.offsets.topics_of("G")
        await made(served)
        await served.send("T", properties=lite("s"))
        assert await offset(served, GetMaxOffset(S, 0).to_command()) == 1
        assert await offset(served, QueryConsumerOffset("G", S, 0).to_command()) == 0


async def test_other_tasks_run_while_a_topic_with_many_lite_queues_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_removal, "AT_ONCE", 2)
    async with serving(tmp_path, **ON) as served, trio.open_nursery() as nursery:
        await made(served)
        for number in range(5):
            await served.send("T", properties=lite(f"s{number}"))
        queues, counts = served.running.broker.store.queues, set[int]()

        async def look() -> None:
            while True:
                counts.add(queues.lite_queues)
                await trio.lowlevel.checkpoint()

        nursery.start_soon(look)
        assert (await served.ask(DeleteTopic("T").to_command())).code == ResponseCode.SUCCESS
        nursery.cancel_scope.cancel()
        assert queues.lite_queues == 0
        assert counts & {1, 2, 3, 4}


async def test_offsets_in_lite_topics_are_copied_to_another_group(tmp_path: Path) -> None:
    async with serving(tmp_path, **ON) as served:
        await made(served)
        await served.send("T", properties=lite("s"))
        for group in ("G", "H"):
            await served.ask(PullMessage(group, S, 0, 0, 32, int(PullSysFlag.SUBSCRIPTION)).to_command())
        await served.ask(UpdateConsumerOffset("G", S, 0, 1).to_command())
        assert (await served.ask(CloneGroupOffset("G", "H").to_command())).code == ResponseCode.SUCCESS
        assert served.running.broker.tables.offsets.committed("H", S, 0) == 1


async def test_old_lite_topics_are_removed(tmp_path: Path) -> None:
    """The last message is older than `lite.topic.expiration` and minLiteTTl, as in 5.5.0."""
    async with serving(tmp_path, **ON, minLiteTTl=str(20 * MINUTE_MS)) as served:
        await made(served)
        broker, now_ms = served.running.broker, clock.now_ms()
        await served.send("T", properties=lite("s"))
        for minutes, after, left in (("-1", 100_000, 1), ("30", 29, 1), ("10", 19, 1), ("30", 31, 0)):
            await made(served, f"+lite.topic.expiration={minutes}")
            await remove_old_lite_queues(broker, now_ms + after * MINUTE_MS)
            assert broker.store.queues.lite_queues == left, (minutes, after)
        assert S not in broker.store.files.folders("consumequeue"), "its folder goes, too"
        assert await offset(served, GetMaxOffset("T", 0).to_command()) == 1
        await served.send("T", b"again", lite("s"))
        assert await offset(served, GetMaxOffset(S, 0).to_command()) == 1


async def test_a_reader_of_an_old_lite_topic_misses_no_later_message(tmp_path: Path) -> None:
    """A member of a group keeps its position from before the topic was removed."""
    async with serving(tmp_path, **ON) as served:
        await made(served)
        member, data = served.another(), ConsumerData("G", "CONSUME_PASSIVELY", subscriptions=(SubscriptionData("T"),))
        assert (await member.ask(HeartBeat("c", (), (data,)).to_command())).code == ResponseCode.SUCCESS
        for body in (b"0", b"1"):
            await served.send("T", body, lite("s"))
        commit = UpdateConsumerOffset("G", S, 0, 2).to_command()
        assert (await member.ask(commit)).code == ResponseCode.SUCCESS
        await remove_old_lite_queues(served.running.broker, clock.now_ms() + 60 * MINUTE_MS)
        await served.send("T", b"next", lite("s"))
        refused = await member.ask(commit)
        assert (refused.code, refused.remark) == (
            ResponseCode.INVALID_PARAMETER,
            f"commitOffset[2] is beyond the end of {S}",
        )
        moved = await member.pull(S, offset=2)
        assert (moved.code, moved.next_begin_offset) == (ResponseCode.PULL_OFFSET_MOVED, 0)
        assert [record.body for record in iterate_records((await member.pull(S)).records)] == [b"next"]
        flags = int(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
        late = replace(PullMessage("H", S, 0, 0, 32, flags), commit_offset=99)
        assert (await served.ask(late.to_command())).code == ResponseCode.SUCCESS
        assert served.running.broker.tables.offsets.committed("H", S, 0) is None


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
async def test_masters_alone_remove_old_lite_topics(tmp_path: Path, role: str) -> None:
    """A slave's queues follow its master's log."""
    async with serving(tmp_path, **ON, brokerRole=role, brokerId=str(int(role == "SLAVE"))):
        tasks = [root] if (root := trio.lowlevel.current_root_task()) else []
        for task in tasks:
            tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        assert any("expire_clients" in task.name for task in tasks)
        assert any("expire_lite_queues" in task.name for task in tasks) is (role != "SLAVE")


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET])
def test_a_lite_queue_needs_what_its_parent_needs(code: RequestCode) -> None:
    lite_request, request = (Command(code, {"topic": topic, "consumerGroup": "G"}) for topic in (S, "T"))
    assert needs_of(lite_request, "c") == needs_of(request, "c")
    assert plain_needs_of(lite_request) == plain_needs_of(request)
