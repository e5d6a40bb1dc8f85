"""One task's read: the rows of a range of one queue as record batches, for batches and streams alike."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyrmq_core import DataLost, MessageQueue, OffsetRange, RawPull, ReadWindow, ResponseError, TagFilter, columnar
from pyrmq_spark import worker
from pyrmq_spark.conditions import BrokerUnavailable, SurplusRows, told
from pyrmq_spark.namespaces import name_of_tenant
from pyrmq_spark.options import Connection, SourceOptions
from pyrmq_spark.planning import QueueRange
from pyrmq_spark.settling import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_core.blocking import PullConsumer
    from pyrmq_spark.columns import SourceSchema

log = logging.getLogger(__name__)

DEFAULT_CONSUMER_GROUP: Final = "pyrmq-spark"
# TOPIC_NOT_EXIST, and INVALID_PARAMETER for a queue that the topic does not have (any more).
GONE_CODES: Final = (17, 29)
PAUSE_SECONDS: Final = 0.2


def consumer_of(connection: Connection, options: SourceOptions) -> PullConsumer:
    """This worker's consumer for the read."""
    return worker.consumer(connection, options.consumer_group or DEFAULT_CONSUMER_GROUP)


def read_range(
    connection: Connection, options: SourceOptions, schema: SourceSchema, wanted: QueueRange
) -> Iterator[pa.RecordBatch]:
    """Every row once and in order; what is lost meanwhile fails the task, or is passed over with failOnDataLoss=false.

    Closed early (LIMIT, a cancelled task), it leaves no pull behind.
    """
    position, deadline = wanted.start, None
    topic = name_of_tenant(wanted.queue.topic, options.namespace)
    settle()
    with told(str(wanted.queue)):
        while position < wanted.end:
            try:
                for following, batch in _batches(connection, options, schema, wanted, position):
                    position, deadline = following, None
                    if batch.num_rows:
                        named = batch if options.namespace is None else schema.of_topic(batch, topic or "")
                        yield schema.as_given(named)
                return
            except DataLost as lost:
                position = _after(lost, position, wanted, options)
            except ResponseError as error:
                if error.code not in GONE_CODES:
                    raise
                deadline = deadline or time.monotonic() + options.pull_timeout
                if _is_gone(connection, options, wanted.queue):
                    position = _after(_gone(error, position, wanted), position, wanted, options)
                elif time.monotonic() >= deadline:
                    raise _denied(error, wanted, options) from error
                else:
                    time.sleep(PAUSE_SECONDS)


def _batches(
    connection: Connection, options: SourceOptions, schema: SourceSchema, wanted: QueueRange, start: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Each with the offset after it."""
    tags = TagFilter.parse(options.tags)
    window = ReadWindow(max_messages_a_pull=options.pull_batch_size, patience=options.pull_timeout)
    keep = options.on_undecodable_body == "keep"
    consumer, decode = consumer_of(connection, options), columnar.decode_records

    def decoded(pulls: list[RawPull]) -> tuple[OffsetRange, pa.RecordBatch]:
        batch = decode(pulls, schema.columns, wanted.offsets, tags=tags, keep_undecodable=keep)
        return OffsetRange(pulls[0].start, pulls[-1].next_offset), batch

    with consumer.read(wanted.queue, start, wanted.end, tags=options.tags, sql=options.sql, window=window) as reader:
        for answered, batch in reader.decoded(decoded):
            if options.sql is None and tags.passes_all:
                _check_complete(batch.num_rows, answered, wanted, options)
            yield answered.end, batch


def _check_complete(rows: int, answered: OffsetRange, wanted: QueueRange, options: SourceOptions) -> None:
    """Without a filter every offset has its row. A broker passes over entries whose log file it has just deleted, and
    says so only where an answer has nothing else (MESSAGE_WAS_REMOVING in DefaultMessageStore.getMessage, 5.4.0)."""
    expected = answered.end - answered.start
    if rows > expected:
        raise SurplusRows(
            f"{wanted.queue.broker_name} answered {rows} messages for the {expected} offsets {answered.start} to "
            f"{answered.end} of {wanted.queue}; the broker's queue is damaged"
        )
    if rows == expected:
        return
    lost = DataLost(
        f"{expected - rows} of the offsets {answered.start} to {answered.end} of {wanted.queue} have no message any "
        "more: they expired while they were read, or the topic keeps the last message of each key alone; set "
        "failOnDataLoss=false to go on with what is left",
        queue=wanted.queue,
        start=answered.start,
        end=answered.end,
        min_offset=answered.end,
        max_offset=wanted.end,
    )
    if options.fail_on_data_loss:
        raise lost
    log.warning("%s", lost)


def _after(lost: DataLost, position: int, wanted: QueueRange, options: SourceOptions) -> int:
    """Where to go on with failOnDataLoss=false; nothing is read twice."""
    if options.fail_on_data_loss:
        raise lost
    following = max(position, lost.min_offset) if lost.min_offset > position else wanted.end
    log.warning("%s: offsets %d to %d are skipped: %s", wanted.queue, position, min(following, wanted.end), lost)
    return following


def _gone(error: ResponseError, position: int, wanted: QueueRange) -> DataLost:
    return DataLost(
        f"offsets {position} to {wanted.end} of {wanted.queue} cannot be read, the queue is gone: {error}; set "
        "failOnDataLoss=false to go on with what is left",
        queue=wanted.queue,
        start=position,
        end=wanted.end,
        min_offset=0,
        max_offset=0,
    )


def _denied(error: ResponseError, wanted: QueueRange, options: SourceOptions) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"waited {options.pull_timeout:g} s in vain, and nothing was skipped: the NameServer names "
        f"{wanted.queue.broker_name} for {wanted.queue}, yet {error}"
    )


def _is_gone(connection: Connection, options: SourceOptions, queue: MessageQueue) -> bool:
    """Its broker is there, master and all, and the topic's route has the queue no longer.

    A slave denies a queue until it has learned its master's topics: that is no loss.
    """
    routes = consumer_of(connection, options).current_queues([queue.topic])
    broker = worker.admin(connection).cluster_info().broker_addr_table.get(queue.broker_name)
    return queue not in (routes[queue.topic] or ()) and broker is not None and broker.master is not None
