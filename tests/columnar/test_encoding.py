"""Rows to payloads: the bytes of the same messages encoded one by one, for any columns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidArgument, InvalidMessage, Message
from pyrmq_core.columnar import BatchLimit, compresses, encode_batches
from pyrmq_core.columnar.encoding.encode import BREAK_EVEN_ROWS, encode_columns, encode_messages
from pyrmq_core.columnar.encoding.row_parts import ids_of
from pyrmq_core.columnar.encoding.sink_rows import SinkRows, outgoing_rows
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.batch_payloads import encode_batch
from pyrmq_core.protocol.messages.compression import CompressionType, decompress
from pyrmq_core.protocol.messages.message_id import IdRun, UniqueIdMaker
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.messages.properties import decode_properties
from tests.protocol.strategies import NAMES, PLAIN

STRING_MAP = pa.map_(pa.string(), pa.string())
KEYS_TEXT = PLAIN.filter(lambda keys: bool(keys.strip(" ")))
WORDS = st.lists(PLAIN.filter(lambda key: " " not in key), max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.binary(min_size=1, max_size=60),
            "tags": st.none() | PLAIN,
            "keys": st.none() | WORDS,
            "shardingKey": st.none() | PLAIN,
            "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
            "properties": st.none() | st.dictionaries(NAMES | st.just("__SHARDINGKEY"), PLAIN, max_size=4),
        }
    ),
    min_size=1,
    max_size=12,
)
TYPES = {
    "body": pa.binary(),
    "tags": pa.string(),
    "keys": pa.list_(pa.string()),
    "shardingKey": pa.string(),
    "flag": pa.int32(),
    "properties": STRING_MAP,
}


def ids(count: int) -> list[str]:
    return [f"ID{number}" for number in range(count)]


def runs(count: int) -> list[IdRun]:
    """Returns ids that count up over the end of their digits."""
    maker = UniqueIdMaker(b"\x7f\0\0\1", 77, 5)
    half = count // 2
    return [maker.run(10, 0, 0xFFFE, half), maker.run(11, 0, 0, count - half)]


def columns_of(rows: list[dict[str, Any]], names: set[str]) -> pa.RecordBatch:
    def values(name: str) -> list[Any]:
        given = [row[name] for row in rows]
        return [None if own is None else list(own.items()) for own in given] if name == "properties" else given

    return pa.record_batch({name: pa.array(values(name), kind) for name, kind in TYPES.items() if name in names})


def messages_of(rows: list[dict[str, Any]], names: set[str]) -> list[Message]:
    rows = [{name: value if name in names else None for name, value in row.items()} for row in rows]
    return [
        Message(
            "orders",
            row["body"],
            row["tags"],
            row["keys"] or None,
            row["shardingKey"],
            row["properties"] or {},
            row["flag"] or 0,
        )
        for row in rows
    ]


def both_ways(
    rows: SinkRows, limit: BatchLimit, *, given_ids: Any = ids, alone: bool = False, waits: bool = True
) -> list[Payload]:
    """Encodes by columns and by messages, and checks that the requests are equal."""
    row_ids = ids_of(given_ids, len(rows))
    by_columns = list(encode_columns(rows, "orders", row_ids, limit, alone=alone, waits=waits))
    by_messages = list(encode_messages(rows, "orders", row_ids, limit, alone=alone, waits=waits))
    assert list(map(facts, by_columns)) == list(map(facts, by_messages))
    return by_columns


def facts(payload: Payload) -> tuple[object, ...]:
    request = payload.topic, bytes(payload.body), payload.count, payload.properties, payload.sys_flag, payload.flag
    return *request, payload.batch, list(payload.unique_ids or ())


def sent(payload: Payload) -> list[tuple[bytes, dict[str, str], int]]:
    """Returns body, properties and flag of each message of a request, as a broker reads them."""

    def plain(body: bytes | memoryview) -> bytes:
        return decompress(body, payload.sys_flag, max_bytes=10**8)

    if not payload.batch:
        return [(plain(payload.body), decode_properties(payload.properties), payload.flag)]
    return [
        (plain(item.body), decode_properties(item.properties.decode()), item.flag)
        for item in iterate_batch_body(payload.body)
    ]


@given(
    rows=ROWS,
    names=st.sets(st.sampled_from([name for name in TYPES if name != "body"])),
    skipped=st.integers(0, 3),
    counted=st.booleans(),
)
def test_the_bytes_of_the_same_messages(
    rows: list[dict[str, Any]], names: set[str], skipped: int, counted: bool
) -> None:
    """Against messages made by hand; columns are left out, and sliced."""
    names |= {"body"}
    for row in rows:
        if names >= {"properties", "shardingKey"} and row["properties"] and row["shardingKey"]:
            row["properties"].pop("__SHARDINGKEY", None)
    batch = columns_of([*rows[:1] * skipped, *rows, *rows[:1]], names).slice(skipped, len(rows))
    (payload,) = both_ways(outgoing_rows(batch), BatchLimit(), given_ids=runs if counted else ids)
    texts = [text for run in runs(len(rows)) for text in run.ids()] if counted else ids(len(rows))
    expected = encode_batch(messages_of(rows, names), texts)
    assert facts(payload) == facts(expected)
    (again,) = encode_batches(batch, "orders", runs if counted else ids)
    assert facts(again) == facts(expected)


@given(
    rows=ROWS,
    messages=st.integers(1, 5),
    size=st.integers(1, 400),
    compression=st.none() | st.just(CompressionType.ZLIB),
    alone=st.booleans(),
    waits=st.booleans(),
)
def test_whatever_the_limits_every_row_is_sent_once_in_order(
    rows: list[dict[str, Any]],
    messages: int,
    size: int,
    compression: CompressionType | None,
    alone: bool,
    waits: bool,
) -> None:
    for row in rows:
        row["shardingKey"] = None
    limit = BatchLimit(messages, size, compression, compress_over_bytes=30)
    payloads = both_ways(outgoing_rows(columns_of(rows, set(TYPES))), limit, alone=alone, waits=waits)
    assert [message for payload in payloads for message in sent(payload)] == [
        (
            row["body"],
            {
                **({"KEYS": " ".join(row["keys"])} if row["keys"] else {}),
                "UNIQ_KEY": f"ID{number}",
                "WAIT": "true" if waits else "false",
                **({"TAGS": row["tags"]} if row["tags"] else {}),
                **(row["properties"] or {}),
            },
            row["flag"] or 0,
        )
        for number, row in enumerate(rows)
    ]
    assert all(payload.count <= messages for payload in payloads)
    assert all(len(payload.body) <= size or payload.count == 1 for payload in payloads)
    assert all(payload.batch is not alone for payload in payloads)


def many(**columns: Any) -> pa.RecordBatch:
    """Returns enough rows for columns to pay."""
    columns.setdefault("body", pa.array([b"x"] * BREAK_EVEN_ROWS, pa.binary()))
    return pa.record_batch(columns)


@pytest.mark.parametrize("count", [1, BREAK_EVEN_ROWS])
@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_bodies_of_each_type(kind: pa.DataType, count: int) -> None:
    body = pa.array([b"xyz", b"abc"] * count, pa.binary() if "binary" in str(kind) else pa.string())
    (payload,) = encode_batches(pa.record_batch({"body": body.cast(kind)}), "t", ids)
    assert [body for body, _, _ in sent(payload)] == [b"xyz", b"abc"] * count


def test_other_columns_of_wider_types() -> None:
    count = BREAK_EVEN_ROWS
    rows = many(
        tags=pa.array(["a"] * count).dictionary_encode(),
        keys=pa.array([["k1", "k2"]] * count, pa.large_list(pa.large_string())),
        shardingKey=pa.array(["s"] * count, pa.string_view()),
        flag=pa.array([7] * count, pa.int64()),
        properties=pa.array([[("p", "q")]] * count, pa.map_(pa.large_string(), pa.large_string())),
    )
    (payload,) = encode_batches(rows, "t", ids)
    expected = {"KEYS": "k1 k2", "WAIT": "true", "TAGS": "a", "__SHARDINGKEY": "s", "p": "q"}
    assert sent(payload) == [(b"x", {**expected, "UNIQ_KEY": f"ID{number}"}, 7) for number in range(count)]


@pytest.mark.parametrize(
    ("columns", "reported"),
    [
        ({"tags": pa.array([1] * BREAK_EVEN_ROWS)}, "column tags is int64; it has to be string"),
        ({"body": pa.array([1.5] * BREAK_EVEN_ROWS)}, "column body is double; it has to be binary or string"),
        ({"flag": pa.array([2**31] * BREAK_EVEN_ROWS)}, "column flag is int64, which does not make int32"),
        ({"flag": pa.array([1.0] * BREAK_EVEN_ROWS)}, "column flag is double, which does not make int32"),
        ({"properties": pa.array(["a=b"] * BREAK_EVEN_ROWS)}, "column properties is string, which does not make map"),
        ({"keys": pa.array([b"k"] * BREAK_EVEN_ROWS)}, "column keys is binary; it has to be string"),
    ],
)
def test_a_column_of_another_type_is_reported(columns: dict[str, Any], reported: str) -> None:
    with pytest.raises(InvalidArgument, match=reported):
        list(encode_batches(many(**columns), "t", ids))


def test_a_column_of_nulls_alone_is_as_none() -> None:
    nothing = pa.nulls(BREAK_EVEN_ROWS)
    (payload,) = encode_batches(many(tags=nothing, keys=nothing, properties=nothing, flag=nothing), "t", ids)
    assert sent(payload)[0] == (b"x", {"UNIQ_KEY": "ID0", "WAIT": "true"}, 0)


def test_nulls_with_something_beneath_them() -> None:
    """Arrow leaves the buffer's content of a null undefined."""
    count = BREAK_EVEN_ROWS
    null = pa.py_buffer(bytes([0b11111110] + [255] * count))

    def hiding(array: pa.Array) -> pa.Array:
        return pa.Array.from_buffers(array.type, count, [null, *array.buffers()[1:3]])

    pairs = pa.array([[("p", "q")]] * count, STRING_MAP)
    properties = pa.MapArray.from_arrays(
        pairs.offsets, pairs.keys, pairs.items, mask=pa.array([True] + [False] * (count - 1))
    )
    texts = hiding(pa.array(["hidden"] * count))
    rows = outgoing_rows(many(tags=texts, keys=texts, shardingKey=texts, properties=properties))
    (payload,) = both_ways(rows, BatchLimit())
    assert sent(payload)[0] == (b"x", {"UNIQ_KEY": "ID0", "WAIT": "true"}, 0)
    assert sent(payload)[1][1]["TAGS"] == "hidden"


@pytest.mark.parametrize("count", [3, BREAK_EVEN_ROWS])
def test_a_name_twice_in_a_map_is_sent_once(count: int) -> None:
    pairs = [[("a", "1"), ("b", "2"), ("a", "3")]] * count
    rows = pa.record_batch({"body": pa.array([b"x"] * count), "properties": pa.array(pairs, STRING_MAP)})
    (payload,) = both_ways(outgoing_rows(rows), BatchLimit())
    assert b"a\x013\x02b\x012\x02" in bytes(payload.body)
    assert b"a\x011" not in bytes(payload.body)


@pytest.mark.parametrize("count", [3, BREAK_EVEN_ROWS])
def test_a_sharding_key_in_both_places(count: int) -> None:
    def rows(other: str) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "body": pa.array([b"x"] * count),
                "shardingKey": pa.array(["s"] * count),
                "properties": pa.array(
                    [[("__SHARDINGKEY", "s")]] * (count - 1) + [[("__SHARDINGKEY", other)]], STRING_MAP
                ),
            }
        )

    (payload,) = encode_batches(rows("s"), "t", ids)
    assert bytes(payload.body).count(b"__SHARDINGKEY") == count
    with pytest.raises(InvalidMessage, match=f"row {count - 1}, column properties: it sets __SHARDINGKEY to another"):
        list(encode_batches(rows("t"), "t", ids))


def test_requests_end_at_their_limits() -> None:
    rows = pa.record_batch({"body": pa.array([b"x" * 100] * 25)})
    assert [payload.count for payload in encode_batches(rows, "t", ids, BatchLimit(messages=10))] == [10, 10, 5]
    for payload in encode_batches(rows, "t", ids, BatchLimit(bytes=1000)):
        assert len(payload.body) <= 1000


def test_many_requests_share_a_buffer_and_windows_share_nothing() -> None:
    """More rows than are looked at together, more bytes than are joined together."""
    count = 200_000
    rows = pa.record_batch({"body": pa.array([b"%06d" % number for number in range(count)])})
    payloads = list(encode_batches(rows, "t", runs))
    assert sum(payload.count for payload in payloads) == count
    bodies = [bytes(item.body) for payload in payloads for item in iterate_batch_body(payload.body)]
    assert bodies == rows.column("body").to_pylist()
    assert (
        len({id(payload.body.obj) for payload in payloads if isinstance(payload.body, memoryview)}) < len(payloads) / 5
    )


def test_bodies_up_to_a_brokers_limit() -> None:
    """The largest goes alone; others of a mebibyte and more have a request of their own."""
    mib = 1024 * 1024
    sizes = [1, 4 * mib, 2, mib - 100, 3, 3 * mib, 3 * mib, 4 * mib - 40_000, 5]
    rows = pa.record_batch({"body": pa.array([b"z" * size for size in sizes])})
    payloads = both_ways(outgoing_rows(rows), BatchLimit())
    assert [len(body) for payload in payloads for body, _, _ in sent(payload)] == sizes
    assert [len(payload.body) for payload in payloads if not payload.batch] == [4 * mib]
    assert all(len(payload.body) <= 4 * mib for payload in payloads)


def test_retry_topics_take_no_batches() -> None:
    for count in (2, BREAK_EVEN_ROWS):
        rows = pa.record_batch({"body": pa.array([b"a"] * count)})
        assert [payload.batch for payload in encode_batches(rows, "%RETRY%group", ids)] == [False] * count


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_and_plain_rows_share_no_request_and_keep_their_order(kind: CompressionType) -> None:
    bodies = [b"a", b"b" * 50, b"c" * 60, b"d", b"e" * 70] * 10
    limit = BatchLimit(compression=kind, compress_over_bytes=50)
    with ThreadPoolExecutor(2) as threads:
        payloads = list(encode_batches(pa.record_batch({"body": bodies}), "t", ids, limit, compress_all=threads.map))
    assert [payload.sys_flag for payload in payloads[:4]] == [0, kind.sys_flag, 0, kind.sys_flag]
    assert [body for payload in payloads for body, _, _ in sent(payload)] == bodies


def test_whether_anything_is_compressed_is_known_before() -> None:
    rows = pa.record_batch({"body": ["a", "b" * 50]})
    limit = BatchLimit(compression=CompressionType.ZLIB, compress_over_bytes=50)
    assert compresses(rows, limit)
    assert not compresses(rows.slice(0, 1), limit)
    assert not compresses(rows.slice(2), limit)
    assert not compresses(rows, BatchLimit(compress_over_bytes=50))
    dictionary = pa.record_batch({"body": pa.array(["a", "b" * 50]).dictionary_encode()})
    assert compresses(dictionary, limit)


def test_rows_that_cannot_be_sent_are_named() -> None:
    bodies = pa.array([b"x"] * 70_000 + [b""], pa.binary())
    with pytest.raises(InvalidMessage, match="row 70000, column body: it is empty"):
        next(encode_batches(pa.record_batch({"body": bodies}), "t", ids))


@pytest.mark.parametrize("topic", ["", "a b", "SCHEDULE_TOPIC_XXXX"])
def test_a_topic_that_takes_no_messages_is_reported(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        list(encode_batches(many(), topic, ids))


@pytest.mark.parametrize("given_ids", [ids(3), pa.array(ids(3)), [IdRun("0" * 28, 0, 3)]])
def test_each_row_has_one_id(given_ids: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"{BREAK_EVEN_ROWS} messages and 3 ids"):
        list(encode_batches(many(), "t", lambda count: given_ids))


def test_ids_may_be_a_column() -> None:
    (payload,) = encode_batches(many(), "t", lambda count: pa.array([f"é{n}" for n in range(count)], pa.large_string()))
    assert sent(payload)[5][1]["UNIQ_KEY"] == "é5"


@given(ROWS, st.integers(0, 40), st.data())
def test_no_request_holds_rows_from_both_sides_of_a_stop(
    rows: list[dict[str, Any]], repeats: int, data: st.DataObject
) -> None:
    """Few rows and many, some of them compressed; without pauses the result is the same."""
    rows = rows * (1 + repeats)
    stops = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=4)))
    batch = columns_of(rows, {"body", "tags"})
    limit = BatchLimit(messages=7, compression=CompressionType.ZLIB, compress_over_bytes=30)
    payloads = list(encode_batches(batch, "t", ids, limit, stops=stops))
    assert set(stops) <= {0, *accumulate(payload.count for payload in payloads)}
    unstopped = [message for payload in encode_batches(batch, "t", ids, limit) for message in sent(payload)]
    assert [message for payload in payloads for message in sent(payload)] == unstopped
