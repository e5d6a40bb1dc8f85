"""Records of one size: the rows are those of the path by message, and so is the verdict on a changed byte."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyrmq_core import OffsetRange, RawPull, TagFilter
from pyrmq_core.columnar.decoding import decompression
from pyrmq_core.columnar.decoding.decode import ALL_TAGS
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.columnar.decoding.records import read_rows
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.batch import BatchItem
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.record import FIXED_V4, SYS_FLAG_POSITION
from tests.columnar.by_row import EVERY_COLUMN, check_same, decode_columns
from tests.columnar.stored import QUEUES, batch_record, pull, record

pytestmark = pytest.mark.usefixtures("each_decoder")

ROWS = 40
PROPERTIES = "UNIQ_KEY\x01ID{0:04}\x02KEYS\x01k{0:03}\x02TAGS\x01Tag{1}\x02größe\x01ä{0:02}\x02"


def equal_record(offset: int, **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "body": f"body {offset:05}".encode(),
        "properties": PROPERTIES.format(offset, "AB"[offset % 2]),
        "born_timestamp_ms": 1_700_000_000_000 + 7 * offset,
        "born_host": f"10.0.0.{offset % 3}:5000",
        "flag": offset,
    }
    return record(offset, **values | fields)


def equal_pulls(**fields: Any) -> list[RawPull]:
    """Returns pulls of several lengths, one of them without records."""
    records = [equal_record(offset, **fields) for offset in range(ROWS)]
    return [
        pull(0, *records[:7]),
        pull(7, count=0),
        pull(7, *records[7:30]),
        pull(30, *records[30:], queue=QUEUES[1]),
    ]


@pytest.mark.parametrize(
    "fields",
    [{}, {"body": b""}, {"topic": "t" * 127}, {"topic": "t" * 128}, {"topic": "ü" * 90}, {"properties": ""}],
    ids=["plain", "empty bodies", "longest short topic", "long topic", "topic of letters", "no properties"],
)
def test_equal_records_have_the_rows_of_the_plain_path(fields: dict[str, Any]) -> None:
    pulls = equal_pulls(**fields)
    assert check_same(pulls) == ROWS
    assert check_same(pulls, rules=BodyRules(verify_crc=False)) == ROWS


@pytest.mark.parametrize("fields", [{"born_host": "[::1]:5"}, {"store_host": "[::1]:5"}])
def test_records_of_ipv6_have_other_places(fields: dict[str, Any]) -> None:
    assert check_same(equal_pulls(**fields)) == ROWS


@pytest.mark.parametrize("row", [0, 1, ROWS - 1])
def test_topics_of_one_length_are_each_read(row: int) -> None:
    pulls = [pull(0, *(equal_record(offset, topic="other" if offset == row else "topic") for offset in range(ROWS)))]
    assert check_same(pulls) == ROWS


def test_messages_of_several_brokers_each_have_the_name_of_theirs() -> None:
    pulls = [
        replace(raw_pull, queue=replace(raw_pull.queue, broker_name=f"broker-{number}"))
        for number, raw_pull in enumerate(equal_pulls())
    ]
    assert check_same(pulls) == ROWS


@pytest.mark.parametrize("within", [OffsetRange(-(2**70), 2**70), OffsetRange(3, 2**64)])
def test_a_range_may_be_wider_than_offsets_are(within: OffsetRange) -> None:
    assert check_same(equal_pulls(), within) == ROWS - max(0, within.start)


def test_a_record_that_begins_in_one_pull_and_ends_in_the_next_is_refused() -> None:
    first, second = pull(0, *map(equal_record, range(30))), pull(30, *map(equal_record, range(30, ROWS)))
    cut = bytes(first.records)[:-5]
    pulls = [replace(first, records=cut), replace(second, records=bytes(first.records)[-5:] + bytes(second.records))]
    with pytest.raises(Unreadable):
        list(decode_columns(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, BodyRules()))


def test_equal_batch_records_are_unwrapped() -> None:
    items = [BatchItem(0, b"body %d" % number, b"TAGS\x01t%d\x02" % number) for number in range(4)]
    pulls = [pull(first, batch_record(first, *items), count=4) for first in range(0, ROWS, 4)]
    assert check_same(pulls) == ROWS
    assert check_same(pulls, OffsetRange(2, 9)) == 7


@pytest.mark.parametrize("plain", [{0}, {4}, {9}, {0, 9}, {3, 4, 5}])
def test_plain_records_among_batch_records_keep_their_places(plain: set[int]) -> None:
    parts, first = [], 0
    for number in range(10):
        items = [
            BatchItem(7 * place, b"body %d of %d" % (place, number), b"KEYS\x01k%d\x02" % place) for place in range(9)
        ]
        data, count = (equal_record(first), 1) if number in plain else (batch_record(first, *items), len(items))
        parts.append(pull(first, data, count=count))
        first += count
    assert check_same(parts) == first
    assert check_same([replace(pull(0, count=first), records=b"".join(bytes(part.records) for part in parts))]) == first


def test_a_range_and_tags_choose_among_the_records() -> None:
    pulls = equal_pulls()
    assert check_same(pulls, OffsetRange(5, 25)) == 20
    assert check_same(pulls, tags=TagFilter.parse("TagA")) == ROWS // 2
    assert check_same(pulls, OffsetRange(50, 60)) == 0


@pytest.mark.parametrize("seed", range(60))
def test_one_changed_byte_of_a_head_or_length_has_one_verdict(seed: int) -> None:
    """Each byte that decides where parts lie is changed, in a record of each kind of place."""
    chance = random.Random(seed)
    plain = equal_record(0)
    size, body_end = len(plain), FIXED_V4.size + 10
    topic_end = body_end + 1 + len("orders")
    places = [*range(8), *range(SYS_FLAG_POSITION, SYS_FLAG_POSITION + 4), *range(FIXED_V4.size - 4, FIXED_V4.size)]
    for place in (*places, body_end, topic_end, topic_end + 1):
        pulls = equal_pulls()
        changed = bytearray(pulls[2].records)
        changed[chance.choice((0, 1, 22)) * size + place] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
        pulls[2] = replace(pulls[2], records=bytes(changed))
        verdicts: list[object] = []
        for way in (decode_columns, decode_messages):
            try:
                verdicts.append([batch for batch, _ in way(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, BodyRules())])
            except Exception:
                verdicts.append("refused")
        assert verdicts[0] == verdicts[1], place


def test_compressed_bodies_are_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, too, of which each has its bodies elsewhere than its records."""
    plain = [bytes([65 + offset]) * 3000 for offset in range(ROWS)]
    bodies = [compress(body, CompressionType.ZLIB) for body in plain]
    flag = CompressionType.ZLIB.sys_flag
    pulls = [pull(0, *(equal_record(offset, body=body, sys_flag=flag) for offset, body in enumerate(bodies)))]
    assert len({len(body) for body in bodies}) == 1
    assert check_same(pulls) == ROWS
    monkeypatch.setattr(decompression, "PART_BYTES", 20_000)
    parts = [batch for batch, _ in decode_columns(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, BodyRules())]
    assert len(parts) > 3
    assert [body for part in parts for body in part.column("body").to_pylist()] == plain


def test_a_wrong_crc_among_others_is_refused() -> None:
    pulls = equal_pulls()
    records = bytearray(pulls[2].records)
    struct.pack_into(">i", records, 8, 5)
    pulls[2] = replace(pulls[2], records=bytes(records))
    for decoded in decode_columns(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, BodyRules(verify_crc=False)):
        assert decoded.batch.num_rows == ROWS
    with pytest.raises(Unreadable):
        list(decode_columns(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, BodyRules()))


def test_chosen_rows_may_repeat() -> None:
    rows = read_rows(equal_pulls(), EVERYTHING).at(np.array([3, 1, 1]))
    assert [text.as_py() for text in rows.spans(rows.body)] == [b"body 00003", b"body 00001", b"body 00001"]
