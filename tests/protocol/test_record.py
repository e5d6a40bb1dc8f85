"""Stored records: Java's bytes, both versions, both address families, cuts, flips and lengths that lie."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import InvalidArgument, RecordError
from pyrmq_core.protocol.framing.frame import FrameDecoder
from pyrmq_core.protocol.messages.record import (
    BLANK_MAGIC,
    COMMIT_LOG_OFFSET_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_POSITION,
    StoredRecord,
    body_crc,
    decode_record,
    encode_record,
    iterate_records,
    pack_host,
    unpack_host,
)
from pyrmq_core.protocol.messages.sysflag import SysFlag
from tests.protocol.strategies import HOSTS, records
from tests.support import golden

PULLS = golden.load("real_pull_records.json")
STORED: dict[str, Any] = {
    "topic": "TopicTest",
    "queue_id": 2,
    "queue_offset": 5,
    "commit_log_offset": 6668,
    "body": b"hello",
    "properties": "TAGS\x01TagA\x02",
    "born_timestamp_ms": 1700000000000,
    "born_host": "10.1.2.3:54321",
    "store_timestamp_ms": 1700000000123,
    "store_host": "192.168.2.101:10911",
}
WITH_ID = (
    "0000009ddaa320a73610a686000000030000000000000000000000070000000000001a0c000000000000018bcfe568000a0000050000c350"
    "0000018bcfe568017f00000100002a9f0000000000000000000000000000000568656c6c6f09546f70696354657374003454414753015461"
    "674102554e49515f4b455901374630303030303130303030303030303030303030303030303030303030414102"
)


def encoded_again(record: StoredRecord) -> bytes:
    return encode_record(**{name: getattr(record, name) for name in STORED_NAMES})


STORED_NAMES = (*STORED, "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset")


def test_javas_record() -> None:
    raw = bytes.fromhex(golden.vectors()["stored len=115 crc=907060870"])
    assert encode_record(**STORED) == raw
    record = decode_record(raw, check_crc=True)
    assert {name: getattr(record, name) for name in STORED} == STORED
    assert (record.store_size, record.body_crc, record.magic, record.flag, record.sys_flag) == (
        115,
        907060870,
        MAGIC_V1,
        0,
        0,
    )


def test_a_record_javas_decoder_took() -> None:
    record = decode_record(bytes.fromhex(WITH_ID), check_crc=True)
    assert (record.queue_id, record.queue_offset, record.commit_log_offset) == (3, 7, 6668)
    assert (record.born_host, record.store_host) == ("10.0.0.5:50000", "127.0.0.1:10911")
    assert record.properties == "TAGS\x01TagA\x02UNIQ_KEY\x017F0000010000000000000000000000AA\x02"
    assert encoded_again(record).hex() == WITH_ID


@pytest.mark.parametrize("text", [b"hello", b"", b"123456789", b"abcd"])
def test_crcs_lose_their_top_bit(text: bytes) -> None:
    assert body_crc(text) == {b"hello": 907060870, b"": 0, b"123456789": 1274296614, b"abcd": 1837288721}[text]


@pytest.mark.parametrize("pull", PULLS, ids=lambda pull: pull["server"])
def test_real_pull_bodies_field_by_field(pull: dict[str, Any]) -> None:
    body = bytes.fromhex(pull["body"])
    records = list(iterate_records(body, check_crc=True))
    assert [
        {
            "size": record.store_size,
            "magic": f"{record.magic & 0xFFFFFFFF:#010x}",
            "queueId": record.queue_id,
            "flag": record.flag,
            "queueOffset": record.queue_offset,
            "physicalOffset": record.commit_log_offset,
            "sysFlag": record.sys_flag,
            "bornTimestamp": record.born_timestamp_ms,
            "bornHost": record.born_host,
            "storeTimestamp": record.store_timestamp_ms,
            "storeHost": record.store_host,
            "reconsumeTimes": record.reconsume_times,
            "preparedTransactionOffset": record.prepared_transaction_offset,
            "body": record.body.hex(),
            "topic": record.topic,
            "properties": record.properties,
            "crc_ok": body_crc(record.body) == record.body_crc,
        }
        for record in records
    ] == pull["records"]
    assert b"".join(map(encoded_again, records)) == body


def test_every_real_pull_answer_is_made_of_records() -> None:
    seen = 0
    for frame in golden.answers(11):
        decoder = FrameDecoder()
        decoder.feed(frame.raw)
        command = decoder.next_command()
        assert command is not None
        seen += len(list(iterate_records(command.body, check_crc=True)))
    assert seen >= 12


@given(records())
def test_records_survive(fields: dict[str, Any]) -> None:
    raw = encode_record(**fields)
    record = decode_record(raw, check_crc=True)
    hosts = (SysFlag.BORN_HOST_V6 if "[" in fields["born_host"] else 0) | (
        SysFlag.STORE_HOST_V6 if "[" in fields["store_host"] else 0
    )
    expected = fields | {"sys_flag": fields["sys_flag"] & ~0x30 | hosts}
    assert {name: getattr(record, name) for name in fields} == expected
    assert record.store_size == len(raw)
    assert record.magic == (MAGIC_V1 if len(fields["topic"]) <= 127 else MAGIC_V2)
    assert encoded_again(record) == raw
    assert decode_record(b"before" + raw + b"after", 6) == record
    assert decode_record(memoryview(raw)) == record


@given(st.lists(records(), max_size=5))
def test_records_one_after_another(many: list[dict[str, Any]]) -> None:
    raw = b"".join(encode_record(**fields) for fields in many)
    read = list(iterate_records(memoryview(raw)))
    assert b"".join(map(encoded_again, read)) == raw
    assert len(read) == len(many)


@given(records())
def test_the_positions_a_store_patches(fields: dict[str, Any]) -> None:
    raw = bytearray(encode_record(**fields))
    assert struct.unpack_from(">q", raw, QUEUE_OFFSET_POSITION) == (fields["queue_offset"],)
    assert struct.unpack_from(">q", raw, COMMIT_LOG_OFFSET_POSITION) == (fields["commit_log_offset"],)
    assert struct.unpack_from(">i", raw, SYS_FLAG_POSITION)[0] & ~0x30 == fields["sys_flag"] & ~0x30


@given(HOSTS)
def test_hosts_survive(host: str) -> None:
    packed = pack_host(host)
    assert len(packed) == (20 if "[" in host else 8)
    assert unpack_host(packed) == host


@pytest.mark.parametrize("host", ["", "localhost:1", "127.0.0.1", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:9999999999", "::1"])
def test_a_host_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(InvalidArgument, match="it takes ip:port, not a name"):
        pack_host(host)


def test_what_no_field_holds_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="32768 of properties; 32767 each"):
        encode_record(**STORED | {"properties": "x" * 32_768})
    with pytest.raises(InvalidArgument, match="32768 bytes of topic"):
        encode_record(**STORED | {"topic": "x" * 32_768})
    with pytest.raises(InvalidArgument, match="a number that its field cannot hold"):
        encode_record(**STORED | {"queue_id": 2**31})
    assert decode_record(encode_record(**STORED | {"properties": b"x" * 32_767})).properties == "x" * 32_767


def test_half_a_surrogate_is_stored_as_java_stores_it() -> None:
    assert decode_record(encode_record(**STORED | {"properties": "a\x01\ud800\x02"})).properties == "a\x01?\x02"


def test_text_that_is_not_utf_8_is_read_with_a_mark() -> None:
    raw = encode_record(**STORED | {"properties": b"a\x01\xff\x02"})
    assert decode_record(raw).properties == "a\x01\ufffd\x02"


RAW = encode_record(**STORED)
RAW_V2_V6 = encode_record(**STORED | {"topic": "t" * 200, "born_host": "[fd00::2]:1", "store_host": "[fd00::3]:2"})


@pytest.mark.parametrize("raw", [RAW, RAW_V2_V6], ids=["v1", "v2-ipv6"])
def test_a_record_cut_off_anywhere_is_reported(raw: bytes) -> None:
    for cut in range(len(raw)):
        with pytest.raises(RecordError, match=r"at byte 0|byte 0 begins"):
            decode_record(raw[:cut])
        if cut:
            with pytest.raises(RecordError, match=f"at byte {len(raw)}"):
                list(iterate_records(raw + raw[:cut]))


def test_records_before_a_bad_one_are_given() -> None:
    records = iterate_records(RAW + bytes(200))
    assert next(records).topic == "TopicTest"
    with pytest.raises(RecordError, match="byte 115 begins no record: the magic number is 00000000"):
        next(records)


def test_the_end_of_a_commit_log_file_is_no_record() -> None:
    with pytest.raises(RecordError, match="the magic number is cbd43194"):
        decode_record(struct.pack(">ii", 200, BLANK_MAGIC) + bytes(192))


@pytest.mark.parametrize("position", [0, 84, 115 - 13, 115 - 12])
@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 0, 90, 116])
def test_a_length_that_lies_is_reported_and_allocates_nothing(position: int, length: int) -> None:
    raw = bytearray(RAW)
    struct.pack_into(">i", raw, position, length)
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            decode_record(bytes(raw))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_topic_length_above_127_is_negative_in_version_1() -> None:
    raw = bytearray(RAW)
    assert raw[93] == len("TopicTest")
    raw[93] = 200
    with pytest.raises(RecordError, match="declares a topic of -56"):
        decode_record(bytes(raw))


def test_a_wrong_crc_is_reported_on_request() -> None:
    raw = bytearray(RAW)
    assert raw[88:93] == b"hello"
    raw[89] ^= 1
    assert decode_record(bytes(raw)).body == b"hdllo"
    with pytest.raises(RecordError, match=r"the record at byte 0: the body's CRC is \d+, not 907060870"):
        decode_record(bytes(raw), check_crc=True)


def test_the_shortest_record() -> None:
    raw = encode_record(**STORED | {"topic": "", "body": b"", "properties": ""})
    assert len(raw) == MIN_RECORD_BYTES == 91
    assert decode_record(raw).topic == ""


@given(st.binary(max_size=400))
def test_garbage_gives_record_errors_only(garbage: bytes) -> None:
    with contextlib.suppress(RecordError):
        list(iterate_records(garbage))
    dressed = bytearray(garbage)
    if len(dressed) >= 8:
        struct.pack_into(">ii", dressed, 0, len(dressed), MAGIC_V1)
        with contextlib.suppress(RecordError):
            list(iterate_records(bytes(dressed)))


@given(st.sampled_from(PULLS), st.data())
def test_flipped_bits_give_record_errors_only(pull: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray.fromhex(pull["body"])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(RecordError):
        for record in iterate_records(bytes(raw)):
            assert 91 <= record.store_size <= len(raw)
