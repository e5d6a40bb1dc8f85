"""Rows of one topic, and rows of one queue, in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidArgument, MessageQueue, TopicPublishInfo
from pyrmq_core.columnar import by_queue, by_tag, by_topic
from pyrmq_core.columnar.encoding.group_by import string_hash_codes
from pyrmq_core.protocol.java.string_hash import string_hash_code

TOPICS = pa.array(["b", "a", "b", "c", "a"])
BODIES = pa.array([b"0", b"1", b"2", b"3", b"4"])


@pytest.mark.parametrize("topics", [TOPICS, TOPICS.dictionary_encode(), TOPICS.cast(pa.large_string())])
def test_rows_of_each_topic(topics: pa.Array) -> None:
    parts = list(by_topic(pa.record_batch({"topic": topics, "body": BODIES})))
    assert [(topic, rows.column("body").to_pylist()) for topic, rows in parts] == [
        ("b", [b"0", b"2"]),
        ("a", [b"1", b"4"]),
        ("c", [b"3"]),
    ]
    assert all(rows.schema.names == ["body"] for _, rows in parts)


def test_the_topic_given_is_all_rows() -> None:
    rows = pa.record_batch({"topic": TOPICS, "body": BODIES})
    ((topic, same),) = by_topic(rows, "x")
    assert (topic, same.schema.names, same.num_rows) == ("x", ["body"], 5)
    with pytest.raises(InvalidArgument, match="neither a topic nor a column topic"):
        next(by_topic(same))


def test_a_name_that_no_row_has_makes_no_group() -> None:
    """A dictionary may know more than its column."""
    topics = TOPICS.dictionary_encode().slice(1, 1)
    assert [topic for topic, _ in by_topic(pa.record_batch({"topic": topics, "body": BODIES.slice(1, 1)}))] == ["a"]


def test_a_name_that_a_dictionary_holds_twice_makes_one_group() -> None:
    twice = pa.DictionaryArray.from_arrays([0, 1, 2, None, 0], ["a", "b", "a"])
    parts = list(by_topic(pa.record_batch({"topic": twice, "body": BODIES})))
    assert [(topic, rows.column("body").to_pylist()) for topic, rows in parts] == [
        ("a", [b"0", b"2", b"4"]),
        ("b", [b"1"]),
    ]
    assert [rows.column("body").to_pylist() for rows in by_tag(pa.record_batch({"tags": twice, "body": BODIES}))] == [
        [b"0", b"2", b"4"],
        [b"1"],
        [b"3"],
    ]


@given(st.lists(st.none() | st.text(max_size=80), max_size=40), st.integers(1, 7), st.integers(0, 3))
def test_keys_go_where_single_messages_go(keys: list[str | None], queues: int, skipped: int) -> None:
    info = TopicPublishInfo("t", [MessageQueue("t", "b", number) for number in range(queues)], counter_start=0)
    numbers = pa.array(range(len(keys)), pa.int64())
    rows = pa.record_batch({"shardingKey": pa.array(keys, pa.string()), "n": numbers}).slice(skipped)
    seen = []
    for key, part in by_queue(rows, queues):
        for row in part.to_pylist():
            own = row["shardingKey"]
            assert (own is None) == (key is None)
            if own is not None and key is not None:
                assert info.queue_of_key(own) == info.queue_of_key(key)
            seen.append(row["n"])
        in_part = part.column("n").to_pylist()
        assert in_part == sorted(in_part)
    assert sorted(seen) == list(range(len(keys)))[skipped:]


@given(st.lists(st.text(max_size=50)))
def test_hash_codes_of_many(texts: list[str]) -> None:
    assert string_hash_codes(pa.array(texts, pa.string())).tolist() == [string_hash_code(text) for text in texts]


def test_rows_without_keys_stay_together() -> None:
    rows = pa.record_batch({"body": BODIES})
    assert list(by_queue(rows, 4)) == [(None, rows)]


@given(st.lists(st.none() | st.sampled_from(["a", "b", "c"]), max_size=30), st.booleans(), st.integers(0, 3))
def test_rows_of_each_tag_in_their_order(tags: list[str | None], coded: bool, skipped: int) -> None:
    column = pa.array(tags, pa.string())
    numbers = pa.array(range(len(tags)), pa.int64())
    rows = pa.record_batch({"tags": column.dictionary_encode() if coded else column, "n": numbers}).slice(skipped)
    parts = [(part.column("tags").to_pylist(), part.column("n").to_pylist()) for part in by_tag(rows)]
    expected: dict[str | None, list[int]] = {}
    for number, tag in enumerate(tags[skipped:], skipped):
        expected.setdefault(tag, []).append(number)
    assert [(set(own), row_numbers) for own, row_numbers in parts if row_numbers] == [
        ({tag}, of) for tag, of in expected.items()
    ]


def test_rows_without_a_column_of_tags_stay_together() -> None:
    rows = pa.record_batch({"body": BODIES})
    assert list(by_tag(rows)) == [rows]
