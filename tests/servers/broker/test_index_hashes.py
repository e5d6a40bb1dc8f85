"""The hashes of index keys: Java's figures, and its rules of words and names."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.protocol.messages.properties import decode_java_utf8
from pyrmq_core.servers.broker.store.index.entries import Message, entries_of
from pyrmq_core.servers.broker.store.index.key_hashes import index_key, key_hash, record_hashes
from tests.servers.broker.java_index import java_hash, java_keys


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
def test_hashes_are_javas(properties: str, topic: str) -> None:
    assert record_hashes(topic, properties.encode()) == [java_hash(key) for key in java_keys(topic, properties)]


@given(st.binary(max_size=12), st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS"]))
def test_values_that_are_not_utf_8(value: bytes, name: str) -> None:
    properties = name.encode() + b"\x01" + value
    assert record_hashes("T", properties) == [java_hash(key) for key in java_keys("T", decode_java_utf8(properties))]


@given(st.text(st.sampled_from("aZ09~标"), max_size=12), st.sampled_from(["T", "标", "polygenelubricants"]))
def test_words_of_any_length_are_hashed_as_a_whole(word: str, topic: str) -> None:
    for text in (word, "k" * 125 + word):
        if text:
            assert record_hashes(topic, b"KEYS\x01" + text.encode()) == [java_hash(f"{topic}#{text}")]


MESSAGES = st.lists(
    st.builds(Message, st.sampled_from("ST"), ANY.map(str.encode).map(message), st.integers(0, 9), st.integers(1, 9)),
    max_size=60,
)


@given(MESSAGES, st.integers(1, 20))
def test_messages_keep_their_order(messages: list[Message], times: int) -> None:
    messages *= times
    expected = [
        (record, key_hash) for record in messages for key_hash in record_hashes(record.topic, record.properties[2:])
    ]
    entries = entries_of(messages)
    assert entries.hashes == [key_hash for _, key_hash in expected]
    assert entries.offsets == [record.offset for record, _ in expected]
    assert entries.times_ms == [record.time_ms for record, _ in expected]
