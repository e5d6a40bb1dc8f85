"""`read_ranges`: reads the offset ranges of one task as Arrow record batches, in batch and streaming reads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyrmq_core import (
    DataLost,
    MessageQueue,
    NetworkError,
    OffsetRange,
    RawPull,
    ReadWindow,
    ResponseError,
    RocketMQError,
    RoutingError,
    TagFilter,
    check_id,
    check_ids,
    columnar,
    line_logger,
)
from pyrmq_spark.gc_freeze import freeze_loaded_objects
from pyrmq_spark.namespaces import name_of_tenant
from pyrmq_spark.options import ConnectionOptions, SourceOptions
from pyrmq_spark.read.range_planner import QueueRange
from pyrmq_spark.read.ranges_decoding import RangesDecoding, Reached
from pyrmq_spark.spark_errors import BrokerUnavailable, as_spark_error
from pyrmq_spark.worker import consumer_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_core.blocking import PullConsumer
    from pyrmq_core.columnar import DecodedBatch
    from pyrmq_spark.read.columns import SourceSchema

log = line_logger(__name__)

# The response codes TOPIC_NOT_EXIST, and INVALID_PARAMETER for a queue that the topic does not have.
GONE_CODES: Final = (17, 29)
PAUSE_SECONDS: Final = 0.2


def read_ranges(
    connection: ConnectionOptions, options: SourceOptions, schema: SourceSchema, ranges: Sequence[QueueRange]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the ranges as record batches, each row once, in the order of the ranges and of their offsets.

    Lost messages fail the task, or with failOnDataLoss=false are skipped. If the generator is closed early (LIMIT, a
    cancelled task), all its pulls end.
    """
    freeze_loaded_objects()
    unread = _Unread(deque(queue_range for queue_range in ranges if queue_range.size > 0))
    for batch in in_fewer_batches(_rows(connection, options, schema, unread)):
        yield schema.as_spark_schema(batch)


@dataclass(slots=True)
class _Unread:
    """The ranges that a task has not read yet. The first begins at the next offset to read.

    `deadline` is set while that offset cannot be read. It is the time of the monotonic clock at which retries end.
    """

    ranges: deque[QueueRange]
    deadline: float | None = None

    @property
    def current(self) -> QueueRange:
        return self.ranges[0]

    def go_on(self, offset: int, finished: int = 0) -> None:
        self.deadline = None
        for _ in range(finished):
            self.ranges.popleft()
        first = self.ranges.popleft()
        if offset < first.end:
            self.ranges.appendleft(first.part(offset, first.end))


def _rows(
    connection: ConnectionOptions, options: SourceOptions, schema: SourceSchema, unread: _Unread
) -> Iterator[pa.RecordBatch]:
    while unread.ranges:
        try:
            for reached, batch in _batches(connection, options, schema, tuple(unread.ranges)):
                topic = unread.current.queue.topic
                unread.go_on(reached.offset, reached.whole_ranges)
                if batch.num_rows:
                    named = options.namespace is None
                    yield batch if named else schema.of_topic(batch, name_of_tenant(topic, options.namespace) or "")
            return
        except RocketMQError as error:
            with as_spark_error(str(unread.current.queue)):
                offset = _offset_after(error, connection, options, unread)
            if offset > unread.current.start:
                unread.go_on(offset)


def _offset_after(error: RocketMQError, connection: ConnectionOptions, options: SourceOptions, unread: _Unread) -> int:
    """Returns the offset at which to continue after an error: that after lost messages, or for a retry the unread one.

    Pauses before a retry. Raises an error if the loss must not be skipped, or if the time for retries is over.
    """
    current = unread.current
    match error:
        case DataLost():
            return _after(error, current.start, current, options)
        case ResponseError() if error.code in GONE_CODES:
            patience = options.pull_timeout
        case NetworkError() | RoutingError():
            patience = 0.0  # the client itself has waited already
        case _:
            raise error
    unread.deadline = unread.deadline or time.monotonic() + patience
    if _is_gone(connection, options, current.queue):
        return _after(_gone(error, current.start, current), current.start, current, options)
    if time.monotonic() >= unread.deadline:
        raise _unavailable(error, current, options) from error
    time.sleep(PAUSE_SECONDS)
    return current.start


def _batches(
    connection: ConnectionOptions, options: SourceOptions, schema: SourceSchema, ranges: Sequence[QueueRange]
) -> Iterator[tuple[Reached, pa.RecordBatch]]:
    """Yields record batches in the order of the ranges, each with the position of the task after it.

    Decoding runs in the library's loop thread, and must never wait there. A second thread for decoding would read a
    tenth to a sixth slower, since both share the interpreter.
    """
    tags = TagFilter.parse(options.tags)
    window = ReadWindow(max_messages_a_pull=options.pull_batch_size, patience=options.pull_timeout, lends_records=True)
    keep = options.on_undecodable_body == "keep"
    consumer = consumer_of(connection, options)

    def batches(pulls: Sequence[RawPull], within: OffsetRange, allow_gaps: bool) -> Iterator[DecodedBatch]:
        return columnar.decode_batches(
            pulls,
            schema.columns,
            within,
            tags=tags,
            keep_undecodable=keep,
            verify_crc=options.verify_crc,
            max_body_bytes=options.max_body_bytes,
            allow_gaps=allow_gaps,
        )

    decoding = RangesDecoding(ranges, batches, fail_on_data_loss=options.fail_on_data_loss)
    ids = committed_ids(ranges)
    is_filtered = options.sql is not None or not tags.passes_all
    if is_filtered:
        _check_one_by_one(consumer, ids)

    def decoded(pulls: list[RawPull]) -> Iterator[tuple[Reached, pa.RecordBatch]]:
        for pull in pulls if ids and not is_filtered else ():
            check_ids(pull, ids.get(pull.queue, ()))
        return decoding.decoded(pulls)

    wanted = [(queue_range.queue, queue_range.offsets) for queue_range in ranges]
    with consumer.read_ranges(wanted, tags=options.tags, sql=options.sql, window=window, share_lists=True) as reader:
        yield from reader.decoded_in_parts(decoded)


def committed_ids(ranges: Sequence[QueueRange]) -> dict[MessageQueue, list[tuple[int, str]]]:
    """Returns the message ids that a committed read expects: by queue, pairs of an offset and an id, sorted."""
    ids: dict[MessageQueue, list[tuple[int, str]]] = {}
    for queue_range in ranges:
        if queue_range.ids:
            ids.setdefault(queue_range.queue, []).extend(queue_range.ids)
    return {queue: sorted(pairs) for queue, pairs in ids.items()}


def _check_one_by_one(consumer: PullConsumer, ids: Mapping[MessageQueue, Sequence[tuple[int, str]]]) -> None:
    # Each id takes a pull of its own, since a filter may leave the message out of the task's pulls.
    for queue, pairs in ids.items():
        for offset, unique_id in pairs:
            for message in consumer.pull(queue, offset, max_messages=1, verify_crc=False).messages[:1]:
                check_id(queue, offset, unique_id, message.msg_id)


def _after(lost: DataLost, position: int, queue_range: QueueRange, options: SourceOptions) -> int:
    """Returns the offset after the lost messages, which it logs.

    Raises `lost` if the option failOnDataLoss is true, or if the returned offset would not be after `position`.
    """
    if options.fail_on_data_loss:
        raise lost
    following = queue_range.end  # the queue ends before the position, so nothing is left
    if position < lost.max_offset:
        following = min(queue_range.end, lost.min_offset if lost.min_offset > position else lost.end)
    if following <= position:
        raise lost
    log.warning("%s: offsets %d to %d are skipped: %s", queue_range.queue, position, following, lost)
    return following


def _gone(error: RocketMQError, position: int, queue_range: QueueRange) -> DataLost:
    return DataLost(
        f"offsets {position} to {queue_range.end} of {queue_range.queue} cannot be read, the queue is gone: {error}; "
        "set failOnDataLoss=false to go on with what is left",
        queue=queue_range.queue,
        start=position,
        end=queue_range.end,
        min_offset=0,
        max_offset=0,
    )


def _unavailable(error: RocketMQError, queue_range: QueueRange, options: SourceOptions) -> BrokerUnavailable:
    # For a broker that lacks the queue, the text adds that the NameServer lists the queue there.
    denied = f"the NameServer names {queue_range.queue.broker_name} for {queue_range.queue}, yet "
    return BrokerUnavailable(
        f"waited {options.pull_timeout:g} s in vain, and nothing was skipped: "
        f"{denied if isinstance(error, ResponseError) else ''}{error}"
    )


def _is_gone(connection: ConnectionOptions, options: SourceOptions, queue: MessageQueue) -> bool:
    """Returns whether a queue was deleted: its broker has a master, and the topic's route no longer names the queue.

    A queue in the route is not deleted, even if its broker refuses it, as a slave does before it has its topics.
    While no NameServer answers, no queue counts as deleted.
    """
    try:
        consumer = consumer_of(connection, options)
        queues = consumer.topic_queues([queue.topic])[queue.topic]
        broker = consumer.cluster_info().broker_addr_table.get(queue.broker_name)
    except (NetworkError, RoutingError):
        return False
    is_routed = queues is not None and queue in queues.all
    return not is_routed and broker is not None and broker.master is not None


# Batches are collected until they have this many rows or bytes together.
ENOUGH_ROWS: Final = 1000
ENOUGH_BYTES: Final = 1024 * 1024


def in_fewer_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in the same order, in batches joined until they have enough rows or bytes."""
    held: list[pa.RecordBatch] = []
    rows = held_bytes = 0
    for batch in batches:
        held.append(batch)
        rows, held_bytes = rows + batch.num_rows, held_bytes + batch.nbytes
        if rows >= ENOUGH_ROWS or held_bytes >= ENOUGH_BYTES:
            yield from _joined(held)
            held, rows, held_bytes = [], 0, 0
    yield from _joined(held)


def _joined(held: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return held if len(held) < 2 else pa.Table.from_batches(held).combine_chunks().to_batches()
