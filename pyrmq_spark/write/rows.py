"""Checks the rows of a written frame, and divides them by topic and into rows sent alone and in batches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core import Message, Payload, encode_one
from pyrmq_core.columnar import BatchLimit, CheckedRows, Fault, check
from pyrmq_spark.spark_errors import InvalidRow

# The highest delay level and the longest delay, by a broker's defaults (`messageDelayLevel`, `timerMaxDelaySec`).
MAX_DELAY_LEVEL: Final = 18
MAX_TIMER_DELAY: Final = timedelta(days=3)
DELAYS: Final = ("delayLevel", "deliverAt")
# Columns whose rows are sent one by one: in a batch, brokers would deliver them at once, and ignore their priority and
# lite topic.
ALONE: Final = (*DELAYS, "priority", "liteTopic")
# Columns that exclude a priority in the same row, with the reasons: brokers would ignore one of the two.
PLACED_BY: Final[Mapping[str, str]] = {
    "delayLevel": "has no priority",
    "deliverAt": "has no priority",
    "shardingKey": "is in its key's queue, and a priority chooses the queue, too",
    "queueId": "names its queue, and a priority chooses the queue, too",
}
# Columns that exclude a lite topic in the same row: they give the message another type, or another queue.
NOT_LITE: Final = (*PLACED_BY, "priority")
LITE_TOPIC_NAME: Final = r"\A[A-Za-z0-9_-]{1,64}\z"
IN_UTC: Final = pa.timestamp("us", "UTC")


def check_rows(rows: pa.RecordBatch, first_row: int, now: datetime) -> list[CheckedRows]:
    """Checks the rows, and returns them in parts that can be encoded.

    Raises `InvalidRow`, which names the first row that cannot be sent. Rows are numbered from 0 in their partition, and
    `first_row` is the number of the first row here.
    """
    faults, checked = [*_faults(rows, now)], check(rows)
    if isinstance(checked, Fault):
        faults.append(checked)
    elif not faults:
        return checked
    fault = min(faults, key=lambda fault: fault.row)
    raise InvalidRow(f"row {first_row + fault.row}, column {fault.column}: {fault.reason}")


def _faults(rows: pa.RecordBatch, now: datetime) -> Iterator[Fault]:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    rules: list[tuple[pa.Array, str, str]] = []
    if "topic" in columns:
        nowhere = "it is null; name the topic, or set the option topic for all rows"
        rules.append((pc.is_null(columns["topic"]), "topic", nowhere))
    if "queueId" in columns:
        broker_name, queue_id = columns["brokerName"], columns["queueId"]
        half = pc.xor(pc.is_null(broker_name), pc.is_null(queue_id))
        rules.append((half, "queueId", "brokerName and queueId name a queue together; give both or make both null"))
        rules.append((pc.less(queue_id, 0), "queueId", "it is below 0; queues count from 0"))
        rules.append((pc.equal(broker_name, ""), "brokerName", "it is empty; name a broker, or make it null"))
    if "delayLevel" in columns:
        level = columns["delayLevel"]
        outside = pc.or_(pc.less(level, 1), pc.greater(level, MAX_DELAY_LEVEL))
        rules.append((outside, "delayLevel", f"levels are 1 (1 s) to {MAX_DELAY_LEVEL} (2 h); null is no delay"))
    if "deliverAt" in columns:
        last = pa.scalar(now + MAX_TIMER_DELAY, IN_UTC)
        late = pc.greater(columns["deliverAt"].cast(IN_UTC), last)
        rules.append((late, "deliverAt", "it is more than 3 days ahead (a broker's timerMaxDelaySec)"))
    if "deliverAt" in columns and "delayLevel" in columns:
        both = pc.and_(pc.is_valid(columns["deliverAt"]), pc.is_valid(columns["delayLevel"]))
        rules.append((both, "deliverAt", "delayLevel and deliverAt exclude one another; make one of them null"))
    if "priority" in columns:
        priority = columns["priority"]
        rules.append((pc.less(priority, 0), "priority", "it is below 0; null is no priority"))
        for name in PLACED_BY.keys() & columns.keys():
            both = pc.and_(pc.is_valid(columns[name]), pc.is_valid(priority))
            rules.append((both, "priority", f"a row with {name} {PLACED_BY[name]}; make one of them null"))
    if "liteTopic" in columns:
        name = columns["liteTopic"]
        reason = "a lite topic's name has 1 to 64 letters, digits, hyphens and underscores; null is none"
        rules.append((pc.invert(pc.match_substring_regex(name, LITE_TOPIC_NAME)), "liteTopic", reason))
        for other in (other for other in NOT_LITE if other in columns):
            both = pc.and_(pc.is_valid(columns[other]), pc.is_valid(name))
            rules.append((both, "liteTopic", f"a row with {other} is in no lite topic; make one of them null"))
    for broken, column, reason in rules:
        row = pc.index(broken, True).as_py()
        if row >= 0:
            yield Fault(row, column, reason)


def by_topic(rows: CheckedRows, topic: str | None) -> Iterator[tuple[str, CheckedRows]]:
    """Yields each topic and its rows, in their order. Topics are ordered by their first appearance.

    A `topic` overrides the column, so that all rows are of this topic.
    """
    if topic is not None:
        yield topic, rows
        return
    topics = rows.column("topic")
    distinct: Sequence[str] = pc.unique(topics).to_pylist()
    for name in distinct:
        yield name, rows if len(distinct) == 1 else rows.filter(pc.equal(topics, name))


def may_go_alone(rows: CheckedRows) -> bool:
    return any(name in rows.schema.names for name in ALONE)


def by_batch(rows: CheckedRows) -> tuple[CheckedRows, CheckedRows]:
    """Returns the rows that are sent alone, with a delay for example, and those that share requests."""
    columns = [rows.column(name) for name in ALONE if name in rows.schema.names]
    if not columns:
        return rows.slice(0, 0), rows
    is_plain = pc.is_null(columns[0])
    for column in columns[1:]:
        is_plain = pc.and_(is_plain, pc.is_null(column))
    return rows.filter(pc.invert(is_plain)), rows.filter(is_plain)


def encode_singles(alone: CheckedRows, topic: str, unique_ids: Sequence[str], limit: BatchLimit) -> Iterator[Payload]:
    rows = alone.to_batch()
    if "deliverAt" in rows.schema.names:  # cast to UTC: the session's time zone may be unknown to Python
        index = rows.schema.names.index("deliverAt")
        rows = rows.set_column(index, "deliverAt", rows.column(index).cast(IN_UTC))
    for row, unique_id in zip(rows.to_pylist(), unique_ids, strict=True):
        yield encode_one(
            _message(row, topic),
            unique_id,
            compress_over_bytes=limit.compress_over_bytes,
            compression=limit.compression,
        )


def _message(row: Mapping[str, Any], topic: str) -> Message:
    body = row["body"]
    return Message(
        topic,
        body.encode() if isinstance(body, str) else body,
        tags=row.get("tags"),
        keys=row.get("keys") or None,
        sharding_key=row.get("shardingKey"),
        properties=dict(row.get("properties") or ()),
        flag=row.get("flag") or 0,
        delay_level=row.get("delayLevel"),
        deliver_at=row.get("deliverAt"),
        priority=row.get("priority"),
        lite_topic=row.get("liteTopic"),
    )
