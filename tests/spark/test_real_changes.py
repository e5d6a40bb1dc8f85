"""Messages that Canal and Debezium wrote (`golden/changes`) become the rows of their databases, or are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc import apply, canal, canal_rows, check, debezium, debezium_faults, debezium_rows, order, upsert
from pyrmq_spark.cdc import table as table_of
from pyrmq_spark.spark_errors import RocketMQSparkError

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parents[1] / "golden" / "changes"
CANAL = json.loads((GOLDEN / "canal_1.1.8_mariadb_10.11.json").read_text())
POSTGRES = json.loads((GOLDEN / "debezium_3.6.1_postgresql_15.18.json").read_text())
MARIADB = json.loads((GOLDEN / "debezium_3.2.0_mariadb_10.11.json").read_text())
COLUMNS = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"


def frame(spark: SparkSession, *topics: str, reverse: bool = False, **changed: Any) -> DataFrame:
    """Returns the messages of topics of Debezium, with other values of an envelope; `reverse` mixes their offsets."""
    captured = [message for message in POSTGRES + MARIADB if message["topic"] in topics]
    places = [(m.get("queueId", 0), m.get("queueOffset", number)) for number, m in enumerate(captured)]
    rows = [
        (m["topic"], "broker-a", queue, -offset if reverse else offset, json.dumps(m["body"] | changed).encode())
        for m, (queue, offset) in zip(captured, places, strict=True)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def parsed(messages: DataFrame, schema: str, **options: Any) -> DataFrame:
    """Returns changes of Debezium without a look at several messages, which triples the cost of a small query."""
    return debezium_rows.debezium_rows(messages, schema, **{"key": "id"} | options).select("change.*")


def rows_of(changes: DataFrame) -> list[tuple[object, ...]]:
    """Returns the table: the latest change of each key counts."""
    last = {row.key: row.after for row in sorted(changes.collect(), key=lambda row: tuple(row.sequence))}
    return sorted(tuple(row) for row in last.values() if row is not None)


def refused(changes: DataFrame, text: str) -> None:
    with pytest.raises(PySparkException, match=text):
        changes.collect()


def test_the_order_of_postgresql(spark: SparkSession) -> None:
    """A transaction that is open at the snapshot has LSNs below the snapshot's; Debezium's sink mixes offsets."""
    two = "id bigint, v string"
    for reverse in (False, True):
        race = frame(spark, "d_public_race", reverse=reverse)
        changes = debezium(race, two, key="id", table="public.race")
        assert rows_of(changes) == [(1, "new"), (3, "old"), (4, "new")]
    plan = changes._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("collect_list(") == 1, "the changes of a key are listed once, however many expressions use them"
    added = frame(spark, "d_public_addcol").where("queueOffset > 0")
    changes = debezium(added, f"{two}, n int", key="id", table="public.addcol")
    assert rows_of(changes) == [(1, "a", 5), (2, "bb", 5), (3, "c", 5)]
    refused(
        debezium(frame(spark, "b_public_swap_f"), two, key="id", table="swap_f"),
        r'RMQ_UNORDERED_CHANGES\] the key \{"id":2\} was given to another row',
    )
    refused(
        debezium(race.withColumn("queueId", race.queueOffset.cast("int")), two, key="id", table="race"),
        r"RMQ_UNORDERED_CHANGES.*several queues",
    )


def rows_before_deletes(spark: SparkSession) -> list[tuple[object, ...]]:
    columns = "id bigint, nn int, nt string, v string, d int"
    changes = parsed(frame(spark, "b_public_def"), columns, table="public.def")
    return [tuple(row.before) for row in changes.where("key.id = 3").collect()]


def test_the_row_before_a_delete(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows_before_deletes(spark) == [(3, None, None, None, None)]
    monkeypatch.setattr(debezium_rows, "_key_alone", lambda *_: F.col("was"))
    assert rows_before_deletes(spark) == [(3, 0, "", None, 7)]


def test_values_that_no_row_had(spark: SparkSession) -> None:
    refused(
        parsed(frame(spark, "b_public_uidx"), "id bigint, code int, v string", table="uidx"),
        r"RMQ_INVALID_CHANGE.*REPLICA IDENTITY USING INDEX",
    )
    refused(
        parsed(frame(spark, "b_public_gend"), "id bigint, total string", table="gend"),
        r"RMQ_LACKING_COLUMN.*lacks the column total",
    )
    settings = {finding.setting for finding in check(frame(spark, "b_public_def")) if finding.wrong}
    assert settings == {"converter.replace.null.with.default"}
    assert not [finding for finding in check(frame(spark, "e_public_def")) if finding.wrong]


def test_unchanged_long_values(spark: SparkSession) -> None:
    long = frame(spark, "b_public_long_d")
    shown = "id bigint, v int, tx string, `by` binary, ai array<int>, at array<string>, hs string, nu decimal(38,5), "
    shown += "ab array<bigint>, au array<string>"
    refused(parsed(long, shown, table="long_d"), "RMQ_LACKING_COLUMN.*REPLICA IDENTITY FULL")
    (row,) = parsed(long, shown, table="long_d", unavailable="mark").collect()
    assert row.unavailable == ["tx", "by", "ai", "at", "hs", "nu", "ab", "au"]
    assert tuple(row.after) == (1, 2, *[None] * 8)
    for column in ("bo array<boolean>", "db array<double>", "a2 array<string>"):
        hidden = parsed(long, f"id bigint, {column}", table="long_d", unavailable="mark")
        refused(hidden, f"RMQ_LACKING_COLUMN.*may lack the column {column[:2]}")


def test_types_of_postgresql(spark: SparkSession) -> None:
    types = frame(spark, "b_public_types").where("queueId = 3 AND queueOffset = 1")
    right = "id bigint, n38_10 decimal(38,10), n20_0 decimal(20,0), `by` binary, tstz timestamp, b10 binary, da int"
    (row,) = parsed(types, right, table="types").collect()
    assert row.after.n38_10 == Decimal("1234567890123456789012345678.0123456789")
    assert (row.after.n20_0, row.after.by, row.after.b10) == (2**64 - 1, b"\x00\xff\x10", b"\x01\x02")
    for column in ("da date", "ts timestamp", "ts timestamp_ntz", "ttz timestamp", "tstz timestamp_ntz", "tstz date",
                   "a2 array<int>", "a2 array<array<int>>", "ti timestamp", "da timestamp"):  # fmt: skip
        refused(parsed(types, f"id bigint, {column}", table="types"), "RMQ_INVALID_CHANGE")
    special = frame(spark, "b_public_types").where("queueId = 2")
    refused(parsed(special, "id bigint, n10_2 decimal(10,2)", table="types"), "RMQ_INVALID_CHANGE.*`n10_2`")


def with_schema(spark: SparkSession, *columns: tuple[object, dict[str, object]]) -> DataFrame:
    """Returns messages of one column, as Debezium writes them with its schema. Their ids count from 1."""
    rows = []
    for number, (value, field) in enumerate(columns):
        fields = [{"field": "id", "type": "int64"}, {"field": "c", **field}]
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
        source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "snapshot": None}
        payload = {"op": "c", "before": None, "after": {"id": number + 1, "c": value}, "source": source, "ts_ns": 1}
        body = json.dumps({"schema": schema, "payload": payload}, separators=(",", ":"))
        rows.append(("t", "b", 0, number, body.encode()))
    return spark.createDataFrame(rows, COLUMNS)


def test_types_by_the_schema_in_the_message(spark: SparkSession) -> None:
    time = "io.debezium.time."
    local = datetime(2024, 2, 29, 23, 59, 59, 123456)
    decimal, scale = "org.apache.kafka.connect.data.Decimal", {"scale": "2"}
    cases: list[tuple[object, dict[str, object], str, object]] = [
        (19782, {"type": "int32", "name": f"{time}Date"}, "date", local.date()),
        (1709251199123456, {"type": "int64", "name": f"{time}MicroTimestamp"}, "timestamp_ntz", local),
        (1709251199123456789, {"type": "int64", "name": f"{time}NanoTimestamp"}, "timestamp_ntz", local),
        (
            -1,
            {"type": "int64", "name": f"{time}Timestamp"},
            "timestamp_ntz",
            local.replace(year=1969, month=12, day=31, microsecond=999000),
        ),
        ("2024-02-29T23:59:59.123456Z", {"type": "string", "name": f"{time}IsoTimestamp"}, "timestamp_ntz", local),
        ("0000", {"type": "bytes", "name": decimal, "parameters": scale}, "decimal(12,2)", Decimal("-29293.56")),
        ("AMA=", {"type": "bytes", "name": decimal, "parameters": scale}, "decimal(12,2)", Decimal("1.92")),
        ({"scale": 1, "value": "Cw=="}, {"type": "struct"}, "decimal(12,2)", Decimal("1.10")),
        ("00ff", {"type": "bytes"}, "binary", b"\xd3G\xdf"),
    ]
    for kind in {kind for *_, kind, _ in cases}:
        values = [(value, field) for value, field, its_kind, _ in cases if its_kind == kind]
        rows = parsed(with_schema(spark, *values), f"id int, c {kind}", table="t").collect()
        read = [row.after.c for row in sorted(rows, key=lambda row: int(row.after.id))]
        assert read == [expected for *_, its_kind, expected in cases if its_kind == kind], kind
    wrong: list[tuple[object, dict[str, object], str]] = [
        (9223372036825200000, {"type": "int64", "name": f"{time}MicroTimestamp"}, "timestamp_ntz"),
        (1709251199123456, {"type": "int64", "name": f"{time}MicroTimestamp"}, "timestamp"),
        ("2024-02-29T23:59:59Z", {"type": "string", "name": f"{time}IsoTimestamp"}, "timestamp"),
        ("00ff", {"type": "string"}, "binary"),
        (1.8446744073709552e19, {"type": "double"}, "decimal(20,0)"),
        ([None, None], {"type": "array"}, "array<int>"),
        ("AMA=", {"type": "bytes", "name": decimal, "parameters": scale}, "string"),
        ({"scale": 1, "value": "Cw=="}, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, "string"),
    ]
    for value, field, kind in wrong:
        changes = parsed(with_schema(spark, (value, field)), f"id int, c {kind}", table="t")
        refused(changes, "RMQ_INVALID_CHANGE")


def test_names_of_tables(spark: SparkSession) -> None:
    two = "id bigint, v string"
    for name in ("dot.ted", "public.dot.ted", "shop.public.dot.ted"):
        assert rows_of(debezium(frame(spark, "b_public_dot_ted"), two, key="id", table=name)) == [(1, "aa")]
    both = frame(spark, "b_public_again", "b_other_again")
    assert rows_of(debezium(both, two, key="id", table="other.again")) == [(1, "OTHER")]
    assert rows_of(debezium(both, two, key="id", table="public.again")) == [(1, "a")]
    refused(debezium(both, two, key="id", table="shop.again"), "RMQ_INVALID_CHANGE.*other.again.*name the schema")
    for name, fault in (("public.agains", "no change is of"), ("again", "fits several tables")):
        (finding,) = [finding for finding in check(both, table=name) if finding.setting == "table"]
        assert finding.wrong
        assert fault in finding.fault
        assert "shop.other.again" in finding.fault


def test_a_name_that_no_message_has(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the query, but in a batch of a stream, which may have changes of other tables alone: `apply` warns."""
    two = "id bigint, v string"
    both = frame(spark, "b_public_again", "b_other_again")
    misspelt, of_another_tool = (
        debezium(both, two, key="id", table="public.agains"),
        of_canal(spark, "id int", table="shop.odds"),
    )
    for changes in (
        misspelt.select("op"),
        misspelt.groupBy().count(),
        debezium(both, two, key="id", table="again.public"),
        of_another_tool.groupBy().count(),
    ):
        refused(changes, r"RMQ_UNFIT_CAPTURE\] no message is of table='[a-z.]+'.*change is of shop\.")
    nothing = both.where("queueOffset < 0")
    assert debezium(nothing, two, key="id", table="public.agains").collect() == []
    both.write.parquet(str(tmp_path / "messages"))
    counts: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        counts.extend(debezium(batch, two, key="id", table=name).count() for name in ("public.agains", "public.again"))
        for _ in range(2):
            apply(batch, tmp_path / "table", tool="debezium", schema=two, key="id", table="public.agains")

    stream = spark.readStream.schema(both.schema).parquet(str(tmp_path / "messages"))
    query = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert counts[0] == 0 < counts[1]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == upsert.__name__]
    assert warning.startswith("table='public.agains' is empty so far")
    assert "shop.public.again" in warning
    assert table_of(spark, tmp_path / "table").collect() == []


def written_by_canal(spark: SparkSession) -> DataFrame:
    rows = [("changes", "broker-a", m["queueId"], m["queueOffset"], json.dumps(m["body"]).encode()) for m in CANAL]
    return spark.createDataFrame(rows, COLUMNS)


def of_canal(spark: SparkSession, columns: str, **options: Any) -> DataFrame:
    return canal(written_by_canal(spark), columns, **{"key": "id", "table": "shop.odd"} | options)


def parsed_of_canal(spark: SparkSession, columns: str, **options: Any) -> DataFrame:
    """Returns changes of Canal without a look at several messages."""
    rows = canal_rows.canal_rows(written_by_canal(spark), columns, key="id", table="shop.odd", **options)
    return rows.select("change.*")


def test_types_of_canal(spark: SparkSession) -> None:
    columns = "id decimal(20,0), en string, st string, bin binary, bt binary, bu decimal(20,0), dt timestamp_ntz, "
    columns += "b1 boolean, inet binary, ts timestamp"
    first = (
        parsed_of_canal(spark, columns, timestamp_zone="UTC").where("after.bu > 9 AND op = 'insert'").collect()[0].after
    )
    assert (first.en, first.st, first.bin, first.bt) == ("medium", "a,c", b"\x00\xff\x10\x00", b"\x02\x01")
    assert first.bu == 2**64 - 1
    assert first.ts.timestamp() == 1709222399.123456  # 23:59:59 at +08:00
    assert first.inet == bytes(15) + b"\x01"
    assert rows_of(of_canal(spark, "id decimal(20,0), vc string")) == [(1, None), (2**64 - 1, 'é😀"\\')]
    for column, text in (("ts timestamp", "timestamp_zone"), ("uu string", "uuid"), ("inet string", "declare binary")):
        refused(parsed_of_canal(spark, f"id decimal(20,0), {column}"), f"RMQ_INVALID_CHANGE.*{text}")


def test_a_text_of_which_canal_lost_letters(spark: SparkSession) -> None:
    """So Canal 1.1.7 wrote a column of latin1."""
    row, types = {"id": "1", "v": "Wei\ufffd"}, {"id": "int(11)", "v": "varchar(50)"}
    body = {"database": "shop", "table": "t", "es": 1, "isDdl": False, "type": "INSERT", "data": [row], "old": None}
    bodies = [json.dumps(body | {"mysqlType": types}, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)]
    for text in bodies:
        lossy = spark.createDataFrame([("t", "broker-a", 0, 0, text)], COLUMNS)
        refused(canal(lossy, "id int, v string", key="id", table="shop.t"), "RMQ_INVALID_CHANGE.*`v`.*utf8mb4")


def test_the_time_of_a_statement_of_canal_is_no_order(spark: SparkSession) -> None:
    """MySQL stamps a row with the time at which its statement began, before it waited for another's lock."""
    base = {"database": "shop", "table": "t", "type": "UPDATE", "isDdl": False}
    rows = []
    for offset, (began, value, old) in enumerate([(1795886752000, "b", "a"), (1795886749000, "c", "b")]):
        body = base | {"data": [{"id": "1", "v": value}], "old": [{"v": old}], "es": began, "ts": 1795886753000}
        rows.append(("t", "broker-a", 0, offset, json.dumps(body).encode()))
    changes = canal(spark.createDataFrame(rows, COLUMNS), "id int, v string", key="id", table="shop.t")
    assert rows_of(changes) == [(1, "c")]


def moved(spark: SparkSession, parts: list[tuple[int, str, str, str | None, int | None]]) -> DataFrame:
    """Returns changes of Canal: of each the queue, the type, the key, the key before it, and the time of writing."""
    base = {"database": "shop", "table": "mv", "es": 1795886731000, "isDdl": False}
    rows = []
    for number, (queue, kind, key, old, written) in enumerate(parts):
        body = base | {"type": kind, "data": [{"id": key}], "old": [{"id": old}] if old else None, "ts": written}
        rows.append(("moved", "broker-a", queue, 100 - number if queue == 1 else number, json.dumps(body).encode()))
    return canal(spark.createDataFrame(rows, COLUMNS), "id int", key="id", table="shop.mv")


def test_a_changed_key_lies_in_two_queues_of_canal(spark: SparkSession) -> None:
    inserted, changed = (2, "INSERT", "83", None), (1, "UPDATE", "4", "83")
    assert rows_of(moved(spark, [(*inserted, None), (*changed, None)])) == [(4,)]
    assert rows_of(moved(spark, [(*changed, 2), (*inserted, 1)])) == [(4,)]
    again = [(*inserted, 1), (*changed, 2), (*inserted, 3)]
    assert rows_of(moved(spark, again)) == [(4,), (83,)]  # type: ignore[arg-type]
    at_once = [(*inserted, 5), (*changed, 5), (*inserted, 5)]
    assert rows_of(moved(spark, at_once)) == [(4,), (83,)]  # type: ignore[arg-type]
    unclear = moved(spark, [(*inserted, 5), (*changed, 5), (3, "UPDATE", "5", "83", 5)])
    refused(unclear, r'RMQ_UNORDERED_CHANGES\] the key \{"id":83\} changed into another key')


def by_log(rows: DataFrame, **_: object) -> DataFrame:
    """Orders the changes of a key by their positions in the database's log."""
    return _ordered_by(rows, F.coalesce(F.col("log.pos"), F.lit(0)))


def by_time(rows: DataFrame, **_: object) -> DataFrame:
    """Orders the changes of a key without a look at transactions."""
    return _ordered_by(rows, F.col("change.sequence.read"))


def _ordered_by(rows: DataFrame, read: Column) -> DataFrame:
    offset, index = F.col("change.sequence.queueOffset"), F.col("change.sequence.index")
    position = F.struct(read.alias("read"), offset.alias("queueOffset"), index.alias("index"))
    return rows.select("change.*", position.alias("position"))


def no_condition(*_: object) -> Column:
    return F.lit(False)


def no_name(*_: object) -> Column:
    return F.lit(None).cast("string")


# What was wrong once: module, its name, the planted one; topics, columns and table that show it, and the database.
Plant = tuple[object, str, Callable[..., object], tuple[str, ...], str, str, list[tuple[object, ...]]]
PLANTS: dict[str, Plant] = {
    "the log's position orders changes": (
        order, "ordered", by_log, ("d_public_race",), "id bigint, v string", "public.race",
        [(1, "new"), (3, "old"), (4, "new")],
    ),
    "exchanged keys are ordered": (
        order, "ordered", by_time, ("b_public_swap_f",), "id bigint, v string", "public.swap_f", [(1, "b"), (2, "a")],
    ),
    "a key that an index leaves out is read": (
        debezium_faults, "_may_be_of_index", no_condition, ("b_public_uidx",), "id bigint, v string", "public.uidx",
        [(0, "z"), (2, "b"), (11, "aa")],
    ),
    "a lacking column is null": (
        debezium_rows, "lacking", no_name, ("b_public_gend",), "id bigint, total string", "public.gend",
        [(1, "4.50"), (3, "100.00")],
    ),
    "a default stands for null": (
        upsert, "check", lambda *_, **__: [], ("m_shop_def",), "id bigint, d int", "shop.def",
        [(1, None), (2, 8), (3, None)],
    ),
    "a negative number is an unsigned one": (
        debezium_rows, "typed", lambda parsed: parsed.value.try_cast(parsed.field.type), ("m_shop_types",),
        "id bigint, bu decimal(20,0)", "shop.types", [(1, Decimal(2**64 - 1)), (12, None)],
    ),
    "an array of two dimensions is read": (
        debezium_faults, "is_flattened", lambda *_: None, ("b_public_types",), "id bigint, a2 array<string>",
        "public.types", [(2, None), (11, ["{1,2}", "{3,4}"]), (12, None)],
    ),
    "bytes of a decimal are a text": (
        debezium_faults, "_decimal_as_bytes", no_name, ("decimals",), "id bigint, c string", "t", [(1, "1.92")],
    ),
    "an array without a placeholder is read": (
        debezium_faults, "hidden", lambda *_: None, ("b_public_long_d",), "id bigint, v int, bo array<boolean>",
        "public.long_d", [(1, 2, [True])],
    ),
    "a name that matches nothing is an empty table": (
        debezium_rows, "with_named_table", lambda changes, *_: changes, ("d_public_race",), "id bigint, v string",
        "public.races", [(1, "new"), (3, "old"), (4, "new")],
    ),
}  # fmt: skip


def outcome(spark: SparkSession, plant: Plant, folder: Path) -> list[tuple[object, ...]] | str:
    """Returns the rows of a plant's table, or the condition of a named error."""
    topics, columns, table = plant[3:6]
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    messages = with_schema(spark, ("AMA=", {**decimal})) if topics == ("decimals",) else frame(spark, *topics)
    try:
        if plant[0] is upsert:
            apply(messages, folder, tool="debezium", schema=columns, key="id", table=table)
            rows = [tuple(row) for row in table_of(spark, folder).collect()]
        else:
            rows = rows_of(debezium(messages, columns, key="id", table=table))
        return sorted(rows, key=str)
    except (PySparkException, RocketMQSparkError) as error:
        return f"RMQ_{str(error).partition('[RMQ_')[2].partition(']')[0]}"


# Each takes half a minute where processors are few. Of the others `test_golden_changes.py` plants two.
@pytest.mark.soak
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(
    spark: SparkSession, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the table is that of the database or the query ends with a name, with it the table is another."""
    plant = PLANTS[name]
    truth = sorted(plant[6], key=str)
    right = outcome(spark, plant, tmp_path / "right")
    assert right == truth or (isinstance(right, str) and len(right) > len("RMQ_"))
    monkeypatch.setattr(*plant[:3])
    wrong = outcome(spark, plant, tmp_path / "wrong")
    assert not isinstance(wrong, str), wrong
    assert wrong != truth
