"""Searches message bodies for bytes or a regular expression, a column at a time.

The batches have the columns `queueOffset` and `body`, as bytes. Regular expressions are those of RE2, which is part of
Arrow. Its time grows linearly with the body, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.shown_values import shown

# A pattern is searched in this many bytes of a body, and in this many bytes of bodies at once. The slowest pattern
# takes 2.5 s for them.
MATCHED_BYTES: Final = 64 * 1024
# RE2's error repeats the faulty part of a pattern, which may be long.
MAX_REASON_CHARS: Final = 100


def offsets_containing(batch: pa.RecordBatch, needle: bytes) -> list[int]:
    """Returns the offsets of the messages whose body contains the bytes `needle`."""
    return _offsets(batch, pc.match_substring(batch.column("body"), needle))


def check_pattern(pattern: str) -> None:
    """Raises `InvalidArgument` for a regular expression that RE2 cannot parse."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ")[:MAX_REASON_CHARS]
        raise InvalidArgument(f"{shown(pattern)} is no regular expression of RE2: {reason}") from None


def parts_to_match(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields slices of the batch for `offsets_matching`, each with at most 64 KiB of bodies, or one larger body."""
    ends = np.minimum(pc.binary_length(batch.column("body")).to_numpy(zero_copy_only=False), MATCHED_BYTES).cumsum()
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + MATCHED_BYTES, side="right")))
        yield batch.slice(start, end - start)
        start = end


def offsets_matching(part: pa.RecordBatch, pattern: str) -> list[int]:
    """Returns the offsets of the messages whose body matches `pattern` in its first 64 KiB.

    Bytes that are not UTF-8 match nothing.
    """
    begins = pc.binary_slice(part.column("body"), 0, MATCHED_BYTES)
    return _offsets(part, pc.match_substring_regex(begins.view(pa.string()), pattern))


def matches_pattern(body: bytes, pattern: str) -> bool:
    """Returns whether a body has a match of the regular expression `pattern` in its first 64 KiB."""
    begin = pa.array([body[:MATCHED_BYTES]], pa.binary()).view(pa.string())
    matches: bool = pc.match_substring_regex(begin, pattern)[0].as_py()
    return matches


def _offsets(batch: pa.RecordBatch, matching: pa.Array) -> list[int]:
    offsets: list[int] = batch.column("queueOffset").filter(matching).to_pylist()
    return offsets
