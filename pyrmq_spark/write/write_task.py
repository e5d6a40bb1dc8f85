"""One task's write: every row is acknowledged by a broker, or the task fails with a report of the stored rows.

Rows are counted where Arrow batches arrive, acknowledgements where answers are read (`WriteSummary`). The two numbers
have to agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Final

import pyarrow as pa

from pyrmq_core import (
    AnyQueue,
    InvalidMessage,
    InvalidState,
    RefusedMessage,
    RocketMQError,
    StoredRange,
    WriteSummary,
    readdressed,
    unique_id_runs,
    unique_ids,
)
from pyrmq_core.blocking import Producer, SendWindow
from pyrmq_core.columnar import (
    BatchLimit,
    CheckedRows,
    CompressionType,
    Ids,
    by_tag,
    content_ids,
    encode_rows,
)
from pyrmq_spark import worker
from pyrmq_spark.gc_freeze import freeze_loaded_objects
from pyrmq_spark.options import ConnectionOptions, SinkOptions
from pyrmq_spark.spark_errors import InvalidRow, RocketMQSparkError, RowsUnaccounted, one_line
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.create_topic import sending_topic
from pyrmq_spark.write.queue_assignment import AssignedRows, Fixed, QueueAssignment
from pyrmq_spark.write.rows import by_batch, by_topic, check_rows, encode_singles, may_go_alone

# The column of message ids that are computed before rows are divided. No frame can have a column of this name.
ID_COLUMN: Final = "\0id"
MAX_REASON: Final = 500


class PartitionWrite:
    """The write of one task, which sends the rows of one partition. `run` does it, and returns the task's report.

    `summary` counts the acknowledged rows, `dead_letters` the refused rows that the dead-letter topic has.
    """

    def __init__(
        self, connection: ConnectionOptions, options: SinkOptions, schema: SinkSchema, attempt: WriteAttempt
    ) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema
        self._attempt = attempt
        self._partition, self._is_repeat = attempt.partition, attempt.is_repeat
        self._counter = attempt.base + attempt.partition
        self._seed = f"{attempt.query}/{attempt.batch}/{attempt.partition}".encode()
        self._limit = BatchLimit(
            bytes=options.max_batch_bytes,
            compression=None if options.compression == "none" else CompressionType[options.compression.upper()],
            compress_over_bytes=options.compress_body_over_bytes,
        )
        self._taken = 0
        self.summary, self.dead_letters = WriteSummary(), WriteSummary()

    def run(self, batches: Iterator[pa.RecordBatch]) -> PartitionWritten:
        """Writes the rows. Raises `RocketMQSparkError`, which also says how many rows of the partition are stored."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:  # without rows no connection is made
            return self._written()
        freeze_loaded_objects()
        try:
            if self._options.is_committed and self._is_batch_committed():
                self._taken = first.num_rows + sum(batch.num_rows for batch in filled)
                return replace(self._written(), is_batch_committed=True)
            self._send(chain((first,), filled))
            if self._acknowledged != self._taken:
                raise RowsUnaccounted(
                    f"{self._taken} rows were taken, but {self._acknowledged} acknowledged; write them again, "
                    "which may repeat some"
                )
        except RocketMQError as error:
            stored = f"{self._acknowledged} rows of this partition were acknowledged before"
            raise RocketMQSparkError(f"{one_line(error, f'partition {self._partition}')} ({stored})") from None
        return self._written()

    @property
    def _acknowledged(self) -> int:
        return self.summary.messages + self.dead_letters.messages

    def _send(self, batches: Iterator[pa.RecordBatch]) -> None:
        if self._limit.compression is not None:
            self._limit.compression.check_library()
        producer = worker.producer(self._connection, self._options)
        placing = QueueAssignment(producer, self._counter, self._connection, self._options, self._schema.message_type)
        options = self._options
        with (
            producer.open_window(
                max_requests=options.requests_in_flight,
                timeout=options.send_timeout,
                keep_refused=options.dead_letter_topic is not None,
                list_ranges=options.is_committed,
            ) as window,
            open_dead_letters(self._connection, producer, options) as dead_letters,
        ):
            self.summary, self.dead_letters = window.summary, dead_letters.summary
            try:
                for batch in batches:
                    self._put(batch, window, placing)
                    dead_letters.put_all(window.take_refused())
            except RocketMQError:
                with suppress(RocketMQError):  # sends under way end first, so that the report is complete
                    window.drain()
                raise
            window.drain()
            dead_letters.put_all(window.take_refused())
            dead_letters.drain()

    def _put(self, batch: pa.RecordBatch, window: SendWindow, placing: QueueAssignment) -> None:
        first_row, self._taken = self._taken, self._taken + batch.num_rows
        rows = self._schema.rows(batch)
        checked = check_rows(rows, first_row, datetime.now(UTC))
        if self._options.message_ids == "content":
            checked = with_id_column(checked, content_ids(rows, self._seed, first_row))
        for part in checked:
            for topic, topic_rows in by_topic(part, self._schema.topic):
                with self._naming_rows(first_row):
                    self._put_topic(topic, topic_rows, window, placing)

    def _put_topic(self, topic: str, rows: CheckedRows, window: SendWindow, placing: QueueAssignment) -> None:
        placed = placing.placed(topic, rows)
        if may_go_alone(rows) or placing.is_batch_topic(topic):
            for queue, group in placed.parts():
                self._put_group(topic, group, queue, window, placing)
        else:
            self._put_placed(topic, placed, window, placing)

    def _put_placed(self, topic: str, placed: AssignedRows, window: SendWindow, placing: QueueAssignment) -> None:
        number = rows_sent = 0
        payloads = encode_rows(placed.rows.to_encode(), topic, ids_of(placed.rows), self._limit, stops=placed.ends)
        for payload in payloads:
            while rows_sent >= placed.ends[number]:
                number += 1
            rows_sent += payload.count
            window.put(payload, placed.queues[number] or placing.by_turns(topic))

    def _put_group(
        self, topic: str, rows: CheckedRows, queue: Fixed | None, window: SendWindow, placing: QueueAssignment
    ) -> None:
        """Sends rows to one queue, or any if it is None, one by one if they have a delay, priority or lite topic."""
        alone, batched = by_batch(rows)
        is_batch_topic = placing.is_batch_topic(topic)
        limit = self._limit.of_batch_topic() if is_batch_topic else self._limit
        for part in by_tag(batched) if is_batch_topic else (batched,):
            for payload in encode_rows(part.to_encode(), topic, ids_of(part), limit, single_tag=is_batch_topic):
                window.put(payload, queue or placing.by_turns(topic))
        for payload in encode_singles(alone, topic, texts_of_ids(alone), self._limit):
            window.put(payload, queue or placing.in_no_order(topic))

    @contextmanager
    def _naming_rows(self, first_row: int) -> Iterator[None]:
        """Names the rows from `first_row` on in an error of encoding, such as that of properties that are too large.

        Other errors of rows are raised by `check_rows`, which names the row itself.
        """
        try:
            yield
        except InvalidMessage as error:
            raise InvalidRow(f"one of the rows {first_row} to {self._taken - 1}: {error}") from error

    def _written(self) -> PartitionWritten:
        both = (self.summary, self.dead_letters)
        by_queue: Counter[str] = Counter()
        by_status: Counter[str] = Counter()
        for summary in both:
            by_queue.update({str(queue): rows for queue, rows in summary.messages_by_queue.items()})
            by_status.update({status.name: rows for status, rows in summary.messages_by_status.items()})
        return PartitionWritten(
            partition=self._partition,
            rows=self._taken,
            bytes=sum(summary.bytes for summary in both),
            requests=sum(summary.requests for summary in both),
            retries=sum(summary.retries for summary in both),
            perhaps_repeated=sum(summary.perhaps_repeated for summary in both),
            dead_lettered=self.dead_letters.messages,
            rows_by_queue=dict(by_queue),
            rows_by_status=dict(by_status),
            is_repeat=self._is_repeat,
            writer=self._attempt.query,
            number=self._attempt.batch,
            ranges=tuple(self._on_brokers(stored) for summary in both for stored in summary.ranges),
        )

    def _is_batch_committed(self) -> bool:
        from pyrmq_spark.write.manifest import is_batch_committed

        return is_batch_committed(self._connection, self._options, self._attempt)

    def _on_brokers(self, stored: StoredRange) -> StoredRange:
        topic = worker.name_on_brokers(self._connection, stored.queue.topic)
        return replace(stored, queue=replace(stored.queue, topic=topic))


def with_id_column(checked: list[CheckedRows], ids: pa.Array) -> list[CheckedRows]:
    with_ids, first = [], 0
    for part in checked:
        own = ids.slice(first, part.num_rows)
        with_ids.append(replace(part, batch=part.batch.append_column(ID_COLUMN, own)))
        first += part.num_rows
    return with_ids


def ids_of(rows: CheckedRows) -> Ids:
    """Returns a function that takes a number of rows, and returns the message ids of the next rows.

    The ids are those of the column `ID_COLUMN`, or new unique ids if there is no such column.
    """
    if ID_COLUMN not in rows.schema.names:
        return unique_id_runs
    ids, first = rows.column(ID_COLUMN), 0

    def following(count: int) -> pa.Array:
        nonlocal first
        first += count
        return ids.slice(first - count, count)

    return following


def texts_of_ids(rows: CheckedRows) -> list[str]:
    carried = ID_COLUMN in rows.schema.names
    texts: list[str] = rows.column(ID_COLUMN).to_pylist() if carried else unique_ids(rows.num_rows)
    return texts


class DeadLetters:
    """The dead letters of a task: rows that brokers refuse because of their content, sent to another topic.

    Each keeps its properties, and has these in addition:

    property         value
    refusedTopic     the topic that the row was for
    refusedCode      the broker's response code
    refusedReason    its remark, in one line, cut so that it fits beside the row's own properties

    Without a dead-letter topic, `topic` and `window` (of requests) are None, and a refused row fails the write.
    """

    def __init__(
        self, topic: str | None, window: SendWindow | None, look_up: Callable[[str], object] | None = None
    ) -> None:
        self._topic = topic
        self._window = window
        self._look_up = look_up
        self.summary = WriteSummary() if window is None else window.summary

    def put_all(self, refused: Sequence[RefusedMessage]) -> None:
        """Sends the refused rows. Raises the first failure, since a lost dead letter must fail the write."""
        for message in refused:
            if self._topic is None or self._window is None:
                raise InvalidState("a refused row, and no topic for it")
            if self._look_up is not None:  # at the first row: waits for the topic's brokers
                self._look_up(self._topic)
                self._look_up = None
            refusal = {
                "refusedTopic": message.payload.topic,
                "refusedCode": str(message.code),
                "refusedReason": reason(message),
            }
            self._window.put(readdressed(message.payload, self._topic, refusal), AnyQueue(wait=True))

    def drain(self) -> None:
        if self._window is not None:
            self._window.drain()


@contextmanager
def open_dead_letters(connection: ConnectionOptions, producer: Producer, options: SinkOptions) -> Iterator[DeadLetters]:
    if options.dead_letter_topic is None:
        yield DeadLetters(None, None)
        return
    with producer.open_window(
        max_requests=options.requests_in_flight, timeout=options.send_timeout, list_ranges=options.is_committed
    ) as window:
        yield DeadLetters(options.dead_letter_topic, window, partial(sending_topic, connection, options, producer))


def reason(refused: RefusedMessage) -> str:
    text = str(refused.error.__cause__ or refused.error)
    return " ".join(text.replace("\x01", " ").replace("\x02", " ").split())[:MAX_REASON]
