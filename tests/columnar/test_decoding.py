"""Pulls to columns: the same rows as message by message, for any records."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import InvalidArgument, OffsetRange, RawPull, TagFilter
from pyrmq_core.columnar import SOURCE_COLUMNS, decode_records, schema_of
from pyrmq_core.columnar.decoding.decode import ALL_TAGS, BREAK_EVEN_MESSAGES
from pyrmq_core.columnar.decoding.decode_by_row import decode_messages
from pyrmq_core.columnar.decoding.properties import Pairs, _plain_pairs
from pyrmq_core.columnar.decoding.record_bounds import Unreadable
from pyrmq_core.errors import RecordError
from pyrmq_core.model import EVERYTHING
from pyrmq_core.protocol.messages.batch import BatchItem, encode_batch_body
from pyrmq_core.protocol.messages.bodies import BodyRules
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.messages.payload import decode
from pyrmq_core.protocol.messages.properties import decode_properties, encode_properties
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from tests.columnar.by_row import decode_columns
from tests.columnar.stored import HOSTS, QUEUES, Broker, batch_record, pull, record

pytestmark = pytest.mark.usefixtures("each_decoder")

EVERY_COLUMN = schema_of(list(SOURCE_COLUMNS))
NO_CRC = BodyRules(verify_crc=False)


def same_both_ways(
    pulls: list[RawPull],
    columns: pa.Schema = EVERY_COLUMN,
    within: OffsetRange = EVERYTHING,
    tags: TagFilter = ALL_TAGS,
    rules: BodyRules = BodyRules(),  # noqa: B008 - a frozen value
) -> pa.RecordBatch:
    """Decodes by columns and by messages, and compares."""
    ((by_columns, rest),) = decode_columns(pulls, columns, within, tags, rules)
    assert not rest
    by_columns.validate(full=True)
    ((by_messages, rest),) = decode_messages(pulls, columns, within, tags, rules)
    assert not rest
    for name in columns.names:
        assert by_columns.column(name).equals(by_messages.column(name)), name
    assert by_columns.schema.equals(by_messages.schema)
    return by_columns


def many(count: int = BREAK_EVEN_MESSAGES, **fields: Any) -> RawPull:
    """Returns enough records for columns to pay, all alike but for their offsets."""
    return pull(0, *(record(offset, **fields) for offset in range(count)))


# --- Against the plain path.


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("torn", "strange"), [(0.0, 0.0), (0.0, 0.02), (0.02, 0.0), (0.3, 0.4)])
def test_many_pulls(seed: int, torn: float, strange: float) -> None:
    """Pulls enough for every way of finding records; all alike, nearly alike, and mixed."""
    broker = Broker(seed, torn=torn, strange=strange)
    same_both_ways(broker.pulls(1 if seed < 2 else 90 if seed < 4 else 8, 30 if seed % 2 else 8))


@given(
    seed=st.integers(0, 10**9),
    names=st.lists(st.sampled_from(list(SOURCE_COLUMNS)), unique=True, min_size=1),
    bounds=st.tuples(st.integers(0, 30), st.integers(0, 60)) | st.none(),
    tags=st.sampled_from(["*", "TagA", "TagA || TagB", "none", "wörter 文字"]),
    text=st.booleans(),
)
def test_some_columns_of_a_range_with_some_tags(
    seed: int, names: list[str], bounds: tuple[int, int] | None, tags: str, text: bool
) -> None:
    columns = schema_of(names)
    if text and "body" in names:
        columns = columns.set(names.index("body"), pa.field("body", pa.string()))
    within = EVERYTHING if bounds is None else OffsetRange(*bounds)
    same_both_ways(Broker(seed).pulls(4, 12), columns, within, TagFilter.parse(tags))


@pytest.mark.parametrize("trailing", [True, False])
@pytest.mark.parametrize("most", [0, 1, 4, 49, 60])
def test_properties_from_none_to_sixty(most: int, trailing: bool) -> None:
    records = []
    for offset in range(200):
        text = encode_properties({f"name{number}": f"{offset}" for number in range(offset % (most + 1))})
        records.append(record(offset, properties=text if trailing else text[:-1]))
    batch = same_both_ways([pull(0, *records)])
    assert [len(properties) for properties in batch.column("properties")] == [n % (most + 1) for n in range(200)]


@pytest.mark.parametrize(
    "text",
    [
        b"a\x01b\x01c\x02",
        b"a\x02",
        b"a",
        b"\x01",
        b"\x02",
        b"\x01b\x02",
        b"a\x01\x02",
        b"a\x01b\x02\x02",
        b"\x02a\x01b",
        b"a\x01b\x02a\x01c\x02",
        b"a\x01b\x02c\x01d\x02a\x01e",
        b"\xff\x01b\x02\xfe\x01c\x02",
        b"a\x01\xed\xa0\x80\x02",
        b"a\x00\x01\x00\x02",
        b"TAGS\x01x\x01TagA\x02TAGS\x01y\x02",
    ],
)
@pytest.mark.parametrize("among", [0, 1, 3])
def test_torn_properties_among_others(text: bytes, among: int) -> None:
    """Alone, and with whole ones before, between and behind."""
    others = [b"UNIQ_KEY\x01ID\x02TAGS\x01TagA\x02", b"", b"TAGS\x01TagB"][:among]
    same_both_ways([pull(0, *(record(n, properties=p) for n, p in enumerate([*others, text, *others, text, text])))])


@pytest.mark.parametrize("text", [b"a\x01b\x02c\x01d", b"a\x00b\x01\x00\x02", "größe\x01文字\x02".encode(), b""])
def test_what_is_plain_is_not_read_one_by_one(text: bytes) -> None:
    """4.9's missing last separator, U+0000 and text beyond ASCII do not lead to the plain path."""
    pairs = _plain_pairs(pa.array([b"x\x01y\x02", text, b"x\x01y\x02", text], pa.binary()))
    assert isinstance(pairs, Pairs)
    assert pairs.map().to_pylist()[1] == list(decode_properties(text.decode()).items())


def test_more_names_than_bits() -> None:
    texts = [encode_properties({f"n{number}": "x", "a": "y"}) for number in range(100)]
    twice = [text + "a\x01z\x02" for text in texts]
    same_both_ways([pull(0, *(record(n, properties=text) for n, text in enumerate(texts + twice)))])


def test_bodies_from_nothing_to_four_mebibytes() -> None:
    bodies = [b"", b"1", b"x" * 100, b"", b"y" * 4 * 1024 * 1024, b"z" * 70_000]
    batch = same_both_ways([pull(0, *(record(offset, body) for offset, body in enumerate(bodies)))])
    assert batch.column("body").to_pylist() == bodies


@pytest.mark.parametrize("born", HOSTS)
@pytest.mark.parametrize("store", HOSTS)
def test_hosts_of_both_versions_in_one_pull(born: str, store: str) -> None:
    records = [record(0), record(1, born_host=born, store_host=store, properties=""), record(2)]
    batch = same_both_ways([pull(0, *records)])
    assert batch.column("bornHost")[1].as_py() == born
    assert batch.column("storeHost")[1].as_py() == store
    assert batch.column("msgId")[1] == batch.column("offsetMsgId")[1]


def test_topics_of_both_record_versions_and_no_utf8() -> None:
    strange = record(2, topic="XYZ").replace(b"XYZ", b"\xff\xed\xa0")
    batch = same_both_ways([pull(0, record(0), record(1, topic="t" * 300), strange, record(3, topic="topic"))])
    assert batch.column("topic").to_pylist() == ["orders", "t" * 300, "\ufffd\ufffd", "topic"]


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_and_plain_mixed(kind: CompressionType) -> None:
    body = b"squeeze me " * 100
    records = [
        record(offset, compress(body, kind) if offset % 3 else body, sys_flag=kind.sys_flag if offset % 3 else 0)
        for offset in range(100)
    ]
    assert set(same_both_ways([pull(0, *records)]).column("body").to_pylist()) == {body}


def test_batch_records_are_exact_at_the_borders_of_a_range() -> None:
    """A pull returns a whole batch: a message in two pulls is decoded once."""
    items = [BatchItem(n, b"b%d" % n, b"TAGS\x01t%d\x02" % n) for n in range(40)]
    whole = batch_record(100, *items)
    pulls = [pull(90, record(99), whole, count=30), pull(120, whole, record(140), count=21)]
    columns = schema_of(["queueOffset", "body", "tags", "flag"])
    batch = same_both_ways(pulls, columns, OffsetRange(105, 139))
    assert batch.column("queueOffset").to_pylist() == list(range(105, 139))
    assert batch.column("tags").to_pylist() == [f"t{offset - 100}" for offset in range(105, 139)]
    assert same_both_ways(pulls, columns).num_rows == 42


def test_a_batch_record_that_lies_is_reported() -> None:
    whole = batch_record(0, BatchItem(0, b"body", b"a\x01b\x02"))
    body = whole.index(b"body")
    for position in [*range(body - 20, body), body + 4, body + 5]:  # its numbers, and the length of its properties
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        try:
            same_both_ways([pull(0, bytes(broken))], rules=NO_CRC)
        except Unreadable:
            with pytest.raises(RecordError, match="batch record at offset 0"):
                list(decode_messages([pull(0, bytes(broken))], EVERY_COLUMN, EVERYTHING, ALL_TAGS, NO_CRC))


def test_pulls_of_several_queues() -> None:
    pulls = [pull(0, record(0), queue=queue) for queue in QUEUES] + [pull(7)]
    batch = same_both_ways(pulls, schema_of(["brokerName", "queueId"]))
    assert batch.column("brokerName").to_pylist() == [queue.broker_name for queue in QUEUES]
    assert batch.column("queueId").to_pylist() == [queue.queue_id for queue in QUEUES]


# --- Columns and options.


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES, 300])
def test_every_source_column_has_its_value(count: int) -> None:
    given = pull(5, *(record(n, b"body", flag=9, reconsume_times=2) for n in range(5, 5 + count)))
    row = decode_records([given], EVERY_COLUMN).slice(0, 1).to_pylist()[0]
    born, stored = row.pop("bornTimestamp"), row.pop("storeTimestamp")
    assert born.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert stored.isoformat() == "2023-11-14T22:13:20.456000+00:00"
    properties, system, every = (dict(row.pop(name)) for name in ("properties", "systemProperties", "allProperties"))
    assert properties == {"__SHARDINGKEY": "s"}
    assert system == {"UNIQ_KEY": "ID5", "TAGS": "tag1", "KEYS": "k v"}
    assert every == system | properties
    message = decode(given)[0]
    assert row == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 5,
        "msgId": "ID5",
        "tags": "tag1",
        "keys": "k v",
        "body": b"body",
        "reconsumeTimes": 2,
        "offsetMsgId": message.offset_msg_id,
        "bornHost": "10.0.0.1:5000",
        "storeHost": "10.0.0.2:10911",
        "sysFlag": 0,
        "flag": 9,
        "bodyCrc": message.body_crc,
        "storeSize": message.store_size,
        "commitLogOffset": 1005,
        "preparedTransactionOffset": 0,
        "shardingKey": "s",
        "deliverAt": None,
        "delayLevel": None,
        "liteTopic": None,
        "producerHost": None,
    }


DELAYS = [
    ("TIMER_DELIVER_MS\x011700000000789\x02TIMER_OUT_MS\x015\x02DELAY\x013\x02", 1_700_000_000_789, 3),
    ("TIMER_OUT_MS\x015\x02", 5, None),
    ("TIMER_DELIVER_MS\x01soon\x02TIMER_OUT_MS\x015\x02DELAY\x01-1\x02", None, None),
    (f"TIMER_DELIVER_MS\x01{10**16}\x02DELAY\x01{2**31}\x02", None, None),
    (f"TIMER_DELIVER_MS\x01{'9' * 400}\x02DELAY\x01{2**31 - 1}\x02", None, 2**31 - 1),
    ("a\x01b\x02", None, None),
]


def test_times_and_levels_of_delayed_messages() -> None:
    records = [record(number, properties=text) for number, (text, _, _) in enumerate(DELAYS * 20)]
    batch = same_both_ways([pull(0, *records)], schema_of(["deliverAt", "delayLevel"]))
    times = batch.column("deliverAt").cast(pa.int64()).to_pylist()
    assert times == [at_ms if at_ms is None else at_ms * 1000 for _, at_ms, _ in DELAYS] * 20
    assert batch.column("delayLevel").to_pylist() == [level for _, _, level in DELAYS] * 20


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_hosts_of_producers_behind_a_proxy_and_lite_topics(count: int) -> None:
    """The record's host is the proxy's; a client that spoke to the broker itself has no other one."""
    behind = [
        record(2 * n, properties=f"__BORNHOST\x01worker-{n}\x02__LITE_TOPIC\x01session-{n}\x02") for n in range(count)
    ]
    records = [each for n, proxied in enumerate(behind) for each in (proxied, record(2 * n + 1))]
    batch = same_both_ways([pull(0, *records)], schema_of(["bornHost", "producerHost", "liteTopic"]))
    assert batch.column("liteTopic").to_pylist() == [name for n in range(count) for name in (f"session-{n}", None)]
    assert set(batch.column("bornHost").to_pylist()) == {"10.0.0.1:5000"}
    assert batch.column("producerHost").to_pylist() == [host for n in range(count) for host in (f"worker-{n}", None)]


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_only_what_was_asked_for_is_built_in_the_order_asked(count: int) -> None:
    batch = decode_records([many(count)], schema_of(["queueOffset", "body"]))
    assert batch.schema.names == ["queueOffset", "body"]


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_a_message_without_properties_has_nulls(count: int) -> None:
    batch = decode_records(
        [many(count, properties="")], schema_of(["tags", "keys", "properties", "shardingKey", "msgId", "offsetMsgId"])
    )
    row = batch.to_pylist()[0]
    assert row.pop("msgId") == row.pop("offsetMsgId")
    assert row == {"tags": None, "keys": None, "properties": [], "shardingKey": None}


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_a_body_may_be_asked_for_as_text(count: int) -> None:
    batch = decode_records([many(count, body=b"\xc3\xa9\xff")], pa.schema([("body", pa.string())]))
    assert set(batch.column("body").to_pylist()) == {"é\ufffd"}


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_the_schema_given_is_the_schema_made(count: int) -> None:
    """Nullability, and wider types."""
    value = pa.field("value", pa.string(), nullable=False)
    columns = pa.schema(
        [
            pa.field("queueId", pa.int64(), nullable=False),
            pa.field("body", pa.large_binary(), nullable=False),
            pa.field("topic", pa.large_string()),
            pa.field("properties", pa.map_(pa.string(), value), nullable=False),
            pa.field("bornTimestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        ]
    )
    batch = decode_records([many(count)], columns)
    batch.validate(full=True)
    assert batch.schema.equals(columns, check_metadata=True)
    assert batch.column("properties").type.item_field.nullable is False


def test_several_pulls_are_one_batch_within_the_range() -> None:
    pulls = [pull(0, record(0), record(1)), pull(2, record(2), record(3))]
    batch = decode_records(pulls, schema_of(["queueOffset"]), OffsetRange(1, 3))
    assert batch.column("queueOffset").to_pylist() == [1, 2]


@pytest.mark.parametrize("count", [4, BREAK_EVEN_MESSAGES])
def test_tags_are_compared_as_text(count: int) -> None:
    batch = decode_records([many(count)], schema_of(["queueOffset"]), tags=TagFilter.parse("tag1 || other"))
    assert batch.column("queueOffset").to_pylist() == list(range(1, count, 2))


def test_nothing_is_an_empty_batch_of_the_same_columns() -> None:
    columns = schema_of(["properties", "bornTimestamp", "body"])
    for pulls in ([], [pull(0, count=500)]):
        batch = decode_records(pulls, columns)
        assert (batch.num_rows, batch.schema) == (0, columns)


def test_a_column_there_is_not_is_reported() -> None:
    with pytest.raises(InvalidArgument, match="no column offset; there are topic, "):
        decode_records([], pa.schema([("offset", pa.int64())]))


# --- Unreadable records.


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_a_time_no_timestamp_holds_is_reported_with_its_message(count: int) -> None:
    pulls = [many(count, born_timestamp_ms=2**62)]
    with pytest.raises(RecordError, match="orders/broker-a/3: the message at offset 0 has bornTimestamp"):
        decode_records(pulls, schema_of(["bornTimestamp"]))
    assert decode_records(pulls, schema_of(["storeTimestamp"])).num_rows == count


@pytest.mark.parametrize("count", [1, BREAK_EVEN_MESSAGES])
def test_a_body_that_cannot_be_undone_fails_or_is_kept(count: int) -> None:
    pulls = [many(count, body=b"not zlib", sys_flag=CompressionType.ZLIB.sys_flag)]
    with pytest.raises(RecordError, match="the message at offset 0: a body is marked as zlib"):
        decode_records(pulls, schema_of(["body"]))
    kept = decode_records(pulls, schema_of(["body", "sysFlag"]), keep_undecodable=True)
    assert kept.to_pylist()[-1] == {"body": b"not zlib", "sysFlag": CompressionType.ZLIB.sys_flag}
    assert decode_records(pulls, schema_of(["queueOffset"])).num_rows == count


def test_a_record_cut_off_is_reported_with_its_queue() -> None:
    whole = many(200)
    cut = dataclasses.replace(whole, records=bytes(whole.records)[:-1])
    with pytest.raises(RecordError, match="orders/broker-a/3, pulled from offset 0: the record at byte "):
        decode_records([cut], schema_of(["body"]))


def test_what_columns_leave_to_the_plain_path_is_read_by_it() -> None:
    """No broker keeps a compressed batch; messages say they could."""
    kind = CompressionType.ZLIB
    items = [BatchItem(0, b"%d" % n, b"") for n in range(200)]
    packed = record(0, compress(encode_batch_body(items), kind), sys_flag=kind.sys_flag | BATCH_RECORD)
    batch = decode_records([pull(0, packed, count=200)], schema_of(["body"]))
    assert batch.column("body").to_pylist() == [item.body for item in items]


@pytest.mark.parametrize("count", [2, 2 * BREAK_EVEN_MESSAGES])
def test_times_of_another_unit_are_the_same_times(count: int) -> None:
    columns = pa.schema([("bornTimestamp", pa.timestamp("ms", "UTC"))])
    batch = decode_records([pull(0, *map(record, range(count)))], columns)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [1_700_000_000_123] * count
