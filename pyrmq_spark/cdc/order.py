"""Orders a key's changes in a batch by the offsets of their queue, and refuses changes without a certain order.

Streams are not examined in this way. Their changes are in order if each key stays in one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_spark.spark_errors import UnorderedChanges

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

# Columns about the order of a message: the time at which Canal wrote it, its transaction, its position in the
# database's log, and whether it belongs to a snapshot.
HINTS: Final = ("written", "transaction", "log", "snapshot")
QUEUE: Final = ("topic", "brokerName", "queueId")
# The columns of a change's key: a hash, by which Spark sorts far faster than by a struct, and the key itself.
KEY: Final = ("mark", "key")
LAST: Final = 1 << 60  # the index of a change that comes after all others of its offset
SPREAD: Final = (
    " has changes in several queues, which have no order among them: write a table into one queue, or choose the queue "
    "by the primary key (canal.mq.partitionHash, or the sink's hash of the key) and do not change the number of queues"
)
MOVED: Final = (
    " changed into another key and may exist again: Canal wrote both into different queues at the same time. Set "
    "canal.mq.partitionHash to the table alone, without $pk$"
)
SET_BACK: Final = (
    " has changes whose times and places in the database's log contradict each other: the clock of Debezium's host was "
    "set back. Set max.batch.size=1 in Debezium, by which the queue alone has the order, and make the table anew"
)
EXCHANGED: Final = (
    " was given to another row while its own row still had it, in one transaction: the changes of keys that are "
    "exchanged have no order. Read such a table from a snapshot, or make its primary key not deferrable"
)


def in_order(rows: DataFrame, names: Sequence[str], *, logged: bool) -> DataFrame:
    """Returns the columns `names` of the changes, unsorted.

    In a batch, `sequence` gets new values in the order of the database. `rows` have the struct `change`, its message's
    queue and offset, and the columns `HINTS` about its order. If `logged`, the hints have the position in the
    database's log, which reveals a wrong order. A batch fails if the order of a key's changes is unknown. Streams are
    not checked.
    """
    if _is_stream(rows):
        return rows.select(*(f"change.{name}" for name in names))
    columns = [F.col("position").alias(name) if name == "sequence" else name for name in names]
    return ordered(rows, logged=logged).select(*columns)


def ordered(rows: DataFrame, *, logged: bool = True) -> DataFrame:
    """Returns a batch's changes with a column `position`, their order within a key. An unknown order is an error."""
    numbers_of = {"mark": F.xxhash64("change.key"), "lane": F.xxhash64(*QUEUE)}
    changes = rows.select(*QUEUE, *HINTS, "change.*", *(number.alias(name) for name, number in numbers_of.items()))
    sequence = [F.col(f"sequence.{name}") for name in ("read", "queueOffset", "index")]
    of_key = Window.partitionBy(*KEY).orderBy("lane", *sequence)
    all_of_key = of_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    is_spread = F.first("lane").over(all_of_key) != F.last("lane").over(all_of_key)
    # Spark computes a window's expression again for each use in a later expression, so each first becomes a column.
    changes = changes.select("*", is_spread.alias("spread"), *(_hints_of_log(of_key, all_of_key) if logged else []))
    item = F.struct("lane", "sequence", "op", "written", "moved")
    items = F.collect_list(F.when(F.col("spread"), item)).over(all_of_key)
    taken_by = F.last("taker", ignorenulls=True).over(of_key.rowsBetween(Window.unboundedPreceding, -1))
    changes = changes.select("*", items.alias("items"), *([taken_by.alias("taken_by")] if logged else []))
    changes = changes.select("*", F.when(F.col("spread"), _place_among(F.col("items"))).alias("place"))

    def refused(fault: Column) -> Column:
        words = f"[{UnorderedChanges.condition}] the key "
        return F.raise_error(F.concat(F.lit(words), F.to_json("key"), fault))

    of_spread = _let(F.col("place.fault"), lambda fault: F.when(fault.isNotNull(), refused(fault)))
    error = F.when(F.col("spread"), of_spread)
    if logged:
        is_exchanged = (F.col("op") == "delete") & (F.col("taken_by") == F.col("transaction"))
        error = F.when(is_exchanged, refused(F.lit(EXCHANGED))).when(F.col("spread"), of_spread)
        error = error.when(_is_set_back(), refused(F.lit(SET_BACK)))
    changes = changes.where(error.isNull())
    is_last, is_first = F.col("spread") & F.col("place.last"), F.col("spread") & F.col("place.first")
    index = F.when(is_last, LAST).otherwise(F.col("sequence.index"))
    offset = F.when(is_last, F.col("place.offset")).when(is_first, -1).otherwise(F.col("sequence.queueOffset"))
    numbers = {"read": F.col("sequence.read"), "queueOffset": offset, "index": index}
    position = F.struct(*(number.cast("bigint").alias(name) for name, number in numbers.items()))
    return changes.select("*", position.alias("position"))


def _hints_of_log(of_key: WindowSpec, all_of_key: WindowSpec) -> list[Column]:
    """Returns three columns that show, by positions in the database's log, if a key's changes are in a wrong order.

    Both windows have one key's changes: `of_key` in order up to the present one, `all_of_key` from first to last.
    `stored` is the key's change with the highest offset, and `observed` the change that Debezium read last. Each has
    its offset, its position in the log, and whether it is of a snapshot. `taker` is the transaction of an insert
    without a delete of the key's row before it, as when two rows exchange their keys.
    """
    before = {name: F.lag(name).over(of_key) for name in ("op", "log", "snapshot")}
    is_other_row = (before["log"] < F.col("log")) | before["snapshot"]
    is_taken = (F.col("op") == "insert") & ~F.col("snapshot") & (before["op"] != "delete") & is_other_row
    offset = F.col("sequence.queueOffset")
    stored = F.max(F.struct(offset, "log", "snapshot")).over(all_of_key)
    observed = F.last(F.struct(offset, "log", "snapshot")).over(all_of_key)
    taker = F.when(is_taken, F.col("transaction"))
    return [stored.alias("stored"), observed.alias("observed"), taker.alias("taker")]


def _is_set_back() -> Column:
    """Returns the condition that the clock of Debezium's host was set back: its read times contradict the log."""
    stored, observed = F.col("stored"), F.col("observed")
    is_later = (stored["queueOffset"] != observed["queueOffset"]) & (stored["log"] > observed["log"])
    return F.coalesce(is_later & ~stored["snapshot"] & ~observed["snapshot"], F.lit(False))


def _place_among(items: Column) -> Column:
    """Returns the position of a change among `items`, which are all changes of its key, or a fault if it has none.

    All changes of a key are in one queue, except if an update replaces the key by another. Then the delete of the old
    key is in the queue of the new key. The time at which Canal wrote the messages orders such a delete among the other
    changes. If the times are equal, the rows decide: an insert over an existing row needs such a delete before it, and
    a delete that no insert needs is the last change.
    """

    def divided(homes: Column) -> Column:
        home = F.get(homes, F.lit(0))
        own = F.filter(items, lambda item: item["lane"] == home)  # in order, as the window is ordered
        away = F.transform(
            F.filter(items, lambda item: item["lane"] != home),
            lambda item: F.struct(item["written"].alias("written"), item["sequence"].alias("sequence"), item["lane"]),
        )
        return F.struct(homes.alias("homes"), own.alias("own"), F.array_sort(away).alias("away"))

    homes = F.array_distinct(F.transform(F.filter(items, lambda item: ~item["moved"]), lambda item: item["lane"]))
    return _let(_let(homes, divided), _place_in)


def _place_in(parts: Column) -> Column:
    """Returns a change's position among all changes of its key by `_place_among`'s rules, or a fault if it has none.

    `parts` has the queues of the key's changes (`homes`), except queues that have only a delete for a replaced key. It
    also has the changes in the first of these queues (`own`), and the changes in all other queues (`away`).
    """
    homes, own, away = parts["homes"], parts["own"], parts["away"]
    last, last_away = F.try_element_at(own, F.lit(-1)), F.try_element_at(away, F.lit(-1))
    gaps = F.filter(
        own, lambda item, index: (item["op"] == "insert") & (F.get(own, index - 1).getField("op") != "delete")
    )
    is_left_over = F.get(F.array(F.lit(False), F.lit(True)), F.size(away) - F.size(gaps))
    later = F.when(last_away["written"] != last["written"], last_away["written"] > last["written"])
    later = F.coalesce(later, is_left_over)
    fault = F.when(F.size(homes) > 1, SPREAD).when((last["op"] != "delete") & later.isNull(), MOVED)
    is_away = (F.size(homes) == 1) & (F.col("lane") != F.get(homes, F.lit(0)))
    is_last = is_away & F.coalesce(later, F.lit(True)) & (F.col("sequence") == last_away["sequence"])
    is_last &= F.col("lane") == last_away["lane"]
    return F.struct(
        fault.alias("fault"),
        F.coalesce(is_last, F.lit(False)).alias("last"),
        F.coalesce(is_away & ~is_last, F.lit(False)).alias("first"),
        last["sequence"]["queueOffset"].alias("offset"),
    )


def _let(value: Column, of_value: Callable[[Column], Column]) -> Column:
    """Returns the expression `of_value(value)`, in which Spark computes `value` only once, however often it is used."""
    return F.get(F.transform(F.array(value), of_value), F.lit(0))


def _is_stream(rows: DataFrame) -> bool:
    # Spark raises an error if a function of a declarative pipeline reads `isStreaming`.
    try:
        return rows.isStreaming
    except PySparkException:
        return True
