"""Compares rows that are made by columns with those that are made message by message."""

from __future__ import annotations

from pyrmq_core import OffsetRange, RawPull, TagFilter
from pyrmq_core.columnar import SOURCE_COLUMNS, schema_of
from pyrmq_core.columnar.decoding.decode import ALL_TAGS, decode_columns
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.bodies import BodyRules

EVERY_COLUMN = schema_of(list(SOURCE_COLUMNS))


def check_same(
    pulls: list[RawPull],
    within: OffsetRange = EVERYTHING,
    tags: TagFilter = ALL_TAGS,
    rules: BodyRules = BodyRules(),  # noqa: B008 - a frozen value
) -> int:
    """Compares all columns with those that are made message by message; returns the rows."""
    batches = [decoded.batch for decoded in decode_columns(pulls, EVERY_COLUMN, within, tags, rules)]
    expected = [decoded.batch for decoded in decode_messages(pulls, EVERY_COLUMN, within, tags, rules)]
    assert batches == expected
    for batch in batches:
        batch.validate(full=True)
    return sum(batch.num_rows for batch in batches)
