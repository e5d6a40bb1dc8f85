"""Requests that work on whole tables: other requests have their turn meanwhile, and answers fit into a frame."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import trio

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps, load_object
from pyrmq_core.protocol.java.object_keys import load_object_keys
from pyrmq_core.protocol.requests.broker.consumer_admin import ResetOffset
from pyrmq_core.protocol.requests.broker.group_admin import (
    CloneGroupOffset,
    GetBrokerConsumeStats,
    QueryCorrectionOffset,
)
from pyrmq_core.protocol.routes.topic_config import TopicConfigTable
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.clients.client_table import ClientInfo
from pyrmq_core.servers.broker.in_turns import STEPS_AT_ONCE, BoundedWork, take_all
from pyrmq_core.servers.broker.processors.long_answers import (
    MAX_LONG_ANSWER_BYTES,
    answer_in_turns,
    object_pieces,
    separated,
)
from pyrmq_core.servers.broker.processors.table import handler_of
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from tests.servers.broker.serving import serving, until

NO_PEER = cast(Peer, None)
ROWS = 1000
# There are 15 pauses in a thousand steps; the task that counts may miss one or two of them.
TURNS = 10


async def turns_during(work: Awaitable[Any]) -> tuple[Any, int]:
    """Returns the outcome of the work, and how often another task of the loop ran meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        outcome = await work
        nursery.cancel_scope.cancel()
    return outcome, turns


async def answered(broker: Broker, request: Command) -> tuple[Command, int]:
    """Returns the answer, and the turns that other tasks had before it."""
    answer = handler_of(broker)(request, NO_PEER)
    return (answer, 0) if isinstance(answer, Command) else await turns_during(cast(Awaitable[Command], answer))


async def test_offsets_of_many_queues_are_compared_copied_and_shown_in_turns(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        broker.tables.topics.put(TopicConfig("T", ROWS, ROWS, 6), clock.now_ms())
        for group in ("g", "h"):
            broker.tables.groups.put({"groupName": group}, clock.now_ms())
        for queue_id in range(ROWS):
            broker.tables.offsets.commit("g", "T", queue_id, queue_id)
            broker.tables.offsets.commit("g", "U", queue_id, -1)
        offsets = broker.tables.offsets.of_group("g", "T")

        answer, turns = await answered(broker, QueryCorrectionOffset("T", "none").to_command())
        shown = load_object(answer.body, "offsets")["correctionOffsets"]
        assert (shown, turns >= TURNS) == ({str(queue_id): offset for queue_id, offset in offsets.items()}, True)

        answer, turns = await answered(broker, QueryCorrectionOffset("U", "none").to_command())
        assert (load_object(answer.body, "offsets"), turns >= TURNS) == ({"correctionOffsets": {}}, True)

        answer, turns = await answered(broker, GetBrokerConsumeStats().to_command())
        (table,) = next(row["g"] for row in load_object_keys(answer.body, "stats")["consumeStatsList"] if "g" in row)
        assert (len(table["offsetTable"]), turns >= TURNS) == (ROWS, True)

        answer, turns = await answered(broker, CloneGroupOffset("g", "h").to_command())
        assert (answer.code, len(answer.body), turns >= TURNS) == (ResponseCode.SUCCESS, 0, True)
        assert broker.tables.offsets.of_group("h", "T") == offsets


class Attributes(Mapping[str, str]):
    """The attributes of a topic, which count how often they are read."""

    reads = 0

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        Attributes.reads += 1
        return iter(())

    def __len__(self) -> int:
        return 0


async def test_all_topics_and_offsets_are_shown_in_turns_as_they_were(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        for number in range(ROWS):
            broker.tables.topics.put(TopicConfig(f"T{number}", 3, 3, 6, attributes=Attributes()), clock.now_ms())
            broker.tables.offsets.commit(f"g{number}", f"T{number}", 0, number)
        await broker.tables.topics.file.written()
        offsets = {name: dict(broker.tables.offsets.members()[name]) for name in ("groupTopicMap", "offsetTable")}
        version, Attributes.reads = broker.tables.topics.data_version, 0
        answers = [
            handler_of(broker)(Command(code), NO_PEER)
            for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET)
        ]
        assert Attributes.reads <= STEPS_AT_ONCE
        broker.tables.topics.remove("T5", clock.now_ms())
        broker.tables.topics.put(TopicConfig("late"), clock.now_ms())
        for number in range(ROWS):
            broker.tables.offsets.commit(f"g{number}", f"T{number}", 0, 5)
        broker.tables.offsets.commit("g0", "late", 0, 5)

        answer, turns = await turns_during(cast(Awaitable[Command], answers[0]))
        shown = TopicConfigTable.from_json(answer.body)
        assert (shown.data_version, turns >= TURNS) == (version, True)
        assert {f"T{number}" for number in range(ROWS)} == {name for name in shown.topic_configs if name[0] == "T"} - {
            "TBW102"
        }
        assert (len(shown.topic_configs), "late" in shown.topic_configs) == (int(answer.ext["totalTopicNum"]), False)

        answer, turns = await turns_during(cast(Awaitable[Command], answers[1]))
        members = load_object(answer.body, "offsets")
        assert turns >= TURNS
        assert members["groupTopicMap"] == offsets["groupTopicMap"]
        assert members["offsetTable"] == {
            name: {str(queue_id): offset for queue_id, offset in queues.items()}
            for name, queues in offsets["offsetTable"].items()
        }
        broker.tables.topics.remove("late", clock.now_ms())


class FakePeer:
    """A peer of which only the address is read."""

    def __init__(self, address: str) -> None:
        self.address = address


async def test_the_clients_of_one_group_are_listed_in_turns(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        peers = [cast(Peer, FakePeer(f"127.0.0.1:{number}")) for number in range(ROWS)]
        broker.clients.table.producers["P"] = {peer: ClientInfo(peer.address, "JAVA", 1, 5) for peer in peers}
        answer, turns = await answered(broker, Command(RequestCode.GET_ALL_PRODUCER_INFO))
        producers = load_object(answer.body, "producers")["data"]["P"]
        assert [producer["remoteIP"] for producer in producers] == [f"/{peer.address}" for peer in peers]
        assert turns >= TURNS
        broker.clients.table.producers.clear()


async def test_lists_are_checked_and_made_in_turns(tmp_path: Path) -> None:
    topic = {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    async with serving(tmp_path) as served:
        broker = served.running.broker
        for code, name, listed in (
            (
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
                "topicConfigList",
                [{**topic, "topicName": f"T{number}"} for number in range(ROWS)],
            ),
            (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                "groupConfigList",
                [{"groupName": f"g{number}"} for number in range(ROWS)],
            ),
        ):
            wrong = [*listed[:-1], {**listed[-1], "topicName": "T 1", "groupName": "g 1"}]
            answer, turns = await answered(broker, Command(code, body=json.dumps({name: wrong}).encode()))
            assert (answer.code, turns >= TURNS) == (ResponseCode.INVALID_PARAMETER, True)
            assert "g0" not in broker.tables.groups
            answer, turns = await answered(broker, Command(code, body=json.dumps({name: listed}).encode()))
            assert (answer.code, turns >= 2 * TURNS) == (ResponseCode.SUCCESS, True)
        assert all(
            f"T{number}" in broker.tables.topics and f"g{number}" in broker.tables.groups for number in range(ROWS)
        )


async def test_a_list_is_read_in_turns(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for code, name in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, "topicConfigList"),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "groupConfigList"),
        ):
            body = b'{"%b":[%b{}]}' % (name.encode(), b"{}," * 340_000)
            answer, turns = await answered(served.running.broker, Command(code, body=body))
            assert answer.remark == "the list has more than 1000 members; send it in parts"
            assert turns >= TURNS
        topic = {"topicName": "T", "attributes": {f"+a{number}": "b" for number in range(60_000)}}
        body = json.dumps({"topicConfigList": [topic]}).encode()
        answer, turns = await answered(
            served.running.broker, Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
        )
        assert (answer.remark, turns >= TURNS) == ("topic T has 60000 attributes; there are 5", True)


async def test_a_list_is_made_although_another_request_changes_one_of_its_topics(tmp_path: Path) -> None:
    topic = {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    listed = [{**topic, "topicName": f"T{number}"} for number in range(ROWS)]
    listed[ROWS // 2]["attributes"] = {"+queue.type": "SimpleCQ"}
    async with serving(tmp_path) as served:
        broker = served.running.broker

        async def change() -> None:
            while "T0" not in broker.tables.topics:
                await trio.lowlevel.checkpoint()
            broker.tables.topics.put(TopicConfig(f"T{ROWS // 2}", 1, 1, 6), clock.now_ms())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            body = json.dumps({"topicConfigList": listed}).encode()
            answer, _ = await answered(broker, Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body))
        assert answer.remark == "attempt to update an unchangeable attribute. key: queue.type"
        assert f"T{ROWS - 1}" in broker.tables.topics
        assert not broker.tables.topics.file.is_behind


async def leave(broker: Broker, request: Command, has_begun: Callable[[], object]) -> None:
    """Makes a request whose caller leaves when it has begun."""
    async with trio.open_nursery() as nursery:

        async def leave_when_it_has_begun() -> None:
            while not has_begun():
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

        nursery.start_soon(leave_when_it_has_begun)
        await cast(Awaitable[Command], handler_of(broker)(request, NO_PEER))


async def test_a_caller_that_leaves_leaves_no_part_of_its_list(tmp_path: Path) -> None:
    groups = {"groupConfigList": [{"groupName": f"g{number}"} for number in range(ROWS)]}
    async with serving(tmp_path) as served:
        broker = served.running.broker
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=json.dumps(groups).encode())
        await leave(broker, request, lambda: "g0" in broker.tables.groups)
        assert f"g{ROWS - 1}" in broker.tables.groups


async def test_a_caller_that_leaves_leaves_no_part_of_its_offsets(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        broker.tables.topics.put(TopicConfig("T", ROWS, ROWS, 6), clock.now_ms())
        for group in ("g", "h"):
            broker.tables.groups.put({"groupName": group}, clock.now_ms())
        for request, group in (
            (ResetOffset("T", "g", timestamp_ms=-1).to_command(), "g"),
            (CloneGroupOffset("g", "h", "T").to_command(), "h"),
        ):
            await leave(broker, request, partial(broker.tables.offsets.of_group, group, "T"))
            assert len(broker.tables.offsets.of_group(group, "T")) == ROWS


async def test_long_requests_are_refused_while_too_many_wait(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        broker.tables.topics.put(TopicConfig("T", ROWS, ROWS, 6), clock.now_ms())
        for group in ("g", "h"):
            broker.tables.groups.put({"groupName": group}, clock.now_ms())
        broker.tables.offsets.commit("g", "T", 0, 5)
        broker.services.long_work.most = 0
        topics, groups = {"topicConfigList": [{"topicName": "U"}]}, {"groupConfigList": [{"groupName": "i"}]}
        for request in (
            Command(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
            Command(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(topics).encode()),
            Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=json.dumps(groups).encode()),
            ResetOffset("T", "g", timestamp_ms=-1).to_command(),
            CloneGroupOffset("g", "h", "T").to_command(),
        ):
            answer, _ = await answered(broker, request)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert answer.remark == "too many long requests wait for their turn; try again later"
        assert (broker.tables.offsets.of_group("g", "T"), broker.tables.offsets.of_group("h", "T")) == ({0: 5}, {})
        assert ("U" in broker.tables.topics, "i" in broker.tables.groups) == (False, False)


async def test_a_list_that_waits_for_its_file_takes_no_turn(tmp_path: Path) -> None:
    topics = json.dumps({"topicConfigList": [{"topicName": "U"}]}).encode()
    groups = b'{"groupConfigList":[{"groupName":"i"}]}'
    async with serving(tmp_path) as served, trio.open_nursery() as nursery:
        broker = served.running.broker
        threads = trio.to_thread.current_default_thread_limiter()
        threads.total_tokens = 1
        async with threads:  # no file is written meanwhile
            for code, body in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topics),
                (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups),
            ):
                nursery.start_soon(answered, broker, Command(code, body=body))
            await until(
                lambda: (
                    "U" in broker.tables.topics and "i" in broker.tables.groups and not broker.services.long_work.tasks
                )
            )
            assert broker.tables.topics.file.is_behind
            assert broker.tables.groups.file.is_behind


async def test_figures_are_forgotten_in_turns(tmp_path: Path) -> None:
    figures = BrokerFigures("C", lambda _: False)
    for topic in ("T", "U"):
        for number in range(ROWS):
            figures.note_get(topic, f"g{number}", 0, 1, 1, 0)
    figures.forget_topic("T")
    figures.forget_group("g1")
    for steps in (figures.forget_deleted(), figures.forget_idle()):
        _, turns = await turns_during(take_all(steps))
        assert turns >= TURNS
    kept = [bool(figures.find("GROUP_GET_NUMS", key)) for key in ("T@g0", "U@g0", "U@g1")]
    assert kept == [False, True, False]


async def test_figures_go_with_their_topic_and_group(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        broker = served.running.broker
        broker.tables.topics.put(TopicConfig("T", 1, 1, 6), clock.now_ms())
        broker.counts.figures.note_put("T", 1, 1, 0)
        for key in ("T", "U"):
            broker.counts.figures.note_get(key, "g", 0, 1, 1, 0)
        await served.ask(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}))
        await take_all(broker.counts.figures.forget_deleted())
        kept = [bool(broker.counts.figures.find("GROUP_GET_NUMS", key)) for key in ("T@g", "U@g")]
        assert (kept, broker.counts.figures.find("TOPIC_PUT_NUMS", "T")) == ([False, True], None)
        await served.ask(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}))
        await take_all(broker.counts.figures.forget_deleted())
        assert broker.counts.figures.find("GROUP_GET_NUMS", "U@g"), "no group of this name is known"
        broker.tables.groups.put({"groupName": "g"}, clock.now_ms())
        await served.ask(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}))
        await take_all(broker.counts.figures.forget_deleted())
        assert broker.counts.figures.find("GROUP_GET_NUMS", "U@g") is None


async def test_an_answer_is_made_at_once_if_it_is_short_and_refused_if_it_is_too_long() -> None:
    work = BoundedWork(1, 1, 5)
    members = {"table": {"a": 1, "b": [2]}, "empty": {}, "version": 3}
    short = answer_in_turns(work, object_pieces(members), {"total": "2"})
    assert isinstance(short, Command)
    assert (bytes(short.body), short.ext) == (dumps(members), {"total": "2"})
    rows = {str(number): number for number in range(ROWS)}
    for table in (rows, {"one": rows}, {"a": {"b": 1}, "one": dict(enumerate(range(ROWS))), "c": {}}):
        large: dict[str, Any] = {"table": table, "version": 3}
        for members in (large, {**large, "table": iter(table.items())}):
            answer, turns = await turns_during(cast(Awaitable[Command], answer_in_turns(work, object_pieces(members))))
            assert (bytes(answer.body), turns >= TURNS) == (dumps(large), True)
    piece = bytes(MAX_LONG_ANSWER_BYTES // 100)
    refused, _ = await turns_during(cast(Awaitable[Command], answer_in_turns(work, separated([piece] * ROWS))))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "the answer would have more than 15728640 bytes; ask for less"
