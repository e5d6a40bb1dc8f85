"""Functions for `Producer.send(..., select=...)` that choose the queue of a key as other RocketMQ clients do.

Each kind of client has its own hash. A plain send with a sharding key uses that of Java's remoting client.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code

FNV_START: Final = 0x811C9DC5
FNV_PRIME: Final = 0x01000193
# SipHash's four words for the key 00 01 02 ... 0f, which Guava's Hashing.sipHash24() takes.
SIP_START: Final = (0x7469686173716475, 0x6B617F6D656E6665, 0x6B7F62616D677361, 0x7B6B696E727E6C7B)
WORD: Final = (1 << 64) - 1


def select_like_go(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue that rocketmq-client-go's hash selector chooses for the sharding key (32-bit FNV-1a)."""
    value = FNV_START
    for byte in _key(message):
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFF
    return queues[value % len(queues)]


def select_like_proxy(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue to which RocketMQ's proxy sends a message group, whatever queue the client over gRPC names.

    It is Guava's consistent hash of Java's hash code. Source: SendMessageActivity.java of the proxy, seen on 5.4.0.
    """
    return queues[consistent_bucket(string_hash_code(_key(message).decode()), len(queues))]


def select_like_grpc_java(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue that RocketMQ's Java client over gRPC chooses for a message group (SipHash-2-4)."""
    value = sip_hash(_key(message))
    return queues[(value - (1 << 64) if value >> 63 else value) % len(queues)]


def select_like_grpc_python(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue that rocketmq-python-client over gRPC chooses for a message group (SHA-256)."""
    return queues[int.from_bytes(hashlib.sha256(_key(message)).digest(), "big") % len(queues)]


def sip_hash(data: bytes) -> int:
    """Returns the SipHash-2-4 of the bytes under the key 00 01 02 ... 0f, as an unsigned 64-bit number."""
    words = SIP_START
    whole = len(data) - len(data) % 8
    last = int.from_bytes(data[whole:], "little") | (len(data) & 0xFF) << 56
    for number in (*(int.from_bytes(data[place : place + 8], "little") for place in range(0, whole, 8)), last):
        words = (*words[:3], words[3] ^ number)
        words = _round(_round(words))
        words = (words[0] ^ number, *words[1:])
    words = (words[0], words[1], words[2] ^ 0xFF, words[3])
    for _ in range(4):
        words = _round(words)
    return words[0] ^ words[1] ^ words[2] ^ words[3]


def _round(words: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    a, b, c, d = words
    a = (a + b) & WORD
    c = (c + d) & WORD
    b = _turned(b, 13) ^ a
    d = _turned(d, 16) ^ c
    a = _turned(a, 32)
    c = (c + b) & WORD
    a = (a + d) & WORD
    b = _turned(b, 17) ^ c
    d = _turned(d, 21) ^ a
    return a, b, _turned(c, 32), d


def _turned(word: int, places: int) -> int:
    return (word << places | word >> (64 - places)) & WORD


def _key(message: Message) -> bytes:
    if not message.sharding_key:
        raise InvalidArgument("the message has no sharding_key, by which this function chooses its queue")
    return message.sharding_key.encode()
