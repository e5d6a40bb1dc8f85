"""Rows for a batch topic: requests of one tag each, nothing compressed."""

import pyarrow as pa
import pytest

from pyrmq_core.columnar import BatchLimit, by_tag, encode_batches
from pyrmq_core.columnar.encoding.encode import BREAK_EVEN_ROWS
from pyrmq_core.protocol.messages.batch_topic import can_be_one_record, record_properties
from pyrmq_core.protocol.messages.compression import CompressionType
from pyrmq_core.protocol.messages.properties import decode_properties


def ids(count: int) -> list[str]:
    return [f"ID{number}" for number in range(count)]


@pytest.mark.parametrize("count", [BREAK_EVEN_ROWS - 1, 300])
def test_requests_to_a_batch_topic_are_of_one_tag_and_plain(count: int) -> None:
    """Requests equal those of `send_batch` with the same messages: no body compressed, and each may be one record."""
    tags = ["a", None, "b"]
    rows = pa.record_batch(
        {"body": [b"x" * 5000] * count, "tags": pa.array([tags[number % 3] for number in range(count)], pa.string())}
    )
    limit = BatchLimit(bytes=4 << 20, compression=CompressionType.ZLIB)
    for part in by_tag(rows):
        for payload in encode_batches(part, "orders", ids, limit.of_batch_topic(), single_tag=True):
            assert can_be_one_record(payload)
            tag = part.column("tags")[0].as_py()
            assert decode_properties(record_properties(payload, "R")).get("TAGS") == tag


def test_one_record_takes_as_many_messages_as_its_count_can_tell() -> None:
    rows = pa.record_batch({"body": [b"x"] * 40_000})
    payloads = list(encode_batches(rows, "orders", ids, BatchLimit(bytes=4 << 20).of_batch_topic(), single_tag=True))
    assert [payload.count for payload in payloads] == [32_767, 7_233]
    assert all(map(can_be_one_record, payloads))
