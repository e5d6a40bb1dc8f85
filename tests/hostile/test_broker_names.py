"""Names from a stranger: no request to a broker leads out of its store, and stored messages stay."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stranger import ServerProcess, Stranger, broker_process

ILLEGAL = (
    "../../../precious",
    "../commitlog",
    "/etc",
    "..",
    ".",
    "a/b",
    "a\\b",
    "a b",
    "a\nb",
    "a\x00b",
    "é",
    "t" * 5000,
)
SEND = {
    "a": "P",
    "c": "TBW102",
    "d": 4,
    "e": 0,
    "f": 0,
    "g": 1_700_000_000_000,
    "h": 0,
    "i": "",
    "j": 0,
    "k": "false",
}
PULL = {
    "consumerGroup": "G",
    "topic": "orders",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
TOPIC = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
# Code, fields, the field that takes the illegal name, and the codes that refuse it.
HEADERS = [
    (310, SEND, "b", {29}),
    (11, PULL, "topic", {17}),
    (11, PULL, "consumerGroup", {26}),
    (14, {"consumerGroup": "G", "topic": "orders", "queueId": 0}, "topic", {29}),
    (14, {"consumerGroup": "G", "topic": "orders", "queueId": 0}, "consumerGroup", {29}),
    (15, {"consumerGroup": "G", "topic": "orders", "queueId": 0, "commitOffset": 1}, "topic", {29}),
    (15, {"consumerGroup": "G", "topic": "orders", "queueId": 0, "commitOffset": 1}, "consumerGroup", {29}),
    (17, TOPIC, "topic", {29}),
    (29, {"queueId": 0, "timestamp": 0}, "topic", {29}),
    (30, {"queueId": 0}, "topic", {29}),
    (31, {"queueId": 0}, "topic", {29}),
    (32, {"queueId": 0}, "topic", {29}),
    (35, {"clientID": "c"}, "producerGroup", {29}),
    (35, {"clientID": "c"}, "consumerGroup", {29}),
    (36, {"offset": 0, "delayLevel": -1}, "group", {26}),
    (38, {}, "consumerGroup", {29}),
    (202, {}, "topic", {29}),
    (203, {}, "consumerGroup", {29}),
    (204, {}, "producerGroup", {29}),
    (207, {"cleanOffset": "true"}, "groupName", {29}),
    (208, {"consumerGroup": "G"}, "topic", {29}),
    (208, {"consumerGroup": "G"}, "topicList", {29}),
    (208, {}, "consumerGroup", {29}),
    (215, {}, "topic", {29}),
    (300, {}, "topic", {29}),
    (351, {}, "topic", {29}),
    (352, {}, "group", {29}),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker that holds one message of `orders`, in a directory beside another one."""
    home = tmp_path_factory.mktemp("names")
    (home / "precious").mkdir()
    (home / "precious" / "file").write_text("kept")
    with broker_process(home / "broker") as started:
        assert send(started.stranger(), "orders") == 0
        yield started


def send(stranger: Stranger, topic: str) -> object:
    answer = stranger.ask(310, {**SEND, "b": topic}, b"body")
    assert answer is not None
    return answer.code


def tree(root: Path) -> list[str]:
    """Returns every path below a directory, except files that a broker writes in rounds or a moment later."""
    names = (str(path.relative_to(root)) for path in root.rglob("*"))
    later = ("/config", "/store/index")
    return sorted(
        name for name in names if not any(part in name for part in later) and not name.endswith(("errors.log", ".pyc"))
    )


@pytest.mark.parametrize(("code", "fields", "field", "refused"), HEADERS)
def test_a_name_in_a_header_never_becomes_a_path(
    broker: ServerProcess, code: int, fields: dict[str, object], field: str, refused: set[int]
) -> None:
    root = broker.home.parent
    before = tree(root)
    with broker.stranger() as stranger:
        for name in ILLEGAL:
            answer = stranger.ask(code, {**fields, field: name}, b"body" if code == 310 else b"")
            assert answer is not None
            assert answer.code in refused, (name, answer.remark)
            assert "\n" not in answer.remark.removesuffix("\n") or code in (11, 36)
        pulled = stranger.ask(11, PULL)
        assert pulled is not None
        assert (pulled.code, pulled.body[-4:] != b"") == (0, True)
    assert tree(root) == before
    assert (root / "precious" / "file").read_text() == "kept"


@pytest.mark.parametrize("name", ILLEGAL)
def test_names_in_a_body_are_passed_over_or_refused(broker: ServerProcess, name: str) -> None:
    root = broker.home.parent
    before = tree(root)
    subscription = {"topic": name, "subString": "*", "subVersion": 1}
    beat = {
        "clientID": "c",
        "producerDataSet": [{"groupName": name}],
        "consumerDataSet": [
            {"groupName": name, "subscriptionDataSet": []},
            {"groupName": "good", "subscriptionDataSet": [subscription]},
        ],
    }
    queues = [{"topic": name, "brokerName": "broker-a", "queueId": 0}]
    with broker.stranger() as stranger:
        reply = stranger.ask(34, {}, json.dumps(beat).encode())
        assert reply is not None
        assert reply.code == 0
        connection = stranger.ask(203, {"consumerGroup": "good"})
        assert connection is not None
        assert connection.code == 0, connection.remark
        assert json.loads(connection.body)["subscriptionTable"] == {}
        for code, body in (
            (34, {**beat, "clientID": "c\n" * 2000}),
            (41, {"consumerGroup": name, "clientId": "c", "mqSet": []}),
            (41, {"consumerGroup": "G", "clientId": "c", "mqSet": queues}),
            (42, {"consumerGroup": "G", "clientId": "c", "mqSet": queues}),
            (200, {"groupName": name}),
        ):
            answer = stranger.ask(code, {}, json.dumps(body).encode())
            assert answer is not None
            assert answer.code == 29, (code, answer.remark)
        groups = stranger.ask(201)
        assert groups is not None
        assert name not in json.loads(groups.body)["subscriptionGroupTable"]
    assert [path for path in tree(root) if path not in before] == []


def test_system_topics_are_neither_made_nor_deleted(broker: ServerProcess) -> None:
    with broker.stranger() as stranger:
        for topic in ("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", "DefaultCluster", "broker-a", "BenchmarkTest"):
            for code in (17, 215):
                answer = stranger.ask(code, {**TOPIC, "topic": topic})
                assert answer is not None
                assert (answer.code, "conflict with system topic" in answer.remark) == (29, True)


def test_names_that_real_clients_use_are_taken(broker: ServerProcess) -> None:
    with broker.stranger() as stranger:
        for topic in ("%RETRY%group", "%DLQ%group", "ns%topic", "a|b_c-D9", "t" * 127):
            assert send(stranger, topic) == 0
        for group in ("CID_RMQ_SYS_TRANS", "%RETRY%group", "ns%group", "g" * 255):
            answer = stranger.ask(352, {"group": group})
            assert answer is not None
            assert answer.code == 0
        empty = stranger.ask(35, {"clientID": "127.0.0.1@4711#1%eth0", "producerGroup": "", "consumerGroup": ""})
        assert empty is not None
        assert empty.code == 0


@pytest.mark.parametrize("setting", ["brokerName", "brokerClusterName"])
def test_names_in_settings_are_no_paths(tmp_path: Path, setting: str) -> None:
    lying: dict[str, Any] = {setting: "../x"}
    with pytest.raises(AssertionError, match=f"{setting} is '../x'"), broker_process(tmp_path, **lying):
        pass


def test_a_topic_file_with_a_path_is_named(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    for topic, queues, reason in (("../x", 4, "cannot be a topic's name"), ("big", 1 << 30, "1073741824 queues")):
        table = {topic: {"topicName": topic, "readQueueNums": queues, "writeQueueNums": 4, "perm": 6}}
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
        with pytest.raises(AssertionError, match=f"topics.json: .*{reason}"), broker_process(tmp_path):
            pass
