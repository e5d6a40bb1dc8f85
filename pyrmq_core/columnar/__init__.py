"""Messages as Arrow columns (extra `arrow`).

`encoding` turns rows into the bodies of send requests. `decoding` turns the answers of pull requests into record
batches. `arrays` has functions over Arrow's arrays and NumPy's vectors for both. The results equal those of
`protocol/messages`, which handles one message at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_core.columnar.arrays import encoded
    from pyrmq_core.columnar.decoding.body_matches import (
        check_pattern,
        offsets_containing,
        offsets_matching,
        parts_to_match,
    )
    from pyrmq_core.columnar.decoding.columns import DEFAULT_COLUMNS, SOURCE_COLUMNS, DecodedBatch, schema_of
    from pyrmq_core.columnar.decoding.decode import decode_batches, decode_records
    from pyrmq_core.columnar.encoding.content_ids import content_ids
    from pyrmq_core.columnar.encoding.encode import BatchLimit, compresses, encode_batches, encode_rows
    from pyrmq_core.columnar.encoding.group_by import by_queue, by_tag, by_topic, string_hash_codes
    from pyrmq_core.columnar.encoding.row_parts import Ids
    from pyrmq_core.columnar.encoding.sink_rows import CheckedRows, SinkRows, batches_of, check_columns, outgoing_parts
    from pyrmq_core.columnar.encoding.validate import Fault, check, first_fault
    from pyrmq_core.protocol.messages.compression import CompressionType

__all__ = [
    "DEFAULT_COLUMNS",
    "SOURCE_COLUMNS",
    "BatchLimit",
    "CheckedRows",
    "CompressionType",
    "DecodedBatch",
    "Fault",
    "Ids",
    "SinkRows",
    "batches_of",
    "by_queue",
    "by_tag",
    "by_topic",
    "check",
    "check_columns",
    "check_pattern",
    "compresses",
    "content_ids",
    "decode_batches",
    "decode_records",
    "encode_batches",
    "encode_rows",
    "encoded",
    "first_fault",
    "offsets_containing",
    "offsets_matching",
    "outgoing_parts",
    "parts_to_match",
    "schema_of",
    "string_hash_codes",
]

# Loaded at first use: a process that reads needs no encoding, and a planner of reads needs only the columns' names.
_LAZY: Final = {
    "pyrmq_core.columnar.arrays": "encoded",
    "pyrmq_core.columnar.decoding.body_matches": "check_pattern offsets_containing offsets_matching parts_to_match",
    "pyrmq_core.columnar.decoding.columns": "DEFAULT_COLUMNS SOURCE_COLUMNS DecodedBatch schema_of",
    "pyrmq_core.columnar.decoding.decode": "decode_batches decode_records",
    "pyrmq_core.columnar.encoding.content_ids": "content_ids",
    "pyrmq_core.columnar.encoding.encode": "BatchLimit compresses encode_batches encode_rows",
    "pyrmq_core.columnar.encoding.group_by": "by_queue by_tag by_topic string_hash_codes",
    "pyrmq_core.columnar.encoding.row_parts": "Ids",
    "pyrmq_core.columnar.encoding.sink_rows": "CheckedRows SinkRows batches_of check_columns outgoing_parts",
    "pyrmq_core.columnar.encoding.validate": "Fault check first_fault",
    "pyrmq_core.protocol.messages.compression": "CompressionType",
}

if not TYPE_CHECKING:  # without this, a type checker would accept any attribute name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
