"""The broker's tables by themselves: topics, groups, offsets, clients, locks, and the files they are kept in."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pyrmq_core.broker.clients import ClientTable
from pyrmq_core.broker.config_files import encode_config, load_config, save_config
from pyrmq_core.broker.group_offsets import GroupOffsets
from pyrmq_core.broker.groups import GroupTable
from pyrmq_core.broker.locks import LIFE_MS, QueueLocks
from pyrmq_core.broker.topics import TopicTable
from pyrmq_core.errors import StoreError
from pyrmq_core.model import MessageQueue, TopicConfig
from pyrmq_core.network import Peer
from pyrmq_core.protocol.requests.heartbeat import ConsumerData, HeartBeat, SubscriptionData
from tests.broker.memory_files import MemoryFiles
from tests.broker.serving import config


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
    younger = SubscriptionData("T", sub_string="x", sub_version=2)
    assert beat(table, A, "a", younger) == []
    assert table.subscription("G", "T") == younger
    assert beat(table, B, "b", topic) == []
    assert table.subscription("G", "T") == younger
    assert table.consumers["G"].client_ids == ["a", "b"]


def test_members_leave_by_word_by_connection_and_by_silence() -> None:
    table = ClientTable()
    for who, name, now_ms in ((A, "a", 0), (B, "b", 5000)):
        beat(table, who, name, SubscriptionData("T"), now_ms=now_ms)
    assert table.expire(5000) == ["G"]
    assert (list(table.members("G")), list(table.producers["P"])) == ([B], [B])
    assert table.leave("b", None, "G") == ["G"]
    assert ("G" in table.consumers, table.leave("b", "P", "G"), table.producers) == (False, [], {})
    beat(table, A, "a", SubscriptionData("T"))
    assert table.disconnected(B) == []
    assert table.disconnected(A) == ["G"]
    assert (table.consumers, table.producers, table.members("G")) == ({}, {}, {})


def test_a_lock_ends_without_renewal() -> None:
    locks, queue = QueueLocks(), MessageQueue("T", "b", 0)
    assert locks.take("G", "a", [queue], 0) == [queue]
    assert locks.take("G", "b", [queue], LIFE_MS) == []
    assert locks.is_held("G", LIFE_MS)
    assert not locks.is_held("H", 0)
    assert locks.take("G", "b", [queue], LIFE_MS + 1) == [queue]
    locks.expire(2 * LIFE_MS + 2)
    assert not locks.is_held("G", 0)


def test_offsets_are_kept_with_java_s_own_keys() -> None:
    files = MemoryFiles()
    offsets = GroupOffsets(files)
    assert offsets.unsaved() is None
    offsets.commit("G", "T", 3, 7)
    offsets.commit("G", "T", 1, -5)
    offsets.commit("H", "U", 0, 1)
    text = offsets.unsaved()
    assert text is not None
    assert offsets.unsaved() is None
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
    assert again.members()["offsetTable"] == {}


def test_groups_take_rocketmqs_defaults() -> None:
    files = MemoryFiles()
    groups = GroupTable(files, auto_create=True)
    found = groups.find("G", 1)
    assert found is not None
    assert (found["retryMaxTimes"], found["retryQueueNums"], found["consumeEnable"]) == (16, 1, True)
    assert (groups.find("a b", 1), groups.find("DEFAULT_CONSUMER", 1)) == (None, None)
    groups.put({"groupName": "H", "retryMaxTimes": 3}, 2)
    again = GroupTable(files, auto_create=False)
    again.load()
    assert (again.find("H", 3) or {})["retryMaxTimes"] == 3
    assert again.find("unknown", 3) is None
    assert again.data_version.counter == 2
    again.remove("H", 4)
    assert "H" not in again


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
def test_topics_that_cannot_be_kept_are_told_at_start(tmp_path: Path, table: Any) -> None:
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
    made = topics.for_send("T", default, queues)
    assert made == (None if expected is None else TopicConfig("T", expected, expected, 6))
    retry = topics.for_send("%RETRY%G", "NoSuchTopic", queues)
    assert retry == TopicConfig("%RETRY%G", 1, 1, 6)
