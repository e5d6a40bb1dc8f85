"""The messages inside batch records, as rows in place of the records.

Their layout is that of `protocol/messages/batch.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from pyrmq_core.columnar.arrays import Bools, Ints
from pyrmq_core.columnar.decoding.record_bounds import Unreadable, items
from pyrmq_core.columnar.decoding.rows import SHORT_BYTES, Rows, UniformRuns, bounds_at, gathered, numbers_at
from pyrmq_core.protocol.messages.batch import OVERHEAD_BYTES
from pyrmq_core.protocol.messages.sysflag import COMPRESSED

# The part of a message inside a batch record before its body.
INNER_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("flag", ">i4"), ("body_bytes", ">i4")]
)
INNER_BODY: Final = INNER_HEAD.itemsize
# With fewer messages in a batch record, a loop over the records costs as much as it saves.
FEWEST_IN_RUN: Final = 64


def unwrapped(rows: Rows, batches: Bools) -> Rows:
    """Returns the rows with each batch record replaced by its messages; `batches` marks these records."""
    return (_uniform_messages(rows) if batches.all() else None) or _merged(rows, batches)


def _uniform_messages(records: Rows) -> Rows | None:
    """Returns the messages if all have one topic and one size, and their parts have theirs; else None."""
    octets, (starts, ends) = records.octets, records.body
    lengths = ends - starts
    if lengths.min() < OVERHEAD_BYTES or (records.head("sys_flag") & COMPRESSED).any():
        return None
    head = gathered(octets, starts[:1], INNER_BODY).view(INNER_HEAD)[0]
    size, body_bytes = int(head["size"]), int(head["body_bytes"])
    if size < OVERHEAD_BYTES or lengths.sum() < FEWEST_IN_RUN * size * len(lengths) or (lengths % size).any():
        return None
    body_end = INNER_BODY + body_bytes
    properties = body_end + SHORT_BYTES
    if not INNER_BODY <= body_end <= properties <= size:
        return None
    if int(numbers_at(octets, starts[:1] + body_end, ">i2")[0]) != size - properties:
        return None
    counts = lengths // size
    uniform = UniformRuns(octets, size, starts.tolist(), counts.tolist())
    heads = uniform.copied(0, INNER_BODY).view(INNER_HEAD)
    if (heads["size"] != size).any() or (heads["body_bytes"] != body_bytes).any():
        return None
    if not uniform.is_in_all(body_end, properties) or not _have_one_topic(records):
        return None
    places, record = uniform.places, np.repeat(np.arange(len(records)), counts)
    number = np.arange(uniform.count) - np.repeat(np.cumsum(counts) - counts, counts)
    return Rows(
        octets=octets,
        heads=records.heads,
        places=records.places,
        pull=records.pull[record],
        queue_offset=records.queue_offset[record] + number,
        flag=heads["flag"].astype(np.int64),
        body=(places + INNER_BODY, places + body_end),
        topic=bounds_at(records.topic, record),
        properties=(places + properties, places + size),
        record=record,
        uniform=uniform,
    )


def _have_one_topic(records: Rows) -> bool:
    starts, ends = records.topic
    if (ends - starts != ends[0] - starts[0]).any():
        return False
    return ends[0] == starts[0] or len(set(gathered(records.octets, starts, int(ends[0] - starts[0])).tolist())) == 1


def _merged(rows: Rows, batches: Bools) -> Rows:
    """Returns the rows with each batch record replaced by its messages, which have their own offset, flag, body and
    properties, and else what the record has.
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
        heads=rows.heads[source],
        places=rows.places[source],
        pull=rows.pull[source],
        queue_offset=merged(rows.queue_offset, rows.queue_offset[record] + number),
        flag=merged(rows.flag, flags),
        body=(merged(rows.body[0], body_starts), merged(rows.body[1], body_ends)),
        topic=bounds_at(rows.topic, source),
        properties=(merged(rows.properties[0], properties_starts), merged(rows.properties[1], ends)),
    )
