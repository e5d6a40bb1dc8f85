"""Compares rows that are made by columns with those that are made message by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from pyrmq_core import OffsetRange, RawPull, TagFilter
from pyrmq_core.columnar import SOURCE_COLUMNS, DecodedBatch, schema_of
from pyrmq_core.columnar.decoding import decode
from pyrmq_core.columnar.decoding.compiled import decode_compiled
from pyrmq_core.columnar.decoding.decode import ALL_TAGS
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.bodies import BodyRules

EVERY_COLUMN = schema_of(list(SOURCE_COLUMNS))


def decode_columns(
    pulls: Sequence[RawPull],
    columns: pa.Schema,
    within: OffsetRange,
    tags: TagFilter,
    rules: BodyRules,
    *,
    allow_gaps: bool = False,
) -> Iterator[DecodedBatch]:
    """Yields the batches of the decoder by columns that the fixture `each_decoder` chose, as `decode_batches` does."""
    if (batch := decode_compiled(pulls, columns, within, tags, rules)) is not None:
        yield DecodedBatch(batch)
        return
    yield from decode.decode_columns(pulls, columns, within, tags, rules, allow_gaps=allow_gaps)


def check_same(
    pulls: list[RawPull],
    within: OffsetRange = EVERYTHING,
    tags: TagFilter = ALL_TAGS,
    rules: BodyRules = BodyRules(),  # noqa: B008 - a frozen value
) -> int:
    """Compares all columns, and the default ones, with those that are made message by message; returns the rows."""
    for columns in (schema_of(), EVERY_COLUMN):
        batches = [decoded.batch for decoded in decode_columns(pulls, columns, within, tags, rules)]
        expected = [decoded.batch for decoded in decode_messages(pulls, columns, within, tags, rules)]
        assert batches == expected
        for batch in batches:
            batch.validate(full=True)
    return sum(batch.num_rows for batch in batches)
