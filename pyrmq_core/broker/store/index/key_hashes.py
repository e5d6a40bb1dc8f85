"""The keys under which the index finds a record, and their hashes.

    property             key
    UNIQ_KEY             topic#value
    KEYS                 topic#word           for each of its words, which spaces separate
    TAGS                 topic#T#value        since 5.4

A hash is Java's String.hashCode without its sign; that of the one number without a positive twin is 0. `record_hashes`
is the plain form; `batch_hashes.py` has the fast one for the messages of a batch.
Sources: store/index/IndexService.java buildIndex, IndexFile.java indexKeyHashMethod (5.4.0).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.messages.properties import KEYS, TAGS, UNIQ_KEY, decode_java_utf8

NAME_END: Final = b"\x01"
PAIR_END: Final = b"\x02"
WORD_END: Final = b" "
TAG_TYPE: Final = "T"
# In the order in which their keys enter the index.
INDEXED: Final = (UNIQ_KEY.encode(), KEYS.encode(), TAGS.encode())
UNIQUE, WORDS, TAG = INDEXED


class KeySpan(NamedTuple):
    """The bounds of an indexed value in a properties string."""

    start: int
    end: int
    is_tag: bool


def index_key(topic: str, key: str, index_type: str | None = None) -> str:
    """Returns the text that is hashed for a key, or with the type `T` for tags."""
    return f"{topic}#{TAG_TYPE}#{key}" if index_type == TAG_TYPE else f"{topic}#{key}"


def key_hash(text: str, before: int = 0) -> int:
    """Returns the absolute value of the text's hash, behind a text with another; 0 for the lowest number, as Java."""
    return abs(string_hash_code(text, before)) & 0x7FFFFFFF


def record_hashes(topic: str, properties: bytes, start: int = 0, most: int = sys.maxsize) -> list[int]:
    """Returns the hashes of a record's keys, in the order in which they enter the index: `most` from `start` on."""
    values = {name: properties[begin:end] for name, (begin, end) in _values(properties).items()}
    words = [values[UNIQUE]] if UNIQUE in values else []
    if WORDS in values:
        words += [word for word in values[WORDS].split(WORD_END) if word]
    before = _topic_hash(topic)
    hashes = [key_hash(decode_java_utf8(word), before) for word in words[start : start + most]]
    if TAG in values and start <= len(words) < start + most:
        hashes.append(_tag_hash(topic, values[TAG]))
    return hashes


def pairs(properties: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields each pair's name, and where its value begins and ends."""
    start = 0
    for pair in properties.split(PAIR_END):
        end = start + len(pair)
        name, _, value = pair.partition(NAME_END)
        yield name, end - len(value), end
        start = end + len(PAIR_END)


def key_spans(properties: bytes) -> list[KeySpan]:
    """Returns where the indexed values are; of equal names the last one that has a value counts, as in Java."""
    values = _values(properties)
    spans = []
    if UNIQUE in values:
        spans.append(KeySpan(*values[UNIQUE], is_tag=False))
    if WORDS in values:
        start, end = values[WORDS]
        for word in properties[start:end].split(WORD_END):
            if word:
                spans.append(KeySpan(start, start + len(word), is_tag=False))
            start += len(word) + len(WORD_END)
    if TAG in values:
        spans.append(KeySpan(*values[TAG], is_tag=True))
    return spans


def _values(properties: bytes) -> dict[bytes, tuple[int, int]]:
    return {name: (start, end) for name, start, end in pairs(properties) if name in INDEXED and start < end}


@functools.lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    """Returns the hash of the text before each word."""
    return string_hash_code(index_key(topic, ""))


@functools.lru_cache(maxsize=4096)
def _tag_hash(topic: str, tags: bytes) -> int:
    return key_hash(index_key(topic, decode_java_utf8(tags), TAG_TYPE))
