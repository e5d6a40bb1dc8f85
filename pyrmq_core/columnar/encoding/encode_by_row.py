"""Encodes rows as payloads one message after another, which is faster for few messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyrmq_core.columnar.encoding.batch_limit import BatchLimit, runs_of
from pyrmq_core.columnar.encoding.concat import RowPart
from pyrmq_core.columnar.encoding.sink_rows import SinkRows
from pyrmq_core.columnar.encoding.unique_ids import id_texts
from pyrmq_core.model import NO_PROPERTIES, Message
from pyrmq_core.protocol.messages.batch_payloads import split_batch
from pyrmq_core.protocol.messages.payload import Payload, encode_one


def encode_messages(
    rows: SinkRows, topic: str, ids: Sequence[RowPart], limit: BatchLimit, *, alone: bool, waits: bool
) -> Iterator[Payload]:
    """Yields the payloads of `encode_batches`, made row by row."""
    messages, unique_ids = _messages(rows, topic, waits=waits), id_texts(ids, len(rows))
    for run in runs_of(rows.body.sizes, limit, alone=alone):
        compression = limit.compression if run.compressed else None
        members, their_ids = messages[run.start : run.end], unique_ids[run.start : run.end]
        if run.alone:
            for message, unique_id in zip(members, their_ids, strict=True):
                yield encode_one(
                    message,
                    unique_id,
                    compression=compression,
                    compress_over_bytes=0,
                    max_message_bytes=limit.max_message_bytes,
                )
        else:
            yield from split_batch(
                members,
                their_ids,
                compression=compression,
                max_message_bytes=limit.max_message_bytes,
                request_bytes=limit.bytes,
                request_messages=limit.messages,
            )


def _messages(rows: SinkRows, topic: str, *, waits: bool) -> list[Message]:
    texts = [_texts(rows, name) for name in ("tags", "keys", "shardingKey")]
    flags = [0] * len(rows) if rows.flag is None else rows.flag.fill_null(0).to_pylist()
    pairs = [None] * len(rows) if rows.properties is None else rows.properties.array.to_pylist()
    return [
        Message(
            topic, body, tags, keys, sharding_key, dict(own) if own else NO_PROPERTIES, flag, wait_store_msg_ok=waits
        )
        for body, tags, keys, sharding_key, own, flag in zip(
            rows.body.array.to_pylist(), *texts, pairs, flags, strict=True
        )
    ]


def _texts(rows: SinkRows, name: str) -> list[str | None]:
    if name not in rows.texts:
        return [None] * len(rows)
    return [text.decode() if text else None for text in rows.texts[name].array.to_pylist()]
