"""CONSUMER_SEND_MSG_BACK (36), LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42): both ways, garbage, and Java's own."""

import json

from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues, UnlockQueues
from tests.protocol.conversations import (
    SERIALIZATIONS,
    assert_garbage_is_named,
    assert_json_garbage_is_named,
    assert_survives,
)
from tests.support import golden

texts = st.text(min_size=1, max_size=10)
numbers = st.integers(-(2**31), 2**31 - 1)
backs = st.builds(
    ConsumerSendMsgBack,
    offset=st.integers(0, 2**63 - 1),
    group=texts,
    delay_level=numbers,
    origin_msg_id=st.none() | texts,
    origin_topic=st.none() | texts,
    unit_mode=st.booleans(),
    max_reconsume_times=st.none() | numbers,
    broker_name=st.none() | texts,
)
queues = st.lists(st.builds(MessageQueue, texts, texts, numbers), max_size=4).map(tuple)
SAMPLE = LockQueues("G", "cid", (MessageQueue("T", "broker-a", 3),))


@given(backs, SERIALIZATIONS)
def test_a_message_sent_back_survives_the_wire(said: ConsumerSendMsgBack, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.builds(LockQueues, texts, texts, queues) | st.builds(UnlockQueues, texts, texts, queues), SERIALIZATIONS)
def test_locks_survive_the_wire(said: LockQueues, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.builds(LockedQueues, queues), SERIALIZATIONS)
def test_locked_queues_survive_the_wire(said: LockedQueues, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(st.data())
def test_garbage_is_named(data: st.DataObject) -> None:
    assert_garbage_is_named(ConsumerSendMsgBack, ConsumerSendMsgBack(1, "G", 2), data)
    assert_garbage_is_named(LockQueues, SAMPLE, data)
    assert_json_garbage_is_named(LockQueues, 41, json.loads(bytes(SAMPLE.to_command().body)), data)
    answered = LockedQueues(SAMPLE.queues).to_command()
    assert_json_garbage_is_named(LockedQueues, 0, json.loads(bytes(answered.body)), data)


def test_what_java_consumers_sent_back_is_read_and_written_again() -> None:
    frames = golden.requests(36)
    assert len(frames) == 2
    for frame in frames:
        decoder = FrameDecoder()
        decoder.feed(frame.raw)
        command = decoder.next_command()
        assert command is not None
        assert ConsumerSendMsgBack.from_command(command).to_command().ext == command.ext


def test_recorded_locks_are_read_and_written_again() -> None:
    rows = [row for row in golden.rows() if row["request"]["code"] in (41, 42)]
    assert len(rows) == 5
    for row in rows:
        code, body = row["request"]["code"], row["request"]["body"].encode()
        request = (LockQueues if code == 41 else UnlockQueues).from_command(Command(code, body=body))
        assert json.loads(bytes(request.to_command().body)) == json.loads(body)
        if recorded := row["5.4.0"].get("body"):
            answer = LockedQueues.from_command(Command(0, body=recorded.encode()))
            assert bytes(answer.to_command().body).decode() == recorded
