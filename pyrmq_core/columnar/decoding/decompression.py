"""Decompresses the stored bodies of many messages in parts, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from pyrmq_core.columnar.arrays import MAX_ARRAY_BYTES, Ints
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.columnar.decoding.records import check_crcs
from pyrmq_core.columnar.decoding.rows import Rows
from pyrmq_core.errors import RecordError
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.compression import decompress
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD, COMPRESSED

# The most bytes of decompressed bodies in a batch, unless one body is larger.
PART_BYTES: Final = 32 * 1024 * 1024


def with_decompressed_bodies(rows: Rows, rules: BodyRules) -> Iterator[tuple[Rows, int]]:
    """Yields all rows in parts, with decompressed bodies, each with the number of the first row after the part.

    Raises `Unreadable` for a body that cannot be decompressed. With `rules.keep_undecodable` such a body stays as
    stored.
    """
    flags = rows.head("sys_flag")
    single = flags & BATCH_RECORD != BATCH_RECORD
    if rules.verify_crc:
        check_crcs(rows, np.flatnonzero(single))
    compressed = np.flatnonzero((flags & COMPRESSED != 0) & single)
    first = 0
    bodies: list[tuple[int, bytes]] = []
    plain_bytes = 0
    for row, body in _undone(rows, compressed, flags, rules):
        if bodies and plain_bytes + len(body) > PART_BYTES:
            yield _with_bodies(rows, first, row, bodies), row
            first, bodies, plain_bytes = row, [], 0
        bodies.append((row, body))
        plain_bytes += len(body)
        del body  # frees the body before the next one is decompressed
    yield (_with_bodies(rows, first, len(rows), bodies) if bodies else rows), len(rows)


def _undone(rows: Rows, compressed: Ints, flags: Ints, rules: BodyRules) -> Iterator[tuple[int, bytes]]:
    view, (starts, ends) = rows.octets.data, rows.body
    for row in compressed.tolist():
        try:
            body = decompress(view[starts[row] : ends[row]], int(flags[row]), max_bytes=rules.max_body_bytes)
        except RecordError:
            if rules.keep_undecodable:
                continue
            raise Unreadable from None
        yield row, body


def _with_bodies(rows: Rows, first: int, last: int, bodies: list[tuple[int, bytes]]) -> Rows:
    lengths = np.array([len(body) for _, body in bodies], np.int64)
    body_ends = len(rows.octets) + np.cumsum(lengths)
    if body_ends[-1] > MAX_ARRAY_BYTES:
        raise Unreadable
    part = rows if last - first == len(rows) else rows.at(np.arange(first, last))
    starts, ends = part.body[0].copy(), part.body[1].copy()
    places = np.array([row for row, _ in bodies], np.int64) - first
    starts[places], ends[places] = body_ends - lengths, body_ends
    octets = np.frombuffer(b"".join((rows.octets.data, *(body for _, body in bodies))), np.uint8)
    return replace(part, octets=octets, body=(starts, ends))
