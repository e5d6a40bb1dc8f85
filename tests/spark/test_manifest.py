"""The commit of a batch, in this process, against our own brokers: lost answers, late writers, brokers away."""

import re
from collections.abc import Iterator

import pytest
import trio

from pyrmq_core import BrokerNotFound, ManifestError, OffsetRange, decode
from pyrmq_core.blocking import Admin, EmbeddedCluster, PullConsumer
from pyrmq_core.embedded import PASS, CutConnection
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import worker
from pyrmq_spark.options import ConnectionOptions, SinkOptions, read_sink
from pyrmq_spark.spark_errors import ConcurrentWrite, NotCommitted, RowsUnaccounted
from pyrmq_spark.write import manifest
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.manifest import BatchCommit, ensure_manifest
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.sink import BODY, bodies

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
    assert (again[0].is_decided, again[0].rows, again[0].requests) == (True, 100, 0)
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
