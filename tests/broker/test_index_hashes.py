"""The hashes of index keys: Java's figures, its rules of words and names, and the fast form against the plain one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.broker.store.index.batch_hashes import Message, key_columns, mixed_entries
from pyrmq_core.broker.store.index.key_hashes import index_key, key_hash, record_hashes
from pyrmq_core.protocol.messages.properties import decode_java_utf8
from tests.broker.java_index import java_hash, java_keys


# Seen in index files of 5.4.0.
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("TEx#k0", 1822783743),
        ("TEx#kk", 1822783684),
        ("TopicTest#key1", 1655984460),
        ("polygenelubricants", 0),
        ("DESIGNING WORKHOUSES", 0),
        ("\U0001f600", 1772899),
    ],
)
def test_what_java_printed(key: str, expected: int) -> None:
    assert key_hash(key) == expected


def test_keys_of_a_record() -> None:
    properties = b"WAIT\x01true\x02KEYS\x01a  b a\x02TAGS\x01red\x02UNIQ_KEY\x01id\x02"
    keys = ["T#id", "T#a", "T#b", "T#a", "T#T#red"]
    assert record_hashes("T", properties) == [java_hash(key) for key in keys]


@pytest.mark.parametrize(
    ("properties", "keys"),
    [
        ("KEYS\x01a\x02KEYS\x01b\x02", ["T#b"]),
        ("KEYS\x01a\x02KEYS\x01\x02", ["T#a"]),
        ("KEYS\x01  \x02", []),
        ("KEYS\x02UNIQ_KEY\x01", []),
        ("xKEYS\x01a\x02TAGS\x01b", ["T#T#b"]),
        ("a\x01KEYS\x01b\x02", []),
        ("KEYS\x01a\x01b\x02", ["T#a\x01b"]),
        ("KEYS\x01标 签\x02", ["T#标", "T#签"]),
        ("", []),
    ],
)
def test_which_values_count(properties: str, keys: list[str]) -> None:
    assert record_hashes("T", properties.encode()) == [java_hash(key) for key in keys]


def test_the_type_of_tags() -> None:
    assert (index_key("T", "x"), index_key("T", "x", "K"), index_key("T", "x", "T")) == ("T#x", "T#x", "T#T#x")


def message(properties: bytes) -> bytes:
    return struct.pack(">h", len(properties)) + properties


SIGNS = st.text(st.sampled_from("aB0 \x01\x02标\U0001f600"), max_size=6)
NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "WAIT", "xKEYS", ""])
ANY = st.lists(st.tuples(NAMES, SIGNS), max_size=5).map(lambda pairs: "".join([f"{n}\x01{v}\x02" for n, v in pairs]))


@given(ANY, st.text(st.sampled_from("T标#"), max_size=3))
def test_the_plain_form_is_javas(properties: str, topic: str) -> None:
    assert record_hashes(topic, properties.encode()) == [java_hash(key) for key in java_keys(topic, properties)]


@given(st.binary(max_size=12), st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS"]))
def test_values_that_are_not_utf_8(value: bytes, name: str) -> None:
    properties = name.encode() + b"\x01" + value
    assert record_hashes("T", properties) == [java_hash(key) for key in java_keys("T", decode_java_utf8(properties))]


SIGNS_OF_COLUMNS = (b"09af", b"09af", b"0 ", b"0\x01", b"0\x02", b"0\x80")


@st.composite
def uniform(draw: st.DrawFn) -> list[bytes]:
    """Messages of equal length that differ in some columns, as one producer's batch; sometimes in any column."""
    first = bytearray(draw(ANY.filter(bool)).encode())
    columns = draw(st.dictionaries(st.integers(0, len(first) - 1), st.sampled_from(SIGNS_OF_COLUMNS), max_size=3))
    batch = []
    for _ in range(draw(st.integers(16, 40))):
        one = bytearray(first)
        for at, signs in columns.items():
            one[at] = draw(st.sampled_from(signs))
        batch.append(message(bytes(one)))
    return batch


@given(uniform(), st.text(st.sampled_from("T标"), max_size=2))
def test_columns_have_the_same_hashes(batch: list[bytes], topic: str) -> None:
    plain = [record_hashes(topic, one[2:]) for one in batch]
    columns = key_columns(topic, batch, range(100, 100 + len(batch)), [7] * len(batch))
    entries = mixed_entries([Message(topic, one, 100 + number, 7) for number, one in enumerate(batch)])
    assert columns is None or columns.one_by_one() == entries
    assert entries.hashes == [one for row in plain for one in row]
    assert entries.offsets == [100 + number for number, row in enumerate(plain) for _ in row]
    assert set(entries.times_ms) <= {7}


@pytest.mark.parametrize("signs", [b"x ", b"x\x02", b"x\x80", b"x\x01", b"xy"], ids=ascii)
def test_a_column_may_end_a_word_or_a_value(signs: bytes) -> None:
    batch = [message(b"KEYS\x01a" + signs[n % 2 :][:1] + b"b\x02TAGS\x01t\x02") for n in range(20)]
    plain = [one for properties in batch for one in record_hashes("T", properties[2:])]
    assert mixed_entries([Message("T", one, 0, 7) for one in batch]).hashes == plain


def test_a_batch_of_one_producer_goes_by_columns() -> None:
    batch = [message(b"UNIQ_KEY\x01AB%06X\x02KEYS\x01k%04d\x02TAGS\x01t\x02" % (n, n)) for n in range(1000)]
    columns = key_columns("T", batch, range(1000), [7] * 1000)
    assert columns is not None
    assert [isinstance(one, int) for one in columns.hashes] == [False, False, True]
    assert columns.one_by_one().hashes == [one for row in batch for one in record_hashes("T", row[2:])]


MESSAGES = st.lists(
    st.builds(Message, st.sampled_from("ST"), ANY.map(str.encode).map(message), st.integers(0, 9), st.integers(1, 9)),
    max_size=60,
)


@given(MESSAGES, st.integers(1, 20))
def test_mixed_messages_keep_their_order(messages: list[Message], times: int) -> None:
    messages *= times
    expected = [(one, key_hash) for one in messages for key_hash in record_hashes(one.topic, one.properties[2:])]
    entries = mixed_entries(messages)
    assert entries.hashes == [key_hash for _, key_hash in expected]
    assert entries.offsets == [one.offset for one, _ in expected]
    assert entries.times_ms == [one.time_ms for one, _ in expected]
