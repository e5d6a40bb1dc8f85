"""Frames of a stranger that are no RocketMQ: headers, numbers, texts and expressions that no client sends.

Each is sent to a NameServer and to a broker in processes of their own, which live on, answer others, and write files.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stranger import Answer, ServerProcess, broker_process, frame, nameserver_process, request

FIELDS = {
    "a": "P",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "K\x01V\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}
V1 = {
    "producerGroup": "P",
    "topic": "orders",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "K\x01V\x02",
    "reconsumeTimes": "0",
}
PULL = {
    "consumerGroup": "G",
    "topic": "orders",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
}


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with nameserver_process(tmp_path_factory.mktemp("nameserver")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with broker_process(tmp_path_factory.mktemp("broker"), enablePropertyFilter="true") as server:
        yield server


@pytest.fixture(params=["nameserver", "broker"])
def server(request: pytest.FixtureRequest) -> ServerProcess:
    chosen = request.getfixturevalue(str(request.param))
    assert isinstance(chosen, ServerProcess)
    return chosen


def answered(server: ServerProcess, data: bytes) -> Answer | None:
    """Returns the answer to these bytes, or None when they ended the connection; checks that others are answered."""
    with server.stranger() as stranger:
        stranger.send(data)
        answer = stranger.read()
    assert_served(server)
    return answer


def assert_served(server: ServerProcess) -> None:
    assert server.is_alive
    with server.stranger() as other:
        answer = other.ask(105, {"topic": "orders"})
    assert answer is not None
    assert answer.code in (3, 17)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


PLACES = [
    b'{"code":%d,"extFields":{"topic":%s},"opaque":1}',
    b'{"code":%d,"remark":%s,"opaque":1}',
    b'{"code":%d,"language":%s,"opaque":1}',
    b'{"code":%d,"opaque":%s}',
    b'{"code":%d,"zoo":%s,"opaque":1}',
]


@pytest.mark.parametrize("place", PLACES, ids=["extFields", "remark", "language", "opaque", "unknown"])
@pytest.mark.parametrize("depth", [1, 100, 600, 100_000])
def test_a_nested_header(server: ServerProcess, place: bytes, depth: int) -> None:
    for code in (105, 310):
        answered(server, frame(place % (code, nested(depth))))


def test_a_header_nested_just_below_what_python_reads(server: ServerProcess) -> None:
    """Such a header was read, and ended the process when it was written again."""
    for depth in range(880, 1_000):
        with server.stranger() as stranger:
            for place in (PLACES[0], PLACES[1]):
                stranger.send(frame(place % (105, nested(depth))))
            assert stranger.read() is None
        assert server.is_alive
    assert_served(server)


@pytest.mark.parametrize("depth", [1, 900, 950, 100_000])
def test_a_nested_field_that_is_read_late(server: ServerProcess, depth: int) -> None:
    fields = b'{"topic":%s,"more":"%s"}' % (nested(depth), b"x" * 4000)
    header = b'{"code":105,"extFields":%s,"flag":0,"language":"JAVA","opaque":1,' % fields
    answer = answered(server, frame(header + b'"serializeTypeCurrentRPC":"JSON","version":493}'))
    assert answer is None or answer.code != 0


@pytest.mark.parametrize("depth", [40, 900, 990, 100_000])
@pytest.mark.parametrize("code", [34, 41, 42, 103, 322, 217, 318, 46, 200])
def test_a_nested_body(server: ServerProcess, code: int, depth: int) -> None:
    registering = {"clusterName": "C", "brokerAddr": "h:1", "brokerName": "b", "brokerId": "0", "topic": "T"}
    for body in (nested(depth), b'{"a":' * depth + b"1" + b"}" * depth, b'{"clientID":' + nested(depth) + b"}"):
        answer = answered(server, request(code, registering, body))
        assert answer is not None
        assert answer.code != 0 or code in (46, 318)


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\udc00\ud800"])
def test_half_a_surrogate_reaches_no_file(tmp_path: Path, text: str) -> None:
    """One such value once kept every later change from being written."""
    with nameserver_process(tmp_path / "n") as nameserver:
        answered(nameserver, request(100, {"namespace": "N", "key": "bad", "value": text}))
        answered(nameserver, request(100, {"namespace": text, "key": "bad", "value": "v"}))
        answer = nameserver.stranger().ask(100, {"namespace": "N", "key": "good", "value": "v"})
        assert answer is not None
        assert answer.code == 0
        assert json.loads((tmp_path / "n/kv.json").read_bytes())["configTable"]["N"]["good"] == "v"
    with broker_process(tmp_path / "b") as broker:
        topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        answered(broker, request(17, {**topic, "attributes": f"+x={text}", "topicFilterType": "SINGLE_TAG"}))
        answered(broker, request(200, {}, json.dumps({"groupName": "G", "attributes": {"a": text}}).encode()))
        answered(broker, request(34, {}, json.dumps({"clientID": text, "consumerDataSet": []}).encode()))
        answer = broker.stranger().ask(17, {**topic, "topic": "U", "topicFilterType": "SINGLE_TAG"})
        assert answer is not None
        assert answer.code == 0
        assert b'"U"' in (tmp_path / "b/store/config/topics.json").read_bytes()
        assert broker.stop() == 0


NUMBERS = ["2147483648", "-2147483649", str(2**63), "9" * 5000, " 1", "1_0", "1.5", "", "x"]


@pytest.mark.parametrize(
    ("code", "fields", "name"),
    [
        *((310, FIELDS, name) for name in "defhj"),
        *((320, FIELDS, name) for name in "defhj"),
        *((10, V1, name) for name in ("queueId", "sysFlag", "flag", "reconsumeTimes", "defaultTopicQueueNums")),
        *((11, PULL, name) for name in ("queueId", "maxMsgNums", "sysFlag")),
    ],
)
def test_a_number_that_its_field_cannot_hold_is_named(
    broker: ServerProcess, code: int, fields: dict[str, str], name: str
) -> None:
    with broker.stranger() as stranger:
        for number in NUMBERS:
            answer = stranger.ask(code, {**fields, name: number}, b"body")
            assert answer is not None
            assert answer.code != 0
            assert "format requires" not in answer.remark
            assert f"field {name if code != 10 else ''}" in answer.remark
    assert_served(broker)


@pytest.mark.parametrize("code", [310, 10])
def test_times_and_offsets_have_64_bits(broker: ServerProcess, code: int) -> None:
    fields, name = (FIELDS, "g") if code == 310 else (V1, "bornTimestamp")
    with broker.stranger() as stranger:
        for number in ("9223372036854775808", "-9223372036854775809"):
            answer = stranger.ask(code, {**fields, name: number}, b"body")
            assert answer is not None
            assert "64 bits" in answer.remark
        answer = stranger.ask(code, {**fields, name: "9223372036854775807"}, b"body")
        assert answer is not None
        assert answer.code == 0


@pytest.mark.parametrize("delay", ["9" * 5000, "2147483648", "1_0", " 1", "x"])
def test_a_delay_that_is_no_level_is_named(broker: ServerProcess, delay: str) -> None:
    answer = answered(broker, request(310, {**FIELDS, "i": f"DELAY\x01{delay}\x02"}, b"body"))
    assert answer is not None
    assert "DELAY is a level" in answer.remark


def test_properties_beyond_what_a_record_keeps_are_refused_by_their_length(broker: ServerProcess) -> None:
    many = "".join(f"k{number}\x01v\x02" for number in range(5_000))
    answer = answered(broker, request(310, {**FIELDS, "i": many}, b"body"))
    assert answer is not None
    assert answer.code == 13


def test_a_header_beyond_the_bound_ends_the_connection_before_it_has_come(server: ServerProcess) -> None:
    with server.stranger() as stranger:
        stranger.send(struct.pack(">ii", (15 << 20) + 4, 15 << 20) + b'{"code":1')
        assert stranger.read() is None
    assert_served(server)


@pytest.mark.parametrize(
    "sql",
    [
        " OR ".join(["a = 1"] * 1_000),
        "a" + " BETWEEN 1 AND 2" * 60,
        "NOT " * 50_000 + "a",
        "(" * 5_000,
        "a = " + "9" * 5_000,
        "a" + " IS NULL" * 900,
    ],
    ids=range(6),
)
def test_an_expression_that_cannot_be_evaluated_is_refused(broker: ServerProcess, sql: str) -> None:
    with broker.stranger() as stranger:
        sent = stranger.ask(310, {**FIELDS, "i": "a\x012\x02"}, b"body")
        assert sent is not None
        assert sent.code == 0
        answer = stranger.ask(11, {**PULL, "subscription": sql, "expressionType": "SQL92"})
        assert answer is not None
        assert answer.code in (0, 19, 20, 23)
    assert_served(broker)


def test_a_registration_of_bare_names_holds_up_no_other(nameserver: ServerProcess) -> None:
    """1 MB of them once took 24 s, in which no other request was answered."""
    topics = ",".join(f'"t{number}":{{"topicName":"t","attributes":{{{number}:"1"}}}}' for number in range(20_000))
    body = f'{{"topicConfigSerializeWrapper":{{"topicConfigTable":{{{topics}}}}}}}'.encode()
    fields = {"clusterName": "C", "brokerAddr": "h:1", "brokerName": "b", "brokerId": "0"}
    assert len(body) > 1_000_000 * 0.9
    with nameserver.stranger() as stranger, nameserver.stranger() as other:
        waits = []
        stranger.send(request(103, fields, body))
        stranger.socket.setblocking(False)
        for _ in itertools.count():
            began = nameserver.processor_seconds
            assert other.ask(105, {"topic": "orders"}) is not None
            waits.append(nameserver.processor_seconds - began)
            try:
                stranger.socket.recv(1)
                break
            except BlockingIOError:
                continue
        assert max(waits) < 10


@pytest.mark.parametrize("address", ["h:" + "9" * 5000, "h:65536", "h", ""])
def test_an_address_that_cannot_be_one_is_not_registered(nameserver: ServerProcess, address: str) -> None:
    fields = {"clusterName": "C", "brokerAddr": address, "brokerName": "b", "brokerId": "0"}
    answer = answered(nameserver, request(103, fields, b"{}"))
    assert answer is not None
    assert answer.code != 0
    assert "brokerAddr" in answer.remark


@pytest.mark.parametrize("queues", [65_536, 20_000_000, 2**31 - 1, -1])
def test_a_number_of_queues_that_no_topic_has_is_not_registered(nameserver: ServerProcess, queues: int) -> None:
    fields = {"clusterName": "C", "brokerAddr": "h:1", "brokerName": "b", "brokerId": "0"}
    table = {"T": {"topicName": "T", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
    answer = answered(nameserver, request(103, fields, body))
    assert answer is not None
    assert answer.code != 0
