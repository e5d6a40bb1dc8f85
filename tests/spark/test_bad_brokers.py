"""Brokers that fail in the middle of a write: the task goes on where that is possible, or fails with their name."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from tests.support.scripted import route_of
from tests.support.sink import BODY, bodies, cluster, stored, task
from tests.support.spark import wait_readable

__all__ = ["cluster"]

SEND = RequestCode.SEND_BATCH_MESSAGE
# The answers of 5.4.0, in the words of DefaultMessageStore and the authentication pipeline.
DISK_FULL = (
    "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
    "[CL:  0.98 CQ:  0.98 INDEX:  0.98], messages are put to the slave, message store has been shut down, etc."
)
REVOKED = "AuthenticationException: User:spark is not found."
KEYED = SinkSchema({"body": 0, "shardingKey": 1}, "orders")


def refuse(
    cluster: EmbeddedCluster, code: int, remark: str, when: Callable[[int], bool], server: str | None = None
) -> list[int]:
    """Refuses the requests whose number `when` accepts; returns the list of all requests' numbers."""
    seen: list[int] = []

    async def answer(request: Command, peer: Peer) -> Command | Pass:
        seen.append(len(seen))
        return refusal(code, remark) if when(seen[-1]) else PASS

    cluster.control(SEND, answer, server=server)
    return seen


def keyed(first: int, count: int) -> pa.RecordBatch:
    return bodies(first, count).append_column("shardingKey", pa.array(["one key"] * count))


def test_a_full_disk_fails_the_task_after_its_retries_naming_the_brokers(cluster: EmbeddedCluster) -> None:
    seen = refuse(cluster, ResponseCode.SERVICE_NOT_AVAILABLE, DISK_FULL, lambda number: number >= 3)
    with pytest.raises(RocketMQSparkError) as error:
        task(cluster, retryTimesWhenSendFailed="3").run(iter([bodies(0, 20_000)]))
    assert len(seen) == 3 + 4
    text = str(error.value)
    assert text.startswith("[RMQ_SEND_FAILED] partition 0: Send [4] times, still failed")
    assert "broker-a" in text
    assert "broker-b" in text
    assert "SERVICE_NOT_AVAILABLE (14)" in text
    assert "disk is full" in text
    assert "(12000 rows of this partition were acknowledged before)" in text


def test_a_full_disk_of_one_broker_moves_the_rows_to_the_other(cluster: EmbeddedCluster) -> None:
    refuse(cluster, ResponseCode.SERVICE_NOT_AVAILABLE, DISK_FULL, lambda number: number >= 1, "broker-a")
    written = task(cluster).run(iter([bodies(0, 20_000)]))
    assert written.rows == 20_000
    assert sum(rows for queue, rows in written.rows_by_queue.items() if "broker-a" in queue) <= 4000
    assert written.perhaps_repeated == 0


def test_a_key_waits_for_its_brokers_disk_and_then_fails(cluster: EmbeddedCluster) -> None:
    seen = refuse(cluster, ResponseCode.SERVICE_NOT_AVAILABLE, DISK_FULL, lambda number: number >= 1)
    with pytest.raises(RocketMQSparkError, match="SERVICE_NOT_AVAILABLE"):
        task(cluster, schema=KEYED, sendTimeoutMs="4000").run(iter([keyed(0, 9000)]))
    assert len(seen) >= 3


def test_a_broker_that_refuses_every_second_request_gets_all_rows_once_and_in_order(cluster: EmbeddedCluster) -> None:
    refuse(cluster, ResponseCode.SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy", lambda number: number % 2 == 1)
    for schema, rows in ((BODY, bodies(0, 500)), (KEYED, keyed(500, 500))):
        written = task(cluster, schema=schema, maxBatchBytes="10000").run(iter([rows]))
        assert (written.rows, written.retries > 0, written.perhaps_repeated) == (500, True, 0)
    wait_readable(cluster.nameserver, "orders", 1000)
    by_queue = stored(cluster)
    assert sorted(chain(*by_queue.values())) == sorted(f"row {number}" for number in range(1000))
    for queue_bodies in by_queue.values():
        numbers = [int(body.removeprefix("row ")) for body in queue_bodies]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("schema", [BODY, KEYED], ids=["any queue", "a key's queue"])
def test_credentials_that_are_revoked_fail_the_task_and_are_not_waited_for(
    cluster: EmbeddedCluster, schema: SinkSchema
) -> None:
    seen = refuse(cluster, ResponseCode.NO_PERMISSION, REVOKED, lambda number: number >= 2)
    with pytest.raises(RocketMQSparkError) as error:
        task(cluster, schema=schema, sendTimeoutMs="60000").run(iter([keyed(0, 20_000)]))
    assert len(seen) <= 5
    assert "NO_PERMISSION (16)" in str(error.value)
    assert "User:spark is not found" in str(error.value)
    assert "(8000 rows of this partition were acknowledged before)" in str(error.value)


# --- A certificate


class TlsEnd:
    """A port that speaks TLS and passes on to a plain server; `expire` gives it a certificate that was valid once."""

    def __init__(self, authority: trustme.CA, server: str) -> None:
        self._authority = authority
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def expire(self) -> None:
        """Gives new connections an expired certificate, and cuts the old ones."""
        past = datetime.now(UTC) - timedelta(hours=1)
        self._authority.issue_cert("127.0.0.1", not_after=past).configure_cert(self._context)
        self._cut()

    def close(self) -> None:
        self._listener.close()
        self._cut()

    def _cut(self) -> None:
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            suppress(OSError),
            plain,
            self._context.wrap_socket(plain, server_side=True) as client,
            socket.create_connection(self._server) as server,
        ):
            self._open += [client, server]
            threading.Thread(target=_copy, args=(server, client), daemon=True).start()
            _copy(client, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def encrypted(cluster: EmbeddedCluster) -> Iterator[tuple[trustme.CA, TlsEnd, TlsEnd]]:
    """Yields TLS ends before the NameServer and broker-a; routes name these ends."""
    authority = trustme.CA()
    with ExitStack() as stack:
        ends = [TlsEnd(authority, address) for address in (cluster.nameserver, cluster.brokers["broker-a"])]
        for end in ends:
            stack.callback(end.close)
        route = route_of({"broker-a": ends[1].address}).to_json()

        async def route_over_tls(request: Command, peer: Peer) -> Command:
            return success(body=route)

        cluster.control(RequestCode.GET_ROUTEINFO_BY_TOPIC, route_over_tls)
        yield authority, ends[0], ends[1]


def test_a_certificate_that_expires_under_way_fails_the_task_by_its_reason(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with encrypted(cluster) as (authority, nameserver, broker):
        ca_file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(ca_file))
        connection = ConnectionOptions(name_server=nameserver.address, use_tls=True, tls_ca_file=str(ca_file))
        options = read_sink({"sendTimeoutMs": "5000", "requestTimeoutMs": "2000"})
        work = PartitionWrite(connection, options, BODY, WriteAttempt("q", 0, 0, 0))

        def batches() -> Iterator[pa.RecordBatch]:
            yield bodies(0, 10)
            yield bodies(10, 10)
            broker.expire()
            yield bodies(20, 1000)

        with pytest.raises(RocketMQSparkError) as error:
            work.run(batches())
    assert str(error.value).startswith("[RMQ_SEND_FAILED] partition 0: ")
    assert f"broker-a ({broker.address})" in str(error.value)
    assert "expired" in str(error.value)
