"""Pulls to record batches: only the columns asked for are built, each for all messages at once.

Times of Arrow and Spark are microseconds, RocketMQ's are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyrmq_core.columnar.arrays import as_text, numbers, repeated, spans
from pyrmq_core.columnar.boundaries import Unreadable
from pyrmq_core.columnar.columns import TIMESTAMP, source_column
from pyrmq_core.columnar.decode_messages import MAX_MS, decode_messages
from pyrmq_core.columnar.hosts import host_texts, offset_msg_ids
from pyrmq_core.columnar.pairs import Pairs, read_pairs
from pyrmq_core.columnar.records import Rows, read_rows, with_plain_bodies
from pyrmq_core.filtering.tags import TagFilter
from pyrmq_core.model import EVERYTHING, OffsetRange
from pyrmq_core.protocol.payload import RawPull
from pyrmq_core.protocol.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY

ALL_TAGS: Final = TagFilter()
# Below about so many messages a loop is quicker: columns have a fixed cost of a few hundred microseconds.
BREAK_EVEN_MESSAGES: Final = 64


def decode_records(
    pulls: Iterable[RawPull],
    columns: pa.Schema,
    within: OffsetRange = EVERYTHING,
    *,
    tags: TagFilter = ALL_TAGS,
    keep_undecodable: bool = False,
) -> pa.RecordBatch:
    """The messages of `pulls` that lie in `within` and have one of `tags`, as a batch of exactly `columns`.

    A broker compares hashes of tags: here their text decides. `body` may be asked for as string, read as Java reads
    text. `RecordError` names queue and offset of what cannot be read, `InvalidArgument` a column there is not.
    """
    pulls = list(pulls)
    for name in columns.names:
        source_column(name)
    keep = keep_undecodable or "body" not in columns.names
    by_columns = sum(pull.next_offset - pull.start for pull in pulls) >= BREAK_EVEN_MESSAGES
    if by_columns and (tags.tags or all(pull.passes is None for pull in pulls)):  # SQL is evaluated message by message
        try:
            return decode_columns(pulls, columns, within, tags, keep_undecodable=keep)
        except Unreadable:
            pass  # the plain path reads it, or says why it cannot be read
    return decode_messages(pulls, columns, within, tags, keep_undecodable=keep)


def decode_columns(
    pulls: Sequence[RawPull], columns: pa.Schema, within: OffsetRange, tags: TagFilter, *, keep_undecodable: bool
) -> pa.RecordBatch:
    """`decode_records` without a loop over messages; `Unreadable` when something is not as it should be."""
    rows = read_rows(pulls, within)
    if tags.tags:
        wanted = pc.is_in(_Columns(rows, pulls).pairs.column(TAGS), value_set=pa.array(sorted(tags.tags), pa.string()))
        rows = rows.only(wanted.to_numpy(zero_copy_only=False))
    if "body" in columns.names:
        rows = with_plain_bodies(rows, keep_undecodable=keep_undecodable)
    made = _Columns(rows, pulls)
    arrays = [_of_type(BUILDERS[field.name](made), field) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


class _Columns:
    """The columns of some messages; what several of them need is made once."""

    def __init__(self, rows: Rows, pulls: Sequence[RawPull]) -> None:
        self.rows = rows
        self._pulls = pulls

    @cached_property
    def pairs(self) -> Pairs:
        return read_pairs(spans(self.rows.data, *self.rows.properties))

    @cached_property
    def offset_msg_ids(self) -> pa.Array:
        return offset_msg_ids(self.rows)

    def topic(self) -> pa.Array:
        return as_text(spans(self.rows.data, *self.rows.topic))

    def body(self) -> pa.Array:
        return spans(self.rows.data, *self.rows.body)

    def broker_name(self) -> pa.Array:
        return repeated([pull.queue.broker_name for pull in self._pulls], self._per_pull())

    def queue_id(self) -> pa.Array:
        queue_ids = np.array([pull.queue.queue_id for pull in self._pulls], np.int32)
        return numbers(queue_ids[self.rows.pull], pa.int32())

    def queue_offset(self) -> pa.Array:
        return numbers(self.rows.queue_offset, pa.int64())

    def flag(self) -> pa.Array:
        return numbers(self.rows.flag.astype(np.int32), pa.int32())

    def msg_id(self) -> pa.Array:
        ids = self.pairs.column(UNIQ_KEY)
        return pc.coalesce(ids, self.offset_msg_ids) if ids.null_count else ids

    def number(self, name: str, kind: pa.DataType) -> pa.Array:
        return numbers(self.rows.head(name), kind)

    def time(self, name: str) -> pa.Array:
        times = self.rows.head(name)
        if len(times) and not -MAX_MS <= times.min() <= times.max() <= MAX_MS:
            raise Unreadable
        return numbers(times * 1000, TIMESTAMP)

    def _per_pull(self) -> Any:
        return np.bincount(self.rows.pull, minlength=len(self._pulls))


BUILDERS: Final[dict[str, Callable[[_Columns], pa.Array]]] = {
    "topic": _Columns.topic,
    "brokerName": _Columns.broker_name,
    "queueId": _Columns.queue_id,
    "queueOffset": _Columns.queue_offset,
    "msgId": _Columns.msg_id,
    "tags": lambda made: made.pairs.column(TAGS),
    "keys": lambda made: made.pairs.column(KEYS),
    "body": _Columns.body,
    "properties": lambda made: made.pairs.map(),
    "bornTimestamp": lambda made: made.time("born_timestamp_ms"),
    "storeTimestamp": lambda made: made.time("store_timestamp_ms"),
    "reconsumeTimes": lambda made: made.number("reconsume_times", pa.int32()),
    "offsetMsgId": lambda made: made.offset_msg_ids,
    "bornHost": lambda made: host_texts(made.rows, "born_host"),
    "storeHost": lambda made: host_texts(made.rows, "store_host"),
    "sysFlag": lambda made: made.number("sys_flag", pa.int32()),
    "flag": _Columns.flag,
    "bodyCrc": lambda made: made.number("body_crc", pa.int32()),
    "storeSize": lambda made: made.number("size", pa.int32()),
    "commitLogOffset": lambda made: made.number("commit_log_offset", pa.int64()),
    "preparedTransactionOffset": lambda made: made.number("prepared_transaction_offset", pa.int64()),
    "shardingKey": lambda made: made.pairs.column(SHARDING_KEY),
}


def _of_type(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    return as_text(array) if field.name == "body" and field.type == pa.string() else array.cast(field.type)
