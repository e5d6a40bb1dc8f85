"""Rows to the payloads of send requests.

    column        Arrow type
    body          binary or string
    tags          string
    keys          string, its words separated by spaces, or list<string>
    properties    map<string, string>
    flag          int32

`large_` types do as well; only `body` has to be there. `faults.first_fault` says which row no message can be made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.compression import CompressionType
from pyrmq_core.protocol.names import MAX_MESSAGE_BYTES, is_retry_topic
from pyrmq_core.protocol.payload import COMPRESS_OVER_BYTES, Payload, encode_one, split_batch
from pyrmq_core.protocol.properties import MAX_PROPERTIES_BYTES

MIB: Final = 1024 * 1024
# A body above this may not fit into a batch beside its properties; it goes alone.
MAX_BATCHED_BODY_BYTES: Final = MAX_MESSAGE_BYTES - MAX_PROPERTIES_BYTES - 64


@dataclass(frozen=True, slots=True)
class BatchLimit:
    """How much goes into one request, and which bodies are compressed; more than about 1,000 messages gain nothing."""

    messages: int = 1000
    bytes: int = MIB
    compression: CompressionType | None = None
    compress_over_bytes: int = COMPRESS_OVER_BYTES


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one request may hold together."""

    alone: bool
    compression: CompressionType | None


def encode_batches(
    rows: pa.RecordBatch, topic: str, ids: Callable[[int], Sequence[str]], limit: BatchLimit = BatchLimit()
) -> Iterator[Payload]:
    """The rows as requests of `topic`, in their order. `ids(count)` gives the next unique ids.

    `InvalidMessage` for rows that `first_fault` would have named.
    """
    alone = is_retry_topic(topic)

    def kind(numbered: tuple[Message, str]) -> _Kind:
        size = len(numbered[0].body)
        compressed = limit.compression is not None and size >= limit.compress_over_bytes
        return _Kind(alone or size > MAX_BATCHED_BODY_BYTES, limit.compression if compressed else None)

    for start in range(0, rows.num_rows, limit.messages):
        messages = _messages(rows.slice(start, limit.messages), topic)
        for what, run in groupby(zip(messages, ids(len(messages)), strict=True), kind):
            yield from _payloads(list(run), what, limit)


def _payloads(run: Sequence[tuple[Message, str]], kind: _Kind, limit: BatchLimit) -> Iterator[Payload]:
    if kind.alone:
        for message, unique_id in run:
            yield encode_one(message, unique_id, compression=kind.compression, compress_over_bytes=0)
        return
    yield from split_batch(
        [message for message, _ in run],
        [unique_id for _, unique_id in run],
        compression=kind.compression,
        request_bytes=limit.bytes,
    )


def _messages(rows: pa.RecordBatch, topic: str) -> list[Message]:
    names = set(rows.schema.names)
    body = rows.column("body")
    bodies = (
        body.cast(pa.large_binary() if pa.types.is_large_string(body.type) else pa.binary()) if _is_text(body) else body
    )
    count = rows.num_rows
    tags = rows.column("tags").to_pylist() if "tags" in names else [None] * count
    keys = rows.column("keys").to_pylist() if "keys" in names else [None] * count
    flags = rows.column("flag").to_pylist() if "flag" in names else [0] * count
    properties = rows.column("properties").to_pylist() if "properties" in names else [None] * count
    return [
        Message(topic, body, tag, words or None, None, dict(pairs) if pairs else NO_PROPERTIES, flag or 0)
        for body, tag, words, pairs, flag in zip(bodies.to_pylist(), tags, keys, properties, flags, strict=True)
    ]


def _is_text(array: pa.Array) -> bool:
    return bool(pa.types.is_string(array.type) or pa.types.is_large_string(array.type))
