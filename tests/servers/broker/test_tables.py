"""The broker's tables by themselves: topics, groups, offsets, clients, locks, and their files."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.broker.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.queue_locks import LIFE_MS, QueueLocks
from pyrmq_core.servers.broker.tables.changing_rows import ChangingRows
from pyrmq_core.servers.broker.tables.config_files import encode_config, load_config, save_config
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import RECENT_CHANGES, TopicTable
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import config


@dataclass(eq=False)
class Other:
    """The other end of a connection, as far as tables look at it."""

    address: str


def peer(address: str) -> Peer:
    return cast(Peer, Other(address))


A, B = peer("127.0.0.1:1"), peer("127.0.0.1:2")


def beat(table: ClientTable, who: Peer, client_id: str, *subscriptions: SubscriptionData, now_ms: int = 0) -> list[str]:
    data = ConsumerData("G", subscriptions=subscriptions)
    return table.heartbeat(HeartBeat(client_id, ("P",), (data,)), [data], who, "JAVA", 493, now_ms)


def test_a_group_changes_with_its_members_and_topics_only() -> None:
    table = ClientTable()
    topic = SubscriptionData("T", sub_version=1)
    assert beat(table, A, "a", topic) == ["G"]
    assert beat(table, A, "a", topic) == []
    assert beat(table, B, "b", topic) == ["G"]
    assert beat(table, A, "a", topic, SubscriptionData("U")) == ["G"]
    assert beat(table, B, "b", topic) == ["G"]
    later = SubscriptionData("T", sub_string="x", sub_version=2)
    assert beat(table, A, "a", later) == []
    assert table.subscription("G", "T") == later
    assert beat(table, B, "b", topic) == []
    assert table.subscription("G", "T") == later
    assert table.consumers["G"].client_ids == ["a", "b"]


def test_members_leave_by_word_by_connection_and_by_silence() -> None:
    table = ClientTable()
    for who, name, now_ms in ((A, "a", 0), (B, "b", 5000)):
        beat(table, who, name, SubscriptionData("T"), now_ms=now_ms)
    assert list(table.expire(5000)) == [["G"], []]
    assert (list(table.members("G")), list(table.producers["P"])) == ([B], [B])
    assert table.leave(A, "P", "G") == []
    assert table.leave(B, None, "G") == ["G"]
    assert ("G" in table.consumers, table.leave(B, "P", "G"), table.producers) == (False, [], {})
    beat(table, A, "a", SubscriptionData("T"))
    assert table.disconnected(B) == []
    assert table.disconnected(A) == ["G"]
    assert (table.consumers, table.producers, table.members("G")) == ({}, {}, {})


def test_a_lock_ends_without_renewal() -> None:
    locks, queue = QueueLocks(), MessageQueue("T", "b", 0)
    assert locks.take("G", "a", [queue], 0) == [queue]
    assert locks.take("G", "b", [queue], LIFE_MS) == []
    assert locks.is_locked("G", LIFE_MS)
    assert not locks.is_locked("H", 0)
    assert locks.take("G", "b", [queue], LIFE_MS + 1) == [queue]
    locks.expire(2 * LIFE_MS + 2)
    assert not locks.is_locked("G", 0)


def test_offsets_are_kept_with_java_s_own_keys() -> None:
    files = MemoryFiles()
    offsets = GroupOffsets(files)
    assert offsets.unsaved() is None
    offsets.commit("G", "T", 3, 7)
    offsets.commit("G", "T", 1, -5)
    offsets.commit("H", "U", 0, 1)
    make_text = offsets.unsaved()
    assert make_text is not None
    assert offsets.unsaved() is None
    offsets.commit("G", "T", 3, 8)  # not in the text, although that is made later
    text = make_text()
    written = json.loads(text)
    assert written["offsetTable"] == {"T@G": {"3": 7, "1": -5}, "U@H": {"0": 1}}
    assert written["groupTopicMap"] == {"G": ["T"], "H": ["U"]}
    bare = text.replace(b'"3":', b"3:").replace(b'"T@G":', b'"T@G@broadcast":{0:2},"T@G":')
    files.save("config/consumerOffset.json", bare)
    again = GroupOffsets(files)
    again.load()
    assert [again.committed("G", "T", queue) for queue in (3, 1, 0)] == [7, None, None]
    assert (again.topics_of("G"), again.groups_of("U")) == (["T"], ["H"])
    again.forget_topic("T")
    again.forget_group("H")
    assert (dict(again.members()["offsetTable"]), dict(again.members()["groupTopicMap"])) == ({}, {})


class Named(str):
    """A group's name that counts the rows that are made of it."""

    rows = 0

    def __format__(self, spec: str) -> str:
        Named.rows += 1
        return str(self)


def test_offsets_are_written_as_they_were_and_made_into_rows_later() -> None:
    files = MemoryFiles()
    offsets = GroupOffsets(files)
    for number in range(1000):
        offsets.commit(Named(f"g{number:03}"), "T", 1, number)
    Named.rows = 0
    make_text = offsets.unsaved()
    answer = offsets.members()
    assert (Named.rows, make_text is not None) == (0, True)
    offsets.commit("g001", "T", 1, 7)
    offsets.commit("g001", "U", 1, 8)
    offsets.commit("new", "T", 1, 9)
    offsets.forget_group("g002")
    later = offsets.members()
    offsets.forget_topic("T")
    assert make_text is not None
    before = json.loads(make_text())
    assert before["offsetTable"] == {f"T@g{number:03}": {"1": number} for number in range(1000)}
    assert before["groupTopicMap"] == {f"g{number:03}": ["T"] for number in range(1000)}
    assert {**json.loads(encode_config(answer)), "savedMs": before["savedMs"]} == before
    between = json.loads(encode_config(later))
    assert between["offsetTable"]["T@g001"] == {"1": 7}
    assert {*between["offsetTable"]} ^ {*before["offsetTable"]} == {"U@g001", "T@new", "T@g002"}
    del before["groupTopicMap"]["g002"]
    assert between["groupTopicMap"] == {**before["groupTopicMap"], "g001": ["T", "U"], "new": ["T"]}
    assert [dict(offsets.members()[name]) for name in ("offsetTable", "groupTopicMap")] == [
        {"U@g001": {1: 8}},
        {"g001": ["U"]},
    ]


def test_a_row_is_copied_once_after_each_snapshot() -> None:
    copied: list[object] = []

    def make(row: object = ()) -> dict[str, int]:
        copied.append(row)
        return dict(cast(dict[str, int], row))

    rows = ChangingRows[str, dict[str, int]](make)
    for name in ("a", "b", "a", "b"):
        rows.change(name)["n"] = rows.change(name).get("n", 0) + 1
    assert copied == [(), ()]
    first = rows.snapshot()
    for number in (5, 6):
        rows.change("a")["n"] = number
    assert copied == [(), (), {"n": 2}]
    second = rows.snapshot()
    rows.remove("a")
    rows.change("a")["m"] = 1
    assert (first, second) == ({"a": {"n": 2}, "b": {"n": 2}}, {"a": {"n": 6}, "b": {"n": 2}})
    assert (dict(rows.items()), rows.find("c")) == ({"a": {"m": 1}, "b": {"n": 2}}, None)


def test_groups_are_written_as_they_were() -> None:
    groups = GroupTable(MemoryFiles(), auto_create=True)
    for name in ("G", "H"):
        groups.put({"groupName": name}, 1)
        groups.set_readable(name, "T", 1, is_readable=False)
    members = groups.members()
    before = json.dumps(members)
    groups.put({"groupName": "G", "retryMaxTimes": 3}, 2)
    groups.set_readable("G", "U", 2, is_readable=False)
    groups.set_readable("H", "T", 2, is_readable=True)
    groups.remove("H", 2)
    assert json.dumps(members) == before


def test_groups_take_rocketmqs_defaults() -> None:
    files = MemoryFiles()
    groups = GroupTable(files, auto_create=True)
    group = groups.find("G", 1)
    assert group is not None
    assert (group["retryMaxTimes"], group["retryQueueNums"], group["consumeEnable"]) == (16, 1, True)
    assert (groups.find("a b", 1), groups.find("DEFAULT_CONSUMER", 1)) == (None, None)
    groups.put({"groupName": "H", "retryMaxTimes": 3}, 2)
    groups.file.save()
    again = GroupTable(files, auto_create=False)
    again.load()
    assert (again.find("H", 3) or {})["retryMaxTimes"] == 3
    assert again.find("unknown", 3) is None
    assert again.data_version.counter == 2
    again.remove("H", 4)
    assert "H" not in again


def test_a_config_file_has_a_line_for_each_entry_of_a_table() -> None:
    members: dict[str, Any] = {
        "table": {"a": {"n": [1, {}]}, "\u00e9": {}},
        "empty": {},
        "list": [{"a": 1}],
        "version": {"counter": 1},
    }
    text = encode_config(members).decode()
    assert json.loads(text) == members
    assert '\n\t"table":{\n\t\t"a":{"n":[1,{}]},\n\t\t"\u00e9":{}\n\t},' in text
    assert encode_config({**members, "table": iter(members["table"].items()), "empty": iter(())}).decode() == text
    assert json.loads(encode_config({"t": {"\ud800": "\ud800"}})) == {"t": {"?": "?"}}


def test_a_config_file_is_read_from_its_bak_in_need() -> None:
    files = MemoryFiles()
    assert load_config(files, "x.json") == {}
    save_config(files, "x.json", {"a": 1})
    save_config(files, "x.json", {"a": 2})
    assert files.load("config/x.json") == b'{\n\t"a":2\n}'
    files.save("config/x.json", b"{torn", keep_previous=False)
    assert load_config(files, "x.json") == {"a": 1}
    files.remove("config/x.json")
    assert load_config(files, "x.json") == {"a": 1}
    files.save("config/x.json.bak", b"[]", keep_previous=False)
    with pytest.raises(StoreError, match=r"config/x\.json"):
        load_config(files, "x.json")


@pytest.mark.parametrize("table", [[], {"T": {"perm": "x", "topicName": "T"}}])
def test_topics_that_cannot_be_kept_are_reported_at_start(tmp_path: Path, table: Any) -> None:
    files = MemoryFiles()
    files.save("config/topics.json", encode_config({"topicConfigTable": table}))
    topics = TopicTable(files, config(tmp_path))
    if table == []:
        topics.load()
    else:
        with pytest.raises(StoreError, match=r"topics\.json"):
            topics.load()


@pytest.mark.parametrize(
    ("default", "auto", "queues", "expected"),
    [
        ("TBW102", "true", 4, 4),
        ("TBW102", "true", 99, 8),
        ("TBW102", "true", -1, 0),
        ("TBW102", "false", 4, None),
        ("DefaultCluster", "false", 99, 16),
        ("broker-a", "true", 4, 1),
        ("BenchmarkTest", "true", 4, None),
        ("NoSuchTopic", "true", 4, None),
    ],
)
def test_what_a_new_topic_inherits(tmp_path: Path, default: str, auto: str, queues: int, expected: int | None) -> None:
    topics = TopicTable(MemoryFiles(), config(tmp_path, autoCreateTopicEnable=auto))
    topic_config = topics.for_send("T", default, queues)
    assert topic_config == (None if expected is None else TopicConfig("T", expected, expected, 6))
    retry = topics.for_send("%RETRY%G", "NoSuchTopic", queues)
    assert retry == TopicConfig("%RETRY%G", 1, 1, 6)


def test_a_connection_that_closes_costs_its_own_groups_alone() -> None:
    """The groups of other connections cost nothing: with 20,000 of them a close took 4 ms, a thousand times as much."""
    table = ClientTable()
    groups = tuple(f"g{number}" for number in range(20_000))
    table.heartbeat(HeartBeat("large", groups), [], A, "JAVA", 493, 0)
    data = ConsumerData("own")
    started = time.process_time()
    for number in range(2_000):
        other = peer(f"127.0.0.1:{number}")
        table.heartbeat(HeartBeat("c", ("p",), (data,)), [data], other, "JAVA", 493, 0)
        assert table.disconnected(other) == ["own"]
    assert time.process_time() - started < 1.0
    table.heartbeat(HeartBeat("none"), [], B, "JAVA", 493, 0)
    assert table.groups_with(A, HeartBeat("large", ("g1", "new"))) == 20_001
    assert table.disconnected(A) == []
    assert (table.producers, table.consumers, table._groups_of) == ({}, {}, {})


def test_locks_are_bounded_and_given_back() -> None:
    locks = QueueLocks(most=3)
    queues = [MessageQueue("T", "b", number) for number in range(5)]
    assert locks.take("G", "a", queues, 0) == queues[:3]
    assert locks.take("G", "a", queues, 1) == queues[:3]
    locks.release("G", "b", queues)
    assert locks.take("H", "a", queues, 1) == []
    locks.release("G", "a", queues[:1])
    assert locks.take("H", "a", queues, 1) == queues[:1]
    locks.expire(LIFE_MS + 2)
    assert not locks._groups
    assert locks.take("I", "a", queues, 0) == queues[:3]


class FailingFiles(MemoryFiles):
    """A disk that refuses every write while `is_full`, and counts writes."""

    is_full = False
    saved = 0

    def save(self, path: str, data: bytes, *, keep_previous: bool = True) -> None:
        if self.is_full:
            raise StoreError("no space left")
        self.saved += 1
        super().save(path, data, keep_previous=keep_previous)


async def test_a_table_is_written_once_for_many_changes_and_says_when_it_is_not(tmp_path: Path) -> None:
    files = FailingFiles()
    topics = TopicTable(files, config(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(topics.file.run)
        for number in range(500):
            topics.put(TopicConfig(f"t{number}", 4, 4), 1)
        await topics.saved("t499")
        assert files.saved <= 2
        assert not topics.unsaved
        files.is_full = True
        topics.put(TopicConfig("late", 4, 4), 2)
        for _ in range(2):
            with pytest.raises(StoreError, match="no space left"):
                await topics.saved("late")
        assert topics.file.is_behind
        files.is_full = False
        topics.put(TopicConfig("later", 4, 4), 2)
        await topics.file.written()
        await topics.saved("late")
        nursery.cancel_scope.cancel()
    again = TopicTable(files, config(tmp_path))
    again.load()
    assert {"t0", "t499", "late", "later"} <= {topic.topic for topic in again}


def test_the_topics_changed_since_a_version_are_known_for_a_while(tmp_path: Path) -> None:
    topics = TopicTable(MemoryFiles(), config(tmp_path))
    before = topics.data_version
    for name in ("a", "b", "a"):
        topics.put(TopicConfig(name, len(topics.changed_since(before) or ()) + 1), 0)
    topics.remove("b", 0)
    assert [topic.topic for topic in topics.changed_since(before) or ()] == ["a"]
    assert topics.changed_since(topics.data_version) == []
    for number in range(RECENT_CHANGES):
        topics.put(TopicConfig(f"t{number}"), 0)
    assert topics.changed_since(before) is None
    assert topics.changed_since(replace(before, counter=topics.data_version.counter + 1)) is None
