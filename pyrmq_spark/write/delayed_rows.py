"""Rows that are delivered later: separated from the others, and sent as single messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core import Message, Payload, encode_one
from pyrmq_core.columnar import BatchLimit, CheckedRows

DELAYS: Final = ("delayLevel", "deliverAt")
IN_UTC: Final = pa.timestamp("us", "UTC")


def may_be_delayed(rows: CheckedRows) -> bool:
    """Returns whether a column for delays is there."""
    return any(name in rows.schema.names for name in DELAYS)


def by_delay(rows: CheckedRows) -> tuple[CheckedRows, CheckedRows]:
    """Returns the delayed rows, and the others."""
    columns = [rows.column(name) for name in DELAYS if name in rows.schema.names]
    if not columns:
        return rows.slice(0, 0), rows
    is_plain = pc.is_null(columns[0])
    for column in columns[1:]:
        is_plain = pc.and_(is_plain, pc.is_null(column))
    return rows.filter(pc.invert(is_plain)), rows.filter(is_plain)


def encode_singles(delayed: CheckedRows, topic: str, unique_ids: Sequence[str], limit: BatchLimit) -> Iterator[Payload]:
    """Yields a request for each row, in their order."""
    rows = delayed.to_batch()
    if "deliverAt" in rows.schema.names:  # its zone is the session's, which may be one that Python does not know
        place = rows.schema.names.index("deliverAt")
        rows = rows.set_column(place, "deliverAt", rows.column(place).cast(IN_UTC))
    for row, unique_id in zip(rows.to_pylist(), unique_ids, strict=True):
        yield encode_one(
            _message(row, topic),
            unique_id,
            compress_over_bytes=limit.compress_over_bytes,
            compression=limit.compression,
        )


def _message(row: Mapping[str, Any], topic: str) -> Message:
    body = row["body"]
    return Message(
        topic,
        body.encode() if isinstance(body, str) else body,
        tags=row.get("tags"),
        keys=row.get("keys") or None,
        sharding_key=row.get("shardingKey"),
        properties=dict(row.get("properties") or ()),
        flag=row.get("flag") or 0,
        delay_level=row.get("delayLevel"),
        deliver_at=row.get("deliverAt"),
    )
