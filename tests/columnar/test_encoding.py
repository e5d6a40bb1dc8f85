"""Rows to payloads: the same as message by message."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue
from pyrmq_core.columnar import BatchLimit, encode_batches
from pyrmq_core.protocol.batch import iterate_batch_body
from pyrmq_core.protocol.compression import CompressionType, decompress
from pyrmq_core.protocol.payload import Payload
from pyrmq_core.protocol.properties import decode_properties

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
