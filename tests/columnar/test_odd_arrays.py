"""Arrays that Arrow permits and seldom makes: without a first bound, with nulls among a dictionary's values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyrmq_core import InvalidArgument, Payload, unique_id_runs
from pyrmq_core.columnar import (
    by_queue,
    by_tag,
    by_topic,
    check_columns,
    content_ids,
    encode_batches,
    encoded,
    first_fault,
)
from pyrmq_core.columnar.encoding.user_properties import STRING_MAP

NOTHING = pa.py_buffer(b"")
ODD = pa.array([0, 1, None, 2] * 10, pa.int32())
VALUES = pa.array([None, "k", "größe"])
PLAIN = [None, "k", None, "größe"] * 10


def empty(kind: pa.DataType) -> pa.Array:
    """Returns an array without elements whose buffer of bounds is empty, as some writers of Arrow leave it."""
    if pa.types.is_map(kind):
        return pa.Array.from_buffers(kind, 0, [None, NOTHING], children=[pairs()])
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, 0, [None, NOTHING], children=[empty(kind.value_type)])
    return pa.Array.from_buffers(kind, 0, [None, NOTHING, NOTHING])


def pairs() -> pa.Array:
    return pa.StructArray.from_arrays([empty(pa.string()), empty(pa.string())], names=["key", "value"])


def without_elements(kind: pa.DataType, count: int) -> pa.Array:
    """Returns so many empty maps or lists, over children of `empty`."""
    bounds = pa.py_buffer(np.zeros(count + 1, np.int32))
    child = pairs() if pa.types.is_map(kind) else empty(kind.value_type)
    return pa.Array.from_buffers(kind, count, [None, bounds], children=[child])


def bodies(count: int) -> pa.Array:
    return pa.array([b"%d" % number for number in range(count)], pa.binary())


def encoded_payloads(rows: pa.RecordBatch) -> list[Payload]:
    return list(encode_batches(rows, "t", unique_id_runs))


@pytest.mark.parametrize("count", [1, 3, 30])
@pytest.mark.parametrize(("name", "kind"), [("properties", STRING_MAP), ("keys", pa.list_(pa.string()))])
def test_children_without_a_first_bound(name: str, kind: pa.DataType, count: int) -> None:
    rows = pa.record_batch({"body": bodies(count), name: without_elements(kind, count)})
    assert first_fault(rows) is None
    assert sum(payload.count for payload in encoded_payloads(rows)) == count
    assert len(set(content_ids(rows, b"", 0).to_pylist())) == count


def test_columns_without_a_first_bound() -> None:
    text = pa.string()
    kinds = {"body": pa.binary(), "tags": text, "keys": pa.list_(text), "properties": STRING_MAP, "shardingKey": text}
    rows = pa.record_batch({name: empty(kind) for name, kind in kinds.items()})
    assert first_fault(rows) is None
    assert encoded_payloads(rows) == []
    assert content_ids(rows, b"", 0).to_pylist() == []
    assert list(by_queue(rows, 4)) == []
    assert [part.num_rows for part in by_tag(rows)] == [0]


def test_a_dictionary_without_a_first_bound() -> None:
    none = pa.DictionaryArray.from_arrays(pa.array([None] * 30, pa.int32()), empty(pa.string()))
    rows = pa.record_batch({"body": bodies(30), "shardingKey": none, "tags": none})
    assert [(key, part.num_rows) for key, part in by_queue(rows, 4)] == [(None, 30)]
    assert sum(payload.count for payload in encoded_payloads(rows)) == 30


def test_nulls_among_the_values_of_a_dictionary_are_nulls() -> None:
    odd, plain = pa.DictionaryArray.from_arrays(ODD, VALUES), pa.array(PLAIN)
    assert encoded(odd).to_pylist() == PLAIN
    assert encoded(odd).dictionary.null_count == 0
    for queues in (1, 4):
        groups, expected = (
            [(key, part.column("body").to_pylist()) for key, part in by_queue(rows, queues)]
            for rows in (
                pa.record_batch({"body": bodies(40), "shardingKey": odd}),
                pa.record_batch({"body": bodies(40), "shardingKey": plain}),
            )
        )
        assert groups == expected
    tagged = pa.record_batch({"body": bodies(40), "tags": odd})
    assert [part.num_rows for part in by_tag(tagged)] == [20, 10, 10]


def test_a_null_among_the_topics_of_a_dictionary_is_no_topic() -> None:
    topics = pa.DictionaryArray.from_arrays(pa.array([1, 0, 2], pa.int32()), pa.array([None, "k", "l"]))
    rows = pa.record_batch({"body": bodies(3), "topic": topics})
    assert [(topic, part.num_rows) for topic, part in by_topic(rows)] == [("k", 1), ("l", 1)]
    fault = first_fault(rows)
    assert fault is not None
    assert (fault.row, fault.column, fault.reason[:10]) == (1, "topic", "it is null")


def test_a_body_that_is_missing_is_not_blamed_on_another_column() -> None:
    rows = pa.record_batch({"payload": bodies(1), "tags": ["a"]})
    with pytest.raises(InvalidArgument, match="no column body; they have payload, tags"):
        check_columns(rows)
