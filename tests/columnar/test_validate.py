"""The row that cannot be sent, and the reason: a column at a time, against the rules for single messages."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidMessage, Message
from pyrmq_core.columnar import Fault, first_fault
from pyrmq_core.protocol.messages.payload import check_message
from pyrmq_core.protocol.messages.properties import message_properties_string

STRING_MAP = pa.map_(pa.string(), pa.string())


def rows(**columns: Any) -> pa.RecordBatch:
    count = max(len(values) for values in columns.values())
    types = {"properties": STRING_MAP, "tags": pa.string(), "flag": pa.int32(), "body": pa.binary()}
    columns.setdefault("body", [b"x"] * count)
    return pa.record_batch({name: pa.array(values, types.get(name)) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("columns", "row", "column", "reason"),
    [
        ({"body": [b"x", None, b""]}, 1, "body", "it is null"),
        ({"body": [b"x", b""]}, 1, "body", "it is empty"),
        ({"body": [b"x", b"12345"]}, 1, "body", "larger than 4 bytes"),
        ({"tags": ["a", None, ""]}, 2, "tags", "it is empty"),
        ({"tags": ["a\x01"]}, 0, "tags", "U+0001 or U+0002"),
        ({"keys": ["a b", None, "  "]}, 2, "keys", "holds no word"),
        ({"keys": ["a", "\x02"]}, 1, "keys", "U+0001 or U+0002"),
        ({"keys": [["a"], [], None, ["b", "c d"]]}, 3, "keys", "holds a space"),
        ({"keys": [["a"], ["b", None]]}, 1, "keys", "one of its elements is null"),
        (
            {"keys": [["a"], ["b", ""]]},
            1,
            "keys",
            "one of its elements is empty, which is lost on the way",
        ),
        ({"properties": [None, {}, {"a": "b", "KEYS": "c"}]}, 2, "properties", "it sets KEYS, a name RocketMQ keeps"),
        ({"properties": [{"a": "b"}, {"": "c"}]}, 1, "properties", "one of its names is empty"),
        ({"properties": [{"a": "b"}, {"c": None}]}, 1, "properties", "one of its values is null"),
        ({"properties": [{"a": "b"}, {"c": "\x01"}]}, 1, "properties", "U+0001 or U+0002"),
        ({"properties": [{"n": "v"}, {"__LITE_TOPIC": "a"}]}, 1, "properties", "it sets __LITE_TOPIC, a name RocketMQ"),
        ({"properties": [{"INNER_MULTI_DISPATCH": "a"}]}, 0, "properties", "it sets INNER_MULTI_DISPATCH, a name"),
        ({"tags": ["a", "b", ""], "body": [b"1", b"", b"3"]}, 1, "body", "it is empty"),
        ({"shardingKey": ["a", None, "b\x01"]}, 2, "shardingKey", "U+0001 or U+0002"),
        ({"topic": ["a", None, "c"]}, 1, "topic", "it is null"),
        ({"topic": ["a", "b c", None]}, 1, "topic", "holds characters that RocketMQ does not take"),
        ({"topic": ["a", None, "b c"]}, 1, "topic", "it is null"),
        ({"topic": ["a", "b c", ""]}, 1, "topic", "holds characters that RocketMQ does not take"),
        ({"topic": ["a", "b", ""]}, 2, "topic", "needs a name"),
        ({"topic": ["a", "SCHEDULE_TOPIC_XXXX"]}, 1, "topic", "RocketMQ's own"),
        ({"keys": [None, "k" * 32_600]}, 1, "keys", "at most are sent"),
        ({"tags": ["a" * 20_000, None], "keys": ["k" * 12_900, None]}, 0, "tags", "the properties take 32965 bytes"),
        ({"properties": [{"a": "b"}, {"n" * 16_000: "v" * 17_000}]}, 1, "properties", "32600 at most"),
    ],
)
def test_the_lowest_row_that_cannot_be_sent(columns: dict[str, Any], row: int, column: str, reason: str) -> None:
    if isinstance(columns.get("properties"), list):
        columns = columns | {"properties": [None if p is None else list(p.items()) for p in columns["properties"]]}
    fault = first_fault(rows(**columns), max_body_bytes=4)
    assert fault is not None
    assert (fault.row, fault.column) == (row, column)
    assert reason in fault.reason


def test_rows_that_can_be_sent_have_no_fault() -> None:
    batch = rows(
        body=[b"x", b"y"], tags=["a", None], keys=[["a", "b"], None], flag=[1, None], properties=[[("a", "b")], None]
    )
    assert first_fault(batch) is None
    assert first_fault(batch.slice(2)) is None


def test_large_types_are_looked_at_too() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array(["x", "y"], pa.large_string()),
            "tags": pa.array(["a", "b\x02"], pa.large_string()),
            "keys": pa.array([["a"], ["b"]], pa.large_list(pa.large_string())),
            "properties": pa.array([[], [("UNIQ_KEY", "1")]], pa.map_(pa.large_string(), pa.large_string())),
        }
    )
    assert first_fault(batch) == Fault(1, "tags", "it holds U+0001 or U+0002, which separate properties; remove them")


def test_a_sharding_key_that_stands_twice() -> None:
    """In the map and in its column: the same is one key, another is a fault."""
    pairs = pa.array([[("__SHARDINGKEY", "s")], [("__SHARDINGKEY", "s")], [("__SHARDINGKEY", "s")]], STRING_MAP)
    batch = pa.record_batch(
        {"body": pa.array([b"x"] * 3), "shardingKey": pa.array([None, "s", "t"]), "properties": pairs}
    )
    fault = first_fault(batch)
    assert fault is not None
    assert (fault.row, fault.column) == (2, "properties")
    assert first_fault(batch.slice(0, 2)) is None


def test_a_fault_far_behind_is_named_by_its_row() -> None:
    """Behind the rows that are looked at together."""
    batch = pa.record_batch({"body": pa.array([b"x"] * 150_000 + [None])})
    fault = first_fault(batch)
    assert fault is not None
    assert fault.row == 150_000


words = st.text("ab \x01\x02é", max_size=4)
some_rows = st.lists(
    st.fixed_dictionaries(
        {
            "body": st.none() | st.binary(max_size=6),
            "tags": st.none() | words,
            "keys": st.none() | st.lists(words, max_size=3),
            "properties": st.none()
            | st.dictionaries(words | st.sampled_from(["KEYS", "INNER_BASE", "x"]), words, max_size=2),
        }
    ),
    min_size=1,
    max_size=8,
)


def can_be_sent(row: dict[str, Any]) -> bool:
    """Returns whether the rules for one message accept the row."""
    if row["body"] is None:
        return False
    try:
        message = Message("t", row["body"], row["tags"], row["keys"] or None, properties=row["properties"] or {})
        check_message(message, 5)
        message_properties_string(message, "ID")
    except InvalidMessage:
        return False
    return True


@given(some_rows, st.integers(0, 3))
def test_columns_and_single_messages_agree(given_rows: list[dict[str, Any]], skipped: int) -> None:
    batch = rows(
        body=[row["body"] for row in given_rows],
        tags=[row["tags"] for row in given_rows],
        properties=[None if row["properties"] is None else list(row["properties"].items()) for row in given_rows],
    ).append_column("keys", pa.array([row["keys"] for row in given_rows], pa.list_(pa.string())))
    left = given_rows[skipped:]
    fault = first_fault(batch.slice(skipped), max_body_bytes=5)
    assert (None if fault is None else fault.row) == next(
        (number for number, row in enumerate(left) if not can_be_sent(row)), None
    )
