"""A stranger's well-formed requests against others: their groups, their turns, and the process they need."""

from __future__ import annotations

import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.hostile.test_broker_tables import SEND, TOPIC, answer_of, beat, names, pull
from tests.support.stranger import Stranger, broker_process, nameserver_process, request


def register(stranger: Stranger, broker_id: int, address: str) -> object:
    """Returns the answer's code to a registration with one topic."""
    fields = {"brokerName": "b", "brokerAddr": address, "clusterName": "c", "brokerId": broker_id}
    topic = {"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    wrapper = {"topicConfigTable": {"t": topic}, "dataVersion": {"timestamp": 1, "counter": 1}}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper, "filterServerList": []}).encode()
    answer = stranger.ask(103, {**fields, "haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": 0}, body)
    assert answer is not None
    return answer.code


def test_a_notice_to_what_is_no_address_ends_no_nameserver(tmp_path: Path) -> None:
    """`a:b:1` is `host:port` for a registration (IPv6 has colons) and nothing to connect to; three frames do."""
    with nameserver_process(tmp_path) as nameserver, nameserver.stranger() as stranger:
        assert answer_of(stranger, 318, body=b"notifyMinBrokerIdChanged=true\n").code == 0
        assert [register(stranger, broker_id, f"a:b:{broker_id + 1}") for broker_id in (2, 1, 0)] == [0, 0, 0]
        deadline = time.monotonic() + 60
        while nameserver.output().count("gets no notice") < 2 and nameserver.is_alive and time.monotonic() < deadline:
            assert answer_of(stranger, 106).code == 0
        assert nameserver.is_alive, nameserver.output()
        assert "'a:b:3' is not an address" in nameserver.output()


def test_topics_set_one_by_one_count_with_all_others(tmp_path: Path) -> None:
    with nameserver_process(tmp_path, maxRegisteredTopicBytes=100_000) as nameserver, nameserver.stranger() as stranger:
        assert register(stranger, 0, "127.0.0.1:1") == 0
        queues = {"brokerName": "b", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
        codes = [answer_of(stranger, 217, {"topic": f"t{n}"}, {"queueDatas": [queues]}).code for n in range(400)]
        assert codes == sorted(codes, key=lambda code: code != 0)
        assert set(codes) == {0, 1}
        refused = answer_of(stranger, 217, {"topic": "more"}, {"queueDatas": [queues]})
        assert "maxRegisteredTopicBytes" in refused.remark
        assert answer_of(stranger, 217, {"topic": "t0"}, {"queueDatas": [{**queues, "perm": 4}]}).code == 0


def test_a_stranger_takes_no_client_out_of_its_group(tmp_path: Path) -> None:
    """RocketMQ's broker goes by the connection, too: a client's id is no secret."""
    with broker_process(tmp_path) as broker:
        honest, stranger = broker.stranger(), broker.stranger()
        assert answer_of(honest, 34, body=beat("honest", consumers=["g"], producers=["p"])).code == 0
        leaving = {"clientID": "honest", "consumerGroup": "g", "producerGroup": "p"}
        assert answer_of(stranger, 35, leaving).code == 0
        assert json.loads(answer_of(stranger, 38, {"consumerGroup": "g"}).body) == {"consumerIdList": ["honest"]}
        assert answer_of(stranger, 204, {"producerGroup": "p"}).code == 0
        assert answer_of(honest, 35, leaving).code == 0
        assert answer_of(stranger, 38, {"consumerGroup": "g"}).code == 1
        assert answer_of(stranger, 204, {"producerGroup": "p"}).code == 1


def test_a_message_without_room_for_what_a_retry_adds_is_refused_by_name(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, broker.stranger() as stranger:
        properties = "a\x01" + "x" * 32_600 + "\x02"
        assert answer_of(stranger, 310, {**SEND, "b": "t", "i": properties}, b"body").code == 0
        (place,) = struct.unpack_from(">q", answer_of(stranger, 11, pull("t")).body, 28)
        for level in (0, 3, -1):
            answer = answer_of(stranger, 36, {"offset": place, "group": "g", "delayLevel": level})
            assert (answer.code, "the properties have" in answer.remark) == (13, True), answer.remark
        assert "failed" not in broker.output()


def test_groups_of_many_members_that_change_hold_up_no_other(tmp_path: Path) -> None:
    """A heartbeat of 1,000 groups with 60 members each had 60,000 tasks started at once, and so had its end."""
    with broker_process(tmp_path) as broker:
        honest = broker.stranger()
        members = [broker.stranger() for _ in range(60)]
        before = broker.memory_bytes
        for number, member in enumerate(members):
            member.send(request(34, {}, json.dumps(beat(f"c{number}", consumers=names(1000))).encode()))
        slowest, joined, ends = 0.0, 0, time.monotonic() + 60
        while joined < len(members) and time.monotonic() < ends:
            began = broker.processor_seconds
            group = answer_of(honest, 38, {"consumerGroup": names(1000)[-1]})
            slowest = max(slowest, broker.processor_seconds - began)
            joined = len(json.loads(group.body)["consumerIdList"]) if group.code == 0 else 0
        members[0].close()
        while joined == len(members) and time.monotonic() < ends:
            began = broker.processor_seconds
            joined = len(json.loads(answer_of(honest, 38, {"consumerGroup": names(1000)[-1]}).body)["consumerIdList"])
            slowest = max(slowest, broker.processor_seconds - began)
        assert joined == len(members) - 1
        assert slowest < 3.0
        assert broker.memory_bytes - before < 100 << 20


def test_a_topic_of_many_queues_is_deleted_while_others_are_answered(tmp_path: Path) -> None:
    """One frame held the broker for 15 s with 4,000 queues, on a disk that takes 4 ms a file."""
    with broker_process(tmp_path) as broker:
        honest, stranger = broker.stranger(), broker.stranger()
        queues = 600
        many = {**TOPIC, "topic": "many", "readQueueNums": queues, "writeQueueNums": queues}
        assert answer_of(stranger, 17, many).code == 0
        started = broker.processor_seconds
        stranger.send(b"".join(request(310, {**SEND, "b": "many", "e": n}, b"x", opaque=n) for n in range(queues)))
        answers = [stranger.read() for _ in range(queues)]
        assert {answer.code for answer in answers if answer is not None} == {0}
        made_seconds = broker.processor_seconds - started
        stranger.send(request(215, {"topic": "many"}))
        slowest, is_there = 0.0, True
        while is_there:
            began = broker.processor_seconds
            assert answer_of(honest, 30, {"topic": "many", "queueId": 0}).code == 0
            slowest = max(slowest, broker.processor_seconds - began)
            is_there = answer_of(honest, 351, {"topic": "many"}).code == 0
        deleted = stranger.read()
        assert deleted is not None
        assert deleted.code == 0, deleted.remark
        assert slowest < max(0.5, made_seconds / 10)
        deadline = time.monotonic() + 60
        while list((tmp_path / "store/removed").iterdir()) and time.monotonic() < deadline:
            assert answer_of(honest, 30, {"topic": "many", "queueId": 0}).code == 0
        assert not list((tmp_path / "store/removed").iterdir())
        assert not (tmp_path / "store/consumequeue/many").exists()


def test_what_a_kill_left_of_a_deleted_topic_is_gone_after_the_next_start(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, broker.stranger() as stranger:
        assert answer_of(stranger, 310, {**SEND, "b": "gone"}, b"x").code == 0
        assert answer_of(stranger, 310, {**SEND, "b": "kept"}, b"x").code == 0
        assert answer_of(stranger, 215, {"topic": "gone"}).code == 0
        assert answer_of(stranger, 310, {**SEND, "b": "kept"}, b"y").code == 0
        broker.process.kill()
        broker.process.wait(60)
    left = tmp_path / "store/removed/7/0"
    left.mkdir(parents=True)
    (left / ("0" * 20)).write_bytes(b"x")
    with broker_process(tmp_path) as broker, broker.stranger() as stranger:
        assert not (tmp_path / "store/removed").exists()
        assert answer_of(stranger, 30, {"topic": "kept", "queueId": 0}).header["extFields"] == {"offset": "2"}
        assert answer_of(stranger, 30, {"topic": "gone", "queueId": 0}).header["extFields"] == {"offset": "0"}


def test_the_answer_with_all_groups_is_made_while_others_are_answered(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        honest, stranger = broker.stranger(), broker.stranger()
        for number in range(10):
            assert (
                answer_of(broker.stranger(), 34, body=beat(f"c{number}", consumers=names(2000, f"g{number}"))).code == 0
            )
        shares = []
        for _ in range(3):  # the best of three: other work of the machine is in the slowest answer, too
            slowest, started = 0.0, broker.processor_seconds
            with ThreadPoolExecutor(1) as thread:
                whole = thread.submit(answer_of, stranger, 201)
                while not whole.done():
                    began = broker.processor_seconds
                    assert answer_of(honest, 30, {"topic": "x", "queueId": 0}).code == 0
                    slowest = max(slowest, broker.processor_seconds - began)
            shares.append(slowest / (broker.processor_seconds - started))
            assert len(json.loads(whole.result().body)["subscriptionGroupTable"]) >= 20_000
        assert min(shares) < 0.4
