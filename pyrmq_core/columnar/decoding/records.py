"""Splits the records of pulls into vectors: the bounds of each message's parts in one buffer, and its header fields.

The layout of a record is that of `protocol/messages/record.py`. A record of another form raises `Unreadable`. Then the
messages are read one by one, and the error names the fault.

Bodies are compared with the CRC-32 in their records. For a short body, slicing takes more time than computing its CRC.
So short bodies are first copied into one array, and then sliced some hundred at a time, which fit into the processor's
cache. Nanoseconds for each of 10,000 bodies of 18 to 385 B, on a busy machine: 530 by slices, 160 together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyrmq_core.columnar.arrays import MAX_ARRAY_BYTES, Ints, Octets, spans
from pyrmq_core.columnar.decoding.batch_messages import unwrapped
from pyrmq_core.columnar.decoding.record_bounds import Unreadable, items
from pyrmq_core.columnar.decoding.rows import (
    HEAD,
    HEAD_BYTES,
    SHORT_BYTES,
    STORE_HOST,
    STORE_TIMESTAMP,
    TAIL,
    V6_MORE,
    Rows,
    gathered,
    numbers_at,
)
from pyrmq_core.model import EVERYTHING, OffsetRange
from pyrmq_core.protocol.messages.payload import NO_BATCHES, RawPull
from pyrmq_core.protocol.messages.record import CRC_MASK, MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, BORN_HOST_V6, STORE_HOST_V6

# The CRCs of bodies with a greater mean length are computed without a copy.
SHORT_BODY_BYTES: Final = 512
BODIES_AT_ONCE: Final = 256

crc32: Callable[[Any], int]
try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32


def read_rows(pulls: Sequence[RawPull], within: OffsetRange, *, verify_crc: bool = False) -> Rows:
    """Returns the messages of `pulls` at offsets of `within`, without those outside a pull's own range (`RawPull.own`).

    Bodies are as stored. Batch records are replaced by their messages. With `verify_crc`, the bodies of batch records,
    and only these, are first compared with their CRC.
    """
    octets, starts, ends = _joined([pull.records for pull in pulls])
    filled = np.flatnonzero(ends > starts)
    places, counts = items(octets, starts[filled], ends[filled], MIN_RECORD_BYTES)
    rows = _plain_rows(octets, places, np.repeat(filled, counts))
    batches = rows.head("sys_flag") & BATCH_RECORD == BATCH_RECORD
    if batches.any():
        if any(pull.queue.topic.startswith(NO_BATCHES) for pull in pulls):
            raise Unreadable
        if verify_crc:
            check_crcs(rows, np.flatnonzero(batches))
        rows = unwrapped(rows, batches)
    first = np.maximum(np.array([pull.start for pull in pulls], np.int64), max(within.start, EVERYTHING.start))
    last = np.minimum(np.array([pull.next_offset for pull in pulls], np.int64), min(within.end, EVERYTHING.end))
    return rows.only((rows.queue_offset >= first[rows.pull]) & (rows.queue_offset < last[rows.pull]))


def check_crcs(rows: Rows, which: Ints) -> None:
    """Raises `Unreadable` unless the bodies of the rows `which` match their CRC. Skips empty bodies.

    Each row must be a complete record, not a message inside a batch record.
    """
    filled = which[rows.body[1][which] > rows.body[0][which]]
    if not have_crcs(rows.octets, rows.body[0][filled], rows.body[1][filled], rows.head("body_crc")[filled]):
        raise Unreadable


def have_crcs(octets: Octets, starts: Ints, ends: Ints, crcs: npt.NDArray[Any]) -> bool:
    count = len(starts)
    if (ends - starts).sum() <= SHORT_BODY_BYTES * count:
        bodies: Iterator[Any] = _copied(spans(pa.py_buffer(octets), starts, ends))
    else:
        bodies = map(octets.data.__getitem__, map(slice, starts.tolist(), ends.tolist()))
    computed = np.fromiter(map(crc32, bodies), np.int64, count)
    return bool((computed & CRC_MASK == crcs).all())


def _copied(bodies: pa.Array) -> Iterator[bytes]:
    for first in range(0, len(bodies), BODIES_AT_ONCE):
        yield from bodies[first : first + BODIES_AT_ONCE].to_numpy(zero_copy_only=False).tolist()


def _joined(buffers: Sequence[bytes | memoryview]) -> tuple[Octets, Ints, Ints]:
    ends = np.cumsum(np.array([len(buffer) for buffer in buffers], np.int64))
    if len(ends) and ends[-1] > MAX_ARRAY_BYTES:
        raise Unreadable
    octets = np.frombuffer(buffers[0] if len(buffers) == 1 else b"".join(buffers), np.uint8)
    return octets, np.concatenate((np.zeros(1, np.int64), ends[:-1])), ends


def _plain_rows(octets: Octets, places: Ints, pull: Ints) -> Rows:
    heads, starts = _heads(octets, places)
    fields = heads.view(HEAD)
    magic, size, body_bytes = (fields[name].astype(np.int64) for name in ("magic", "size", "body_bytes"))
    ends, body_ends, v2 = places + size, starts + body_bytes, magic == MAGIC_V2
    if (~v2 & (magic != MAGIC_V1)).any() or (body_bytes < 0).any() or (body_ends + (3 + v2) > ends).any():
        raise Unreadable
    topic_bytes = octets[body_ends].view(np.int8).astype(np.int64)
    if v2.any():
        topic_bytes = np.where(v2, topic_bytes << 8 | octets[body_ends + v2], topic_bytes)
    topic_starts = body_ends + 1 + v2
    topic_ends = topic_starts + topic_bytes
    if (topic_bytes < 0).any() or (topic_ends + SHORT_BYTES > ends).any():
        raise Unreadable
    properties_bytes = numbers_at(octets, topic_ends, ">i2")
    properties_starts = topic_ends + SHORT_BYTES
    if (properties_starts + properties_bytes != ends).any():
        raise Unreadable
    return Rows(
        octets=octets,
        heads=heads,
        places=places,
        pull=pull,
        queue_offset=fields["queue_offset"].astype(np.int64),
        flag=fields["flag"].astype(np.int64),
        body=(starts, body_ends),
        topic=(topic_starts, topic_ends),
        properties=(properties_starts, ends),
    )


def _heads(octets: Octets, places: Ints) -> tuple[npt.NDArray[np.void], Ints]:
    heads = gathered(octets, places, HEAD_BYTES)
    flags = heads.view(HEAD)["sys_flag"]
    if not (flags & (BORN_HOST_V6 | STORE_HOST_V6)).any():
        return heads, places + HEAD_BYTES
    born_more = V6_MORE * (flags & BORN_HOST_V6 != 0).astype(np.int64)
    more = born_more + V6_MORE * (flags & STORE_HOST_V6 != 0)
    if (heads.view(HEAD)["size"] < HEAD_BYTES + more).any():
        raise Unreadable
    matrix = heads.view(np.uint8).reshape(len(places), HEAD_BYTES)
    times, tails = STORE_TIMESTAMP + places + born_more, TAIL + places + more
    matrix[:, STORE_TIMESTAMP:STORE_HOST] = gathered(octets, times, 8).view(np.uint8).reshape(-1, 8)
    width = HEAD_BYTES - TAIL
    matrix[:, TAIL:] = gathered(octets, tails, width).view(np.uint8).reshape(-1, width)
    return heads, places + HEAD_BYTES + more
