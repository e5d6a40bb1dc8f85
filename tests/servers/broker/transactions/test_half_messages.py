"""The records of a transaction: what a commit, a check and a list of ended half messages look like."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.messages.properties import (
    MAX_STORED_PROPERTIES_BYTES,
    decode_java_utf8,
    decode_properties,
    encode_properties,
)
from pyrmq_core.protocol.messages.record import decode_record
from pyrmq_core.servers.broker.store.appending import Append
from pyrmq_core.servers.broker.store.batch_pieces import piece
from pyrmq_core.servers.broker.transactions.half_messages import (
    ADDED_BY_CHECKS,
    checked_again,
    committed,
    discarded,
    ended_offsets,
    ended_records,
    half_message,
    half_properties,
    is_prepared,
    postponed,
    resumed,
)
from pyrmq_core.servers.broker.transactions.producer_checks import check_request
from tests.servers.broker.transactions.halves import BORN_MS, HALF, HOST, PROPERTIES, half, raw

OFFSETS = st.lists(st.integers(0, 2**63 - 1), max_size=300)


def properties_of(append: Append | None) -> dict[str, str]:
    assert append is not None
    (part,) = append.pieces
    return decode_properties(decode_java_utf8(part.properties[2:]))


def test_a_half_message_says_where_it_belongs() -> None:
    sent = {"UNIQ_KEY": "U1", "TRAN_MSG": "true", "TAGS": "t"}
    assert half_properties("T", 2, sent) == {
        **sent,
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
        "__transactionId__": "U1",
    }
    forged = {"TRAN_PREPARED_QUEUE_OFFSET": "0", "TRANSACTION_CHECK_TIMES": "15"}
    assert half_properties("T", 2, {**sent, **forged}) == half_properties("T", 2, sent)
    message = half()
    assert (message.real_topic, message.real_queue_id, message.producer_group, message.unique_id) == ("T", 2, "P", "U1")
    assert (message.checks, message.immunity, message.first_offset) == (None, None, 5)


@pytest.mark.parametrize(("text", "prepared"), [("true", True), ("TRUE", True), ("1", False), ("", False)])
def test_java_reads_the_property_as_a_boolean(text: str, prepared: bool) -> None:
    assert is_prepared({"TRAN_MSG": text}) is prepared


@pytest.mark.parametrize(
    "spoiled",
    [
        None,
        b"",
        raw(HALF)[:-1],
        raw(replace(HALF, topic="T")),
        raw(replace(HALF, queue_id=1)),
        raw(replace(HALF, pieces=[piece(0, b"x", b"REAL_TOPIC\x01T\x02")])),
        raw(replace(HALF, pieces=[piece(0, b"x", b"REAL_QID\x010\x02")])),
        raw(replace(HALF, pieces=[piece(0, b"x", b"REAL_TOPIC\x01T\x02REAL_QID\x01x\x02")])),
        raw(replace(HALF, pieces=[piece(0, b"x", b"REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02")])),
    ],
)
def test_other_records_are_no_half_messages(spoiled: bytes | None) -> None:
    assert half_message(spoiled) is None


def test_a_commit_is_the_message_in_its_own_queue() -> None:
    append = committed(half({"TRANSACTION_CHECK_TIMES": "3"}))
    assert (append.topic, append.queue_id, append.sys_flag, append.prepared_transaction_offset) == ("T", 2, 0x309, 6668)
    assert (append.born_timestamp_ms, append.born_host, append.pieces[0].flag) == (BORN_MS, HALF.born_host, 7)
    assert append.pieces[0].body == HALF.pieces[0].body
    kept = {name: text for name, text in PROPERTIES.items() if not name.startswith("REAL_")}
    assert properties_of(append) == {**kept, "TRANSACTION_CHECK_TIMES": "3"}


def test_half_messages_are_stored_again_with_their_history() -> None:
    first = half({"CHECK_IMMUNITY_TIME_IN_SECONDS": "60"})
    assert properties_of(checked_again(first, 4))["TRANSACTION_CHECK_TIMES"] == "4"
    immune = postponed(first)
    assert properties_of(immune)["TRAN_PREPARED_QUEUE_OFFSET"] == "5"
    assert "TRANSACTION_CHECK_TIMES" not in properties_of(immune)
    assert immune is not None
    later = half_message(raw(immune, queue_offset=9))
    assert later is not None
    assert later.first_offset == 5
    assert properties_of(postponed(later))["TRAN_PREPARED_QUEUE_OFFSET"] == "5"
    anew = properties_of(resumed(half({"TRANSACTION_CHECK_TIMES": "15", "TRAN_PREPARED_QUEUE_OFFSET": "5"})))
    assert anew == {**PROPERTIES, "TRANSACTION_CHECK_TIMES": "0"}
    gone = discarded(first)
    assert (gone.topic, gone.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    for again in (checked_again(first, 4), immune, gone):
        assert again is not None
        assert (again.sys_flag, again.born_host, again.prepared_transaction_offset) == (0x301, HALF.born_host, 0)


def test_there_is_room_for_what_checks_add() -> None:
    """The longest properties that a send may have leave room for both; longer ones cannot be stored again."""
    for room, fits in ((ADDED_BY_CHECKS, True), (20, False)):
        left = MAX_STORED_PROPERTIES_BYTES - room - len(encode_properties(PROPERTIES)) - len("k\x01\x02")
        large = half({"k": "v" * left}, queue_offset=2**62)
        again = postponed(large)
        assert (again is not None) is fits
        if again is not None:
            both = half_message(raw(again, queue_offset=2**62))
            assert both is not None
            assert checked_again(both, 2**31 - 1) is not None


def test_the_record_of_an_end_has_javas_bytes() -> None:
    """Compares with the record of a 4.9.7 broker; only 5.x writes the last separator of the properties."""
    stored = decode_record(raw(ended_records([12], BORN_MS, HOST)))
    assert (stored.body, stored.properties) == (b"12", "WAIT\x01true\x02TAGS\x01d\x02")
    assert (stored.topic, stored.queue_id, stored.sys_flag) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0)
    assert (stored.born_timestamp_ms, stored.born_host) == (BORN_MS, "127.0.0.1:10911")


@given(OFFSETS)
def test_ends_are_read_as_they_were_written(offsets: list[int]) -> None:
    append = ended_records(offsets, BORN_MS, HOST)
    records = [raw(replace(append, pieces=[part])) for part in append.pieces]
    assert [ended_offsets(record) for record in records] == [[offset] for offset in offsets]


@pytest.mark.parametrize(
    ("body", "tag", "read"),
    [
        (b"12", "d", [12]),
        (b"0,1,", "d", [0, 1]),  # 5.4.0
        (b"12,x,,-3,14,", "d", [12, 14]),
        (b"99999999999999999999,1", "d", [1]),
        (b"\xff\xfe,2,", "d", [2]),
        (b"12,", "e", []),
        (b"12,", "", []),
    ],
)
def test_ends_of_other_brokers_and_damaged_ones(body: bytes, tag: str, read: list[int]) -> None:
    properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
    assert ended_offsets(raw(replace(HALF, pieces=[piece(0, body, properties)]))) == read
    assert ended_offsets(None) == ended_offsets(b"short") == []


def test_a_check_has_the_message_as_its_producer_knows_it() -> None:
    check = check_request(half(), "broker-a")
    assert (check.tran_state_table_offset, check.commit_log_offset) == (5, 6668)
    assert (check.msg_id, check.transaction_id) == ("U1", "U1")
    assert (check.topic, check.broker_name) == ("RMQ_SYS_TRANS_HALF_TOPIC", "broker-a")
    assert check.offset_msg_id == "7F00000100002A9F0000000000001A0C"
    stored = decode_record(check.record, check_crc=True)
    assert (stored.topic, stored.queue_id, stored.queue_offset, stored.commit_log_offset) == ("T", 2, 5, 6668)
    assert (stored.body, stored.flag, stored.sys_flag, stored.born_host) == (b"body", 7, 0x301, "10.0.0.5:50000")
    assert decode_properties(stored.properties) == PROPERTIES
