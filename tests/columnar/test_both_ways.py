"""Rows to payloads, and pulls to columns: the same as message by message."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidArgument, MessageQueue, OffsetRange, PullStatus
from pyrmq_core.columnar import SOURCE_COLUMNS, BatchLimit, decode_records, encode_batches
from pyrmq_core.errors import RecordError
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.protocol.batch import iterate_batch_body
from pyrmq_core.protocol.compression import CompressionType, decompress
from pyrmq_core.protocol.payload import Payload, RawPull, decode
from pyrmq_core.protocol.properties import decode_properties
from pyrmq_core.protocol.record import encode_record

STRING_MAP = pa.map_(pa.string(), pa.string())
QUEUE = MessageQueue("orders", "broker-a", 3)


def ids(count: int) -> list[str]:
    return [f"ID{number}" for number in range(count)]


def sent(payload: Payload) -> list[tuple[bytes, dict[str, str], int]]:
    """What a broker makes of a request: body, properties and flag of each message."""
    if not payload.batch:
        body = decompress(bytes(payload.body), payload.sys_flag, max_bytes=10**8) if payload.sys_flag else payload.body
        return [(bytes(body), decode_properties(payload.properties), payload.flag)]
    return [
        (
            decompress(bytes(item.body), payload.sys_flag, max_bytes=10**8) if payload.sys_flag else bytes(item.body),
            decode_properties(item.properties.decode()),
            item.flag,
        )
        for item in iterate_batch_body(payload.body)
    ]


def test_every_column_arrives_in_order() -> None:
    rows = pa.record_batch(
        {
            "body": pa.array(["é", "2", "3"]),
            "tags": pa.array(["a", None, "c"]),
            "keys": pa.array([["k1", "k2"], [], None], pa.list_(pa.string())),
            "flag": pa.array([7, None, 0], pa.int32()),
            "properties": pa.array([[("p", "q")], [], None], STRING_MAP),
        }
    )
    (payload,) = encode_batches(rows, "orders", ids)
    assert (payload.topic, payload.count, payload.batch, payload.unique_ids) == (
        "orders",
        3,
        True,
        ("ID0", "ID1", "ID2"),
    )
    assert sent(payload) == [
        ("é".encode(), {"KEYS": "k1 k2", "UNIQ_KEY": "ID0", "WAIT": "true", "TAGS": "a", "p": "q"}, 7),
        (b"2", {"UNIQ_KEY": "ID1", "WAIT": "true"}, 0),
        (b"3", {"UNIQ_KEY": "ID2", "WAIT": "true", "TAGS": "c"}, 0),
    ]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_bodies_of_each_type(kind: pa.DataType) -> None:
    (payload,) = encode_batches(pa.record_batch({"body": pa.array([b"x", b"y"]).cast(kind)}), "t", ids)
    assert [body for body, _, _ in sent(payload)] == [b"x", b"y"]


def test_requests_end_at_their_limits() -> None:
    rows = pa.record_batch({"body": pa.array([b"x" * 100] * 25)})
    counts = [payload.count for payload in encode_batches(rows, "t", ids, BatchLimit(messages=10))]
    assert counts == [10, 10, 5]
    for payload in encode_batches(rows, "t", ids, BatchLimit(bytes=1000)):
        assert len(payload.body) <= 1000


def test_a_body_as_large_as_a_broker_takes_goes_alone() -> None:
    rows = pa.record_batch({"body": pa.array([b"a", b"x" * 4 * 1024 * 1024, b"b"])})
    payloads = list(encode_batches(rows, "t", ids))
    assert [(payload.batch, payload.count) for payload in payloads] == [(True, 1), (False, 1), (True, 1)]
    assert [unique_id for payload in payloads for unique_id in payload.unique_ids or ()] == ["ID0", "ID1", "ID2"]


def test_retry_topics_take_no_batches() -> None:
    rows = pa.record_batch({"body": pa.array([b"a", b"b"])})
    assert [payload.batch for payload in encode_batches(rows, "%RETRY%group", ids)] == [False, False]


def test_compressed_and_plain_rows_share_no_request_and_keep_their_order() -> None:
    bodies = [b"a", b"b" * 50, b"c" * 60, b"d", b"e" * 70]
    limit = BatchLimit(compression=CompressionType.ZLIB, compress_over_bytes=50)
    payloads = list(encode_batches(pa.record_batch({"body": pa.array(bodies)}), "t", ids, limit))
    assert [bool(payload.sys_flag) for payload in payloads] == [False, True, False, True]
    assert [body for payload in payloads for body, _, _ in sent(payload)] == bodies


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=60), max_size=30),
    messages=st.integers(1, 7),
    size=st.integers(1, 300),
    compression=st.none() | st.just(CompressionType.ZLIB),
)
def test_whatever_the_limits_every_row_is_sent_once_in_order(
    bodies: list[bytes], messages: int, size: int, compression: CompressionType | None
) -> None:
    limit = BatchLimit(messages, size, compression, compress_over_bytes=30)
    payloads = list(encode_batches(pa.record_batch({"body": pa.array(bodies, pa.binary())}), "t", ids, limit))
    assert [body for payload in payloads for body, _, _ in sent(payload)] == bodies
    assert all(payload.count <= messages for payload in payloads)
    assert all(len(payload.body) <= size or payload.count == 1 for payload in payloads)


# --- Pulls to columns


def record(offset: int, body: bytes = b"x", **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": offset,
        "commit_log_offset": 1000 + offset,
        "body": body,
        "properties": f"UNIQ_KEY\x01ID{offset}\x02TAGS\x01tag{offset % 2}\x02KEYS\x01k v\x02__SHARDINGKEY\x01s\x02",
        "born_timestamp_ms": 1_700_000_000_123,
        "born_host": "10.0.0.1:5000",
        "store_timestamp_ms": 1_700_000_000_456,
        "store_host": "10.0.0.2:10911",
    }
    return encode_record(**values | fields)


def pull(*records: bytes, start: int = 0) -> RawPull:
    return RawPull(QUEUE, start, start + len(records), 0, 100, PullStatus.FOUND, b"".join(records))


def schema(*names: str) -> pa.Schema:
    return pa.schema([(name, SOURCE_COLUMNS[name].type) for name in names])


def test_every_source_column_has_its_value() -> None:
    batch = decode_records([pull(record(5, b"body", flag=9, reconsume_times=2))], schema(*SOURCE_COLUMNS))
    row = batch.to_pylist()[0]
    born, stored = row.pop("bornTimestamp"), row.pop("storeTimestamp")
    assert (born.isoformat(), stored.isoformat()) == (
        "2023-11-14T22:13:20.123000+00:00",
        "2023-11-14T22:13:20.456000+00:00",
    )
    properties = dict(row.pop("properties"))
    assert properties == {"UNIQ_KEY": "ID5", "TAGS": "tag1", "KEYS": "k v", "__SHARDINGKEY": "s"}
    (message,) = decode(pull(record(5, b"body")))
    assert row == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 5,
        "msgId": "ID5",
        "tags": "tag1",
        "keys": "k v",
        "body": b"body",
        "reconsumeTimes": 2,
        "offsetMsgId": message.offset_msg_id,
        "bornHost": "10.0.0.1:5000",
        "storeHost": "10.0.0.2:10911",
        "sysFlag": 0,
        "flag": 9,
        "bodyCrc": message.body_crc,
        "storeSize": message.store_size,
        "commitLogOffset": 1005,
        "preparedTransactionOffset": 0,
        "shardingKey": "s",
    }


def test_only_what_was_asked_for_is_built_in_the_order_asked() -> None:
    batch = decode_records([pull(record(0))], schema("queueOffset", "body"))
    assert batch.schema.names == ["queueOffset", "body"]


def test_a_message_without_tags_and_keys_has_nulls() -> None:
    batch = decode_records(
        [pull(record(0, properties=""))], schema("tags", "keys", "properties", "shardingKey", "msgId")
    )
    row = batch.to_pylist()[0]
    assert row.pop("msgId") == decode(pull(record(0, properties="")))[0].offset_msg_id
    assert row == {"tags": None, "keys": None, "properties": [], "shardingKey": None}


def test_a_body_may_be_asked_for_as_text() -> None:
    batch = decode_records([pull(record(0, b"\xc3\xa9\xff"))], pa.schema([("body", pa.string())]))
    assert batch.column("body").to_pylist() == ["é\ufffd"]


def test_several_pulls_are_one_batch_within_the_range() -> None:
    pulls = [pull(record(0), record(1)), pull(record(2), record(3), start=2)]
    batch = decode_records(pulls, schema("queueOffset"), OffsetRange(1, 3))
    assert batch.column("queueOffset").to_pylist() == [1, 2]


def test_tags_are_compared_as_text() -> None:
    pulls = [pull(*(record(offset) for offset in range(4)))]
    batch = decode_records(pulls, schema("queueOffset"), tags=TagFilter.parse("tag1 || other"))
    assert batch.column("queueOffset").to_pylist() == [1, 3]


def test_nothing_is_an_empty_batch_of_the_same_columns() -> None:
    batch = decode_records([], schema("properties", "bornTimestamp", "body"))
    assert (batch.num_rows, batch.schema) == (0, schema("properties", "bornTimestamp", "body"))


def test_a_column_there_is_not_is_told() -> None:
    with pytest.raises(InvalidArgument, match="no column offset; there are topic, "):
        decode_records([pull(record(0))], pa.schema([("offset", pa.int64())]))


def test_a_time_no_timestamp_holds_is_told_with_its_message() -> None:
    pulls = [pull(record(7, born_timestamp_ms=2**62))]
    with pytest.raises(RecordError, match="orders/broker-a/3: the message at offset 7 has bornTimestamp"):
        decode_records(pulls, schema("bornTimestamp"))
    assert decode_records(pulls, schema("storeTimestamp")).num_rows == 1


def test_a_body_that_cannot_be_undone_fails_or_is_kept() -> None:
    pulls = [pull(record(0, b"not zlib", sys_flag=CompressionType.ZLIB.sys_flag))]
    with pytest.raises(RecordError):
        decode_records(pulls, schema("body"))
    kept = decode_records(pulls, schema("body", "sysFlag"), keep_undecodable=True)
    assert kept.to_pylist() == [{"body": b"not zlib", "sysFlag": CompressionType.ZLIB.sys_flag}]
