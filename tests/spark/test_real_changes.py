"""Messages that Canal and Debezium wrote (`golden/changes`) become the rows of their databases, or are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.cdc import apply, canal, canal_rows, check, debezium, debezium_faults, debezium_rows, order, upsert
from pyrmq_spark.cdc import table as table_of
from pyrmq_spark.cdc.changes import is_table
from pyrmq_spark.spark_errors import RocketMQSparkError
from tests.support.change_messages import (
    CANAL,
    captured,
    envelopes,
    faults_of_canal,
    frame,
    frame_of,
    numbered,
    ordered,
    ordered_of_canal,
    parsed,
    rows_of,
    written_by_canal,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


def refused(changes: DataFrame, text: str) -> None:
    with pytest.raises(PySparkException, match=text):
        changes.collect()


def test_the_order_of_postgresql(spark: SparkSession) -> None:
    """A transaction that is open at the snapshot has LSNs below the snapshot's; Debezium's sink mixes offsets."""
    two = "id bigint, v string"
    race = frame(spark, "d_public_race", reverse=True)
    changes = ordered(race, two, "public.race")
    assert rows_of(changes) == [(1, "new"), (3, "old"), (4, "new")]
    plan = changes._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("collect_list(") == 1, "the changes of a key are listed once, however many expressions use them"
    added = frame(spark, "d_public_addcol").where("queueOffset > 0")
    assert rows_of(parsed(added, f"{two}, n int", table="public.addcol")) == [(1, "a", 5), (2, "bb", 5), (3, "c", 5)]
    refused(
        ordered(frame(spark, "b_public_swap_f"), two, "swap_f"),
        r'RMQ_UNORDERED_CHANGES\] the key \{"id":2\} was given to another row',
    )
    spread = race.withColumn("queueId", race.queueOffset.cast("int"))
    refused(ordered(spread, two, "race"), r"RMQ_UNORDERED_CHANGES.*several queues")


def test_the_row_before_a_delete(spark: SparkSession) -> None:
    """Debezium writes defaults for values that it does not know."""
    (written,) = [body["before"] for body in captured("b_public_def") if (body["before"] or {}).get("id") == 3]
    assert (written["nn"], written["nt"], written["v"], written["d"]) == (0, "", None, 7)
    columns = "id bigint, nn int, nt string, v string, d int"
    changes = parsed(frame(spark, "b_public_def"), columns, table="public.def")
    assert [tuple(row.before) for row in changes.where("key.id = 3").collect()] == [(3, None, None, None, None)]


def test_values_that_no_row_had(spark: SparkSession) -> None:
    refused(
        parsed(frame(spark, "b_public_uidx"), "id bigint, code int, v string", table="uidx"),
        r"RMQ_INVALID_CHANGE.*REPLICA IDENTITY USING INDEX",
    )
    refused(
        parsed(frame(spark, "b_public_gend"), "id bigint, total string", table="gend"),
        r"RMQ_LACKING_COLUMN.*lacks the column total",
    )
    wrong = {
        topic: {finding.setting for finding in check(frame(spark, topic)) if finding.wrong}
        for topic in ("b_public_def", "e_public_def")
    }
    assert wrong == {"b_public_def": {"converter.replace.null.with.default"}, "e_public_def": set()}


def test_unchanged_long_values(spark: SparkSession) -> None:
    """An array that is null in an update may not have been sent: each of three messages has another such array."""
    (long,) = captured("b_public_long_d")
    silent = {"bo": [True], "db": [1.0], "a2": ["x"]}
    afters = [long["after"] | silent | {name: None} for name in silent] + [long["after"] | silent]
    messages = numbered(spark, [long | {"after": after} for after in afters])
    shown = "id bigint, v int, tx string, `by` binary, ai array<int>, at array<string>, hs string, nu decimal(38,5), "
    shown += "ab array<bigint>, au array<string>, bo array<boolean>, db array<double>, a2 array<string>"
    *hidden, marked = envelopes(messages, shown, table="long_d", unavailable="mark")
    for name, row in zip(silent, hidden, strict=True):
        assert re.search(rf"RMQ_LACKING_COLUMN.*may lack the column {name}:", row.fault)
    assert marked.fault is None
    assert marked.unavailable == ["tx", "by", "ai", "at", "hs", "nu", "ab", "au"]
    assert tuple(marked.after) == (1, 2, *[None] * 8, *silent.values())
    changes = parsed(messages.where("queueOffset = 3"), shown, table="long_d")
    refused(changes, "RMQ_LACKING_COLUMN.*REPLICA IDENTITY FULL")


def test_types_of_postgresql(spark: SparkSession) -> None:
    types = frame(spark, "b_public_types").where("queueId = 3 AND queueOffset = 1")
    right = "id bigint, n38_10 decimal(38,10), n20_0 decimal(20,0), `by` binary, tstz timestamp, b10 binary, da int"
    (row,) = parsed(types, right, table="types").collect()
    assert row.after.n38_10 == Decimal("1234567890123456789012345678.0123456789")
    assert (row.after.n20_0, row.after.by, row.after.b10) == (2**64 - 1, b"\x00\xff\x10", b"\x01\x02")


# A value, its type by the schema in the message, or None without a schema, and the type that a caller declares.
Case = tuple[object, dict[str, object] | None, str]


def message_of(number: int, cases: Sequence[Case]) -> dict[str, object]:
    """Returns an envelope of PostgreSQL in which each column but that of one case is null."""
    value, field, _ = cases[number]
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": "t", "snapshot": None}
    after = {"id": number + 1} | {f"c{other}": None for other in range(len(cases))} | {f"c{number}": value}
    payload: dict[str, object] = {"op": "c", "before": None, "after": after, "source": source, "ts_ns": 1}
    if field is None:
        return payload
    fields = [{"field": "id", "type": "int64"}, {"field": f"c{number}", **field}]
    return {
        "schema": {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]},
        "payload": payload,
    }


def read_cases(spark: SparkSession, cases: Sequence[Case]) -> list[Row]:
    """Returns each case as it is read, by a query for all of them."""
    columns = ", ".join(f"c{number} {kind}" for number, (*_, kind) in enumerate(cases))
    messages = numbered(spark, [message_of(number, cases) for number in range(len(cases))])
    return envelopes(messages, f"id int, {columns}", table="t")


TIME = "io.debezium.time."
MICROS: dict[str, object] = {"type": "int64", "name": f"{TIME}MicroTimestamp"}
DECIMAL: dict[str, object] = {
    "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}
}  # fmt: skip


def test_types_by_the_schema_in_the_message(spark: SparkSession) -> None:
    local = datetime(2024, 2, 29, 23, 59, 59, 123456)
    before_1970 = local.replace(year=1969, month=12, day=31, microsecond=999000)
    cases: list[tuple[object, dict[str, object] | None, str, object]] = [
        (19782, {"type": "int32", "name": f"{TIME}Date"}, "date", local.date()),
        (1709251199123456, MICROS, "timestamp_ntz", local),
        (1709251199123456789, {"type": "int64", "name": f"{TIME}NanoTimestamp"}, "timestamp_ntz", local),
        (-1, {"type": "int64", "name": f"{TIME}Timestamp"}, "timestamp_ntz", before_1970),
        ("2024-02-29T23:59:59.123456Z", {"type": "string", "name": f"{TIME}IsoTimestamp"}, "timestamp_ntz", local),
        ("0000", DECIMAL, "decimal(12,2)", Decimal("-29293.56")),
        ("AMA=", DECIMAL, "decimal(12,2)", Decimal("1.92")),
        ({"scale": 1, "value": "Cw=="}, {"type": "struct"}, "decimal(12,2)", Decimal("1.10")),
        ("00ff", {"type": "bytes"}, "binary", b"\xd3G\xdf"),
    ]
    rows = read_cases(spark, [case[:3] for case in cases])
    assert [row.fault for row in rows] == [None] * len(cases)
    assert [row.after[f"c{number}"] for number, row in enumerate(rows)] == [expected for *_, expected in cases]


def test_a_value_of_several_meanings_is_refused(spark: SparkSession) -> None:
    types = next(body["after"] for body in captured("b_public_types") if body["after"]["id"] == 11)
    special = next(body["after"] for body in captured("b_public_types") if body["after"]["id"] == 12)
    declared = ("da date", "ts timestamp", "ts timestamp_ntz", "ttz timestamp", "tstz timestamp_ntz", "tstz date",
                "a2 array<int>", "a2 array<array<int>>", "ti timestamp", "da timestamp")  # fmt: skip
    cases: list[Case] = [(types[name], None, kind) for name, kind in (text.split(" ", 1) for text in declared)]
    cases += [
        (special["n10_2"], None, "decimal(10,2)"),
        (9223372036825200000, MICROS, "timestamp_ntz"),
        (1709251199123456, MICROS, "timestamp"),
        ("2024-02-29T23:59:59Z", {"type": "string", "name": f"{TIME}IsoTimestamp"}, "timestamp"),
        ("00ff", {"type": "string"}, "binary"),
        (1.8446744073709552e19, {"type": "double"}, "decimal(20,0)"),
        ([None, None], {"type": "array"}, "array<int>"),
        ("AMA=", DECIMAL, "string"),
        ({"scale": 1, "value": "Cw=="}, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, "string"),
    ]
    for number, row in enumerate(read_cases(spark, cases)):
        assert re.search(rf"^\[RMQ_INVALID_CHANGE\].* `?c{number}\b", row.fault or ""), (cases[number], row)


def test_names_of_tables(spark: SparkSession) -> None:
    tables = [("shop", "public", "dot.ted"), ("shop", "public", "again"), ("shop", "other", "again")]
    named = {"dot.ted": "dot.ted", "public.dot.ted": "dot.ted", "shop.public.dot.ted": "dot.ted",
             "again": "again again", "public.again": "again", "other.again": "again", "again.public": "",
             "shop.again": "again again"}  # fmt: skip
    names = spark.createDataFrame(tables, "db string, owner string, name string").coalesce(1)
    owned = [is_table(table, F.col("db"), F.col("name"), F.col("owner")).alias(table) for table in named]
    rows = names.select("name", *(own.alias(f"own{number}") for number, own in enumerate(owned))).collect()
    own_names = {table: " ".join(row[0] for row in rows if row[number]) for number, table in enumerate(named, 1)}
    assert own_names == named
    both = frame(spark, "b_public_again", "b_other_again")
    assert rows_of(debezium(both, "id bigint, v string", key="id", table="other.again")) == [(1, "OTHER")]
    vague = parsed(both, "id bigint, v string", table="shop.again")
    refused(vague, "RMQ_INVALID_CHANGE.*other.again.*name the schema")
    (finding,) = [finding for finding in check(both, table="again") if finding.setting == "table"]
    assert finding.wrong
    assert "fits several tables" in finding.fault
    assert "shop.other.again" in finding.fault


def test_a_name_that_no_message_has(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It ends the query, but in a batch of a stream, which may have changes of other tables alone: `apply` warns."""
    two = "id bigint, v string"
    both = frame(spark, "b_public_again", "b_other_again")
    misspelt = debezium(both, two, key="id", table="public.agains")
    of_another_tool = canal(written_by_canal(spark), "id int", key="id", table="shop.odds")
    for changes in (misspelt.groupBy().count(), of_another_tool.groupBy().count()):
        refused(changes, r"RMQ_UNFIT_CAPTURE\] no message is of table='[a-z.]+'.*change is of shop\.")
    nothing = both.where("queueOffset < 0")
    assert debezium(nothing, two, key="id", table="public.agains").collect() == []
    both.write.parquet(str(tmp_path / "messages"))
    counts: list[int] = []

    def count(batch: DataFrame, number: int) -> None:
        counts.append(debezium(batch, two, key="id", table="public.agains").count())
        for _ in range(2):
            apply(batch, tmp_path / "table", tool="debezium", schema=two, key="id", table="public.agains")

    stream = spark.readStream.schema(both.schema).parquet(str(tmp_path / "messages"))
    query = stream.writeStream.foreachBatch(count).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert counts == [0]
    (warning,) = [record.getMessage() for record in caplog.records if record.name == upsert.__name__]
    assert warning.startswith("table='public.agains' is empty so far")
    assert "shop.public.again" in warning
    assert table_of(spark, tmp_path / "table").collect() == []


def test_types_of_canal(spark: SparkSession) -> None:
    columns = "id decimal(20,0), en string, st string, bin binary, bt binary, bu decimal(20,0), dt timestamp_ntz, "
    columns += "b1 boolean, inet binary, ts timestamp, vc string"
    rows = canal_rows.canal_rows(
        written_by_canal(spark), columns, key="id", table="shop.odd", timestamp_zone="UTC"
    ).select("change.*")
    table = {row[0]: row for row in rows_of(rows)}
    assert {key: row[-1] for key, row in table.items()} == {1: None, 2**64 - 1: 'é😀"\\'}
    _, en, st, bin_, bt, bu, _, _, inet, ts, _ = table[2**64 - 1]
    assert (en, st, bin_, bt) == ("medium", "a,c", b"\x00\xff\x10\x00", b"\x02\x01")
    assert bu == 2**64 - 1
    assert isinstance(ts, datetime)
    assert ts.timestamp() == 1709222399.123456  # 23:59:59 at +08:00
    assert inet == bytes(15) + b"\x01"
    body = next(m["body"] for m in CANAL if m["body"]["table"] == "odd" and m["body"]["type"] == "UPDATE")
    texts = {"ts": "timestamp_zone", "uu": "uuid", "inet": "declare binary"}
    # Each message has the type of one column, as a column without a type has no fault.
    messages = numbered(spark, [body | {"mysqlType": {name: body["mysqlType"][name]}} for name in texts])
    faults = faults_of_canal(messages, "id decimal(20,0), ts timestamp, uu string, inet string", "shop.odd")
    for text, fault in zip(texts.values(), faults, strict=True):
        assert re.search(f"RMQ_INVALID_CHANGE.*{text}", fault)


def test_a_text_of_which_canal_lost_letters(spark: SparkSession) -> None:
    """So Canal 1.1.7 wrote a column of latin1."""
    row, types = {"id": "1", "v": "Wei\ufffd"}, {"id": "int(11)", "v": "varchar(50)"}
    body = {"database": "shop", "table": "t", "es": 1, "isDdl": False, "type": "INSERT", "data": [row], "old": None}
    bodies = [json.dumps(body | {"mysqlType": types}, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)]
    lossy = frame_of(spark, [("t", "broker-a", 0, number, text) for number, text in enumerate(bodies)])
    for fault in (faults := faults_of_canal(lossy, "id int, v string", "shop.t")):
        assert re.search("RMQ_INVALID_CHANGE.*`v`.*utf8mb4", fault)
    assert len(faults) == len(bodies)


def test_the_time_of_a_statement_of_canal_is_no_order(spark: SparkSession) -> None:
    """MySQL stamps a row with the time at which its statement began, before it waited for another's lock."""
    base = {"database": "shop", "table": "t", "type": "UPDATE", "isDdl": False}
    rows = []
    for offset, (began, value, old) in enumerate([(1795886752000, "b", "a"), (1795886749000, "c", "b")]):
        body = base | {"data": [{"id": "1", "v": value}], "old": [{"v": old}], "es": began, "ts": 1795886753000}
        rows.append(("t", "broker-a", 0, offset, json.dumps(body).encode()))
    assert rows_of(ordered_of_canal(spark, rows, "id int, v string", "shop.t")) == [(1, "c")]


# Of a change of Canal the queue, the type, the key, the key before it, and the time of writing.
Moved = tuple[int, str, int, int | None, int | None]


def moved(spark: SparkSession, *cases: Sequence[Moved]) -> list[tuple[object, ...]]:
    """Returns the rows after changes. To the keys of each case a thousand is added for each case before it."""
    base = {"database": "shop", "table": "mv", "es": 1795886731000, "isDdl": False}
    parts = [(1000 * number, part) for number, case in enumerate(cases) for part in case]
    rows = []
    for number, (first, (queue, kind, key, old, written)) in enumerate(parts):
        olds = None if old is None else [{"id": str(first + old)}]
        body = base | {"type": kind, "data": [{"id": str(first + key)}], "old": olds, "ts": written}
        rows.append(("moved", "broker-a", queue, 100 - number if queue == 1 else number, json.dumps(body).encode()))
    return rows_of(ordered_of_canal(spark, rows, "id int", "shop.mv"))


def test_a_changed_key_lies_in_two_queues_of_canal(spark: SparkSession) -> None:
    def inserted(written: int | None) -> Moved:
        return 2, "INSERT", 83, None, written

    def changed(written: int | None) -> Moved:
        return 1, "UPDATE", 4, 83, written

    alone = [[inserted(None), changed(None)], [changed(2), inserted(1)]]
    again = [[inserted(1), changed(2), inserted(3)], [inserted(5), changed(5), inserted(5)]]
    assert moved(spark, *alone, *again) == [(4,), (1004,), (2004,), (2083,), (3004,), (3083,)]
    with pytest.raises(PySparkException, match=r'RMQ_UNORDERED_CHANGES\] the key \{"id":83\} changed into another key'):
        moved(spark, [inserted(5), changed(5), (3, "UPDATE", 5, 83, 5)])


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
    messages = frame(spark, *topics)
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
