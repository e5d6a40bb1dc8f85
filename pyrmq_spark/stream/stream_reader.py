"""The stream reader that Spark calls: it chooses offsets in one process, and reads ranges in tasks.

Spark calls `latestOffset` and the other methods for offsets in one Python process that lives as long as the query.
`read` runs in tasks, on a copy without these methods' state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyrmq_core import (
    Commit,
    Commits,
    ManifestError,
    MessageQueue,
    OffsetRange,
    RocketMQError,
    line_logger,
)
from pyrmq_spark.gc_freeze import loading
from pyrmq_spark.options import ConnectionOptions, SourceOptions
from pyrmq_spark.pyspark_releases import has_admission_control
from pyrmq_spark.read.queue_selection import committed_ranges, naming_manifest, stream_start
from pyrmq_spark.read.range_planner import RangePartition, cut_all, whole_ranges
from pyrmq_spark.read.task_planner import TaskPlanner
from pyrmq_spark.read_limits import Backlog, ReadLimits, admitted, is_held_back
from pyrmq_spark.spark_errors import RocketMQSparkError, as_spark_error
from pyrmq_spark.stream.latest_offsets import QueueBounds, QueueWatch
from pyrmq_spark.stream.stream_offset import (
    ROWS_BEHIND,
    UNRESOLVED,
    FollowedOffsets,
    Offsets,
    StreamOffset,
    all_lost,
    bounds_of_run,
    follow,
)
from pyrmq_spark.worker import consumer_of

if TYPE_CHECKING:
    import pyarrow as pa

    from pyrmq_core.blocking import PullConsumer
    from pyrmq_spark.read.columns import SourceSchema

if TYPE_CHECKING or has_admission_control():
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class SupportsTriggerAvailableNow:
        """A stand-in for the class of PySpark 4.2 and later. Earlier releases do not look for it."""


log = line_logger(__name__)

MAX_LONG: Final = 2**63 - 1
# How many records of a manifest are read at a time to find where a batch reaches its limit.
RECORDS_AT_ONCE: Final = 256
# The most ranges of a batch, unless one record has more: the driver holds half a KiB of each.
MOST_RANGES_A_BATCH: Final = 500_000
# The most records whose rows are counted for `lag`.
MOST_RECORDS_COUNTED: Final = 4096


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader that Spark calls. It reads each queue from the checkpoint's offset.

    `stream_offset` decides about new, deleted and shorter queues, and describes the JSON of the offsets that pass
    between Spark and this class.
    """

    def __init__(self, connection: ConnectionOptions, options: SourceOptions, schema: SourceSchema) -> None:
        self._connection = connection
        self._options = options
        self._offsets_of = options.of_manifest()  # a committed stream has its manifest's offsets
        self._schema = schema
        self._initial: dict[str, Any] | None = None
        self._unstarted: RocketMQSparkError | None = None
        self._watch: QueueWatch | None = None
        self._planner: TaskPlanner | None = None
        self._latest: QueueBounds | None = None
        self._latest_json: dict[str, Any] | None = None
        self._chosen: Offsets = {}
        self._idle: QueueBounds | None = None  # the bounds at which `_parsed` had nothing to read
        self._parsed: tuple[dict[str, Any], Offsets] | None = None
        self._planned_end: dict[str, Any] | None = None
        self._available_now = False
        self._targets: Offsets | None = None
        self._last_batch_at: float | None = None
        self._logged: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | dict.fromkeys(
            ("_watch", "_planner", "_latest", "_latest_json", "_idle", "_parsed", "_unstarted")
        )

    # --- Methods that Spark calls in the query's own process.

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns a limit that only says whether the options set limits, which `latestOffset` applies itself.

        Spark has no limit that combines offsets, bytes and a delay.
        """
        limits = self._options.limits
        return ReadMaxRows(limits.max_offsets or MAX_LONG) if limits.are_set else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._available_now = True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the offsets at which the query starts. Spark calls it twice for batch 0, and gets the same offsets.

        Spark also calls it before it repeats a batch 0 that is planned already, and then ignores the result. So an
        error is not raised here: the result is `UNRESOLVED`, and `latestOffset` raises the error if Spark plans a new
        batch. PySpark before 4.2 always gets `UNRESOLVED`, by which `partitions` recognizes batch 0.
        """
        if not has_admission_control():
            return UNRESOLVED
        try:
            return self._resolved(UNRESOLVED)
        except RocketMQSparkError as error:
            log.warning("where the stream starts cannot be said, which only a batch to be planned needs: %s", error)
            self._unstarted = error
            return UNRESOLVED

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Returns the end of the next batch, or `start` itself if there is nothing to read.

        `limit` only says whether the options' limits apply. PySpark before 4.2 passes neither argument: the batch then
        has no limit, and begins at the end of the last planned batch. If no batch was planned yet, the result also has
        the queues' first offsets (`stream_offset`).
        """
        asked_blindly = start is None and self._planned_end is None
        start = self._resolved(start or self._planned_end or UNRESOLVED)
        with as_spark_error("the stream's next batch"):
            if self._parsed is None or self._parsed[0] != start:
                self._parsed = start, StreamOffset.from_json(start).offsets
            reached = self._parsed[1]
            if (seen := self._watching().look(reached)) is self._idle and not asked_blindly:
                return start
            followed = self._followed(reached, seen)
            admitted_messages = self._taken(followed, everything=limit is None or isinstance(limit, ReadAllAvailable))
            self._chosen = followed.begins
            if admitted_messages is None:
                return start
            self._chosen = ends = {
                queue: begin + admitted_messages.get(queue, 0) for queue, begin in followed.begins.items()
            }
            reported = {queue: end for queue, end in ends.items() if queue in reached or queue in admitted_messages}
            began = {queue: followed.begins[queue] for queue in admitted_messages}
            if asked_blindly:
                kept = self._watching().retry_until_timeout(
                    lambda _: self._consumer().offset_bounds(sorted(reported), {})
                )
                beginnings = {queue: available.start for queue, available in kept.items()}
                return StreamOffset(reported, began, beginnings).to_json()
            if reported == reached:
                self._idle = seen
                return start
            self._last_batch_at = time.monotonic()
            return StreamOffset(reported, began).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Returns the end of every queue for Spark's progress and `lag`, or None before queues were looked up."""
        if self._latest is not None and self._latest_json is None:
            reached = {} if self._parsed is None else self._parsed[1]
            unread = {queue: begin for queue, begin in self._chosen.items() if queue not in reached}
            self._latest_json = StreamOffset(self._latest.ends, unread).to_json()
            if self._options.is_committed and (rows := self._rows_waiting(self._latest.ends)) is not None:
                self._latest_json[ROWS_BEHIND] = rows
        return self._latest_json

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the tasks of the batch that ends at `end`. The batch's first offsets are part of `end`, too.

        After a failure in batch 0 Spark passes a new `start`, which is ignored. PySpark before 4.2 also calls it for
        the last offset of a restarted query, with that offset as start and end: then there are no tasks.
        """
        self._planned_end = end
        with as_spark_error("the stream's batch"):
            if start == end:
                return []
            planned_end = StreamOffset.from_json(end)
            if planned_end.beginnings and start != UNRESOLVED:
                planned_end = self._placed(StreamOffset.from_json(start).offsets, planned_end)
            ranges = planned_end.ranges()
            options = self._options
            pieces = cut_all(
                self._watching().retry_until_timeout(lambda _: committed_ranges(self._consumer(), options, ranges))
                if options.is_committed
                else whole_ranges(ranges),
                min_partitions=options.min_partitions,
                max_records=options.max_records_per_partition,
            )
            self._planner = self._planner or TaskPlanner(self._consumer, self._options)
            return self._planner.tasks(pieces)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the offsets `end` for the consumer group of the options, if there is one. Failures are only logged.

        Spark calls it one batch late, and never for the last batch.
        """
        if self._options.consumer_group is not None:
            from pyrmq_spark.stream.progress import publish_quietly

            offsets = StreamOffset.from_json(end).offsets
            publish_quietly(self._connection, self._options.consumer_group, offsets)

    # --- Methods that run in tasks.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with loading():
            from pyrmq_spark.read.partition_reader import read_ranges

        if isinstance(partition, RangePartition):
            yield from read_ranges(self._connection, self._options, self._schema, partition.ranges)

    # --- Private methods.

    def _resolved(self, start: dict[str, Any]) -> dict[str, Any]:
        if start != UNRESOLVED:
            return start
        if self._unstarted is not None:
            error, self._unstarted = self._unstarted, None
            raise error
        if self._initial is None:
            with as_spark_error("the stream's start"):
                consumer = self._consumer()
                first = self._watching().retry_until_timeout(lambda _: self._start(consumer))
                self._initial = StreamOffset(first).to_json()
        return self._initial

    def _start(self, consumer: PullConsumer) -> Offsets:
        with naming_manifest(consumer, self._options):
            return stream_start(consumer, self._offsets_of)

    def _placed(self, reached: Offsets, end: StreamOffset) -> StreamOffset:
        """Returns `end` with the offsets at which its batch begins, after a skip of lost messages.

        PySpark before 4.2 passes the offsets `reached` so far only after `end` was chosen.
        """
        forgotten = sorted(reached.keys() - end.offsets.keys())
        if forgotten:
            log.warning(
                "%d queues had no broker when this run of availableNow began, so their offsets are forgotten, and they "
                "are read from their beginning when they come back; PySpark 4.2 or newer keeps them: %s",
                len(forgotten),
                ", ".join(map(str, forgotten[:10])),
            )
        followed = self._without_losses(follow(reached, end.bounds(), {}))
        return StreamOffset(end.offsets, {queue: followed.begins[queue] for queue in followed.backlog})

    def _followed(self, reached: Offsets, seen: QueueBounds) -> FollowedOffsets:
        self._latest, self._latest_json = seen, None
        if self._targets is not None:
            seen = QueueBounds(bounds_of_run(self._targets, seen.bounds))
        followed = self._without_losses(follow(reached, seen.bounds, seen.gone))
        if self._available_now and self._targets is None:
            self._targets = dict(followed.ends)
        return followed

    def _without_losses(self, followed: FollowedOffsets) -> FollowedOffsets:
        if followed.losses and self._options.fail_on_data_loss:
            raise all_lost(followed.losses)
        for loss in followed.losses:
            goes_on = followed.begins.get(loss.queue)
            line = f"{loss}; " + ("it is left out" if goes_on is None else f"it is read on from offset {goes_on}")
            if line not in self._logged:
                log.warning("skipped, since failOnDataLoss=false: %s", line)
                self._logged.add(line)
        return followed

    def _taken(self, followed: FollowedOffsets, *, everything: bool) -> Backlog | None:
        """Returns how many offsets of each queue the next batch reads, or None if it has to wait for more messages.

        With `everything` the options' limits do not apply.
        """
        backlog, limits = followed.backlog, self._options.limits
        since = None if self._last_batch_at is None else time.monotonic() - self._last_batch_at
        if self._options.is_committed:
            return self._next_commits(followed, ReadLimits() if everything else limits, since)
        if everything or not limits.are_set:
            return backlog
        if not self._available_now and is_held_back(backlog, limits, since):
            return None
        sizes: dict[MessageQueue, float] = {}
        if limits.max_bytes is not None and backlog:
            begins = {queue: followed.begins[queue] for queue in backlog}
            sizes = self._watching().retry_until_timeout(lambda _: self._consumer().mean_sizes(begins))
        return admitted(backlog, limits, sizes)

    def _next_commits(self, followed: FollowedOffsets, limits: ReadLimits, since: float | None) -> Backlog | None:
        """Returns how many records of the manifest a committed stream's next batch reads, or None if it has to wait.

        A record lists the rows of one committed batch of a writer. The next batch ends before the record with which it
        would have more rows than the limit, or more ranges than `MOST_RANGES_A_BATCH`, but has at least one record.
        `since` is the seconds since the last batch, or None before the first batch.
        """
        rows, ranges, is_first = 0, 0, True
        for queue, size in followed.backlog.items():  # a committed stream has one queue
            begin = followed.begins[queue]
            for commit in self._commits(queue, begin, begin + size):
                rows, ranges = rows + commit.rows, ranges + len(commit.ranges)
                is_too_much = limits.max_offsets is not None and rows > limits.max_offsets
                if (is_too_much or ranges > MOST_RANGES_A_BATCH) and not is_first:
                    return {queue: commit.offset - begin}
                is_first = False
            if not self._available_now and is_held_back({queue: rows}, limits, since):
                return None
        return followed.backlog

    def _commits(self, queue: MessageQueue, begin: int, end: int) -> Iterator[Commit]:
        start, size = begin, RECORDS_AT_ONCE
        while start < end:
            read = partial(self._read_manifest, queue.topic, start, min(end, start + size))
            try:
                commits = self._watching().retry_until_timeout(read).commits
            except ManifestError:  # perhaps these records have too many ranges together
                if size == 1:
                    raise
                size = 1
                continue
            yield from commits
            start += size

    def _rows_waiting(self, ends: Offsets) -> int | None:
        """Returns the number of committed rows that no batch has read, or None for too many or unreadable records."""
        backlog = {queue: OffsetRange(self._chosen.get(queue, end), end) for queue, end in ends.items()}
        if sum(waiting.end - waiting.start for waiting in backlog.values()) > MOST_RECORDS_COUNTED:
            return None
        try:  # without retries, so that a query does not wait to report its progress
            return sum(
                self._consumer().read_manifest(queue.topic, waiting.start, waiting.end).rows
                for queue, waiting in backlog.items()
            )
        except RocketMQError as error:
            log.warning("the rows that wait are not counted: %s", error)
            return None

    def _read_manifest(self, manifest: str, start: int, end: int, _again: bool) -> Commits:
        return self._consumer().read_manifest(manifest, start, end)

    def _watching(self) -> QueueWatch:
        if self._watch is None:
            refresh = self._connection.poll_name_server_interval
            self._watch = QueueWatch(self._consumer(), self._offsets_of, refresh=refresh)
        return self._watch

    def _consumer(self) -> PullConsumer:
        return consumer_of(self._connection, self._options)
