"""Damaged and invented records: by columns and by messages the verdict is the same, and the rows are."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pyrmq_core import RawPull, TagFilter
from pyrmq_core.columnar import SOURCE_COLUMNS, schema_of
from pyrmq_core.columnar.decoding import records as columns_of_records
from pyrmq_core.columnar.decoding.decode import ALL_TAGS
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.errors import DataLost, RecordError
from pyrmq_core.model import EVERYTHING, MessageQueue, OffsetRange, PullStatus
from pyrmq_core.protocol.messages.batch import BatchItem
from pyrmq_core.protocol.messages.bodies import AS_STORED, BodyRules
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.record import FIXED_V4, SYS_FLAG_POSITION, encode_record
from tests.columnar.by_row import decode_columns
from tests.columnar.stored import Broker, batch_record, pull, record
from tests.support import golden

pytestmark = pytest.mark.usefixtures("each_decoder")

SCHEMAS = [
    schema_of(list(SOURCE_COLUMNS)),
    schema_of(),
    schema_of(["queueOffset", "body"]),
    schema_of(["queueOffset", "keys"]),
]
FILTERS = [ALL_TAGS, TagFilter.parse("TagA"), TagFilter.parse("TagA || tag1")]
INT = struct.Struct(">i")
# Fields of a record's head that decide how it is read, by their place: size, magic, CRC, offset, sysFlag, body's size.
DECIDING = (0, 4, 8, 20, 24, SYS_FLAG_POSITION, FIXED_V4.size - INT.size)
REFUSED = "refused"

Verdict = str | list[pa.RecordBatch]


def verdicts(
    pulls: list[RawPull],
    columns: pa.Schema,
    within: OffsetRange = EVERYTHING,
    tags: TagFilter = ALL_TAGS,
    rules: BodyRules = BodyRules(),  # noqa: B008 - a frozen value
) -> tuple[Verdict, Verdict]:
    """Returns the rows by columns and by messages, or their refusal; no other error is raised."""
    rules = rules if "body" in columns.names else AS_STORED
    outcomes: list[Verdict] = []
    for way in (decode_columns, decode_messages):
        try:
            outcomes.append([batch for batch, _ in way(pulls, columns, within, tags, rules)])
        except (Unreadable, RecordError, DataLost):
            outcomes.append(REFUSED)
    return outcomes[0], outcomes[1]


def damaged(chance: random.Random, pulls: list[RawPull]) -> list[RawPull]:
    """Damages one of the pulls.

    Changes some bytes, mostly in fields that decide, or cuts it, or joins it with itself.
    """
    number = chance.randrange(len(pulls))
    records = bytearray(pulls[number].records)
    starts = [0]
    while records and 0 < (size := INT.unpack_from(records, starts[-1])[0]) < len(records) - starts[-1]:
        starts.append(starts[-1] + size)
    for _ in range(chance.randrange(1, 4) if records else 0):
        value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        if chance.random() < 0.5:
            place = chance.choice(starts) + chance.choice(DECIDING) + chance.randrange(INT.size)
        else:
            place = chance.randrange(len(records))
        records[min(place, len(records) - 1)] = value
    if chance.random() < 0.1:
        del records[chance.randrange(len(records) + 1) :]
    if chance.random() < 0.05:
        records += bytes(records)
    changed = replace(pulls[number], records=bytes(records), is_unfiltered=chance.random() < 0.5)
    return [*pulls[:number], changed, *pulls[number + 1 :]]


def drawn(chance: random.Random) -> list[RawPull]:
    """Pulls as a broker answers them, real ones of Apache's brokers among them."""
    if chance.random() < 0.3:
        real = chance.choice(golden.load("real_pull_records.json"))
        queue, end = MessageQueue("T", "broker-a", 0), int(real["ext"]["nextBeginOffset"])
        return [RawPull(queue, 0, end, 0, end, PullStatus.FOUND, bytes.fromhex(real["body"]))]
    return Broker(chance.randrange(500), torn=0.02, strange=0.15).pulls(2, 12)


def uniform(chance: random.Random) -> list[RawPull]:
    """Returns records of one layout, whose keys may have any size."""
    sizes = chance.choice(((3,), (1, 9)))
    text = "UNIQ_KEY\x01ID{0:04}\x02KEYS\x01{1}\x02TAGS\x01Tag{2}\x02"
    body_bytes = chance.choice((8, 30, 200))
    return [
        pull(
            first,
            *(
                record(
                    offset,
                    chance.randbytes(body_bytes),
                    properties=text.format(offset, "k" * chance.choice(sizes), chance.choice("AB")),
                )
                for offset in range(first, first + 12)
            ),
        )
        for first in (0, 12)
    ]


def are_apart(pulls: list[RawPull]) -> bool:
    """Returns whether each offset belongs to one pull, as in a read.

    Where two have it, columns find in the second what the first lacks.
    """
    return all(left.next_offset <= right.start for left, right in pairwise(pulls))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("long", [False, True], ids=["short bodies", "long bodies"])
def test_damaged_records_have_one_verdict(seed: int, *, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies are read as short ones, which all of them are, or as long ones."""
    if long:
        monkeypatch.setattr(columns_of_records, "SHORT_BODY_BYTES", 0)
    chance = random.Random(seed)
    refused = 0
    for _ in range(250):
        pulls = damaged(chance, (drawn if chance.random() < 0.5 else uniform)(chance))
        if not are_apart(pulls):
            continue
        rules = BodyRules(chance.random() < 0.5, chance.random() < 0.3, chance.choice((40, 2**20)))
        within = chance.choice((EVERYTHING, EVERYTHING, OffsetRange(1, 10), OffsetRange(5, 7)))
        by_columns, by_messages = verdicts(pulls, chance.choice(SCHEMAS), within, chance.choice(FILTERS), rules)
        assert by_columns == by_messages
        refused += by_columns == REFUSED
    assert 20 < refused < 230  # neither all nothing nor all fine


@given(seed=st.integers(0, 10**9))
def test_damaged_records_of_any_seed_have_one_verdict(seed: int) -> None:
    chance = random.Random(seed)
    pulls = damaged(chance, drawn(chance))
    assume(are_apart(pulls))
    by_columns, by_messages = verdicts(pulls, chance.choice(SCHEMAS), tags=chance.choice(FILTERS))
    assert by_columns == by_messages


@pytest.mark.parametrize("columns", SCHEMAS[:2])
def test_a_body_that_cannot_be_undone_is_refused_though_another_tag_is_wanted(columns: pa.Schema) -> None:
    """Java's client does the same: it decodes a message before it compares tags (PullAPIWrapper.processPullResult)."""
    good, zlib = record(0, compress(b"x" * 99, CompressionType.ZLIB), sys_flag=769), CompressionType.ZLIB.sys_flag
    pulls = [pull(0, good, record(1, b"no zlib", sys_flag=zlib))]
    assert verdicts(pulls, columns, tags=TagFilter.parse("tag0")) == (REFUSED, REFUSED)


@pytest.mark.parametrize("columns", SCHEMAS)
def test_the_crc_counts_where_the_body_is_asked_for(columns: pa.Schema) -> None:
    flipped = bytearray(record(0, b"body"))
    flipped[flipped.index(b"body")] ^= 1
    by_columns, by_messages = verdicts([pull(0, bytes(flipped), record(1))], columns)
    assert (by_columns == REFUSED) == ("body" in columns.names)
    assert by_columns == by_messages


def test_a_crc_of_an_empty_body_is_not_looked_at() -> None:
    empty = bytearray(record(0, b""))
    INT.pack_into(empty, 8, 12345)
    by_columns, by_messages = verdicts([pull(0, bytes(empty))], SCHEMAS[0])
    assert by_columns == by_messages != REFUSED


def test_a_crc_with_its_top_bit_set_is_none() -> None:
    high = bytearray(record(0, b"body"))
    high[8] |= 0x80
    assert verdicts([pull(0, bytes(high))], SCHEMAS[0]) == (REFUSED, REFUSED)


def test_what_real_brokers_stored_passes() -> None:
    for real in golden.load("real_pull_records.json"):
        end = int(real["ext"]["nextBeginOffset"])
        whole = RawPull(
            MessageQueue("T", "broker-a", 0), 0, end, 0, end, PullStatus.FOUND, bytes.fromhex(real["body"]), None, True
        )
        by_columns, by_messages = verdicts([whole], SCHEMAS[0])
        assert by_columns == by_messages != REFUSED
        assert sum(batch.num_rows for batch in by_columns if isinstance(batch, pa.RecordBatch)) == end


def test_offsets_left_out_twice_or_out_of_order_are_refused_in_both() -> None:
    def whole(*offsets: int) -> list[RawPull]:
        return [replace(pull(0, *(record(offset) for offset in offsets), count=3), is_unfiltered=True)]

    assert REFUSED not in verdicts(whole(0, 1, 2), SCHEMAS[0])
    for offsets in ((0, 2), (1, 2), (0, 1), (), (0, 1, 1, 2), (0, 2, 1), (0, 0, 2), (0, 1, 5)):
        assert verdicts(whole(*offsets), SCHEMAS[0]) == (REFUSED, REFUSED), offsets


@pytest.mark.parametrize(("topic", "is_read"), [("T", True), ("%RETRY%g", False), ("%DLQ%g", False)])
def test_a_batch_counts_as_no_message_of_a_group(topic: str, is_read: bool) -> None:
    """Also one alone, which would pass for its first message."""
    whole = batch_record(0, BatchItem(0, b"a", b""), BatchItem(0, b"b", b""))
    of_topic = pull(0, whole, count=1 if topic != "T" else 2, queue=MessageQueue(topic, "broker-a", 0))
    assert (REFUSED not in verdicts([of_topic], SCHEMAS[0])) is is_read
    assert len(set(map(str, verdicts([of_topic], SCHEMAS[0])))) == 1


def test_a_topic_of_both_versions_has_one_verdict_for_each_length() -> None:
    """Lengths are signed: a byte in the one version, a short in the other."""
    for topic_bytes in (1, 127, 128, 255, 300):
        whole = encode_record(
            topic="t" * topic_bytes,
            queue_id=0,
            queue_offset=0,
            commit_log_offset=0,
            body=b"b",
            properties="",
            born_timestamp_ms=0,
            born_host="10.0.0.1:1",
            store_timestamp_ms=0,
            store_host="10.0.0.1:1",
        )
        for place in range(FIXED_V4.size, FIXED_V4.size + 4):
            for value in (0x00, 0x7F, 0x80, 0xFF):
                changed = whole[:place] + bytes([value]) + whole[place + 1 :]
                by_columns, by_messages = verdicts([pull(0, changed)], SCHEMAS[0], rules=BodyRules(verify_crc=False))
                assert by_columns == by_messages
