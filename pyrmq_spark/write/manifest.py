"""The manifest of a committed write: a topic with a record for each committed batch, which lists its stored rows.

A task reads it before it sends, and the driver appends the batch's record at the end. Only the first record of a
writer's batch counts, so a late task, a second driver or a repeated record does no harm (`pyrmq_core.committed`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from pyrmq_core import (
    BrokerNotFound,
    CommitRecord,
    ManifestEnd,
    ManifestError,
    NetworkError,
    NoRoute,
    Outcome,
    ResponseError,
    RocketMQError,
    RoutingError,
    SendFailed,
    SendResult,
    SendStatus,
    StoredRange,
    commit_messages,
    line_logger,
    next_record,
)
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions
from pyrmq_spark.read.queue_selection import manifest_is_away
from pyrmq_spark.spark_errors import ConcurrentWrite, NotCommitted, RowsUnaccounted
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt

if TYPE_CHECKING:
    from pyrmq_core.blocking import PullConsumer

log = line_logger(__name__)

PAUSE_SECONDS: Final = 0.05
LOOK_PAUSE_SECONDS: Final = 0.2
# How long a commit waits for the broker, before it reads the manifest to find out whether the record is stored.
SEND_SECONDS: Final = 5.0

# The manifests that this process has seen with one queue.
_ensured: set[tuple[ConnectionOptions, str]] = set()
# The last read of a manifest: its key and result. The tasks of a stage in this worker share it.
_last_look: tuple[tuple[object, ...], bool] | None = None


def ensure_manifest(connection: ConnectionOptions, options: SinkOptions) -> None:
    """Creates the manifest, the topic that records committed batches, with one queue, at a master of the topic.

    Raises `ManifestError` if it has more queues, and `BrokerNotFound` while it may be at a broker that is down: with a
    second manifest, a batch could be committed twice. To find it even when its broker is down, NameServers get an order
    configuration, and every other master of the cluster gets the manifest without a queue. Each step may be repeated.
    """
    manifest = worker.name_on_brokers(connection, options.manifest)
    if (connection, manifest) in _ensured:
        if not _is_deleted(connection, options, manifest):
            return
        log.warning("%s is not there any more: if it was deleted, what was committed by it is forgotten", manifest)
    admin = worker.admin(connection)
    queues, home = _queues_by_broker(connection, manifest), admin.topics.order(manifest)
    filled = {name: number for name, number in queues.items() if number}
    if not filled:
        broker_name = _place(connection, options, manifest, queues, home)
        if _queues_by_broker(connection, manifest) != queues:
            raise BrokerNotFound(
                f"the manifest {manifest} is not created while its brokers come and go; write again", broker_name=""
            )
        if home is not None:
            log.warning(
                "%s is at %s by its order configuration, and %s has no such topic: it is created there; if it was "
                "deleted, what was committed by it is forgotten",
                manifest,
                broker_name,
                broker_name,
            )
        admin.create_topic(manifest, queues=1, broker=broker_name)
    elif list(filled.values()) != [1] or (home is not None and list(home) != list(filled)):
        named = f", and its order configuration names {', '.join(home)}" if home else ""
        raise ManifestError(
            f"{manifest} cannot be the manifest of {options.topic}: it has {sum(filled.values())} queues "
            f"({', '.join(f'{name}: {number}' for name, number in sorted(filled.items()))}){named}; the order of "
            f"commits is that of one queue. pyrmq topic manifest {manifest} shows which one counts, and --heal leaves "
            "that one; or name another topic by manifestTopic"
        )
    else:
        (broker_name,) = filled
    _keep_name(connection, manifest, broker_name, queues)
    _keep_place(connection, options, broker_name)
    _ensured.add((connection, manifest))


def _is_deleted(connection: ConnectionOptions, options: SinkOptions, manifest: str) -> bool:
    """Returns whether the written topic has a route and the manifest has none.

    Returns False while NameServers do not answer, or were restarted and have no routes yet.
    """
    topic = worker.name_on_brokers(connection, options.topic or "")
    try:
        return bool(_queues_by_broker(connection, topic)) and not _queues_by_broker(connection, manifest)
    except RocketMQError as error:
        log.warning("whether manifest %s is still there is not known: %s", manifest, error)
        return False


def _queues_by_broker(connection: ConnectionOptions, topic: str) -> dict[str, int]:
    """Returns the topic's number of queues by broker, or an empty dict without a route.

    A broker with 0 queues only keeps the topic's name.
    """
    try:
        route = worker.admin(connection).route(topic)
    except NoRoute:
        return {}
    return {data.broker_name: data.read_queue_nums for data in route.queue_datas}


def _place(
    connection: ConnectionOptions,
    options: SinkOptions,
    manifest: str,
    queues: Mapping[str, int],
    home: Mapping[str, int] | None,
) -> str:
    """Returns the broker at which to create the manifest. Raises `BrokerNotFound` if a broker that is down may have it.

    `queues` has the manifest's number of queues by broker, 0 where only its name is kept. `home` has the broker that
    NameServers record for it, None without a record.
    """
    topic = worker.name_on_brokers(connection, options.topic or "")
    brokers = worker.admin(connection).cluster_info().broker_addr_table
    masters = sorted(name for name, broker in brokers.items() if broker.master is not None)
    if home is not None and not set(home) <= set(masters):
        raise manifest_is_away(manifest, home)
    if home is None and queues:
        raise BrokerNotFound(
            f"the manifest {manifest} is at a broker that is not registered ({', '.join(sorted(queues))} keeps its "
            f"name): start it. If that broker is gone for good, pyrmq topic delete {manifest} lets a new one begin, "
            "and what was committed is forgotten",
            broker_name="",
        )
    of_topic = _queues_by_broker(connection, topic).keys() | _consumer(connection).expected_brokers([topic])[topic]
    if away := sorted(of_topic - set(masters)):
        raise BrokerNotFound(
            f"the manifest {manifest} is not created while {', '.join(away)}, which has the topic {topic}, is away: "
            "the manifest may be there; start it",
            broker_name=away[0],
        )
    chosen = sorted(home or ()) or [name for name in masters if name in of_topic] or masters
    if not chosen:
        raise BrokerNotFound(f"no master is registered for the manifest of {topic}; start one", broker_name="")
    return chosen[0]


def _keep_name(connection: ConnectionOptions, manifest: str, broker_name: str, queues: Mapping[str, int]) -> None:
    """Creates the manifest without a queue at the other masters of its cluster, which keep its name on their disks."""
    admin = worker.admin(connection)
    info = admin.cluster_info()
    clusters = [names for names in info.cluster_addr_table.values() if broker_name in names]
    others = {
        name for names in clusters for name in names if (broker := info.broker_addr_table.get(name)) and broker.master
    }
    for name in sorted(others - queues.keys() - {broker_name}):
        try:
            admin.create_topic(manifest, queues=0, broker=name)
        except RocketMQError as error:
            log.warning("%s does not keep the name of manifest %s: %s", name, manifest, error)


def _keep_place(connection: ConnectionOptions, options: SinkOptions, broker_name: str) -> None:
    # Repeated at each commit, since a NameServer that loses its disk forgets where the manifest is.
    manifest = worker.name_on_brokers(connection, options.manifest)
    topic = worker.name_on_brokers(connection, options.topic or "")
    try:
        lacking = worker.admin(connection).topics.keep_manifest(manifest, topic, broker_name)
    except RocketMQError as error:
        log.warning("not every NameServer says that manifest %s is at %s: %s", manifest, broker_name, error)
    else:
        if lacking:
            log.info("NameServers %s say now that manifest %s is at %s", ", ".join(lacking), manifest, broker_name)


def is_batch_committed(connection: ConnectionOptions, options: SinkOptions, attempt: WriteAttempt) -> bool:
    """Returns whether a task's batch is committed. The tasks of a stage in one worker read the manifest once."""
    global _last_look
    context = TaskContext.get()
    manifest = worker.name_on_brokers(connection, options.manifest)
    key = (manifest, attempt.query, attempt.batch, None if context is None else context.stageId())
    if context is None or _last_look is None or _last_look[0] != key:
        deadline = time.monotonic() + options.send_timeout
        decided = _look(connection, manifest, deadline).decided.get(attempt.query)
        _last_look = key, decided is not None and decided.number >= attempt.batch
    return _last_look[1]


class BatchCommit:
    """The commit of one batch: reads the manifest, appends a record, and reads again until the batch is committed."""

    def __init__(
        self, connection: ConnectionOptions, options: SinkOptions, writer: str, number: int, *, stream: bool
    ) -> None:
        self._connection = connection
        self._options = options
        self._writer = writer
        self._number = number
        self._stream = stream
        self._manifest = worker.name_on_brokers(connection, options.manifest)
        self._name = f"batch {number} of {writer}"
        self._is_named = stream or options.txn_app_id is not None

    def commit(self, reports: Sequence[PartitionWritten]) -> str:
        """Commits the batch, and returns the outcome as text.

        Raises `NotCommitted` if no record is acknowledged in time. The batch may then be committed or not, which a
        repeated commit finds out. Raises `ConcurrentWrite` if another writer of this name committed it with other rows.
        """
        ranges = [part for report in reports for part in report.ranges]
        sent = sum(report.rows for report in reports if not report.is_batch_committed)
        if sum(part.count for part in ranges) != sent:
            raise RowsUnaccounted(
                f"{sent} rows were taken, and the places of {sum(part.count for part in ranges)} are known; nothing is "
                "committed: write them again"
            )
        deadline, first = time.monotonic() + self._options.send_timeout, None
        while True:
            end = _look(self._connection, self._manifest, deadline)
            first = end.end if first is None else first
            record = self._record(ranges, end, first)
            if record is None:
                return self._already_decided(end, reports)
            if any(report.is_batch_committed for report in reports):
                raise NotCommitted(
                    f"{self._name} was decided when its tasks looked, and manifest {self._manifest} has no record of "
                    "it now: its broker lost messages"
                )
            if end.end == 0 or (self._is_named and self._writer not in end.decided):
                self._warn_of_the_broker(end.queue.broker_name)
            try:
                offset = self._append(record, end, deadline)
                if self._counts(end, offset, deadline):
                    self._name_forgotten(record, end)
                    _keep_place(self._connection, self._options, end.queue.broker_name)
                    return f"committed as {self._name} at offset {offset} of {self._manifest}"
            except (NetworkError, RoutingError, SendFailed) as error:
                self._wait(error, deadline)

    def _record(self, ranges: Sequence[StoredRange], end: ManifestEnd, first: int) -> CommitRecord | None:
        """Returns the record to append to the manifest, or None if the batch is committed already.

        `end` has the last committed batch of each named writer. A writer without a name commits only once, so its
        record is looked for in the manifest, from the offset `first` on.
        """
        if not self._is_named and end.end > first:  # `end` lists no writer without a name
            commits = _consumer(self._connection).read_manifest(self._manifest, first, end.end).commits
            if any(commit.writer == self._writer for commit in commits):
                return None
        return next_record(
            self._writer,
            self._number,
            ranges,
            commit=uuid.uuid4().hex,
            seen=end.end,
            decided=end.decided,
            without_decided=end.without_decided,
            named=self._is_named,
        )

    def _name_forgotten(self, record: CommitRecord, end: ManifestEnd) -> None:
        for writer in end.decided.keys() - (end.decided if record.decided is None else record.decided).keys():
            last = end.decided[writer]
            if last.is_named:
                log.warning(
                    "writer %s is forgotten in %s: its batch %d was committed on %s, and a repeat of that would be "
                    "written again",
                    writer,
                    self._manifest,
                    last.number,
                    time.strftime("%Y-%m-%d", time.gmtime(last.stored_ms / 1000))
                    if last.stored_ms
                    else "a day unknown",
                )

    def _wait(self, error: RocketMQError, deadline: float) -> None:
        if time.monotonic() >= deadline or (isinstance(error, SendFailed) and error.outcome is Outcome.STORED):
            outcome = error.outcome if isinstance(error, SendFailed) else Outcome.PERHAPS_STORED
            raise NotCommitted(
                f"{self._name}: its rows are stored, and its record is {outcome.value}: {error}. Write the same batch "
                "again: it is committed once"
            ) from error
        log.warning("the record of %s is looked for, then sent again: %s", self._name, error)
        time.sleep(LOOK_PAUSE_SECONDS)

    def _append(self, record: CommitRecord, end: ManifestEnd, deadline: float) -> int:
        producer = worker.producer(self._connection, self._options)
        for message in commit_messages(record, self._manifest):
            left = deadline - time.monotonic()
            result = producer.send(message, queue=end.queue, timeout=max(0.001, min(left, SEND_SECONDS)))
            self._check_status(result)
        return result.queue_offset

    def _check_status(self, result: SendResult) -> None:
        if result.status is not SendStatus.SEND_OK and not self._options.commit_not_store_ok:
            raise NotCommitted(
                f"{self._name}: the record at offset {result.queue_offset} of {self._manifest} is stored, but "
                f"{result.status.name}: it may be lost with its broker. Write the same batch again, or accept it by "
                "commitNotStoreOK=true"
            )

    def _counts(self, end: ManifestEnd, offset: int, deadline: float) -> bool:
        """Returns whether the manifest's record at `offset` commits the batch, as only a batch's first record does.

        Waits until the record can be read. Raises `NotCommitted` after `deadline`, a time of the monotonic clock.
        """
        if offset == end.end:
            return True
        consumer = _consumer(self._connection)
        while consumer.max_offset(end.queue) <= offset:
            if time.monotonic() > deadline:
                raise NotCommitted(f"{self._name}: its record at offset {offset} of {self._manifest} is not readable")
            time.sleep(PAUSE_SECONDS)
        return bool(consumer.read_manifest(self._manifest, offset, offset + 1).commits)

    def _already_decided(self, end: ManifestEnd, reports: Sequence[PartitionWritten]) -> str:
        decided = end.decided.get(self._writer)
        if decided is None:  # a batch without a name: its record is one of this commit's own attempts
            return f"committed as {self._name} in {self._manifest}"
        rows, sent = sum(report.rows for report in reports), any(not report.is_batch_committed for report in reports)
        if self._stream and decided.number > self._number:
            raise ConcurrentWrite(
                f"{self._name} comes late: batch {decided.number} is committed in {self._manifest}. Another query "
                "writes with a copy of this checkpoint, or this checkpoint is an old one; begin with a new checkpoint"
            )
        if self._stream and decided.rows != rows:
            fault = f"{self._name} is committed with {decided.rows} rows, and this attempt has {rows}"
            if sent and rows:
                raise ConcurrentWrite(
                    f"{fault}: another query writes with a copy of this checkpoint; stop one, and begin with a new "
                    "checkpoint"
                )
            log.warning("%s: its rows are not the same when it is repeated; those committed first count", fault)
        return f"nothing is committed, since {self._name} was decided before: batch {decided.number} is committed"

    def _warn_of_the_broker(self, broker_name: str) -> None:
        """Warns once, at a writer's first commit, if the manifest's broker may lose acknowledged records."""
        try:
            config = worker.admin(self._connection).brokers.config(broker_name)
        except (NetworkError, ResponseError) as error:
            log.warning("what %s, which has manifest %s, promises is not known: %s", broker_name, self._manifest, error)
            return
        except RocketMQError as error:
            log.warning("the settings of %s cannot be read: %s", broker_name, error)
            return
        if config.get("flushDiskType") != "SYNC_FLUSH" and config.get("brokerRole") != "SYNC_MASTER":
            log.warning(
                "%s, which has manifest %s, acknowledges before a record is on disk or at a slave (ASYNC_FLUSH, %s): a "
                "power failure may take committed batches; set flushDiskType=SYNC_FLUSH, or brokerRole=SYNC_MASTER",
                broker_name,
                self._manifest,
                config.get("brokerRole", "no role"),
            )


def _look(connection: ConnectionOptions, manifest: str, deadline: float) -> ManifestEnd:
    """Returns the manifest's end and committed batches. Raises `NotCommitted` if no answer comes before `deadline`."""
    while True:
        try:
            return _consumer(connection).manifest_end(manifest)
        except (NetworkError, RoutingError) as error:
            if time.monotonic() > deadline:
                raise NotCommitted(
                    f"manifest {manifest} could not be read within sendTimeoutMs: {error}. What is stored stays; write "
                    "the same batch again when its broker is back: it is committed once"
                ) from error
        time.sleep(LOOK_PAUSE_SECONDS)


def _consumer(connection: ConnectionOptions) -> PullConsumer:
    return worker.consumer(connection, worker.DEFAULT_CONSUMER_GROUP)
