"""Requests of brokers to the consumers of a group (40, 220, 221, 307, 309): golden bytes, the wire, and garbage."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError, ProtocolError, RecordError
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.requests.broker.consumer_admin import GetStatusOfConsumers, OffsetsReset, ResetOffset
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData
from pyrmq_core.protocol.requests.client.consume_message_directly import (
    CMResult,
    ConsumeDirectlyResult,
    ConsumeMessageDirectly,
)
from pyrmq_core.protocol.requests.client.get_consumer_running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerRunningInfo,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from pyrmq_core.protocol.requests.client.get_consumer_status import ConsumerStatus, GetConsumerStatus
from pyrmq_core.protocol.requests.client.notify_consumer_ids_changed import NotifyConsumerIdsChanged
from pyrmq_core.protocol.requests.client.reset_consumer_offset import ResetConsumerOffset
from tests.protocol.conversations import SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT, TEXT
from tests.protocol.test_real_conversations import command_of
from tests.support import golden

Q0, Q1 = MessageQueue("CallTopic", "broker-a", 0), MessageQueue("CallTopic", "broker-a", 1)
TABLE_FRAMES = [frame for code in (221, 223, 307) for frame in golden.answers(code) if frame.code == 0]

QUEUES = st.builds(MessageQueue, SOME_TEXT, SOME_TEXT, INT32)
OFFSETS = st.dictionaries(QUEUES, INT64, max_size=3)
FLOATS = st.floats(0, 1e9)
INFOS = st.builds(
    ConsumerRunningInfo,
    properties=st.dictionaries(TEXT, TEXT, max_size=3),
    subscriptions=st.lists(st.builds(SubscriptionData, SOME_TEXT), max_size=2).map(tuple),
    queues=st.dictionaries(
        QUEUES, st.builds(ProcessQueueInfo, INT64, INT64, INT64, INT32, INT32, locked=st.booleans()), max_size=2
    ),
    pop_queues=st.dictionaries(QUEUES, st.builds(PopProcessQueueInfo, INT32, st.booleans(), INT64), max_size=2),
    statuses=st.dictionaries(TEXT, st.builds(ConsumeStatus, FLOATS, FLOATS, FLOATS, FLOATS, FLOATS, INT64), max_size=2),
    user_consumer_info=st.dictionaries(TEXT, TEXT, max_size=2),
    jstack=st.none() | TEXT,
)
DIRECT = st.builds(
    ConsumeMessageDirectly,
    SOME_TEXT,
    st.none() | SOME_TEXT,
    st.none() | SOME_TEXT,
    st.none() | SOME_TEXT,
    topic_sys_flag=st.none() | INT32,
    record=st.binary(max_size=20),
)
RESULTS = st.builds(
    ConsumeDirectlyResult,
    st.booleans(),
    st.booleans(),
    st.none() | st.sampled_from(CMResult),
    st.none() | TEXT,
    INT64,
)
RESETS = st.builds(ResetConsumerOffset, SOME_TEXT, SOME_TEXT, INT64, st.booleans(), st.none() | INT32, OFFSETS)
STATUSES = st.builds(ConsumerStatus, OFFSETS, st.dictionaries(TEXT, OFFSETS, max_size=2))
ANY_SAID: st.SearchStrategy[Said] = st.one_of(
    st.builds(NotifyConsumerIdsChanged, SOME_TEXT),
    RESETS,
    st.builds(GetConsumerStatus, SOME_TEXT, SOME_TEXT),
    st.builds(ResetOffset, SOME_TEXT, SOME_TEXT, INT64, st.booleans(), INT32, st.none() | INT64),
    st.builds(OffsetsReset, OFFSETS),
    st.builds(GetStatusOfConsumers, SOME_TEXT, SOME_TEXT, st.none() | SOME_TEXT),
    STATUSES,
    st.builds(GetConsumerRunningInfo, SOME_TEXT, SOME_TEXT, st.booleans()),
    INFOS,
    DIRECT,
    RESULTS,
)


@given(ANY_SAID, SERIALIZATIONS)
def test_what_is_said_survives_the_wire(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(ANY_SAID, st.data())
def test_garbage_in_the_fields_is_named(said: Said, data: st.DataObject) -> None:
    assert_garbage_is_named(type(said), said, data)


@given(st.one_of(RESETS, STATUSES, INFOS, RESULTS), st.data())
def test_a_damaged_body_is_named(said: Said, data: st.DataObject) -> None:
    command = said.to_command()
    body = bytes(command.body)
    cut = data.draw(st.integers(0, len(body)))
    damaged = body[:cut] + data.draw(st.sampled_from([b"", b"{", b'"', b"}", b"{}:", b"null", b"[]"])) + body[cut + 1 :]
    with contextlib.suppress(ProtocolError):
        type(said).from_command(replace(command, body=damaged)).to_command()


@pytest.mark.parametrize("frame", TABLE_FRAMES, ids=str)
def test_javas_tables_are_written_again_byte_by_byte(frame: golden.GoldenFrame) -> None:
    command = command_of(frame)
    said: Said = (ConsumerRunningInfo if frame.request == 307 else ConsumerStatus).from_command(command)
    ours = bytes(said.to_command().body)
    if b'"mqPopTable"' not in command.body:  # 4.9 has neither pop consumers nor information of users
        ours = ours.replace(b'"mqPopTable":{},', b"").replace(b',"userConsumerInfo":{}', b"")
    assert ours == bytes(command.body)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_a_java_consumers_running_information(version: str) -> None:
    frames = [frame for frame in golden.answers(307) if frame.code == 0 and version in frame.source]
    infos = [ConsumerRunningInfo.from_command(command_of(frame)) for frame in frames]
    ordered = [info for info in infos if info.properties["PROP_CONSUMEORDERLY"] == "true"]
    assert 0 < len(ordered) < len(infos)
    for info in infos:
        assert {Q0, Q1} <= info.queues.keys()
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "CallTopic" in {data.topic for data in info.subscriptions}
        assert "CallTopic" in info.statuses
    assert all(info.queues[Q0].locked for info in ordered)
    assert all(info.queues[Q0].commit_offset > 0 for info in infos)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_a_java_listeners_results(version: str) -> None:
    frames = [frame for frame in golden.answers(309) if frame.code == 0 and version in frame.source]
    commands = [command_of(frame) for frame in frames]
    results = [ConsumeDirectlyResult.from_command(command) for command in commands]
    by_result = {result.consume_result: result for result in results}
    assert by_result.keys() == {CMResult.SUCCESS, CMResult.LATER, CMResult.THROW_EXCEPTION, CMResult.RETURN_NULL}
    assert (by_result[CMResult.THROW_EXCEPTION].remark or "").startswith(
        "java.lang.IllegalStateException: as the test wants"
    )
    assert {result.order for result in results} == {True, False}
    assert [bytes(result.to_command().body) for result in results] == [bytes(command.body) for command in commands]


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_a_brokers_requests(version: str) -> None:
    """The header fields and bodies that a broker sent to a Java client, written again byte by byte."""
    conversations: dict[int, type[Said]] = {
        40: NotifyConsumerIdsChanged,
        220: ResetConsumerOffset,
        221: GetConsumerStatus,
        307: GetConsumerRunningInfo,
        309: ConsumeMessageDirectly,
    }
    for code, cls in conversations.items():
        frames = [frame for frame in golden.requests(code) if frame.dir == "s2c" and version in frame.source]
        assert frames, f"no request {code} by {version}"
        for command in map(command_of, frames):
            again = cls.from_command(command).to_command()
            assert (again.code, dict(again.ext)) == (code, dict(command.ext))
            assert bytes(again.body) == bytes(command.body)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_an_administrators_resets_and_their_answers(version: str) -> None:
    frames = [frame for frame in golden.requests(222) if version in frame.source]
    resets = [ResetOffset.from_command(command_of(frame)) for frame in frames]
    assert {(reset.topic, reset.group, reset.queue_id) for reset in resets} == {("CallTopic", "Callbacks", -1)}
    assert {reset.offset for reset in resets} == {-1 if version == "5.4.0" else None}
    assert len({reset.timestamp_ms for reset in resets}) == 2
    for frame in golden.answers(222):
        if frame.code == 0 and version in frame.source:
            command = command_of(frame)
            said = OffsetsReset.from_command(command)
            assert said.offsets
            assert bytes(said.to_command().body) == bytes(command.body)


@pytest.mark.parametrize("version", ["5.4.0", "4.9.7"])
def test_the_message_to_consume(version: str) -> None:
    frames = [frame for frame in golden.requests(309) if frame.dir == "s2c" and version in frame.source]
    messages = [ConsumeMessageDirectly.from_command(command_of(frame)).message() for frame in frames]
    assert {message.body for message in messages} == {b"body-0", b"raise please", b"null please", b"later please"}
    assert {(message.topic, message.broker_name) for message in messages} == {("CallTopic", "broker-a")}


def test_offsets_as_a_broker_writes_them_for_cpp_clients() -> None:
    body = (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":4,"queueId":0,"topic":"CallTopic"},'
        b'{"brokerName":"broker-a","offset":5,"queueId":1,"topic":"CallTopic"}]}'
    )
    command = Command(220, {"topic": "CallTopic", "group": "g", "timestamp": "-1", "isForce": "true"}, body)
    assert ResetConsumerOffset.from_command(command).offsets == {Q0: 4, Q1: 5}


def test_a_reset_without_a_body_has_no_offsets() -> None:
    """Java reads it so too (ClientRemotingProcessor.resetOffset)."""
    command = Command(220, {"topic": "CallTopic", "group": "g"})
    assert ResetConsumerOffset.from_command(command).offsets == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"offsetTable":5}',
        b'{"offsetTable":{"text":5}}',
        b'{"offsetTable":{{"topic":"T"}:5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":4294967296,"topic":"T"}:5}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:99999999999999999999}}',
        b'{"offsetTable":{{{}:1}:5}}',
        b'{"offsetTable":[{"topic":"T"}]}',
    ],
)
def test_a_wrong_table_of_offsets_is_named(body: bytes) -> None:
    status = Command(0, body=body.replace(b"offsetTable", b"messageQueueTable"))
    with pytest.raises(BodyError, match="consumer status"):
        ConsumerStatus.from_command(status)
    if body:
        with pytest.raises(BodyError, match="offsets to reset"):
            ResetConsumerOffset.from_command(Command(220, {"topic": "T", "group": "g"}, body))


def test_braces_within_texts_are_left_alone() -> None:
    info = ConsumerRunningInfo(properties={'{"a":1}': '{"b":2}:', "{": "}:"}, jstack='x"{}:\\')
    assert ConsumerRunningInfo.from_command(info.to_command()) == info


def test_javas_numbers_and_flags_among_properties_become_text() -> None:
    body = b'{"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","n":5,"flag":true}}'
    info = ConsumerRunningInfo.from_command(Command(0, body=body))
    assert info.properties == {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "n": "5", "flag": "true"}


@pytest.mark.parametrize("record", [b"", b"\x00\x00\x00\x04", b"junk" * 40])
def test_a_body_that_is_no_record_is_named(record: bytes) -> None:
    with pytest.raises(RecordError):
        ConsumeMessageDirectly("g", record=record).message()
