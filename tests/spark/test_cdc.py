"""Changes of a real table, as Canal and Debezium write them, become rows from which the same table is made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import StructType

from pyrmq_spark.cdc import canal, check, debezium, statements
from pyrmq_spark.cdc.canal_rows import canal_rows, parsed_messages
from pyrmq_spark.cdc.columns import row_and_keys
from pyrmq_spark.cdc.debezium_rows import debezium_rows, parsed_envelopes
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.source_table import (
    DDL,
    Change,
    SourceTable,
    canal_message,
    canal_messages,
    debezium_message,
    debezium_messages,
)
from tests.support.spark import COMPILING, NOT_ADAPTIVE, settings
from tests.support.table_jobs import final_table, rows_in_source

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

ANN = {"id": 1, "name": "ann", "amount": "1.50", "note": None}
BOB = {"id": 2, "name": "bob", "amount": "2.00", "note": "x"}


def messages(spark: SparkSession, bodies: Iterable[str | None]) -> DataFrame:
    """Returns messages with these bodies, or null for None, in one partition, of which Spark shuffles nothing."""
    rows = [
        ("customers", "b", 0, offset, None if body is None else body.encode()) for offset, body in enumerate(bodies)
    ]
    columns = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"
    return spark.createDataFrame(rows, columns).coalesce(1)


def of_canal(frame: DataFrame, **options: str) -> DataFrame:
    return canal(frame, DDL, key="id", table="shop.customers", **options)  # type: ignore[arg-type]


def of_debezium(frame: DataFrame, **options: str) -> DataFrame:
    return debezium(frame, DDL, key="id", table="shop.customers", **options)  # type: ignore[arg-type]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("written", "read"), [(canal_messages, of_canal), (debezium_messages, of_debezium)], ids=["canal", "debezium"]
)
def test_the_table_is_that_of_the_database(
    spark: SparkSession,
    written: Callable[..., Iterable[str]],
    read: Callable[..., DataFrame],
) -> None:
    source = SourceTable()
    source.live(400, seed=7)
    bodies = list(written(source.changes()))
    frame = messages(spark, bodies)
    shuffled = frame.union(frame.where("queueOffset % 3 = 0")).repartition(3).orderBy(F.rand(5))
    expected = rows_in_source(source)
    assert len(expected) > 20
    assert final_table(read(shuffled)) == expected
    moved = sum(op == "u" and (before or {})["id"] != (after or {})["id"] for op, before, after in source.changes())
    assert moved
    (once,) = read(frame).agg(F.count("*"), F.countDistinct("sequence"), F.collect_set("op")).collect()
    assert once[0] == once[1] == len(source.changes()) + moved
    assert {*once[2]} == {"insert", "update", "delete"}


def parsed_of_canal(frame: DataFrame, **options: str) -> DataFrame:
    """Returns changes without a look at several messages, which triples the cost of a small query."""
    return canal_rows(frame, DDL, key="id", table="shop.customers", **options).select("change.*")  # type: ignore[arg-type]


def parsed_of_debezium(frame: DataFrame, **options: str) -> DataFrame:
    """Returns changes without a look at several messages, which triples the cost of a small query."""
    return debezium_rows(frame, DDL, key="id", table="shop.customers", **options).select("change.*")  # type: ignore[arg-type]


def rows_of(changes: DataFrame) -> list[tuple[object, ...]]:
    return shown(changes.collect())


def shown(changes: Iterable[Row]) -> list[tuple[object, ...]]:
    return [
        (row.op, row.key.id, row.before and row.before.name, row.after and row.after.name)
        for row in sorted(changes, key=lambda row: tuple(row.sequence))
    ]


def faults_of(rows: DataFrame) -> list[str | None]:
    """Returns the `fault` of each message, in order, at the first of which a query for the changes would end."""
    return [row.fault for row in sorted(rows.select("queueOffset", "fault").collect())]


def test_rows_of_canal(spark: SparkSession) -> None:
    changed = {**ANN, "name": "anna", "note": "n"}
    bodies = [
        canal_message([("c", None, ANN), ("c", None, BOB)]),
        canal_message([("u", ANN, changed)]),
        canal_message([("u", {**changed}, {**changed, "id": 9})]),
        canal_message([("d", BOB, None)]),
        canal_message([("c", None, BOB)], table="orders"),
        canal_message([("c", None, BOB)], database="archive"),
        json.dumps(
            {"isDdl": True, "type": "ALTER", "database": "shop", "table": "customers", "sql": "ALTER ...", "es": 9}
        ),
        canal_message([("c", None, {**ANN, "id": 5, "name": "new", "later": 1})]),
    ]
    frame = messages(spark, bodies)
    changes = of_canal(frame).collect()
    assert shown(changes) == [
        ("insert", 1, None, "ann"),
        ("insert", 2, None, "bob"),
        ("update", 1, "ann", "anna"),
        ("delete", 1, "anna", None),
        ("insert", 9, None, "anna"),
        ("delete", 2, "bob", None),
        ("insert", 5, None, "new"),
    ]
    (update,) = [change for change in changes if change.op == "update"]
    assert update.before == Row(id=1, name="ann", amount=Decimal("1.50"), note=None)
    (statement,) = statements(frame).collect()
    assert statement[:3] == ("shop", "customers", "ALTER ...")
    blobs = canal_rows(frame, "id bigint, name binary", key=["id"], table="shop.customers").select("change.*")
    assert [row.after.name for row in blobs.collect() if row.key.id == 9] == [bytearray(b"anna")]


def test_values_before_an_update_belong_to_the_last_rows_of_canal(spark: SparkSession) -> None:
    """Canal has no map of values before for the first rows, as long as its filter hides the columns that changed."""
    changed: list[Change] = [("u", ANN, ANN), ("u", BOB, {**BOB, "id": 9})]
    frame = messages(spark, [canal_message(changed, old=[{"id": "2"}]), canal_message(changed, old=None)])
    assert rows_of(parsed_of_canal(frame)) == [
        ("update", 1, None, "ann"),
        ("delete", 2, "bob", None),
        ("insert", 9, None, "bob"),
        ("update", 1, None, "ann"),
        ("update", 9, None, "bob"),
    ]


def test_numbers_keep_their_digits(spark: SparkSession) -> None:
    ddl, key, number = "id bigint, amount decimal(22,2), shown string", 2**53 + 1, "9007199254740993.25"
    row = {"id": key, "amount": number, "shown": "1.10"}
    wrapped = [debezium_message("c", None, row, wrapped=is_wrapped) for is_wrapped in (False, True)]
    plain = [body.replace(f'"{number}"', number).replace('"1.10"', "1.10") for body in wrapped]
    for read, bodies in ((canal_rows, [canal_message([("c", None, row)])]), (debezium_rows, plain)):
        rows = read(messages(spark, bodies), ddl, key="id", table="shop.customers").select("change.after").collect()
        assert [after for (after,) in rows] == [Row(id=key, amount=Decimal(number), shown="1.10")] * len(bodies)


def test_the_names_in_a_body_are_read_only_where_it_has_no_op(spark: SparkSession) -> None:
    """Else each body is parsed twice: an AND would not keep Spark from it."""
    changes = parsed_of_debezium(messages(spark, [GOOD[parsed_of_debezium]]))

    def always_computed(node: Any) -> Iterator[str]:
        yield node.toString() if node.nodeName() == "StaticInvoke" else node.nodeName()
        children = node.children()
        for number in range(1 if node.nodeName() == "CaseWhen" else children.size()):
            yield from always_computed(children.apply(number))

    def expressions(node: Any) -> Iterator[Any]:
        yield from (node.expressions().apply(number) for number in range(node.expressions().size()))
        for number in range(node.children().size()):
            yield from expressions(node.children().apply(number))

    plan = changes._jdf.queryExecution().optimizedPlan()
    names = [name for expression in expressions(plan) for name in always_computed(expression)]
    assert "JsonToStructs" in names
    assert "jsonObjectKeys" in plan.toString()
    assert not [name for name in names if "jsonObjectKeys" in name]


def test_rows_of_debezium(spark: SparkSession) -> None:
    other = json.loads(debezium_message("c", None, {"id": "text"}))
    other["source"]["table"] = "orders"
    truncation = json.loads(debezium_message("t", None, None))
    bodies = [
        debezium_message("r", None, ANN, number=1, wrapped=True),
        debezium_message("u", ANN, {**ANN, "id": 7}, number=2),
        debezium_message("u", None, {**ANN, "id": 7, "name": "anna"}, number=3),
        debezium_message("d", {"id": 7}, None, number=4, wrapped=True),
        "",
        None,
        " null\n",
        json.dumps({"payload": None}),
        json.dumps({"schema": {"type": "struct"}, "payload": None}),
        json.dumps(other),
        json.dumps(truncation),
        json.dumps({"payload": {"source": {"db": "shop"}, "databaseName": "shop", "ddl": "DROP TABLE x", "ts_ms": 1}}),
    ]
    frame = messages(spark, bodies)
    assert rows_of(parsed_of_debezium(frame)) == [
        ("insert", 1, None, "ann"),
        ("delete", 1, "ann", None),
        ("insert", 7, None, "ann"),
        ("update", 7, None, "anna"),
        ("delete", 7, None, None),
    ]
    assert [row.statement for row in statements(frame).orderBy("queueOffset").collect()] == ["TRUNCATE", "DROP TABLE x"]


def test_a_deleted_key_that_may_be_a_default_of_debezium(spark: SparkSession) -> None:
    """With REPLICA IDENTITY USING INDEX Debezium writes the defaults of types for the columns outside of the index."""
    row, _ = row_and_keys("small decimal(12,3), tiny decimal(20,9), day date, text string, at timestamp, id int", "id")
    epoch = "1970-01-01T00:00:00Z"
    zeros = {"small": "0.000", "tiny": "0.000000000", "day": "1970-01-01Z", "text": epoch, "at": epoch, "id": 3}
    others = {
        "small": "0.001",
        "tiny": "0.000000001",
        "day": "1970-01-02Z",
        "text": "000",
        "at": "1970-01-01T00:00:01Z",
    }
    bodies = [json.loads(debezium_message("d", before, None)) for before in (zeros, zeros | others)]
    for body in bodies:
        body["source"]["connector"] = "postgresql"
    frame = messages(spark, map(json.dumps, bodies))
    keys = [*others, "id"]
    tables = (parsed_envelopes(frame, row, [key], table="shop.customers") for key in keys)
    rows = [table.select(F.lit(key), "queueOffset", "fault") for key, table in zip(keys, tables, strict=True)]
    refused = [(key, at) for key, at, fault in reduce(DataFrame.union, rows).collect() if fault and "of zeros" in fault]
    assert sorted(refused) == sorted((key, 0) for key in others)


NO_CHANGES: dict[Callable[..., DataFrame], list[str | None]] = {
    parsed_of_canal: [
        canal_message([("c", None, {**ANN, "amount": "much"})]),
        "no JSON",
        "",
        '{"some": "object"}',
        canal_message([("c", None, {**ANN, "id": None})]),
        canal_message([("u", {**ANN, "amount": "much"}, ANN)]),
        canal_message([("c", None, ANN)], table=None),
        canal_message([("c", None, ANN)], database=None),
        canal_message([("c", None, ANN)], es=None),  # a null in the sequence would come before each other change
        canal_message([("c", None, ANN)], type="insert"),
        canal_message([("c", None, ANN)], type=None),
        canal_message([("c", None, ANN)], data=None),
        canal_message([("c", None, ANN)], data=[None]),
        canal_message([("c", None, {**ANN, "id": 2**63})]),
        canal_message([("c", None, ANN)])[:-30],
        f"[{canal_message([('c', None, ANN)])}]",
        "null",
        None,
    ],
    parsed_of_debezium: [
        debezium_message("c", None, {**ANN, "amount": "much"}),
        '{"id": 3, "name": "flat", "payload": null}',  # a row without its envelope is no tombstone
        "no JSON",
        '{"some": "object"}',
        debezium_message("c", None, {**ANN, "id": None}),
        debezium_message("d", None, None),
        debezium_message("x", ANN, None),
        '{"payload": {"id": 3, "name": "flat"}}',
        '{"payload": "null"}',
        " " * 1_000_000 + "no JSON",
        "{}",
        '{"schema": null}',
        '{"payload": []}',
        debezium_message(None, None, ANN),
        debezium_message("u", None, None, wrapped=True),
        debezium_message("u", BOB, {**BOB, "id": None}),
        debezium_message("c", None, {**ANN, "id": 2**63}),
        debezium_message("c", None, ANN)[:-30],
        debezium_message("c", None, ANN).replace('"shop"', "null"),
        debezium_message("c", None, ANN).replace('"customers"', "null"),
    ],
}
GOOD = {parsed_of_canal: canal_message([("c", None, BOB)]), parsed_of_debezium: debezium_message("c", None, BOB)}
# Some of these, by what their errors say.
ENDS = {
    parsed_of_canal: {NO_CHANGES[parsed_of_canal][0]: "has values or keys", "no JSON": "is no flat message of Canal"},
    parsed_of_debezium: {NO_CHANGES[parsed_of_debezium][0]: "has `amount` = much", "no JSON": "is no envelope"},
}


@pytest.mark.parametrize("read", NO_CHANGES)
def test_what_is_no_change_ends_the_query_or_is_left_out(spark: SparkSession, read: Callable[..., DataFrame]) -> None:
    # The last query finds each of them. One that ends takes seconds, so only some have a query of their own.
    bodies = [GOOD[read], *NO_CHANGES[read]]
    for body, text in ENDS[read].items():
        with pytest.raises(PySparkException, match=rf"RMQ_INVALID_CHANGE.*customers/b/0/1 {text}"):
            read(messages(spark, [GOOD[read], body])).collect()
    assert rows_of(read(messages(spark, bodies), corrupt="skip")) == [("insert", 2, None, "bob")]


def test_a_table_that_a_sample_does_not_show_is_searched_for(spark: SparkSession) -> None:
    other = canal_message([("c", None, ANN)], table="orders")
    frame = messages(spark, [other, canal_message([("c", None, ANN)])])
    assert [check(frame, table="shop.customers", limit=1), check(frame.limit(1), limit=1)] == [[], []]
    (finding,) = check(frame, table="shop.customer", limit=1)
    assert finding.fault.endswith("there are changes of: shop.orders")


def test_a_schema_of_last_week(spark: SparkSession) -> None:
    """A column that the table got is left out; one that it lost, or renamed, ends the query, as a wider type does."""
    row, keys = row_and_keys(DDL, "id")
    lost, new = {"id": 1, "name": "ann", "amount": "1.50", "Note": None}, {**BOB, "points": 7}
    bodies = [debezium_message("u", ANN, new, number=1), debezium_message("c", None, lost)]
    bodies += [body.replace(": ", ":") for body in bodies]
    frame = messages(spark, [*bodies, debezium_message("c", None, {**ANN, "amount": 10**12})])
    read = [("delete", 1, "ann", None), ("insert", 2, None, "bob")]
    assert rows_of(parsed_of_debezium(frame, corrupt="skip")) == read * 2
    lacks = "[RMQ_LACKING_COLUMN] the message at customers/b/0/{} lacks the column note"
    expected = [None, lacks.format(1), None, lacks.format(3)]
    *faults, wide = faults_of(parsed_envelopes(frame, row, keys, table="shop.customers"))
    assert [fault and fault.partition(", which")[0] for fault in faults] == expected
    assert "[RMQ_INVALID_CHANGE] the message at customers/b/0/4 has `amount` = 1000000000000 " in (wide or "")
    with pytest.raises(PySparkException, match=r"RMQ_LACKING_COLUMN.*customers/b/0/1 lacks the column note"):
        parsed_of_debezium(frame).collect()
    bodies = [canal_message([("u", ANN, new)]), canal_message([("c", None, lost)])]
    frame = messages(spark, [*bodies, *(body.replace(": ", ":") for body in bodies)])
    faults = faults_of(parsed_messages(frame, row, table="shop.customers"))
    assert [fault and fault.partition(", which")[0] for fault in faults] == expected


def test_arguments(spark: SparkSession) -> None:
    frame = messages(spark, [canal_message([("c", None, {**ANN, "a `b`, <c": {"x y": 1}})])])
    with pytest.raises(RocketMQSparkError, match=r"key='number'.*id, name"):
        canal(frame, DDL, key="number", table="customers")
    for text, part in (("id bigint,", "''"), ("id", "'id'"), ("", "''")):
        with pytest.raises(RocketMQSparkError, match=f"no list of names and types: {part}"):
            canal(frame, text, key="id", table="customers")
    with pytest.raises(PySparkException, match=r"UNRESOLVED_COLUMN.*topic"):
        debezium(frame.select("body"), DDL, key="id", table="customers").collect()
    ddl = "id: BIGINT NOT NULL COMMENT 'its key, ever', `a ``b``, <c` string, amount decimal( 12 , 2 ), note string"
    schemas: tuple[str | StructType, ...] = (f"{ddl} DEFAULT 'x'", spark.createDataFrame([], ddl).schema)
    for schema in schemas:
        (row,) = canal_rows(frame, schema, key="id", table="customers").select("change.after").collect()
        assert row[0] == Row(**{"id": 1, "a `b`, <c": "{'x y': 1}", "amount": Decimal("1.50"), "note": None})
    deep = messages(spark, [debezium_message("c", None, {"id": 1, "to": {"a b": [{"x": 1}]}, "tags": {"k": 2}})])
    ddl = "id int, to struct<`a b`: array<struct<x: int>>>, tags map<string, int>"
    for schema in (ddl, spark.createDataFrame([], ddl).schema):
        (row,) = debezium_rows(deep, schema, key=["id"], table="customers").select("change.after").collect()
        assert row[0] == Row(id=1, to=Row(**{"a b": [Row(x=1)]}), tags={"k": 2})


LONGEST_METHOD = 8000  # bytes of a method that the JVM compiles: a longer one it interprets, at half the rate


@pytest.mark.parametrize(
    ("body", "read"),
    [(canal_message([("c", None, ANN)]), of_canal), (debezium_message("c", None, ANN), of_debezium)],
    ids=["canal", "debezium"],
)
def test_the_jvm_compiles_the_methods_of_each_operator(
    spark: SparkSession, body: str, read: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    with settings(spark, COMPILING | NOT_ADAPTIVE):
        read(messages(spark, [body]).repartition(2)).explain("codegen")
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:([0-9]+)", capsys.readouterr().out)]
    assert sizes
    assert max(sizes) <= LONGEST_METHOD
