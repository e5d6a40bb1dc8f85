"""The keys by which the index finds a record, and their hashes.

    property             key
    UNIQ_KEY             topic#value
    KEYS                 topic#word           for each of its words, which spaces separate
    TAGS                 topic#T#value        since 5.4

A hash is the absolute value of Java's String.hashCode, or 0 for the lowest int. Many keys differ only in their last
letters, so the hash of the letters before (the head) is cached. Sources: store/index/IndexService.java buildIndex,
IndexFile.java indexKeyHashMethod (5.4.0).
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Final

from pyrmq_core.protocol.java.string_hash import MASK, string_hash_code
from pyrmq_core.protocol.messages.properties import KEYS, TAGS, UNIQ_KEY, decode_java_utf8

PAIR_END: Final = b"\x02"
WORD_END: Final = b" "
TAG_TYPE: Final = "T"
# The properties whose values are indexed, in the order in which their keys enter the index.
INDEXED: Final = (UNIQ_KEY.encode(), KEYS.encode(), TAGS.encode())
UNIQUE, WORDS, TAG = INDEXED
# Matches an indexed property with the separator before it, and captures name and value.
INDEXED_PAIR: Final = re.compile(rb"\x02(%b)\x01([^\x02]+)" % b"|".join(INDEXED))
TAIL_BYTES: Final = 4
SIGN: Final = 1 << 31
# For words up to this length, the hash of all but the last bytes is cached.
MOST_WORD_BYTES: Final = 128


def index_key(topic: str, key: str, index_type: str | None = None) -> str:
    return f"{topic}#{TAG_TYPE}#{key}" if index_type == TAG_TYPE else f"{topic}#{key}"


def key_hash(text: str, before: int = 0) -> int:
    """Returns the index's hash of a text, or of a text appended to another text with the hash `before`."""
    return abs(string_hash_code(text, before)) & 0x7FFFFFFF


def record_hashes(topic: str, properties: bytes, start: int = 0, most: int = sys.maxsize) -> list[int]:
    """Returns the hashes of a record's keys, in the order of the index: at most `most`, from number `start` on."""
    words, tags = record_keys(properties)
    hashes = [_word_hash(topic, word) for word in words[start : start + most]]
    if tags and start <= len(words) < start + most:
        hashes.append(_tag_hash(topic, tags))
    return hashes


def record_keys(properties: bytes) -> tuple[list[bytes], bytes]:
    """Returns a record's unique key and words of KEYS in one list, and its tags.

    If a property is repeated, the last one is used.
    """
    values: dict[bytes, bytes] = dict(INDEXED_PAIR.findall(PAIR_END + properties))
    words = [*filter(None, values.get(WORDS, b"").split(WORD_END))]
    if UNIQUE in values:
        words.insert(0, values[UNIQUE])
    return words, values.get(TAG, b"")


def _word_hash(topic: str, word: bytes) -> int:
    if not TAIL_BYTES <= len(word) <= MOST_WORD_BYTES or not word.isascii():
        return key_hash(decode_java_utf8(word), _topic_hash(topic))
    first, second, third, fourth = word[-TAIL_BYTES:]
    tail = first * 29_791 + second * 961 + third * 31 + fourth
    code = (_head_hash(topic, word[:-TAIL_BYTES]) + tail) & MASK
    return code if code < SIGN else -code & ~SIGN & MASK


@functools.lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return string_hash_code(index_key(topic, ""))


@functools.lru_cache(maxsize=4096)
def _tag_hash(topic: str, tags: bytes) -> int:
    return key_hash(index_key(topic, decode_java_utf8(tags), TAG_TYPE))


@functools.lru_cache(maxsize=4096)
def _head_hash(topic: str, head: bytes) -> int:
    return string_hash_code(head.decode(), _topic_hash(topic)) * 923_521 & MASK
