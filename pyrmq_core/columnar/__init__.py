"""Messages as Arrow columns, both ways: rows to the payloads of requests, pulls to record batches (extra `arrow`).

What comes out is what `protocol/payload.py` makes of the same messages one by one.
"""

from pyrmq_core.columnar.columns import DEFAULT_COLUMNS, SOURCE_COLUMNS, schema_of
from pyrmq_core.columnar.cutting import BatchLimit
from pyrmq_core.columnar.decode import decode_records
from pyrmq_core.columnar.encode import compresses, encode_batches
from pyrmq_core.columnar.faults import Fault, first_fault
from pyrmq_core.columnar.grouping import by_queue, by_tag, by_topic, string_hash_codes
from pyrmq_core.columnar.ids_of_content import content_ids
from pyrmq_core.columnar.outgoing import check_columns
from pyrmq_core.columnar.unique_ids import Ids
from pyrmq_core.protocol.compression import CompressionType

__all__ = [
    "DEFAULT_COLUMNS",
    "SOURCE_COLUMNS",
    "BatchLimit",
    "CompressionType",
    "Fault",
    "Ids",
    "by_queue",
    "by_tag",
    "by_topic",
    "check_columns",
    "compresses",
    "content_ids",
    "decode_records",
    "encode_batches",
    "first_fault",
    "schema_of",
    "string_hash_codes",
]
