"""Functions for `Producer.send(..., select=...)` that choose the queue of a key as other RocketMQ clients do.

Each kind of client has its own hash. A send with a sharding key and without `select` uses the hash of Java's remoting
client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Message, MessageQueue
from pyrmq_core.protocol.java.string_hash import consistent_bucket, string_hash_code

FNV_START: Final = 0x811C9DC5
FNV_PRIME: Final = 0x01000193


def select_like_go(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue that rocketmq-client-go's hash selector chooses for the sharding key (32-bit FNV-1a).

    Raises `InvalidArgument` for a message without a sharding key.
    """
    value = FNV_START
    for byte in _key(message).encode():
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFF
    return queues[value % len(queues)]


def select_like_proxy(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Returns the queue to which RocketMQ's proxy sends a message group, whatever queue the client over gRPC names.

    The queue is Guava's consistent hash of Java's hash code. Source: SendMessageActivity.java of the proxy, seen on
    5.4.0.
    """
    return queues[consistent_bucket(string_hash_code(_key(message)), len(queues))]


def _key(message: Message) -> str:
    if not message.sharding_key:
        raise InvalidArgument("the message has no sharding_key, by which this function chooses its queue")
    return message.sharding_key
