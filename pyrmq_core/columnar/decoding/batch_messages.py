"""Splits batch records, which hold all messages of a batch, into their messages (`protocol/messages/batch.py`)."""

from __future__ import annotations

from typing import Final

import numpy as np

from pyrmq_core.columnar.arrays import Bools, Ints
from pyrmq_core.columnar.decoding.record_bounds import Unreadable, items
from pyrmq_core.columnar.decoding.rows import SHORT_BYTES, Rows, bounds_at, gathered, numbers_at
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.messages.sysflag import COMPRESSED

# The header of a message inside a batch record.
INNER_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("flag", ">i4"), ("body_bytes", ">i4")]
)


def unwrapped(rows: Rows, batches: Bools) -> Rows:
    """Returns the rows with each batch record, as marked by `batches`, replaced by its messages.

    Messages have their own offset, flag, body and properties, and the record's other fields.
    """
    if (batches & (rows.head("sys_flag") & COMPRESSED != 0)).any():
        raise Unreadable  # no broker stores a compressed batch record
    octets = rows.octets
    records = np.flatnonzero(batches & (rows.body[1] > rows.body[0]))
    places, counts = items(octets, rows.body[0][records], rows.body[1][records], OVERHEAD_BYTES)
    heads = gathered(octets, places, INNER_HEAD.itemsize).view(INNER_HEAD)
    sizes, flags, body_bytes = (heads[name].astype(np.int64) for name in ("size", "flag", "body_bytes"))
    ends, body_starts = places + sizes, places + INNER_HEAD.itemsize
    body_ends = body_starts + body_bytes
    if (body_bytes < 0).any() or (body_ends + SHORT_BYTES > ends).any():
        raise Unreadable
    properties_starts = body_ends + SHORT_BYTES
    if (properties_starts + numbers_at(octets, body_ends, ">i2") != ends).any():
        raise Unreadable
    record = np.repeat(records, counts)
    number = np.arange(len(record)) - np.repeat(np.cumsum(counts) - counts, counts)
    single = np.flatnonzero(~batches)
    order = np.argsort(np.concatenate((single, record)), kind="stable") if len(single) else None

    def merged(of_records: Ints, of_messages: Ints) -> Ints:
        return of_messages if order is None else np.concatenate((of_records[single], of_messages))[order]

    source = merged(np.arange(len(batches)), record)
    return Rows(
        octets=octets,
        heads=rows.heads,
        places=rows.places,
        pull=rows.pull[source],
        queue_offset=merged(rows.queue_offset, rows.queue_offset[record] + number),
        flag=merged(rows.flag, flags),
        body=(merged(rows.body[0], body_starts), merged(rows.body[1], body_ends)),
        topic=bounds_at(rows.topic, source),
        properties=(merged(rows.properties[0], properties_starts), merged(rows.properties[1], ends)),
        record=source,
    )
