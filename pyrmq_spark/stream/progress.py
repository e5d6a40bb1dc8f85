"""The progress of a query: its lag by queue, and offsets published to brokers under a consumer group.

Published offsets are only for monitoring (`mqadmin consumerProgress`): a query continues from its checkpoint. A query
with the option `consumerGroup` publishes each batch one batch late, and never its last one, since Spark does not report
to a source that a batch has ended. `OffsetPublisher` and `commit_offsets` also publish the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyrmq_core import InvalidArgument, MessageQueue, RocketMQError, line_logger
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, check_names, hide_secrets, read_connection
from pyrmq_spark.pyspark_releases import has_admission_control
from pyrmq_spark.session import name_server_variable, restore_session
from pyrmq_spark.spark_errors import InvalidCheckpoint, InvalidOption, NoProgress, OldPySpark, as_spark_error
from pyrmq_spark.stream.stream_offset import ROWS_BEHIND, Offsets, StreamOffset

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

log = line_logger(__name__)

RETRY_PREFIX: Final = "%RETRY%"


@dataclass(frozen=True, slots=True)
class QueueLag:
    """One queue: the query's next offset, the queue's end at the last look-up, and the lag between them.

    For a committed stream it is the queue of the manifest, so its offsets count records. `rows` is the number of rows
    that the records between the two offsets list, or None for more than 4,096 records. For other streams `rows` is
    None.
    """

    queue: MessageQueue
    offset: int
    latest: int
    rows: int | None = None

    @property
    def behind(self) -> int:
        """The number of messages behind the query's offset.

        For a committed stream it is the number of records in its manifest, each of which stands for a batch of rows.
        """
        return max(0, self.latest - self.offset)


def lag(query: StreamingQuery | QueryProgressEvent) -> list[QueueLag]:
    """Returns the lag of every queue that the query reads, by its last progress.

    A listener passes its event instead of the query. Raises `NoProgress` before the first progress. Raises `OldPySpark`
    before 4.2, where progress does not have the ends of queues and every lag would be 0.
    """
    if not has_admission_control():
        raise OldPySpark(
            "before PySpark 4.2 a query does not report how far its queues go: set the option consumerGroup, and see "
            "the lag by `pyrmq group progress`"
        )
    restore_session()
    progress = query.progress if hasattr(query, "progress") else query.lastProgress
    if progress is None:
        raise NoProgress(
            "the query has no progress yet, so its lag is not known: ask again when query.lastProgress is there, or "
            "pass the events of a listener"
        )
    lags = []
    for source in _sources(json.loads(progress.json)):
        # A queue that no batch has read is not in `end`, but in `began`, with its first offset.
        lags += [
            QueueLag(queue, offset, max(offset, source.latest.offsets.get(queue, offset)), source.rows_behind)
            for queue, offset in {**source.latest.began, **source.end}.items()
        ]
    return sorted(lags, key=lambda queue_lag: queue_lag.queue)


def commit_offsets(query: StreamingQuery, group: str, **options: str) -> Offsets:
    """Commits the query's offsets at the brokers for the consumer group `group`, and returns them.

    `options` describe the connection (`nameServer`, `accessKey`, ...). The default of `nameServer` is NAMESRV_ADDR.
    """
    options = hide_secrets(options)
    restore_session()
    progress = query.lastProgress
    offsets = ends_of({} if progress is None else json.loads(progress.json))
    with as_spark_error(f"group {group}"):
        connection = connection_of(options)
        worker.consumer(connection, group).commit_offsets(offsets)
    return offsets


class OffsetPublisher(StreamingQueryListener):
    """A listener that commits a consumer group's offsets after every batch of the session's queries of RocketMQ.

    `spark.streams.addListener(OffsetPublisher("audit", nameServer="..."))`. It commits the last batch, too. Failures
    are logged, and the query continues. `query_name` restricts it to one query.
    """

    def __init__(self, group: str, *, query_name: str | None = None, **options: str) -> None:
        options = hide_secrets(options)
        with as_spark_error(f"group {group}"):
            self._connection = connection_of(options)
        self._group = group
        self._query_name = query_name

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = json.loads(event.progress.json)
        if self._query_name in (None, progress.get("name")):
            publish_quietly(self._connection, self._group, ends_of(progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def publish_quietly(connection: ConnectionOptions, group: str, offsets: Offsets) -> None:
    """Commits a query's offsets for a consumer group. Failures are only logged, as the query does not need them."""
    if not offsets:
        return
    try:
        worker.consumer(connection, group).commit_offsets(offsets)
    except RocketMQError as error:
        log.warning("the offsets of %d queues are not published under group %s: %s", len(offsets), group, error)


@dataclass(frozen=True, slots=True)
class _Source:
    end: Offsets
    latest: StreamOffset
    rows_behind: int | None


def _sources(progress: Mapping[str, Any]) -> Iterator[_Source]:
    for source in progress.get("sources", ()):
        try:
            end = StreamOffset.from_json(_object(source.get("endOffset"))).offsets
            latest = _object(source.get("latestOffset") or "null")
            yield _Source(end, StreamOffset.from_json(latest) if latest else StreamOffset(end), latest.get(ROWS_BEHIND))
        except InvalidCheckpoint:
            continue


def _object(data: object) -> Mapping[str, Any]:
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except ValueError:
            return {}
    return data if isinstance(data, dict) else {}


def ends_of(progress: Mapping[str, Any]) -> dict[MessageQueue, int]:
    ends: dict[MessageQueue, int] = {}
    for source in _sources(progress):
        for queue, offset in source.end.items():
            ends[queue] = min(offset, ends.get(queue, offset))  # the slower reader, if a queue is read twice
    return ends


def connection_of(options: Mapping[str, str]) -> ConnectionOptions:
    check_names(options)
    try:
        return read_connection(options, name_server_variable())
    except InvalidArgument as error:
        raise InvalidOption(f"{error} (or give it here: nameServer=...)") from None
