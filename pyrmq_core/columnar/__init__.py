"""Messages as Arrow columns (extra `arrow`): `encoding` makes payloads of rows, `decoding` record batches of pulls.

`arrays` joins Arrow's arrays with NumPy's vectors for both. The results equal the results of
`protocol/messages/payload.py` for each message alone.
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

# Loaded at first use: a reading process needs no encoding, and a planning process only the columns' names.
_LAZY: Final = {
    "DEFAULT_COLUMNS": "pyrmq_core.columnar.decoding.columns",
    "SOURCE_COLUMNS": "pyrmq_core.columnar.decoding.columns",
    "BatchLimit": "pyrmq_core.columnar.encoding.encode",
    "CheckedRows": "pyrmq_core.columnar.encoding.sink_rows",
    "CompressionType": "pyrmq_core.protocol.messages.compression",
    "DecodedBatch": "pyrmq_core.columnar.decoding.columns",
    "Fault": "pyrmq_core.columnar.encoding.validate",
    "Ids": "pyrmq_core.columnar.encoding.row_parts",
    "SinkRows": "pyrmq_core.columnar.encoding.sink_rows",
    "batches_of": "pyrmq_core.columnar.encoding.sink_rows",
    "by_queue": "pyrmq_core.columnar.encoding.group_by",
    "by_tag": "pyrmq_core.columnar.encoding.group_by",
    "by_topic": "pyrmq_core.columnar.encoding.group_by",
    "check": "pyrmq_core.columnar.encoding.validate",
    "check_columns": "pyrmq_core.columnar.encoding.sink_rows",
    "check_pattern": "pyrmq_core.columnar.decoding.body_matches",
    "compresses": "pyrmq_core.columnar.encoding.encode",
    "content_ids": "pyrmq_core.columnar.encoding.content_ids",
    "decode_batches": "pyrmq_core.columnar.decoding.decode",
    "decode_records": "pyrmq_core.columnar.decoding.decode",
    "encode_batches": "pyrmq_core.columnar.encoding.encode",
    "encode_rows": "pyrmq_core.columnar.encoding.encode",
    "encoded": "pyrmq_core.columnar.arrays",
    "first_fault": "pyrmq_core.columnar.encoding.validate",
    "offsets_containing": "pyrmq_core.columnar.decoding.body_matches",
    "offsets_matching": "pyrmq_core.columnar.decoding.body_matches",
    "outgoing_parts": "pyrmq_core.columnar.encoding.sink_rows",
    "parts_to_match": "pyrmq_core.columnar.decoding.body_matches",
    "schema_of": "pyrmq_core.columnar.decoding.columns",
    "string_hash_codes": "pyrmq_core.columnar.encoding.group_by",
}

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept any name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
