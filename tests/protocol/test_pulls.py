"""Pulls: records to messages, batch records to their inner messages, and unreadable records."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import RecordError
from pyrmq_core.model import Message, MessageExt, MessageQueue, OffsetRange, PullStatus
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.bodies import MAX_BODY_BYTES
from pyrmq_core.protocol.messages.compression import CompressionType, compress, decompress
from pyrmq_core.protocol.messages.message_id import decode_offset_msg_id
from pyrmq_core.protocol.messages.payload import RawPull, decode, encode_one
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties, message_properties
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from tests.protocol.strategies import KINDS, MESSAGES
from tests.support import golden

QUEUE = MessageQueue("T", "broker-a", 3)
ID = "7F0000010001000000000000000A0000"
NOTHING = OffsetRange(0, 0)


def pulled(records: bytes, start: int = 0) -> RawPull:
    return RawPull(QUEUE, start, 0, 0, 0, PullStatus.FOUND, memoryview(records))


def stored(body: bytes = b"hello", offset: int = 0, **fields: Any) -> bytes:
    given_fields: dict[str, Any] = {
        "topic": "T",
        "queue_id": 0,
        "queue_offset": offset,
        "commit_log_offset": 1000 + offset,
        "body": body,
        "properties": "",
        "born_timestamp_ms": 1,
        "born_host": "10.0.0.1:5",
        "store_timestamp_ms": 2,
        "store_host": "127.0.0.1:10911",
    }
    return encode_record(**given_fields | fields)


def batch_record(count: int, base: int = 0, **fields: Any) -> bytes:
    """Returns a batch as a 5.x broker stores it in a batch topic."""
    items = [
        BatchItem(number, b"body %d" % number, encode_properties({"UNIQ_KEY": f"id-{number}"}).encode())
        for number in range(count)
    ]
    properties = encode_properties({"INNER_BASE": str(base), "INNER_NUM": str(count), "UNIQ_KEY": "batch"})
    return stored(encode_batch_body(items), base, sys_flag=BATCH_RECORD, **{"properties": properties} | fields)


@given(MESSAGES, st.none() | KINDS, st.integers(0, 2**62))
def test_a_message_sent_and_stored_is_read_as_it_was(
    message: Message, kind: CompressionType | None, offset: int
) -> None:
    payload = encode_one(message, ID, compression=kind, compress_over_bytes=100)
    raw = stored(
        bytes(payload.body),
        offset,
        topic=payload.topic,
        properties=payload.properties,
        sys_flag=payload.sys_flag,
        flag=payload.flag,
        commit_log_offset=77,
    )
    (read,) = decode(pulled(raw))
    assert (read.topic, read.body, read.flag) == (message.topic, message.body, message.flag)
    assert read.properties == message_properties(message, ID)
    assert (read.tags, read.sharding_key, read.msg_id) == (message.tags, message.sharding_key, ID)
    assert (read.broker_name, read.queue_id, read.queue_offset) == ("broker-a", 3, offset)
    assert read.sys_flag == payload.sys_flag
    assert decode_offset_msg_id(read.offset_msg_id) == (b"\x7f\0\0\1", 10911, 77)
    assert read.store_size == len(raw)


def test_every_field_of_real_records() -> None:
    for pull in golden.load("real_pull_records.json"):
        messages = decode(pulled(bytes.fromhex(pull["body"])))
        assert [_facts(message) for message in messages] == [_expected(record) for record in pull["records"]]


def _facts(message: MessageExt) -> dict[str, object]:
    return {
        "size": message.store_size,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.commit_log_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "body": message.body,
        "topic": message.topic,
        "properties": dict(message.properties),
        "id": message.msg_id,
    }


def _expected(record: dict[str, Any]) -> dict[str, object]:
    properties = decode_properties(record["properties"])
    left_out = ("magic", "queueId", "crc_ok")
    return {name: value for name, value in record.items() if name not in left_out} | {
        "body": decompress(bytes.fromhex(record["body"]), record["sysFlag"], max_bytes=10_000),
        "properties": properties,
        "id": properties["UNIQ_KEY"],
    }


def test_a_message_without_an_id_of_its_own_has_the_brokers() -> None:
    (message,) = decode(pulled(stored(commit_log_offset=6668, store_host="192.168.2.101:10911")))
    assert message.msg_id == message.offset_msg_id == "C0A8026500002A9F0000000000001A0C"


def test_a_retry_topic_keeps_its_name() -> None:
    (message,) = decode(pulled(stored(topic="%RETRY%g", properties="RETRY_TOPIC\x01T\x02")))
    assert message.topic == "%RETRY%g"


def test_what_is_read_is_an_ordinary_frozen_value() -> None:
    (read,) = decode(pulled(stored(properties="TAGS\x01a\x02")))
    plain = MessageExt(**{field.name: getattr(read, field.name) for field in dataclasses.fields(MessageExt)})
    assert type(read) is MessageExt
    assert read == plain
    assert repr(read) == repr(plain)
    assert pickle.loads(pickle.dumps(read)) == read
    assert dataclasses.replace(read, flag=9).flag == 9
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.flag = 9  # type: ignore[misc]
    assert read.store_timestamp == datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=UTC)


def offsets(messages: Sequence[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


@given(st.integers(-2, 12), st.integers(-2, 12))
def test_records_outside_the_range_are_dropped(start: int, end: int) -> None:
    raw = b"".join(stored(offset=offset) for offset in range(10))
    assert offsets(decode(pulled(raw), OffsetRange(start, end))) == [n for n in range(10) if start <= n < end]


@given(st.integers(-2, 30), st.integers(-2, 30))
def test_inner_messages_outside_the_range_are_dropped(start: int, end: int) -> None:
    raw = stored(offset=4) + batch_record(10, 5) + stored(offset=15) + batch_record(1, 16) + batch_record(7, 17)
    messages = decode(pulled(raw), OffsetRange(start, end))
    assert offsets(messages) == [n for n in range(4, 24) if start <= n < end]


def test_a_batch_record_becomes_its_messages() -> None:
    raw = batch_record(1000, 5000, flag=3, commit_log_offset=6668, reconsume_times=0)
    messages = decode(pulled(raw, 5500), OffsetRange(5500, 5502))
    assert [(message.msg_id, message.body, message.flag) for message in messages] == [
        ("id-500", b"body 500", 500),
        ("id-501", b"body 501", 501),
    ]
    assert [dict(message.properties) for message in messages] == [{"UNIQ_KEY": "id-500"}, {"UNIQ_KEY": "id-501"}]
    assert {message.sys_flag for message in messages} == {192}
    assert {message.commit_log_offset for message in messages} == {6668}
    assert {(message.born_timestamp_ms, message.store_timestamp_ms) for message in messages} == {(1, 2)}
    assert len(decode(pulled(raw))) == 1000
    assert decode(pulled(raw), NOTHING) == []


def test_a_compressed_batch_record_is_undone_first() -> None:
    inner = encode_batch_body([BatchItem(0, b"a", b""), BatchItem(0, b"b", b"")])
    raw = stored(compress(inner, CompressionType.ZLIB), 7, sys_flag=BATCH_RECORD | CompressionType.ZLIB.sys_flag)
    assert [(message.queue_offset, message.body) for message in decode(pulled(raw))] == [(7, b"a"), (8, b"b")]


@pytest.mark.parametrize("flag", [0x40, 0x80])
def test_one_of_the_two_bits_makes_no_batch_record(flag: int) -> None:
    (message,) = decode(pulled(stored(b"x", sys_flag=flag)))
    assert message.body == b"x"


def test_a_broken_batch_record_is_reported() -> None:
    raw = stored(bytes(100), 40, sys_flag=BATCH_RECORD)
    with pytest.raises(RecordError, match=r"^T/broker-a/3, pulled from offset 40: .*offset 40.* declares 0 bytes"):
        decode(pulled(raw, 40))


def test_a_broken_record_is_reported_with_queue_and_offset() -> None:
    raw = stored(offset=5)
    with pytest.raises(RecordError, match=r"^T/broker-a/3, pulled from offset 5: the record at byte \d+ .* cut off"):
        decode(pulled(raw + raw[:-1], 5))


def test_a_body_that_cannot_be_undone_fails_or_is_kept() -> None:
    raw = stored(b"no zlib", 5, sys_flag=769) + stored(b"plain", 6)
    with pytest.raises(RecordError, match=r"T/broker-a/3, pulled from offset 0: the message at offset 5: .* zlib"):
        decode(pulled(raw))
    messages = decode(pulled(raw), keep_undecodable=True)
    assert [(message.body, message.sys_flag) for message in messages] == [(b"no zlib", 769), (b"plain", 0)]
    assert [message.body for message in decode(pulled(raw), OffsetRange(6, 7))] == [b"plain"]


def test_a_body_that_grows_without_end_is_stopped() -> None:
    bomb = compress(bytes(MAX_BODY_BYTES + 1), CompressionType.ZLIB)
    with pytest.raises(RecordError, match=f"beyond {MAX_BODY_BYTES} bytes"):
        decode(pulled(stored(bomb, sys_flag=769)))


@given(st.binary(max_size=300))
def test_garbage_gives_record_errors_only(garbage: bytes) -> None:
    with contextlib.suppress(RecordError):
        decode(pulled(garbage))


@given(st.data(), st.booleans())
def test_flipped_bits_give_record_errors_only(data: st.DataObject, keep: bool) -> None:
    whole = golden.load("real_pull_records.json")[0]["body"]
    raw = bytearray(bytes.fromhex(whole) + batch_record(3, 5))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(RecordError):
        decode(pulled(bytes(raw)), keep_undecodable=keep)
