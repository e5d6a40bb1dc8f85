"""The commit of a batch, in this process, against our own brokers: lost answers, late writers, brokers away."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from pyrmq_core import BrokerNotFound, ConnectionClosed, ManifestError, OffsetRange, ResponseError, decode
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer
from pyrmq_core.client.consumer import manifest_reader
from pyrmq_core.embedded import PASS, CutConnection
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions, read_sink, read_source
from pyrmq_spark.read.queue_selection import candidate_topics, plan_batch
from pyrmq_spark.spark_errors import BrokerUnavailable, ConcurrentWrite, NotCommitted, RowsUnaccounted
from pyrmq_spark.stream import stream_reader
from pyrmq_spark.write import manifest
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.create_topic import keep_order
from pyrmq_spark.write.manifest import BatchCommit, ensure_manifest
from pyrmq_spark.write.write_task import PartitionWrite
from pyrmq_spark.write.writers import summary_line
from tests.support.sink import BODY, bodies
from tests.support.stream_queries import Query

RECORD = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"orders": 2}) as cluster:
        yield cluster
        worker.close()
        manifest._ensured.clear()


@pytest.fixture
def connection(cluster: EmbeddedCluster) -> ConnectionOptions:
    return ConnectionOptions(name_server=cluster.nameserver)


def options(**more: str) -> SinkOptions:
    return read_sink({"topic": "orders", "delivery": "committed", "sendTimeoutMs": "2000"} | more, stream=True)


def written(connection: ConnectionOptions, number: int, first: int, rows: int, **more: str) -> list[PartitionWritten]:
    """Returns the report of a task that wrote numbered rows of a batch."""
    ensure_manifest(connection, options(**more))
    task = PartitionWrite(connection, options(**more), BODY, WriteAttempt("q", number, 0, 0))
    return [task.run(iter([bodies(first, rows)]))]


def commit(connection: ConnectionOptions, number: int, reports: list[PartitionWritten], **more: str) -> str:
    return BatchCommit(connection, options(**more), "q", number, stream=True).commit(reports)


def committed(cluster: EmbeddedCluster) -> list[str]:
    with PullConsumer("audit", nameserver=cluster.nameserver) as consumer, consumer.read_committed("orders") as pulls:
        messages = [m for pull in pulls for m in decode(pull, OffsetRange(pull.start, pull.next_offset))]
    return sorted(message.body.decode() for message in messages)


def committed_dead_letters(cluster: EmbeddedCluster) -> list[str]:
    with (
        PullConsumer("audit", nameserver=cluster.nameserver) as consumer,
        consumer.read_committed("refused", manifest="orders-committed") as pulls,
    ):
        messages = [m for pull in pulls for m in decode(pull, OffsetRange(pull.start, pull.next_offset))]
    return sorted(message.body.decode() for message in messages)


def rows(first: int, last: int) -> list[str]:
    return sorted(f"row {number}" for number in range(first, last))


def test_a_decided_batch_is_drained(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    line = commit(connection, 0, written(connection, 0, 0, 100))
    assert line == "committed as batch 0 of q at offset 0 of orders-committed"
    again = written(connection, 0, 0, 100)
    assert (again[0].is_batch_committed, again[0].rows, again[0].requests) == (True, 100, 0)
    assert "was decided before" in commit(connection, 0, again)
    others = written(connection, 0, 500, 90)  # a repeat whose rows are others
    assert "was decided before" in commit(connection, 0, others)
    commit(connection, 1, written(connection, 1, 100, 50))
    assert committed(cluster) == rows(0, 150)


def test_a_second_writer_of_the_name_is_refused(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    first, second = written(connection, 0, 0, 10), written(connection, 0, 50, 20)
    commit(connection, 0, first)
    with pytest.raises(ConcurrentWrite, match="batch 0 of q is committed with 10 rows, and this attempt has 20"):
        commit(connection, 0, second)
    same = written(connection, 1, 10, 10)
    commit(connection, 1, written(connection, 1, 10, 10))
    assert "was decided before" in commit(connection, 1, same)  # the same rows, written by a second driver
    with pytest.raises(ConcurrentWrite, match="batch 0 of q comes late: batch 1 is committed"):
        commit(connection, 0, second)
    assert committed(cluster) == rows(0, 20)


def test_refused_rows_are_committed_with_the_others(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    async def refuse(request: Command, peer: Peer) -> object:
        held = b"row 7" in bytes(request.body or b"") and "refusedCode" not in str(request.ext)
        return refusal(ResponseCode.MESSAGE_ILLEGAL, "not this one") if held else PASS

    for code in (RECORD, RequestCode.SEND_BATCH_MESSAGE):
        cluster.control(code, refuse)  # type: ignore[arg-type]
    apart = {"onRejected": "deadLetter", "deadLetterTopic": "refused"}
    reports = written(connection, 0, 0, 30, **apart)
    assert (reports[0].rows, reports[0].dead_lettered) == (30, 1)
    assert "committed as batch 0" in commit(connection, 0, reports, **apart)
    assert committed(cluster) == [row for row in rows(0, 30) if row != "row 7"]
    assert committed_dead_letters(cluster) == ["row 7"]


def test_a_record_that_is_not_answered_is_looked_for(
    cluster: EmbeddedCluster, connection: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "SEND_SECONDS", 0.5)
    reports = written(connection, 0, 0, 10)

    async def never(request: Command, peer: Peer) -> None:
        return None

    dropped = cluster.control(RECORD, never, times=1)
    assert commit(connection, 0, reports).startswith("committed as batch 0")
    assert len(dropped.seen) == 1
    cluster.control(RECORD, never)
    with pytest.raises(NotCommitted, match=r"its record is perhaps stored: .* Write the same batch again"):
        commit(connection, 1, written(connection, 1, 10, 10))
    assert committed(cluster) == rows(0, 10)


def test_a_broker_that_goes_behind_the_record_is_waited_for(
    cluster: EmbeddedCluster, connection: ConnectionOptions
) -> None:
    """Another writer's record comes between look and record, so the commit looks at the manifest once more."""
    reports, others = written(connection, 0, 0, 10), written(connection, 0, 10, 10)
    by_another = BatchCommit(connection, options(), "another", 0, stream=True)
    overtaken: list[str] = []
    cuts: list[Command] = []

    async def cut(request: Command, peer: Peer) -> object:
        if not overtaken or len(cuts) == 3:
            return PASS
        cuts.append(request)
        raise CutConnection

    async def let_another_commit(request: Command, peer: Peer) -> object:
        if not overtaken and b"another" not in bytes(request.body):
            overtaken.append(await trio.to_thread.run_sync(by_another.commit, others))
        return PASS

    cluster.control(RECORD, let_another_commit)  # type: ignore[arg-type]
    cluster.control(RequestCode.GET_MAX_OFFSET, cut)  # type: ignore[arg-type]
    assert commit(connection, 0, reports).startswith("nothing is committed, since batch 0 of q was decided before")
    assert len(cuts) == 3
    assert committed(cluster) == rows(0, 20)


def test_a_record_of_another_driver_that_comes_between_look_and_record_counts(
    cluster: EmbeddedCluster, connection: ConnectionOptions
) -> None:
    first, second = written(connection, 0, 0, 10), written(connection, 0, 0, 10)
    overtaken: list[str] = []

    async def let_another_commit(request: Command, peer: Peer) -> object:
        if not overtaken:
            overtaken.append("")
            await trio.to_thread.run_sync(lambda: overtaken.append(commit(connection, 0, first)))
        return PASS

    cluster.control(RECORD, let_another_commit)  # type: ignore[arg-type]
    assert "was decided before" in commit(connection, 0, second)
    assert overtaken[1] == "committed as batch 0 of q at offset 0 of orders-committed"
    assert committed(cluster) == rows(0, 10)


def test_a_status_that_may_be_lost_is_no_commit(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    async def not_flushed(request: Command, peer: Peer) -> Command:
        fields = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}
        return Command(code=ResponseCode.FLUSH_DISK_TIMEOUT, ext=fields)

    reports = written(connection, 0, 0, 10)
    cluster.control(RECORD, not_flushed)
    with pytest.raises(NotCommitted, match="stored, but FLUSH_DISK_TIMEOUT"):
        commit(connection, 0, reports)
    assert "committed as batch 0" in commit(connection, 0, reports, commitNotStoreOK="true")


def test_rows_whose_places_are_not_known_are_not_committed(connection: ConnectionOptions) -> None:
    with pytest.raises(RowsUnaccounted, match="5 rows were taken, and the places of 0 are known"):
        commit(connection, 0, [PartitionWritten(0, 5, writer="q")])


def test_a_manifest_stays_at_its_broker(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    reports = written(connection, 0, 0, 10)
    manifest._ensured.clear()
    with Admin(nameserver=cluster.nameserver) as admin:
        (home,) = admin.topics.order("orders-committed") or {}
        cluster.stop(home)
        with pytest.raises(NotCommitted, match="manifest orders-committed could not be read within sendTimeoutMs"):
            commit(connection, 0, reports)
        with pytest.raises(BrokerNotFound, match=re.escape(f"the manifest orders-committed is at {home}")):
            ensure_manifest(connection, options())
        cluster.start(home)
        assert "committed as batch 0" in commit(connection, 0, reports)
        admin.create_topic("orders-committed", queues=1)
    with pytest.raises(ManifestError, match=r"it has 2 queues \(.*its order configuration names"):
        ensure_manifest(connection, options())


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(nameserver=cluster.nameserver) as admin:
        yield admin


def forget(admin: Admin) -> None:
    """Takes away what NameServers know of the manifest, as pods without a disk of their own do."""
    admin.delete_kv("ORDER_TOPIC_CONFIG", "orders-committed")
    admin.delete_kv("PYRMQ_MANIFEST", "orders-committed")


def queues_of(admin: Admin, topic: str = "orders-committed") -> dict[str, int]:
    return {data.broker_name: data.read_queue_nums for data in admin.route(topic).queue_datas}


def test_no_second_manifest_where_nameservers_forgot_the_first(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin
) -> None:
    """The other masters keep the name; each commit restores what NameServers forgot."""
    commit(connection, 0, written(connection, 0, 0, 10))
    assert queues_of(admin) == {"broker-a": 1, "broker-b": 0}
    forget(admin)
    commit(connection, 1, written(connection, 1, 10, 10))  # of the same driver
    assert admin.topics.order("orders-committed") == {"broker-a": 1}
    assert admin.topics.manifests() == {"orders-committed"}
    forget(admin)
    cluster.stop("broker-a")
    manifest._ensured.clear()
    with pytest.raises(
        BrokerNotFound, match=r"at a broker that is not registered \(broker-b keeps its name\): start it"
    ):
        ensure_manifest(connection, options())
    source = read_source({"topic": "orders", "isolation": "committed", "pullTimeoutMs": "1"})
    with pytest.raises(BrokerUnavailable, match="no broker that is registered has a queue of orders-committed"):
        plan_batch(worker.consumer_of(connection, source), source)
    cluster.start("broker-a")
    assert "was decided before" in commit(connection, 1, written(connection, 1, 10, 10))
    assert committed(cluster) == rows(0, 20)


def test_no_manifest_while_a_broker_of_the_topic_is_away(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin
) -> None:
    admin.topics.set_order("orders", {"broker-a": 2, "broker-b": 2})
    cluster.stop("broker-a")
    with pytest.raises(BrokerNotFound, match="is not created while broker-a, which has the topic orders, is away"):
        ensure_manifest(connection, options())
    cluster.start("broker-a")
    ensure_manifest(connection, options())


class KilledError(BaseException):
    """The end of a driver's process, which no handler of ours sees."""


class Calls:
    """An Admin, or a family of it, whose call number `last` ends the process instead."""

    def __init__(self, target: object, last: int, calls: list[str]) -> None:
        self._target, self._last, self._calls = target, last, calls

    def __getattr__(self, name: str) -> object:
        value = getattr(self._target, name)
        if name == "topics":
            return Calls(value, self._last, self._calls)
        if not name.startswith(("create", "set", "keep", "put")):
            return value

        def call(*args: object, **more: object) -> object:
            if len(self._calls) == self._last:
                raise KilledError(name)
            self._calls.append(name)
            return value(*args, **more)

        return call


def test_a_driver_that_dies_between_two_calls_is_followed_by_one_that_commits(
    cluster: EmbeddedCluster, connection: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change at a server is the last one of a first try, whose second try ends well."""
    real, calls = worker.admin, list[str]()
    for last in range(10):
        admin, calls = real(connection), list[str]()
        admin.delete_topic("orders-committed")
        manifest._ensured.clear()
        monkeypatch.setattr(worker, "admin", lambda _, admin=admin, last=last, calls=calls: Calls(admin, last, calls))
        try:
            ensure_manifest(connection, options())
        except KilledError:
            ended = False
        else:
            ended = True
        monkeypatch.setattr(worker, "admin", real)
        assert "committed as batch 0" in commit(connection, 0, written(connection, 0, last * 10, 10))
        assert committed(cluster) == rows(last * 10, last * 10 + 10)
        assert queues_of(admin) == {"broker-a": 1, "broker-b": 0}
        if ended:
            break
    assert calls == ["create_topic", "create_topic", "keep_manifest"]


def test_a_manifest_that_may_not_be_created_leaves_nothing_behind(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin
) -> None:
    async def refuse(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.NO_PERMISSION, "no right")

    cluster.control(RequestCode.UPDATE_AND_CREATE_TOPIC, refuse, times=1)
    with pytest.raises(ResponseError, match="no right"):
        ensure_manifest(connection, options())
    assert admin.topics.order("orders-committed") is None
    assert "committed as batch 0" in commit(connection, 0, written(connection, 0, 0, 10))


def test_a_manifest_that_was_deleted_by_halves_is_made_again(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """Its order configuration is left over, as RocketMQ's own deletion leaves it."""
    admin.topics.set_order("orders-committed", {"broker-b": 1})
    assert "committed as batch 0" in commit(connection, 0, written(connection, 0, 0, 10))
    assert queues_of(admin) == {"broker-a": 0, "broker-b": 1}
    assert "broker-b has no such topic: it is created there" in caplog.text


def test_a_manifest_that_was_deleted_while_a_query_runs_is_made_again(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    assert "committed as batch 0" in commit(connection, 0, written(connection, 0, 0, 10))
    admin.delete_topic("orders-committed")
    assert "committed as batch 1" in commit(connection, 1, written(connection, 1, 10, 10))
    assert "orders-committed is not there any more" in caplog.text


def test_a_batch_without_a_name_is_committed_once_over_a_lost_answer(
    cluster: EmbeddedCluster, connection: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record is stored, and another one behind it lists the decided batches, without that of no name."""
    reports, others = written(connection, 0, 0, 10), written(connection, 0, 10, 10)
    nameless = BatchCommit(connection, options(), "no name", 0, stream=False)
    append = BatchCommit._append
    lost: list[int] = []

    def append_and_lose(self: BatchCommit, *arguments: Any) -> int:
        offset = append(self, *arguments)
        if self is nameless:
            lost.append(offset)
            commit(connection, 0, others)
            raise ConnectionClosed("lost", address="broker", request_left=True)
        return offset

    monkeypatch.setattr(BatchCommit, "_append", append_and_lose)
    assert nameless.commit(reports) == "committed as batch 0 of no name in orders-committed"
    assert lost == [0]
    assert committed(cluster) == rows(0, 20)


def test_many_batches_without_a_name_forget_no_writer(
    cluster: EmbeddedCluster, connection: ConnectionOptions, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's promise is looked up at the first record, and no more for such batches."""
    commit(connection, 0, written(connection, 0, 0, 10))
    for number in range(20):
        BatchCommit(connection, options(), f"once {number}", 0, stream=False).commit([PartitionWritten(0, 0)])
    assert "was decided before" in commit(connection, 0, written(connection, 0, 0, 10))
    assert caplog.text.count("a power failure may take committed batches") == 1
    with PullConsumer("audit", nameserver=cluster.nameserver) as consumer:
        assert list(consumer.manifest_end("orders-committed").decided) == ["q", "once 19"]


def test_a_pattern_leaves_manifests_out(cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin) -> None:
    """By their kind: a topic of a user's may have such a name, and a manifest any name."""
    ensure_manifest(connection, options())
    ensure_manifest(connection, options(manifestTopic="orders_decided"))
    admin.create_topic("orders-not-committed", queues=1)
    source = read_source({"topicPattern": "orders.*"})
    consumer = worker.consumer_of(connection, source)
    assert list(candidate_topics(consumer, source)) == ["orders", "orders-not-committed"]
    admin.delete_kv("PYRMQ_MANIFEST", "orders-committed")  # of an earlier release
    assert list(candidate_topics(consumer, source)) == ["orders", "orders-not-committed"]
    assert list(candidate_topics(consumer, read_source({"topic": "orders-committed"}))) == ["orders-committed"]


def test_rows_of_a_decided_batch_are_not_sent(cluster: EmbeddedCluster, connection: ConnectionOptions) -> None:
    commit(connection, 0, written(connection, 0, 0, 100))
    line = summary_line(written(connection, 0, 0, 100))
    assert line.startswith(
        "100 rows not sent, since their batch was decided before; 0 rows (0 bytes) acknowledged in 0 "
    )


def test_the_order_of_keys_is_restored_at_the_start_of_a_write(
    cluster: EmbeddedCluster, connection: ConnectionOptions, admin: Admin
) -> None:
    """One of two NameServers lost its disk; a topic without an order gets none."""
    keep_order(connection, "orders")
    assert admin.topics.order("orders") is None
    admin.topics.set_order("orders", {"broker-a": 2, "broker-b": 2})

    async def lost(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.QUERY_NOT_FOUND, "lost")

    asked = cluster.control(RequestCode.GET_KV_CONFIG, lost, times=2)
    assert admin.topics.keep_order("orders") == ()  # no NameServer has it
    assert admin.topics.keep_order("orders", {"broker-a": 2, "broker-b": 2}) == (cluster.nameserver,)
    assert len(asked.seen) == 2


def test_a_stream_without_limits_takes_a_bounded_number_of_ranges(
    cluster: EmbeddedCluster, connection: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the records that are looked at together have too many; one record is always taken."""
    for number in range(5):
        commit(connection, number, written(connection, number, number * 10, 10))
    monkeypatch.setattr(stream_reader, "MOST_RANGES_A_BATCH", 2)
    query = Query(cluster, topic="orders", isolation="committed", startingOffsets="earliest")
    batches = [len(query.batch(everything=True)) for _ in range(4)]
    assert batches == [20, 20, 10, 0]
    monkeypatch.setattr(manifest_reader, "MOST_RANGES", 1)
    whole = Query(cluster, topic="orders", isolation="committed", startingOffsets="earliest")
    assert whole.plan(everything=True)
    query = Query(cluster, topic="orders", isolation="committed", startingOffsets="earliest")
    monkeypatch.setattr(stream_reader, "MOST_RANGES_A_BATCH", 1)
    assert [len(query.batch(everything=True)) for _ in range(6)] == [10, 10, 10, 10, 10, 0]
