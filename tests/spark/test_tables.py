"""Topics as views with typed columns: from an address to a SELECT in two calls."""

from __future__ import annotations

import json
import logging
import struct
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.avro.functions import from_avro

from pyrmq_core import BodyColumn, BodySchema, Message, infer_body_schema
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.testing import Command, Peer, RequestCode, ResponseCode, refusal
from pyrmq_spark import infer_schema, topics, typed, unframed
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.maven import ApacheUnavailable, jars_of
from tests.support.spark import read, wait_readable
from tests.support.table_jobs import TableJobs

pytestmark = pytest.mark.spark

MESSAGE_COLUMNS = 12
# Releases of spark-avro by those of PySpark: each older one has internals of its own.
AVRO_OF_OLDER = {"4.0": "4.0.0", "4.1": "4.1.1"}


class TestTableJobs(TableJobs):
    """All jobs, on brokers of ours."""


def test_from_an_address_to_a_select(
    spark: SparkSession, cluster: EmbeddedCluster, admin: Admin, producer: Producer
) -> None:
    mark = f"v{uuid.uuid4().hex[:6]}"
    orders, upper, notes, empty = f"{mark}-orders", f"{mark.upper()}-ORDERS", f"{mark}_notes", f"{mark}_empty"
    for name in (orders, upper, notes, empty, f"%DLQ%{mark}_dead"):
        admin.create_topic(name, queues=1)
    bodies = [
        b'{"id": 9007199254740993, "price": 1.5, "to": {"city": "Bern", "City": null}, "tags": ["a", 1]}',
        b'{"id": 2, "price": 3, "ID": "x", "to": {"City": "Rom"}}',
        b"no JSON",
        b"\xff\xfe",
    ]
    for body in bodies:
        producer.send(Message(orders, body, tags="paid"))
    producer.send(Message(notes, "grün".encode()))
    wait_readable(cluster.nameserver, orders, len(bodies))
    wait_readable(cluster.nameserver, notes, 1)

    views = topics(spark, nameServer=cluster.nameserver, pattern=f"(?i){mark}.*")
    assert views == {
        upper: f"`{upper}`",
        orders: f"`{orders}_2`",
        notes: notes,
        empty: empty,
    }
    rows = spark.sql(f"SELECT tags, id, price, to.City_2, body_tags, ID_2, _corrupt FROM `{orders}_2`").collect()
    assert sorted(rows, key=str) == sorted(
        [
            Row(
                tags="paid", id=9007199254740993, price=1.5, City_2=None, body_tags=["a", "1"], ID_2=None, _corrupt=None
            ),
            Row(tags="paid", id=2, price=3.0, City_2="Rom", body_tags=None, ID_2="x", _corrupt=None),
            Row(tags="paid", id=None, price=None, City_2=None, body_tags=None, ID_2=None, _corrupt="no JSON"),
            Row(tags="paid", id=None, price=None, City_2=None, body_tags=None, ID_2=None, _corrupt="\ufffd\ufffd"),
        ],
        key=str,
    )
    assert [row.text for row in spark.sql(f"SELECT text FROM {notes}").collect()] == ["grün"]
    assert spark.table(empty).columns[MESSAGE_COLUMNS:] == ["_corrupt"]
    # The schema of last week: what does not fit it any more is null, and kept as a text.
    schema = infer_schema(orders, nameServer=cluster.nameserver, sample=1)
    assert 1 <= schema.sampled <= 2
    old = infer_body_schema([b'{"id": true, "price": 0.5}'])
    fitted = (
        typed(read(spark, cluster.nameserver, "body binary", topic=orders), old).where("price IS NOT NULL").collect()
    )
    assert sorted((row.id, row.price, json.loads(row._corrupt)["id"]) for row in fitted) == [
        (None, 1.5, 9007199254740993),
        (None, 3.0, 2),
    ]


def test_each_query_of_a_view_reads_what_the_topic_holds_then(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, producer: Producer
) -> None:
    def sent(count: int, tags: str, body: bytes) -> None:
        for _ in range(count):
            producer.send(Message(topic, body, tags=tags))

    def count(query: str) -> int:
        return int(spark.sql(query).first()[0])  # type: ignore[index]

    sent(1, "a", b'{"a": 1}')
    sent(2, "b", b'{"b": 1}')
    wait_readable(cluster.nameserver, topic, 3)
    (view,) = topics(spark, nameServer=cluster.nameserver, pattern=topic, tags="a", sample=1).values()
    assert spark.table(view).columns[MESSAGE_COLUMNS:] == ["a", "_corrupt"]
    frame = spark.table(view)
    assert (count(f"SELECT count(a) FROM {view}"), frame.count()) == (1, 1)
    sent(1, "a", b'{"a": 2}')
    wait_readable(cluster.nameserver, topic, 4)
    assert count(f"SELECT sum(a) FROM {view}") == 3
    assert spark.table(view).count() == 2
    assert count(f"SELECT count(*) FROM {view} one JOIN {view} other ON one.a = other.a") == 2
    assert frame.count() == 1  # planned once, as each frame
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_{topic} AS SELECT a FROM {view} WHERE a > 0")
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(count, [f"SELECT count(*) FROM of_{topic}"] * 4)) == [2] * 4
    # The next call finds other columns, and takes the old view's place.
    sent(1, "b", b'{"c": 1}')
    wait_readable(cluster.nameserver, topic, 5)
    topics(spark, nameServer=cluster.nameserver, pattern=topic)
    assert count(f"SELECT count(b) + count(c) FROM {view}") == 3


def test_topics_that_get_no_columns_or_no_views(
    spark: SparkSession, cluster: EmbeddedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RocketMQSparkError, match=r"RMQ_INVALID_OPTION.*matches 1 topics.*at most 0"):
        topics(spark, nameServer=cluster.nameserver, pattern=topic, limit=0)
    with pytest.raises(RocketMQSparkError, match="RMQ_UNKNOWN_OPTION"):
        topics(spark, nameServers=cluster.nameserver)

    with Producer("setup", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"text"))
    wait_readable(cluster.nameserver, topic, 1)

    async def refuse(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "not yours")

    cluster.control(RequestCode.PULL_MESSAGE, refuse)
    with caplog.at_level(logging.WARNING):
        assert topics(spark, nameServer=cluster.nameserver, pattern=topic) == {topic: topic}
    assert f"the view of {topic} has no columns of its bodies" in caplog.text
    assert len(spark.table(topic).columns) == MESSAGE_COLUMNS


def test_numbers_and_names_of_any_kind(spark: SparkSession) -> None:
    """A body that was sampled fits its own schema, and comes back as it was."""
    value = {
        "order": 1,
        "select": {"from": [1, 2.5, None], "a b": {"`": "tick"}},
        "wide": 12345678901234567890,
        "mixed": [1, "a", {"b": None}, [2]],
        "_corrupt": "mine",
        "body": "x",
        "none": None,
        "empty": {},
        "money": 1234567890123456789.25,
    }
    text = json.dumps(value).replace("1.2345678901234568e+18", "1234567890123456789.25")
    schema = infer_body_schema([text.encode()])
    frame = spark.createDataFrame([(text,)], "body string")
    (row,) = typed(frame, schema).collect()
    assert row._corrupt is None
    assert (row.order, row.select["from"], row.select["a b"]["`"]) == (1, [1.0, 2.5, None], "tick")
    assert (row.wide, row.money) == (Decimal(12345678901234567890), Decimal("1234567890123456789.25"))
    assert row.mixed == ["1", "a", '{"b":null}', "[2]"]
    assert (row.body__corrupt, row.body_body, row.none, row.empty) == ("mine", "x", None, {})


DIGITS = "12345678901234567890.50"


def test_a_string_has_the_digits_that_stand_in_the_text(spark: SparkSession) -> None:
    """In columns, in structs, arrays and maps among numbers, and in arrays and objects that are kept as text."""
    types = "array<struct<n:bigint,t:string>>"
    schema = (
        f"a string, n double, s struct<n:bigint,t:string>, l array<string>, m map<string,string>, ls {types}, "
        f"ms map<string,struct<n:double,t:array<string>>>, `q r` struct<`x``y`:map<string,{types}>>"
    )
    members = {
        "a": DIGITS,
        "n": "1.50",
        "s": '{"n": 1, "t": 1e2}',
        "l": '[1.10, "1.10", {"x": [1.10, "1.10"]}, -0, null]',
        "m": f'{{"k": 1e400, "z": null, "t": "{DIGITS}"}}',
        "ls": '[{"n": 2, "t": 2.0}, null, {"n": 3, "t": "x"}]',
        "ms": r'{"k": {"n": 2.50, "t": [1.0, true, "\"1.5"]}}',
        "q r": f'{{"x`y": {{"k": [{{"n": 4, "t": {DIGITS}}}]}}}}',
    }
    body = "{" + ", ".join(f'"{name}": {value}' for name, value in members.items()) + "}"
    (row,) = typed(spark.createDataFrame([(body,)], "body string"), schema_of(schema)).collect()
    assert row._corrupt is None
    assert (row.a, row.n, tuple(row.s)) == (DIGITS, 1.5, (1, "1e2"))
    assert row.l == ["1.10", "1.10", '{"x":[1.10,"1.10"]}', "-0", None]
    assert row.m == {"k": "1e400", "z": None, "t": DIGITS}
    assert row.ls == [Row(n=2, t="2.0"), None, Row(n=3, t="x")]
    assert row.ms == {"k": Row(n=2.5, t=["1.0", "true", '"1.5'])}
    assert row["q r"]["x`y"] == {"k": [Row(n=4, t=DIGITS)]}


def test_what_is_not_one_json_object_is_corrupt(spark: SparkSession) -> None:
    rows = ['{"a": 1.5}', ' {"a":2}\n', '\ufeff{"a": 3}', "{}", '{"a": 1.7976931348623157e308}', '{"a": null, "b": 4}']
    broken = [
        *(
            '{"a":1}{"a":2}',
            '{"a":1}\n{"a":2}',
            '{"a":1},{"a":2}',
            '{"a":1} x',
            '{"a":1},"b":2',
            '{"a":1}]',
            '{"a":1}}',
        ),
        *("", " ", "null", "[]", '[{"a":1}]', "1.5", '"text"', '{"a":1', '{"a":01}', "{'a':1}", "\ufeff\ufeff{}", "no"),
    ]
    unfit = ['{"a": "text"}', '{"a": 1e400}', '{"a": -1.8e308, "b": "1e400"}', '{"a": {}}']
    bodies = [body.encode() for body in (*rows, *broken, *unfit)] + [b'{"b": "\xff"}']
    frame = spark.createDataFrame([*enumerate(bodies), (len(bodies), None)], "n int, body binary")
    read_rows = typed(frame, schema_of("a double, b string")).orderBy("n").collect()
    shown = [body.decode(errors="replace") for body in bodies]
    assert [row._corrupt for row in read_rows] == [*[None] * len(rows), *shown[len(rows) :], None]
    assert [row.a for row in read_rows] == [1.5, 2.0, 3.0, None, 1.7976931348623157e308, *[None] * (len(bodies) - 4)]
    assert [row.b for row in read_rows if row.b is not None] == ["4", "1e400"]
    # The inference counts the same bodies, but those that have another type alone.
    inferred = infer_body_schema(bodies)
    assert inferred.fitting == len(rows) + len(unfit)
    assert inferred.sampled == len(bodies) - 1


def test_columns_with_the_names_of_helpers(spark: SparkSession) -> None:
    names = ["__row", "\ufdd0body", "\ufdd0body_strings", "_corrupt_", "corrupt", "end", "row"]
    body = json.dumps({name: number + 0.5 for number, name in enumerate(names)}, ensure_ascii=False)
    frame = typed(spark.createDataFrame([(body,)], "body string"), infer_body_schema([body.encode()]))
    assert frame.columns == ["body", *names, "_corrupt"]
    (row,) = frame.collect()
    assert [row[name] for name in names] == [number + 0.5 for number in range(len(names))]


def schema_of(ddl: str) -> BodySchema:
    """Returns a schema of these columns, which are separated by commas and blanks outside of types."""
    columns = [part.rsplit(" ", 1) for part in ddl.split(", ")]
    parts = ((name.strip("`"), type_) for name, type_ in columns)
    return BodySchema("json", tuple(BodyColumn(name, type_, name, type_, 1) for name, type_ in parts), 1, 1)


def test_the_framing_of_a_schema_registry(spark: SparkSession) -> None:
    bodies = [
        b"\x00\x00\x00\x00\x07\x02a",
        b"\x00\x00\x00\x00\x07\x00p",
        b"\x01\x00\x00\x00\x07a",
        b"\x00\x00",
        b"",
        None,
    ]
    frame = spark.createDataFrame([(body,) for body in bodies], "body binary").coalesce(1)
    rows = frame.select(unframed(F.col("body")), unframed(F.col("body"), protobuf=True)).collect()
    assert [tuple(row) for row in rows] == [
        (bytearray(b"\x02a"), None),
        (bytearray(b"\x00p"), bytearray(b"p")),
        *[(None, None)] * 4,
    ]


def test_avro_of_a_schema_registry(spark: SparkSession) -> None:
    """The newest jar of these functions that is published is of Spark 4.2; it serves 4.3, too."""
    release = AVRO_OF_OLDER.get(spark.version.rpartition(".")[0], "4.2.0")
    try:
        directory = jars_of("spark-avro", release, Path(__file__).parents[1] / "support" / "pom-avro.xml")
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    (jar,) = directory.glob("spark-avro_*.jar")
    spark.sql(f"ADD JAR '{jar}'")
    fields = [{"name": "item", "type": "string"}, {"name": "price", "type": "double"}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    body = b"\x00\x00\x00\x00\x07" + b"\x06tea" + struct.pack("<d", 7.5)  # a length is doubled: zigzag
    frame = spark.createDataFrame([(body,), (body[5:],)], "body binary").coalesce(1)
    rows = frame.select(from_avro(unframed(F.col("body")), schema).alias("order")).collect()
    assert rows == [Row(order=Row(item="tea", price=7.5)), Row(order=None)]
