"""Joins small record batches: a batch of a few rows costs Spark and its Python worker as much as some hundred rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

# Batches are held back until they have so many rows or bytes together.
ENOUGH_ROWS: Final = 1000
ENOUGH_BYTES: Final = 1024 * 1024


def in_fewer_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in the same order; small batches that follow one another are joined."""
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    for batch in batches:
        held.append(batch)
        rows, held_bytes = rows + batch.num_rows, held_bytes + batch.nbytes
        if rows >= ENOUGH_ROWS or held_bytes >= ENOUGH_BYTES:
            yield from _joined(held)
            held, rows, held_bytes = [], 0, 0
    yield from _joined(held)


def _joined(held: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return held if len(held) < 2 else pa.Table.from_batches(held).combine_chunks().to_batches()
