"""Applies change messages to a copy of a database's table: the latest row of each key, and the applied offsets.

The table is a directory of Parquet, or a table of a catalog with MERGE. A row has the columns of the schema, and
`_change`, which names the change that wrote it. A deleted row stays, as its key with the operation `delete`, so that a
late older change is recognized. A batch that is applied again therefore changes nothing.

Spark plans each batch anew, and for each expression PySpark records the caller's line, which doubles the planning time.
Starting the session with `spark.python.sql.dataFrameDebugging.enabled=false` avoids that, but then Spark's errors name
no line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name
from pyspark.sql.types import StructType

from pyrmq_core import line_logger
from pyrmq_spark.cdc.canal_rows import canal_rows
from pyrmq_spark.cdc.changes import PLACE
from pyrmq_spark.cdc.columns import Field, Row, row_and_keys
from pyrmq_spark.cdc.debezium_rows import debezium_rows
from pyrmq_spark.cdc.order import HINTS, KEY, QUEUE, ordered
from pyrmq_spark.cdc.sample import NO_SUCH_TABLE, check
from pyrmq_spark.cdc.table_names import is_all_there_is
from pyrmq_spark.cdc.truncations import truncated_at
from pyrmq_spark.json_texts import quoted
from pyrmq_spark.spark_errors import InvalidOption, LackingColumn, MissingChanges, UnfitCapture, as_spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Tool: TypeAlias = Literal["canal", "debezium"]
Positions: TypeAlias = dict[tuple[str, str, int], int]

log = line_logger(__name__)

READERS: Final[Mapping[str, Callable[..., DataFrame]]] = {"canal": canal_rows, "debezium": debezium_rows}
CHANGE: Final = "_change"
GENERATIONS: Final = 3  # copies of a table in Parquet: a query may read a copy while two more batches are applied
MAY_BE_UNAVAILABLE: Final = ("string", "decimal", "binary", "array", "map")


def apply(
    messages: DataFrame,
    into: str | os.PathLike[str],
    *,
    tool: Tool,
    schema: str | StructType,
    key: str | Sequence[str],
    table: str,
    merge: bool = False,
    positions: str | os.PathLike[str] | None = None,
    accept: Sequence[str] = (),
    **options: Any,
) -> Positions:
    """Applies a batch of change messages to a table, and returns the next offset of each queue.

    It is meant for `foreachBatch`, as a repeated batch changes nothing, and for batch reads. `messages` have `body`,
    `topic`, `brokerName`, `queueId` and `queueOffset`. `schema`, `key`, `table` and `options` are arguments of `canal`
    or `debezium`, which `tool` names.

    `into` is a directory of Parquet, or with `merge` the name of a table in a catalog with MERGE, which is created if
    it does not exist. Only with `merge`, `positions` is a directory that keeps the next offsets. `table` reads the
    rows, `applied` the offsets.

    `check` examines a sample of each batch. `RMQ_UNFIT_CAPTURE` is raised where the table would differ from its
    database, unless `accept` has the setting. If a stream's first batch has no change of `table`, a warning is logged.
    `RMQ_MISSING_CHANGES` is raised if messages before or in the batch are missing, `RMQ_LACKING_COLUMN` if a new row
    begins with a change that lacks a value.
    """
    with as_spark_error("cdc"):
        if tool not in READERS:
            raise InvalidOption(f"tool={tool!r} has to be 'canal' or 'debezium'")
        if merge != (positions is not None):
            raise InvalidOption("positions is the directory of offsets beside merge=True, and only there")
    row, keys = row_and_keys(schema, key)
    spark = messages.sparkSession
    directory = os.fspath(positions) if positions is not None else f"{os.fspath(into)}/positions"
    offsets, version = _positions(spark, directory)
    batch = messages.select("body", *PLACE).persist()
    try:
        _look(batch, table, accept, first=not offsets)
        ends = _ends(batch, offsets)
        new = _not_applied(batch, offsets)
        if ends == offsets:
            return offsets
        offset = truncated_at(new, table, ends, accept)
        if offset is not None:
            new = new.where(F.col("queueOffset") > offset)
        if tool == "debezium":
            options = {"unavailable": "mark"} | options
        changes = READERS[tool](new, schema, key=key, table=table, **options)
        if merge:
            _merge(spark, os.fspath(into), changes, row, keys, truncated=offset is not None)
        else:
            old = _rows(spark, os.fspath(into), version) if offset is None else None
            rows = _latest(changes, old, row, keys)
            rows.write.mode("overwrite").parquet(_generation(os.fspath(into), version + 1))
        _write_positions(spark, directory, ends, version + 1)
    finally:
        batch.unpersist()
    return ends


def table(spark: SparkSession, into: str | os.PathLike[str], *, merge: bool = False) -> DataFrame:
    """Returns the rows of a table that `apply` writes: a directory of Parquet, or with `merge` a table's name."""
    name = os.fspath(into)
    rows = _newest(spark, name) if merge else _rows(spark, name, _positions(spark, f"{name}/positions")[1])
    if rows is None:
        with as_spark_error("cdc"):
            raise InvalidOption(f"{name!r} has no table that was applied")
    return rows.where(F.col(f"{CHANGE}.op") != "delete").drop(CHANGE)


def applied(spark: SparkSession, positions: str | os.PathLike[str]) -> DataFrame:
    """Returns the next offset that `apply` expects of each queue: `topic`, `brokerName`, `queueId`, `queueOffset`.

    `positions` is the argument `positions` of `apply`, or else its directory `into`.
    """
    name = os.fspath(positions)
    ends = _positions(spark, f"{name}/positions")[0] or _positions(spark, name)[0]
    rows = [(*queue, offset) for queue, offset in sorted(ends.items())]
    return spark.createDataFrame(rows, "topic string, brokerName string, queueId int, queueOffset bigint")


def _look(batch: DataFrame, name: str, accept: Sequence[str], *, first: bool) -> None:
    findings = [finding for finding in check(batch, table=name if first else None) if finding.wrong]
    for finding in findings:
        if finding.setting in accept:
            continue
        if finding.fault.startswith(NO_SUCH_TABLE) and not is_all_there_is(batch):
            log.warning("table=%r is empty so far: %s", name, finding.fault)
            continue
        with as_spark_error("cdc"):
            fault = f"{finding.setting} ({finding.place}): {finding.fault}. accept={finding.setting!r} passes it"
            raise UnfitCapture(fault)


def _positions(spark: SparkSession, directory: str) -> tuple[Positions, int]:
    try:
        rows = spark.read.parquet(directory)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return {}, 0
        raise
    newest = rows.orderBy(F.col("version").desc()).limit(1).collect()
    if not newest:
        return {}, 0
    ends = {(end.topic, end.brokerName, end.queueId): end.queueOffset for end in newest[0].ends}
    return ends, newest[0].version


def _write_positions(spark: SparkSession, directory: str, ends: Positions, version: int) -> None:
    rows = [(version, [(*queue, offset) for queue, offset in sorted(ends.items())])]
    form = "version bigint, ends array<struct<topic:string,brokerName:string,queueId:int,queueOffset:bigint>>"
    spark.createDataFrame(rows, form).coalesce(1).write.mode("append").parquet(directory)


def _ends(batch: DataFrame, offsets: Positions) -> Positions:
    """Returns the next offset of each queue after the batch. `offsets` has the offsets before it.

    Raises an error if messages in the batch, or between it and `offsets`, are missing.
    """
    ends = dict(offsets)
    counts = (F.min("queueOffset").alias("first"), F.max("queueOffset").alias("last"))
    for row in batch.groupBy(*QUEUE).agg(*counts, F.count_distinct("queueOffset").alias("number")).collect():
        queue = (row.topic, row.brokerName, row.queueId)
        next_offset = offsets.get(queue, row.first)
        if row.first > next_offset or row.number != row.last - row.first + 1:
            with as_spark_error("cdc"):
                name = "/".join(map(str, queue))
                raise MissingChanges(
                    f"the table has the changes of {name} up to {next_offset}, and the batch has {row.number} of "
                    f"{row.first} to {row.last}: read all messages of the topic from there, or make the table anew"
                )
        ends[queue] = max(next_offset, row.last + 1)
    return ends


def _not_applied(batch: DataFrame, offsets: Positions) -> DataFrame:
    is_new = F.lit(True)
    for (topic, broker, queue), offset in offsets.items():
        is_queue = (F.col("topic") == topic) & (F.col("brokerName") == broker) & (F.col("queueId") == queue)
        is_new &= ~is_queue | (F.col("queueOffset") >= offset)
    return batch.where(is_new)


def _generation(into: str, version: int) -> str:
    return f"{into}/rows_{version % GENERATIONS}"


def _rows(spark: SparkSession, into: str, version: int) -> DataFrame | None:
    return spark.read.parquet(_generation(into, version)) if version else None


def _latest(changes: DataFrame, old: DataFrame | None, row: Row, keys: Sequence[str]) -> DataFrame:
    """Returns the latest row of each key, by its changes and by its row in the table so far (`old`).

    A value that the last change lacks is taken from an earlier change or from that row. If none has it, the query
    fails.
    """
    if old is not None:
        changes = changes.unionByName(_as_changes(old, row, keys))
    of_key = Window.partitionBy(*KEY).orderBy("position")
    so_far = of_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # Values are in structs, to distinguish a null that was written from a missing value.
    values = F.struct(*(_value_so_far(field).over(so_far).alias(field.name) for field in row))
    rows = ordered(changes).withColumns({"later": F.lead("op").over(of_key), "values": values}).where("later IS NULL")
    is_deleted = F.col("op") == "delete"
    columns, lacking = [], F.lit(False)
    for field in row:
        value = F.col("values").getField(field.name)
        lacking |= value.isNull()
        of_deleted = F.col("key").getField(field.name) if field.name in keys else F.lit(None)
        columns.append(F.when(is_deleted, of_deleted).otherwise(value["value"]).alias(field.name))
    words = "] a row that the table does not have begins with a change that lacks a long value: begin with a snapshot. "
    error = F.raise_error(F.concat(F.lit(f"[{LackingColumn.condition}{words}"), F.to_json("key")))
    rows = rows.where(F.when(~is_deleted & lacking, error.isNull()).otherwise(F.lit(True)))
    change = F.struct("op", *QUEUE, "sequence", "moved", *HINTS)
    return rows.select(*columns, change.alias(CHANGE))


def _value_so_far(field: Field) -> Column:
    value = F.struct(F.col("after").getField(field.name).alias("value"))
    if field.kind not in MAY_BE_UNAVAILABLE:
        return F.last(value)
    is_there = (F.col("op") != "delete") & ~F.array_contains("unavailable", field.name)
    return F.last(F.when(is_there, value), ignorenulls=True)


def _as_changes(old: DataFrame, row: Row, keys: Sequence[str]) -> DataFrame:
    part = F.col(CHANGE)
    after = F.when(part["op"] != "delete", F.struct(*(F.col(quoted(field.name)) for field in row)))
    none = F.when(F.lit(False), after)
    change = F.struct(
        part["op"].alias("op"),
        F.struct(*(F.col(quoted(name)) for name in keys)).alias("key"),
        none.alias("before"),
        after.alias("after"),
        part["sequence"].alias("sequence"),
        F.array().cast("array<string>").alias("unavailable"),
        part["moved"].alias("moved"),
    )
    names = [part[name].alias(name) for name in (*QUEUE, *HINTS)]
    return old.select(*names, part["sequence"]["queueOffset"].alias("queueOffset"), change.alias("change"))


def _merge(
    spark: SparkSession, into: str, changes: DataFrame, row: Row, keys: Sequence[str], *, truncated: bool
) -> None:
    if not spark.catalog.tableExists(into):
        _latest(changes.limit(0), None, row, keys).writeTo(into).create()
    if truncated:
        spark.sql(f"DELETE FROM {into}")
    target = _newest(spark, into)
    touched = changes.select("change.key.*").distinct()
    same_key = reduce(lambda left, right: left & right, (target[key].eqNullSafe(touched[key]) for key in keys))
    rows = _latest(changes, target.join(touched, same_key, "left_semi"), row, keys).alias("latest")
    matches = reduce(
        lambda left, right: left & right, (_column(into, key) == F.col(f"latest.{quoted(key)}") for key in keys)
    )
    rows.mergeInto(into, matches).whenMatched().updateAll().whenNotMatched().insertAll().merge()


def _newest(spark: SparkSession, name: str) -> DataFrame:
    """Returns a table as it is now. A catalog such as Iceberg's may otherwise return an older state."""
    spark.catalog.refreshTable(name)
    return spark.table(name)


def _column(into: str, name: str) -> Column:
    return F.col(f"{into}.{quoted(name)}")
