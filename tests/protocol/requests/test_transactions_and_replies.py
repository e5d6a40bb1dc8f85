"""Requests of producers beside sends: the end of a transaction and its check, recall, the push of a reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument, RecordError
from pyrmq_core.protocol.framing.command import Command, Serialization
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.requests.broker.end_transaction import EndTransaction
from pyrmq_core.protocol.requests.broker.recall_message import MessageRecalled, RecallHandle, RecallMessage
from pyrmq_core.protocol.requests.client.check_transaction_state import CheckTransactionState
from pyrmq_core.protocol.requests.client.push_reply import PushReply
from tests.protocol.conversations import SERIALIZATIONS, Said, assert_garbage_is_named, assert_survives
from tests.protocol.strategies import INT32, INT64, SOME_TEXT
from tests.protocol.test_real_conversations import command_of
from tests.support import golden

ENDS = st.builds(
    EndTransaction,
    producer_group=SOME_TEXT,
    tran_state_table_offset=INT64,
    commit_log_offset=INT64,
    commit_or_rollback=INT32,
    from_transaction_check=st.booleans(),
    msg_id=st.none() | SOME_TEXT,
    transaction_id=st.none() | SOME_TEXT,
    topic=st.none() | SOME_TEXT,
    broker_name=st.none() | SOME_TEXT,
    remark=st.none() | SOME_TEXT,
)
CHECKS = st.builds(
    CheckTransactionState,
    tran_state_table_offset=INT64,
    commit_log_offset=INT64,
    msg_id=st.none() | SOME_TEXT,
    transaction_id=st.none() | SOME_TEXT,
    offset_msg_id=st.none() | SOME_TEXT,
    topic=st.none() | SOME_TEXT,
    broker_name=st.none() | SOME_TEXT,
    record=st.binary(max_size=20),
)
REPLIES = st.builds(
    PushReply,
    producer_group=SOME_TEXT,
    topic=SOME_TEXT,
    default_topic=SOME_TEXT,
    default_topic_queue_nums=INT32,
    queue_id=INT32,
    sys_flag=INT32,
    born_timestamp_ms=INT64,
    flag=INT32,
    properties=st.none() | SOME_TEXT,
    body=st.binary(max_size=20),
)
RECALLS = st.builds(RecallMessage, SOME_TEXT, SOME_TEXT, SOME_TEXT, st.none() | SOME_TEXT)
ANY_SAID: st.SearchStrategy[Said] = st.one_of(
    ENDS, CHECKS, REPLIES, RECALLS, st.builds(MessageRecalled, msg_id=SOME_TEXT)
)
# routing and producer sheet, 6.6
GOLDEN_HANDLE = "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAwMDAwMDEgN0YwMDAwMDEwMDAxMDAwMDAwMDAwMDAwMDAwQTAwMDE="
A_REPLY = PushReply("PG", "DefaultCluster_REPLY_TOPIC", "TBW102", 4, 0, 0, 1_700_000_000_000, 0, body=b"hi")


@given(ANY_SAID, SERIALIZATIONS)
def test_what_is_said_survives_the_wire(said: Said, serialization: Serialization) -> None:
    assert_survives(said, serialization)


@given(ANY_SAID, st.data())
def test_garbage_in_the_fields_is_named(said: Said, data: st.DataObject) -> None:
    assert_garbage_is_named(type(said), said, data)


def test_javas_end_of_a_transaction() -> None:
    """The header of vectors' END_TRANSACTION, written again (tests/golden/vectors_java.txt)."""
    end = EndTransaction(
        producer_group="PG",
        tran_state_table_offset=5,
        commit_log_offset=6668,
        commit_or_rollback=8,
        msg_id="7F0000010001000000000000000A0001",
        transaction_id="7F0000010001000000000000000A0001",
        topic="TopicTest",
        broker_name="broker-a",
    )
    assert dict(end.to_command().ext) == {
        "producerGroup": "PG",
        "bname": "broker-a",
        "commitLogOffset": "6668",
        "topic": "TopicTest",
        "msgId": "7F0000010001000000000000000A0001",
        "tranStateTableOffset": "5",
        "commitOrRollback": "8",
        "transactionId": "7F0000010001000000000000000A0001",
        "fromTransactionCheck": "false",
    }


@pytest.mark.parametrize("frame", list(golden.requests(39)), ids=str)
def test_a_brokers_check_holds_the_half_message(frame: golden.GoldenFrame) -> None:
    check = CheckTransactionState.from_command(command_of(frame))
    message = check.message()
    assert message.properties["PGROUP"]
    assert message.properties["TRAN_MSG"] == "true"
    assert message.topic == message.properties.get("REAL_TOPIC", message.topic)
    assert message.msg_id == check.msg_id
    assert message.commit_log_offset == check.commit_log_offset


def test_a_check_without_one_record_is_reported() -> None:
    record = CheckTransactionState.from_command(command_of(golden.requests(39)[0])).record
    for body in (b"", record[:-1], record + record, b"\0" * 200):
        with pytest.raises(RecordError):
            CheckTransactionState(0, 0, record=body).message()


def test_javas_recall_handle() -> None:
    handle = RecallHandle("TopicTest", "broker-a", 1_700_000_000_001, "7F0000010001000000000000000A0001")
    assert handle.encode() == GOLDEN_HANDLE
    assert RecallHandle.decode(GOLDEN_HANDLE) == handle


@pytest.mark.parametrize("topic", ["T", "TT", "TTT"])
def test_a_recall_handle_may_come_without_its_padding(topic: str) -> None:
    """Java's decoder takes it so; it refuses a padding of another length."""
    handle = RecallHandle(topic, "b", 1, "u")
    bare = handle.encode().rstrip("=")
    assert RecallHandle.decode(bare) == handle
    for padding in ("=", "==", "==="):
        if bare + padding != handle.encode():
            with pytest.raises(InvalidArgument, match="recall handle is invalid"):
                RecallHandle.decode(bare + padding)


@pytest.mark.parametrize("text", ["", "x", "%%%", "djE=", GOLDEN_HANDLE.rstrip("=")[:-2], "djIgVCBiIDEgdQ==", "中"])
def test_what_is_no_handle_is_reported(text: str) -> None:
    with pytest.raises(InvalidArgument, match="recall handle is invalid"):
        RecallHandle.decode(text)


@given(st.text(max_size=60))
def test_any_text_is_a_handle_or_refused(text: str) -> None:
    try:
        handle = RecallHandle.decode(text)
    except InvalidArgument:
        return
    assert RecallHandle.decode(handle.encode()) == handle


def test_a_reply_is_unpacked() -> None:
    body = compress(b"hello" * 100, CompressionType.ZLIB)
    ext = {**A_REPLY.to_command().ext, "sysFlag": "769", "properties": "UNIQ_KEY\x01U\x02CORRELATION_ID\x01c\x02"}
    message = PushReply.from_command(Command(326, {**ext, "storeHost": "/127.0.0.1:10911"}, body)).message()
    assert message.body == b"hello" * 100
    assert (message.msg_id, message.store_host, message.properties["CORRELATION_ID"]) == ("U", "127.0.0.1:10911", "c")


def test_a_reply_that_cannot_be_unpacked_is_reported() -> None:
    ext = {**A_REPLY.to_command().ext, "sysFlag": "769"}
    with pytest.raises(RecordError):
        PushReply.from_command(Command(326, ext, b"not zlib")).message()
