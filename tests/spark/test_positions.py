"""Positions in options: words, JSON, times; the error for malformed text names the place."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import MessageQueue
from pyrmq_spark.positions import AtTime, PerQueue, Word, parse_assign, parse_end, parse_start, parse_time, parse_times
from pyrmq_spark.spark_errors import InvalidOffsets

QUEUE = MessageQueue("a", "broker-a", 0)


def test_words_do_not_mind_case_or_blanks() -> None:
    assert parse_start(" Earliest ", "o") is Word.EARLIEST
    assert parse_start("committed", "o") is Word.COMMITTED
    assert parse_end("LATEST", "o") is Word.LATEST


def test_json_names_offsets_by_topic_broker_and_queue() -> None:
    assert parse_start('{"a":{"broker-a":{"0":23,"1":-2,"2":-1}},"b":"earliest"}', "o") == PerQueue(
        {QUEUE: 23, MessageQueue("a", "broker-a", 1): Word.EARLIEST, MessageQueue("a", "broker-a", 2): Word.LATEST},
        {"b": Word.EARLIEST},
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1763716800000", 1763716800000),
        ("2026-11-21T09:30:00+01:00", 1795249800000),
        ("2026-11-21T08:30:00.250Z", 1795249800250),
        ("2026-11-21 08:30:00+00:00", 1795249800000),
        ("1969-12-31T00:00:00Z", 0),
    ],
)
def test_times_are_ms_or_iso_with_an_offset(text: str, ms: int) -> None:
    assert parse_time(text, "o") == AtTime(ms)


def test_times_per_queue_or_topic() -> None:
    assert parse_times('{"a":{"broker-a":{"0":5}},"b":"2026-11-21T09:30:00+01:00"}', "o") == PerQueue(
        {QUEUE: AtTime(5)}, {"b": AtTime(1795249800000)}
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "write earliest, latest, committed"),
        ("{", "that is no JSON: .* at character 2"),
        ("{}", "at least one topic"),
        ('{"a":{"broker-a":{"0":1,"0":2}}}', "'0' stands in it twice"),
        ('{"a":{"broker-a":{"0":1}},"a":"earliest"}', "'a' stands in it twice"),
        ('{"a":{"broker-a":[1]}}', "needs its queues"),
        ('{"a":{"broker-a":{"x":1}}}', "has the queue 'x'"),
        ('{"a":{"broker-a":{"01":1}}}', "has the queue '01'"),
        ('{"a":{"broker-a":{"-1":1}}}', "has the queue '-1'"),
        ('{"a":{"broker-a":{"0":-3}}}', "-3 is no offset"),
        ('{"a":{"broker-a":{"0":1.5}}}', "1.5 is no offset"),
        ('{"a":{"broker-a":{"0":true}}}', "true is no offset"),
        ('{"a":{"broker-a":{"0":null}}}', "null is no offset"),
        ('{"a":{"broker-a":{"0":9223372036854775808}}}', "is no offset"),
        ('{"a":["x"]}', "is no offset"),
        ('{"a":"first"}', "write earliest"),
        ('{"a":{"broker-a":{"0":' + "9" * 5000 + "}}}", "a number that is too long"),
        ('{"a":' * 20000, "nested too deeply|no JSON"),
    ],
)
def test_malformed_offsets_say_where(text: str, fault: str) -> None:
    with pytest.raises(InvalidOffsets, match=fault) as error:
        parse_start(text, "startingOffsets")
    assert "startingOffsets" in str(error.value)
    assert len(str(error.value)) < 600 or "9999" in text


@pytest.mark.parametrize("text", ["earliest", "committed", '{"a":"earliest"}', '{"a":{"broker-a":{"0":-2}}}'])
def test_nothing_ends_at_its_beginning(text: str) -> None:
    with pytest.raises(InvalidOffsets):
        parse_end(text, "endingOffsets")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("yesterday", "is no time"),
        ("-1", "is no time"),
        ("9223372036854775808", "is no time"),
        ("2026-11-21T09:30:00", "in which time zone"),
        ("2026-13-21T09:30:00Z", "is no time"),
        ("9" * 5000, "is no time"),
    ],
)
def test_what_is_no_time_is_refused(text: str, fault: str) -> None:
    with pytest.raises(InvalidOffsets, match=fault):
        parse_time(text, "startingTimestamp")


@pytest.mark.parametrize("value", ["true", "1.5", "null", "[1]"])
def test_what_is_no_time_in_json_is_refused(value: str) -> None:
    with pytest.raises(InvalidOffsets, match=r"startingOffsetsByTimestamp, a/broker-a/0: .* is no time"):
        parse_times(f'{{"a":{{"broker-a":{{"0":{value}}}}}}}', "startingOffsetsByTimestamp")


@pytest.mark.parametrize(
    "text", ['{"a":[0]}', '{"a":{}}', '{"a":{"b":0}}', '{"a":{"b":[-1]}}', '{"a":{"b":["0"]}}', "0"]
)
def test_malformed_assignments_are_refused(text: str) -> None:
    with pytest.raises(InvalidOffsets, match="assign"):
        parse_assign(text, "assign")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("0"), inner, max_size=3),
    max_leaves=8,
)


@given(json_values.map(json.dumps) | st.text(max_size=30))
def test_any_text_is_a_position_or_a_named_error(text: str) -> None:
    for parse in (parse_start, parse_end, parse_time, parse_times, parse_assign):
        with suppress(InvalidOffsets):
            parse(text, "o")
