"""The rows of a frame that is written: which of them no broker could take, and which go to which topic. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar import CheckedRows, Fault, check
from pyrmq_spark.spark_errors import InvalidRow

# A broker's `messageDelayLevel` has so many by default, and its `timerMaxDelaySec` is this.
MAX_DELAY_LEVEL: Final = 18
MAX_TIMER_DELAY: Final = timedelta(days=3)


def check_rows(rows: pa.RecordBatch, first_row: int, now: datetime) -> list[CheckedRows]:
    """Returns the rows in parts that can be encoded.

    Raises `InvalidRow`, which names the lowest row that cannot be sent; rows count from 0 in their partition.
    """
    faults, checked = [*_faults(rows, now)], check(rows)
    if isinstance(checked, Fault):
        faults.append(checked)
    elif not faults:
        return checked
    fault = min(faults, key=lambda fault: fault.row)
    raise InvalidRow(f"row {first_row + fault.row}, column {fault.column}: {fault.reason}")


def _faults(rows: pa.RecordBatch, now: datetime) -> Iterator[Fault]:
    """Yields the lowest row that breaks each rule about a message's queue and delivery time."""
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
        last = pa.scalar(now + MAX_TIMER_DELAY, pa.timestamp("us", "UTC"))
        late = pc.greater(columns["deliverAt"].cast(pa.timestamp("us", "UTC")), last)
        rules.append((late, "deliverAt", "it is more than 3 days ahead (a broker's timerMaxDelaySec)"))
    if "deliverAt" in columns and "delayLevel" in columns:
        both = pc.and_(pc.is_valid(columns["deliverAt"]), pc.is_valid(columns["delayLevel"]))
        rules.append((both, "deliverAt", "delayLevel and deliverAt exclude one another; make one of them null"))
    for broken, column, reason in rules:
        row = pc.index(broken, True).as_py()
        if row >= 0:
            yield Fault(row, column, reason)


def by_topic(rows: CheckedRows, topic: str | None) -> Iterator[tuple[str, CheckedRows]]:
    """Yields the rows of each topic, in their order; topics by their first appearance."""
    if topic is not None:
        yield topic, rows
        return
    topics = rows.column("topic")
    distinct: Sequence[str] = pc.unique(topics).to_pylist()
    for name in distinct:
        yield name, rows if len(distinct) == 1 else rows.filter(pc.equal(topics, name))
