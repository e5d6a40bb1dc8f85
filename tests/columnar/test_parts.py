"""Bodies that swell when they are decompressed: returned in parts, within a bounded memory, or refused by name."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pytest

from pyrmq_core import OffsetRange, TagFilter, decode
from pyrmq_core.columnar import decode_batches, decode_records, schema_of
from pyrmq_core.columnar.decoding import decompression
from pyrmq_core.columnar.decoding.decode import BREAK_EVEN_MESSAGES
from pyrmq_core.errors import BodyDamaged, BodyTooLarge, InvalidArgument, RecordError
from pyrmq_core.protocol.messages import bodies, payload
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from tests.columnar.stored import pull, record

pytestmark = pytest.mark.usefixtures("each_decoder")

COLUMNS = schema_of(["queueOffset", "body", "tags"])
KIB = 1024
# By messages, and by columns.
COUNTS = [10, 2 * BREAK_EVEN_MESSAGES]


def packed(offset: int, size: int, kind: CompressionType = CompressionType.ZLIB) -> bytes:
    body = offset.to_bytes(4, "big") + bytes(size - 4)
    return record(offset, compress(body, kind), sys_flag=kind.sys_flag)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lowers the size of a part to 64 KiB."""
    monkeypatch.setattr(decompression, "PART_BYTES", 64 * KIB)
    monkeypatch.setattr("pyrmq_core.columnar.decoding.decode_by_row.PART_BYTES", 64 * KIB)
    return 64 * KIB


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("count", COUNTS)
def test_every_message_comes_once_in_parts_that_are_bounded(
    small_parts: int, count: int, kind: CompressionType
) -> None:
    records = [packed(n, 20 * KIB, kind) if n % 3 else record(n, b"plain") for n in range(count)]
    records[5] = packed(5, 200 * KIB, kind)  # alone above the bound
    pulls = [pull(0, *records[:7]), pull(7, *records[7:])]
    offsets: list[int] = []
    for batch, rest in decode_batches(pulls, COLUMNS):
        batch.validate(full=True)
        compressed = [len(body) for body in batch.column("body").to_pylist() if len(body) > 5]
        assert len(compressed) == 1 or sum(compressed) <= small_parts
        offsets += batch.column("queueOffset").to_pylist()
        assert (rest[0].start if rest else count) == len(offsets)
    assert offsets == list(range(count))
    whole = decode_records(pulls, COLUMNS)
    assert whole.column("body").to_pylist() == [message.body for raw_pull in pulls for message in decode(raw_pull)]


@pytest.mark.parametrize("count", COUNTS)
def test_bodies_that_are_not_requested_stay_compressed(small_parts: int, count: int) -> None:
    """Bodies that are decompressed make parts; the stored ones all fit into one."""
    pulls = [pull(0, *(packed(n, 30 * KIB) for n in range(count)))]
    (part,) = decode_batches(pulls, schema_of(["queueOffset", "tags"]))
    assert part.batch.column("queueOffset").to_pylist() == list(range(count))


@pytest.mark.parametrize("count", COUNTS)
def test_filters_and_ranges_hold_in_every_part(small_parts: int, count: int) -> None:
    pulls = [pull(0, *(packed(n, 30 * KIB) for n in range(count)))]
    parts = list(decode_batches(pulls, COLUMNS, OffsetRange(3, count - 2), tags=TagFilter.parse("tag1")))
    offsets = [offset for part in parts for offset in part.batch.column("queueOffset").to_pylist()]
    assert offsets == [n for n in range(3, count - 2) if n % 2]


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_wrong_behind_the_first_parts_is_reported_after_them(small_parts: int, count: int) -> None:
    """The plain path, which raises the error, does not repeat the rows before it."""
    bad = record(8, b"no zlib", sys_flag=CompressionType.ZLIB.sys_flag)
    pulls = [pull(0, *(packed(n, 30 * KIB) if n != 8 else bad for n in range(count)))]
    offsets: list[int] = []

    def read() -> None:
        for batch, _ in decode_batches(pulls, COLUMNS):
            offsets.extend(batch.column("queueOffset").to_pylist())

    with pytest.raises(RecordError, match="the message at offset 8: a body is marked as zlib"):
        read()
    assert offsets == list(range(len(offsets)))
    assert 6 <= len(offsets) <= 8


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("count", COUNTS)
def test_one_body_above_the_bound_is_named_and_can_be_passed(count: int, kind: CompressionType) -> None:
    pulls = [pull(0, *(packed(n, 300 * KIB if n == 4 else KIB, kind) for n in range(count)))]
    with pytest.raises(BodyTooLarge, match=r"message at offset 4 of orders/broker-a/3.*max_body_bytes") as caught:
        decode_records(pulls, COLUMNS, max_body_bytes=200 * KIB)
    assert (caught.value.offset, caught.value.max_bytes) == (4, 200 * KIB)
    with pytest.raises(BodyTooLarge):
        decode(pulls[0], max_body_bytes=200 * KIB)
    assert decode_records(pulls, COLUMNS, max_body_bytes=300 * KIB).num_rows == count
    assert decode_records(pulls, COLUMNS, OffsetRange(5, count), max_body_bytes=200 * KIB).num_rows == count - 5
    kept = decode_records(pulls, COLUMNS, max_body_bytes=200 * KIB, keep_undecodable=True).column("body")[4].as_py()
    assert len(kept) < 2 * KIB
    assert decode_records(pulls, schema_of(["queueOffset"]), max_body_bytes=200 * KIB).num_rows == count


@pytest.mark.parametrize("wrong", [0, -1, 2**31])
def test_a_bound_that_cannot_be_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidArgument, match="max_body_bytes"):
        decode(pull(0, record(0)), max_body_bytes=wrong)


@pytest.mark.parametrize("count", [20, COUNTS[1]])
def test_what_swells_together_beyond_all_bounds_is_named(
    small_parts: int, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for room in (bodies, payload):
        monkeypatch.setattr(room, "MAX_DECOMPRESSED_BYTES", 250 * KIB)
    monkeypatch.setattr("pyrmq_core.columnar.decoding.decode.MAX_DECOMPRESSED_BYTES", 250 * KIB)
    pulls = [pull(0, *(packed(n, 30 * KIB) for n in range(count)))]
    with pytest.raises(BodyTooLarge, match="up to offset 8, then from there"):
        decode(pulls[0])
    assert len(decode(pulls[0], OffsetRange(0, 8))) == 8
    with pytest.raises(BodyTooLarge):
        decode_records(pulls, COLUMNS)
    assert sum(batch.num_rows for batch, _ in decode_batches(pulls, COLUMNS)) == count
    record_of_many = record(
        0,
        compress(encode_batch_body([BatchItem(0, bytes(30 * KIB), b"")]), CompressionType.ZLIB),
        sys_flag=CompressionType.ZLIB.sys_flag | BATCH_RECORD,
    )
    with pytest.raises(BodyTooLarge):  # no broker keeps compressed batches, but one that lies may send many
        decode(pull(0, *[record_of_many] * count))


@pytest.mark.parametrize("count", COUNTS)
def test_a_body_that_changed_is_named(count: int) -> None:
    records = [record(n, b"body of %d" % n) for n in range(count)]
    records[3] = records[3].replace(b"body of 3", b"body of 2")
    damaged = replace(pull(0, *records), address="10.0.0.9:10911")
    for read in (lambda: decode(damaged), lambda: decode_records([damaged], COLUMNS)):
        with pytest.raises(
            BodyDamaged, match=r"offset 3 of orders/broker-a/3.*broker-a \(10\.0\.0\.9:10911\).*verify_crc=False"
        ) as caught:
            read()
        assert (caught.value.offset, caught.value.address) == (3, "10.0.0.9:10911")
    assert decode(damaged, verify_crc=False)[3].body == b"body of 2"
    assert decode_records([damaged], COLUMNS, verify_crc=False).num_rows == count
    assert decode_records([damaged], schema_of(["queueOffset"])).num_rows == count


def test_a_batch_record_that_changed_is_named_whole() -> None:
    items = encode_batch_body([BatchItem(0, b"b%d" % n, b"") for n in range(100)])
    whole = record(0, items, sys_flag=BATCH_RECORD, properties="")
    for read in (lambda raw_pull: decode(raw_pull), lambda raw_pull: decode_records([raw_pull], COLUMNS)):
        with pytest.raises(BodyDamaged, match="offset 0 of"):
            read(pull(0, whole.replace(b"b42", b"b43"), count=100))
    assert decode_records([pull(0, whole, count=100)], COLUMNS).num_rows == 100


MEASURED = """
import resource, sys
from pyrmq_core.columnar import decode_batches, schema_of
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from tests.columnar.stored import pull, record

count, kind = int(sys.argv[1]), CompressionType[sys.argv[2]]
body = compress(bytes(12 * 2**20), kind)
pulls = [pull(0, *(record(n, body, sys_flag=kind.sys_flag) for n in range(count)))]
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
sum(part.batch.num_rows for part in decode_batches([pull(0, record(0))], schema_of(["body"])))
before = most()
assert sum(part.batch.num_rows for part in decode_batches(pulls, schema_of(["body"]))) == count
print(most() - before)
"""


@pytest.mark.parametrize("kind", ["ZSTD", "LZ4", "ZLIB"])
@pytest.mark.parametrize("count", [24, pytest.param(80, marks=pytest.mark.soak)])
def test_memory_is_bounded_however_much_there_is(count: int, kind: str) -> None:
    """24 bodies of 12 MiB are 288 MiB, 80 are 960: never more than some parts of 32 MiB are in memory at once."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(count), kind], capture_output=True, text=True, timeout=300, check=True
    )
    assert int(done.stdout) < 240, f"{done.stdout} MiB more"


def test_parts_of_nothing_are_one_empty_batch() -> None:
    ((batch, rest),) = decode_batches([], COLUMNS)
    assert (batch, rest) == (pa.RecordBatch.from_pylist([], schema=COLUMNS), ())
