"""A slave's tables are its master's, whatever their size, and what cannot be taken is named."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pyrmq_core.errors import CallTimeout, ConnectFailed
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.tables.subscription_groups import DEFAULTS, READ
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from tests.servers.broker.ha.slave_copies import MASTER, copy_of
from tests.servers.broker.serving import Served, serving

TOPICS = RequestCode.GET_ALL_TOPIC_CONFIG
GROUPS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET
DELAYS = RequestCode.GET_ALL_DELAY_OFFSET
TIMERS = RequestCode.GET_TIMER_CHECK_POINT


def make_tables(served: Served, count: int) -> None:
    broker = served.running.broker
    for number in range(count):
        broker.tables.topics.put(TopicConfig(f"T{number}", 4, 4, 6), clock.now_ms())
        broker.tables.groups.put({"groupName": f"g{number}", "retryMaxTimes": number % 7}, clock.now_ms())
        broker.tables.offsets.commit(f"g{number}", f"T{number}", number % 4, number)


def answering(body: Any, **ext: str) -> Callable[[Command], Awaitable[Command]]:
    async def answer(_: Command) -> Command:
        return success(ext, body if isinstance(body, bytes) else dumps(body))

    return answer


def refusing(code: ResponseCode) -> Callable[[Command], Awaitable[Command]]:
    async def answer(_: Command) -> Command:
        return refusal(code, "no right")

    return answer


@pytest.mark.parametrize("count", [1, 5000])
async def test_a_slave_has_the_tables_of_its_master(tmp_path: Path, count: int) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_tables(served, count)
        broker = served.running.broker
        broker.tables.groups.set_readable("g0", "T0", clock.now_ms(), is_readable=False)
        broker.deliveries.delays.replace({2: 0})
        assert await copy.tables.fetch()
        assert copy.topics.table() == broker.tables.topics.table()
        assert copy.groups.members() == broker.tables.groups.members()
        assert {key: copy.offsets.of_group(f"g{key}", f"T{key}") for key in range(count)} == {
            key: {key % 4: key} for key in range(count)
        }
        assert copy.delay_offsets == {2: 0}
        assert copy.tables.has_topics.is_set()
        pages = [request.ext["topicSeq"] for request in copy.asked if request.code == TOPICS]
        assert pages == [str(first) for first in range(0, count + 16, 2000)]


async def test_what_the_master_changed_and_deleted_follows(tmp_path: Path) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        broker = served.running.broker
        make_tables(served, 3)
        await copy.tables.fetch()
        changes = copy.topics.file.changes, copy.groups.file.changes
        copy.offsets.is_changed = False
        await copy.tables.fetch()
        assert (copy.topics.file.changes, copy.groups.file.changes) == changes, "nothing changed"
        assert not copy.offsets.is_changed
        broker.tables.topics.remove("T1", clock.now_ms())
        broker.tables.groups.remove("g1", clock.now_ms())
        broker.tables.groups.put({"groupName": "g2", "retryMaxTimes": 99}, clock.now_ms())
        broker.tables.offsets.commit("g2", "T2", 2, 1)
        await copy.tables.fetch()
        assert ("T0" in copy.topics, "T1" in copy.topics) == (True, False)
        assert ("g0" in copy.groups, "g1" in copy.groups) == (True, False)
        assert (copy.groups.known("g2") or {})["retryMaxTimes"] == 99
        assert copy.offsets.committed("g2", "T2", 2) == 1
        assert copy.topics.data_version == broker.tables.topics.data_version
        assert copy.topics.file.is_behind


async def test_a_change_between_two_pages_begins_them_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        broker = served.running.broker
        make_tables(served, 2500)

        async def changed(request: Command) -> Command:
            if request.ext["topicSeq"] == "2000" and "late" not in broker.tables.topics:
                broker.tables.topics.remove("T0", clock.now_ms())
                broker.tables.topics.put(TopicConfig("late", 4, 4, 6), clock.now_ms())
            return await served.ask(request)

        copy.answers[TOPICS] = changed
        assert await copy.tables.fetch()
        assert copy.topics.table() == broker.tables.topics.table()
        assert "late" in copy.topics


async def test_each_page_of_groups_has_the_forbidden_topics_of_its_own_groups(tmp_path: Path) -> None:
    """The source is AdminBrokerProcessor.getAllSubscriptionGroup, 5.4.0."""
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:

        async def page(request: Command) -> Command:
            group = ("g0", "g1")[int(request.ext["groupSeq"])]
            body = {"dataVersion": {"counter": 9}, "forbiddenTable": {group: {"T": READ}}}
            return success({"totalGroupNum": "2"}, dumps({**body, "subscriptionGroupTable": {group: {}}}))

        copy.answers[GROUPS] = page
        await copy.tables.fetch()
        assert [copy.groups.is_readable(group, "T") for group in ("g0", "g1", "g2")] == [False, False, True]


async def test_a_master_that_knows_no_pages_sends_everything(tmp_path: Path) -> None:
    """4.9.7: no total, no version of the offsets, no attributes, bare names."""
    rows = b",".join(
        b'"T%d":{"perm":6,"readQueueNums":4,"topicName":"T%d","writeQueueNums":4}' % (n, n) for n in range(3)
    )
    group = {"groupName": "g", **{name: value for name, value in DEFAULTS.items() if name.startswith("consume")}}
    async with copy_of(answering({}), tmp_path) as copy:
        copy.answers[TOPICS] = answering(b'{"dataVersion":{"counter":2,"timestamp":7},"topicConfigTable":{%s}}' % rows)
        copy.answers[GROUPS] = answering({"dataVersion": {"counter": 1}, "subscriptionGroupTable": {"g": group}})
        copy.answers[OFFSETS] = answering(b'{"offsetTable":{"T0@g":{0:5,1:7}}}')
        copy.answers[DELAYS] = answering(b'{"offsetTable":{2:0,3:9}}')
        copy.answers[TIMERS] = refusing(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        copy.answers[RequestCode.GET_BROKER_RUNTIME_INFO] = answering(
            {"table": {"commitLogMinOffset": "0", "commitLogMaxOffset": "0"}}
        )
        assert await copy.tables.fetch()
        assert sorted(topic.topic for topic in copy.topics) == ["T0", "T1", "T2"]
        assert copy.groups.names() == ["g"]
        assert copy.offsets.of_group("g", "T0") == {0: 5, 1: 7}
        assert copy.delay_offsets == {2: 0, 3: 9}


async def test_the_state_of_deliveries_waits_for_the_log(tmp_path: Path) -> None:
    """The master may have delivered messages that this slave does not have."""
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        await served.send("T")
        served.running.broker.deliveries.delays.replace({2: 1})
        await copy.tables.fetch()
        assert copy.delay_offsets == {}
        kept = tmp_path / "slave" / "config" / "timercheck"
        assert not kept.exists()
        copy.store.copy(0, served.running.broker.store.reader.log_part(0, 1 << 20))
        copy.store.flush()
        files = served.running.broker.deliveries.timers.messages.files
        before = files.saved.read_ms
        await copy.tables.fetch()
        assert copy.delay_offsets == {2: 1}
        checkpoint = TimerCheckpoint.decode(kept.read_bytes())
        assert checkpoint is not None
        assert before <= checkpoint.read_ms <= files.saved.read_ms  # the master's timers go on meanwhile
        assert copy.written_delays()["logEnd"] == 0  # when the first state was fetched
        served.running.broker.deliveries.delays.replace({2: 2})
        await copy.tables.fetch()
        assert copy.written_delays()["logEnd"] == copy.store.end


FAULTS = {
    "no JSON": (b"{", "not JSON"),
    "no object": (b"[1]", "not a JSON object"),
    "a wrong table": ({"topicConfigTable": []}, "topicConfigTable is no JSON object"),
    "no UTF-8": (b'{"\xff":1}', "not JSON: 'utf-8' codec"),
    "a wrong version": ({"dataVersion": {"counter": "x"}}, "data version"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_wrong_table_is_named_once_and_the_others_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    caplog.set_level(logging.INFO)
    body, named = FAULTS[fault]
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_tables(served, 1)
        copy.answers[TOPICS] = answering(body)
        for _ in range(2):
            assert await copy.tables.fetch()
        (line,) = [record.message for record in caplog.records if "are not taken" in record.message]
        assert MASTER in line
        assert "topics" in line
        assert named in line
        assert not copy.tables.has_topics.is_set()
        assert copy.tables.tried.is_set()
        assert "g0" in copy.groups
        copy.answers.clear()
        await copy.tables.fetch()
        assert "T0" in copy.topics
        assert f"the topics of the master at {MASTER} are taken again" in caplog.text


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", "x" * 300, ".."])
async def test_topics_that_cannot_be_folders_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    good, bad = ({"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1} for topic in ("good", name))
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        table = {"good": good, name: bad, "other": {**good, "topicName": "else"}, "none": 5}
        copy.answers[TOPICS] = answering({"dataVersion": {"counter": 5}, "topicConfigTable": table})
        await copy.tables.fetch()
        assert [topic.topic for topic in copy.topics] == ["good"]
        assert f"3 topics of the master at {MASTER} cannot be kept here" in caplog.text


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (OFFSETS, {"offsetTable": {"no group": {"0": 1}}}),
        (OFFSETS, {"offsetTable": {"T@g": {"70000": 1}}}),
        (OFFSETS, {"offsetTable": {"T@g": {"0": "x"}}}),
        (OFFSETS, {"offsetTable": {"T@g": 5}}),
        (DELAYS, {"offsetTable": {"0": 1}}),
        (DELAYS, {"offsetTable": {"x": 1}}),
        (TIMERS, b"short"),
        (TIMERS, b"\xff" * 56),
        (GROUPS, {"dataVersion": {"counter": 9}, "forbiddenTable": {"g": {"T": "y"}}}),
        (TOPICS, {"dataVersion": 7}),
    ],
)
async def test_impossible_rows_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: RequestCode, body: Any
) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        copy.answers[code] = answering(body)
        assert await copy.tables.fetch()
        assert caplog.text.count("are not taken") == 1


async def test_a_master_that_never_ends_its_table_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrmq_core.servers.broker.ha.slave_tables.MOST_ROWS", 3000)
    row = {"readQueueNums": 1, "writeQueueNums": 1}
    table = {f"T{number}": {**row, "topicName": f"T{number}"} for number in range(2000)}
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        before = copy.topics.table()
        body = {"dataVersion": {"counter": 5}, "topicConfigTable": table}
        copy.answers[TOPICS] = answering(body, totalTopicNum="999999999")
        await copy.tables.fetch()
        assert "does not end after 3000 rows" in caplog.text
        assert [request.code for request in copy.asked].count(TOPICS) == 2
        caplog.clear()
        copy.answers[TOPICS] = answering({"dataVersion": {"counter": 5}, "topicConfigTable": {}}, totalTopicNum="9")
        await copy.tables.fetch()
        assert copy.topics.table() == before


async def test_what_the_master_refuses_is_named_with_its_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_tables(served, 1)
        copy.answers[OFFSETS] = refusing(ResponseCode.NO_PERMISSION)
        assert await copy.tables.fetch()
        assert "NO_PERMISSION" in caplog.text
        assert "T0" in copy.topics


async def test_without_its_master_a_slave_keeps_what_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_tables(served, 1)
        copy.master = None
        assert not await copy.tables.fetch()
        assert not copy.tables.tried.is_set()
        copy.master = MASTER
        await copy.tables.fetch()

        async def gone(_: Command) -> Command:
            raise ConnectFailed(f"{MASTER} refuses connections", address=MASTER)

        async def slow(_: Command) -> Command:
            raise CallTimeout(f"{MASTER} did not answer", address=MASTER, request_left=True)

        for code, answer, reached, count in ((TOPICS, gone, False, 1), (GROUPS, slow, True, 6)):
            async with copy_of(served.ask, tmp_path / code.name) as another:
                another.answers[code] = answer
                assert await another.tables.fetch() is reached
                assert len(another.asked) == count, "the others would fail, too"
        assert "T0" in copy.topics
        assert caplog.text.count("are not taken") == 2
