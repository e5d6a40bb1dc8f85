"""Batch records of all kinds: the rows are those of the path by message, and so is the verdict on damage."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from pyrmq_core import OffsetRange, RawPull, TagFilter
from pyrmq_core.columnar import decode_batches, schema_of
from pyrmq_core.columnar.decoding.decode import ALL_TAGS
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.columnar.decoding.records import read_rows
from pyrmq_core.errors import RocketMQError
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from tests.columnar.by_row import EVERY_COLUMN, check_same, decode_columns
from tests.columnar.stored import QUEUES, batch_record, pull, record

pytestmark = pytest.mark.usefixtures("each_decoder")

COUNTS = (7, 4, 9)
ROWS = sum(COUNTS)


def item(offset: int) -> BatchItem:
    properties = f"UNIQ_KEY\x01ID{offset:04}\x02TAGS\x01Tag{'AB'[offset % 2]}\x02"
    return BatchItem(7 * offset - 50, f"body {offset:03}".encode(), properties.encode())


def records(**fields: Any) -> list[bytes]:
    """Returns batch records of several lengths."""
    firsts = [sum(COUNTS[:number]) for number in range(len(COUNTS))]
    return [
        batch_record(
            first, *map(item, range(first, first + count)), born_timestamp_ms=1_700_000_000_000 + first, **fields
        )
        for first, count in zip(firsts, COUNTS, strict=True)
    ]


def pulls_of(parts: list[bytes]) -> list[RawPull]:
    """Returns a pull of two records, an empty one, and one of another queue."""
    return [
        pull(0, *parts[:2], count=COUNTS[0] + COUNTS[1]),
        pull(ROWS - COUNTS[2], count=0),
        pull(ROWS - COUNTS[2], parts[2], count=COUNTS[2], queue=QUEUES[1]),
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"born_host": "[fd00::2]:10911"},
        {"store_host": "[::1]:1"},
        {"born_host": "[fd00::2]:10911", "store_host": "[::1]:1"},
        {"topic": "%RETRY%übung"},
    ],
)
def test_every_column_is_that_of_the_path_by_message(fields: dict[str, Any]) -> None:
    pulls = pulls_of(records(**fields))
    assert check_same(pulls) == ROWS


@pytest.mark.parametrize(
    "topics", [("orders",) * 3, ("orders", "others", "a.longer.name"), ("orders", "orders", "others")]
)
def test_records_may_have_different_topics_and_hosts(topics: tuple[str, ...]) -> None:
    hosts = "10.0.0.1:5000", "[fd00::2]:1", "10.0.0.3:5000"
    parts = [
        records(topic=topic, born_host=host)[number]
        for number, (topic, host) in enumerate(zip(topics, hosts, strict=True))
    ]
    assert check_same(pulls_of(parts)) == ROWS


def test_a_range_and_tags_choose_among_the_messages() -> None:
    pulls = pulls_of(records())
    assert check_same(pulls, OffsetRange(3, 13)) == 10
    assert check_same(pulls, OffsetRange(3, 13), TagFilter.parse("TagB")) == 5
    assert check_same(pulls, tags=TagFilter.parse("TagA")) == ROWS // 2
    clipped = [replace(pulls[0], start=2, next_offset=9)]
    assert check_same(clipped) == 7


@pytest.mark.parametrize(
    ("body", "properties"), [(b"", b""), (b"x", b""), (b"", b"a\x01b\x02"), (b"x" * 300, b"a\x01b\x02")]
)
def test_parts_may_be_empty(body: bytes, properties: bytes) -> None:
    pulls = [pull(0, batch_record(0, *[BatchItem(0, body, properties)] * 8), count=8)]
    assert check_same(pulls) == 8


def test_other_batch_records_are_read_message_by_message() -> None:
    longer = batch_record(ROWS, *[BatchItem(0, b"longer than the other bodies", b"")] * 5)
    torn = batch_record(ROWS, *[item(ROWS), BatchItem(1, b"body 1234", item(1).properties[1:])] * 2)
    single = record(ROWS)
    few = [batch_record(ROWS + number, item(ROWS + number)) for number in range(40)]
    for more, count in ([longer], 5), ([torn], 4), ([single], 1), (few, 40):
        pulls = [*pulls_of(records()), pull(ROWS, *more, count=count, queue=QUEUES[1])]
        assert check_same(pulls) == ROWS + count


def test_a_wrong_byte_is_found_in_every_body_and_record() -> None:
    """The record's CRC is compared with the whole batch body before its messages are read."""
    parts = records()
    for number, part in enumerate(parts):
        for place in range(88, 88 + 40 * COUNTS[number]):
            wrong = bytearray(part)
            wrong[place] ^= 0x40
            with pytest.raises(Unreadable):
                read_rows(pulls_of([*parts[:number], bytes(wrong), *parts[number + 1 :]]), EVERYTHING, verify_crc=True)


def test_damaged_batches_have_the_verdict_of_the_path_by_message() -> None:
    """With a right CRC over damaged messages, columns either give the same rows or leave the input to that path."""
    chance, rules = random.Random(5), BodyRules()
    kept = 0
    for _ in range(400):
        whole = encode_batch_body(map(item, range(8)))
        body = bytearray(whole)
        for _ in range(chance.randrange(1, 3)):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        bodies = chance.sample((whole, bytes(body)), 2)
        stored = [record(8 * number, part, sys_flag=BATCH_RECORD) for number, part in enumerate(bodies)]
        pulls = [pull(0, *stored, count=16)]
        try:
            batches = [decoded.batch for decoded in decode_columns(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, rules)]
        except (Unreadable, RocketMQError):
            continue
        assert batches == [
            decoded.batch for decoded in decode_messages(pulls, EVERY_COLUMN, EVERYTHING, ALL_TAGS, rules)
        ]
        kept += 1
    assert kept > 100


@pytest.mark.parametrize("bodies", [(b"",), (b"", b"a")], ids=["one size", "two sizes"])
def test_a_long_topic_of_many_tiny_messages_comes_in_parts(bodies: tuple[bytes, ...]) -> None:
    """2 MB of records would be more than Arrow's 2 GiB of topics, if all were made at once."""
    count, topic = 80_000, "t" * 30_000
    items = [BatchItem(0, bodies[number % len(bodies)], b"") for number in range(count)]
    parts = decode_batches([pull(0, batch_record(0, *items, topic=topic), count=count)], schema_of(["topic"]))
    rows = 0
    for batch, _ in parts:
        assert batch.nbytes <= 64 * 1024 * 1024
        assert set(batch.column("topic").dictionary_encode().dictionary.to_pylist()) == {topic}
        rows += batch.num_rows
    assert rows == count
