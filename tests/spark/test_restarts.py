"""A write waits for brokers and NameServers that are away for a moment, whatever its rows and options are.

Every case of the table writes during one restart, each as Spark does for a batch: a writer on the driver, one task, and
the commit.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_spark import RocketMQDataSource, patience, worker
from pyrmq_spark.spark_errors import RocketMQSparkError
from pyrmq_spark.write import manifest
from tests.support.sink import messages

TYPES = {"body": BinaryType(), "queueId": IntegerType(), "delayLevel": IntegerType()}
ROWS: dict[str, dict[str, object]] = {
    "no key": {},
    "a key": {"shardingKey": "k"},
    "a queue": {"brokerName": "broker-a", "queueId": 1},
    "a delay": {"delayLevel": 1},
    "tags and keys": {"tags": "t", "keys": "k1"},
}
# A row of its own topic has no option `topic`; the refused row has a body that the brokers of these tests refuse.
OWN_TOPIC, REFUSED = "a topic of its own", "a dead letter"
OPTIONS: dict[str, dict[str, str]] = {
    "queueSelection": {"queueSelection": "request"},
    "no retries": {"retryTimesWhenSendFailed": "0"},
    "compression": {"compression": "zlib", "compressBodyOverBytes": "0"},
    "message ids": {"messageIds": "content"},
    "fault latency": {"sendLatencyFaultEnable": "true"},
    "a batch topic": {"topic": "batches", "createTopic": "batch"},
    "committed": {"delivery": "committed"},
    "committed, normal": {"delivery": "committed", "createTopic": "normal"},
}
WAITS = {"sendTimeoutMs": "60000"}

Case = tuple[dict[str, str], dict[str, object]]


def cases() -> dict[str, Case]:
    table: dict[str, Case] = {}
    for (rows, columns), create in product(ROWS.items(), ("auto", "normal")):
        table[f"{rows}, createTopic={create}"] = {"topic": "orders", "createTopic": create}, columns
    for create in ("auto", "normal"):
        table[f"{OWN_TOPIC}, createTopic={create}"] = {"createTopic": create}, {"topic": "orders"}
    table[REFUSED] = {"topic": "orders", "onRejected": "deadLetter", "deadLetterTopic": "refused"}, {}
    for name, options in OPTIONS.items():
        table[name] = {"topic": "orders"} | options, {}
    return table


CASES = cases()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    async def refuse(request: Command, peer: Peer) -> Command | Pass:
        refused = REFUSED.encode() in request.body and request.ext.get("b") != "refused"
        return refusal(ResponseCode.MESSAGE_ILLEGAL, "no such body") if refused else PASS

    with EmbeddedCluster(brokers=1, topics={"orders": 4, "refused": 4}) as cluster:
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            cluster.control(code, refuse)
        yield cluster
        forget()


def forget() -> None:
    """Makes this process like a new one of Spark's, which knows no route."""
    worker.close()
    manifest._ensured.clear()


def write(nameserver: str, name: str, body: str) -> None:
    """Writes one row as Spark does for one batch."""
    options, columns = CASES[name]
    row = {"body": body.encode(), **columns}
    options = WAITS | {"nameServer": nameserver, "producerGroup": f"case{list(CASES).index(name)}"} | options
    schema = StructType([StructField(column, TYPES.get(column, StringType())) for column in row])
    writer = RocketMQDataSource(options).writer(schema, overwrite=False)
    arrow = {"queueId": pa.int32(), "delayLevel": pa.int32(), "body": pa.binary()}
    batch = pa.record_batch({key: pa.array([value], arrow.get(key, pa.string())) for key, value in row.items()})
    writer.commit([writer.write(iter([batch]))])


class Waiting(logging.Handler):
    """The lines by which writers say that they wait."""

    def __init__(self, turned_away: threading.Semaphore) -> None:
        super().__init__()
        self._turned_away = turned_away

    def emit(self, record: logging.LogRecord) -> None:
        self._turned_away.release()


def write_all_during_a_restart(cluster: EmbeddedCluster, server: str, run: str) -> None:
    """Writes every case while the server is away, and starts it once some of the writers were turned away."""
    turned_away, begun = threading.Semaphore(0), threading.Barrier(len(CASES) + 1)

    async def count(request: Command, peer: Peer) -> Pass:
        turned_away.release()
        return PASS

    def attempt(name: str) -> str:
        begun.wait()
        try:
            write(cluster.nameserver, name, f"{name}, {run}")
        except RocketMQSparkError as error:
            return str(error)
        return ""

    waiting = Waiting(turned_away)
    patience.log.addHandler(waiting)
    queries = cluster.control(RequestCode.GET_ROUTEINFO_BY_TOPIC, count)
    try:
        with ThreadPoolExecutor(len(CASES)) as pool:
            outcomes = {name: pool.submit(attempt, name) for name in CASES}
            begun.wait()
            for _ in range(5):
                turned_away.acquire()
            cluster.start(server)
            failures = {name: outcome.result() for name, outcome in outcomes.items() if outcome.result()}
    finally:
        queries.remove()
        patience.log.removeHandler(waiting)
    assert failures == {}


@pytest.mark.parametrize("process", ["knows the routes", "is new"])
def test_every_write_waits_for_the_only_broker(cluster: EmbeddedCluster, process: str) -> None:
    for name in CASES:
        write(cluster.nameserver, name, f"{name}, before {process}")
    cluster.stop("broker-a")
    if process == "is new":
        forget()
    write_all_during_a_restart(cluster, "broker-a", f"while away {process}")
    _check_stored_once(cluster, [f"{name}, {when} {process}" for name in CASES for when in ("before", "while away")])


def test_every_write_waits_for_the_only_nameserver(cluster: EmbeddedCluster) -> None:
    for name in CASES:
        write(cluster.nameserver, name, f"{name}, before the NameServer")
    address = cluster.nameserver
    cluster.stop("nameserver")
    forget()
    write_all_during_a_restart(cluster, "nameserver", "without a NameServer")
    assert cluster.nameserver == address
    _check_stored_once(cluster, [f"{name}, without a NameServer" for name in CASES])


def _check_stored_once(cluster: EmbeddedCluster, expected: list[str]) -> None:
    """Checks that each body is stored once; delayed ones are on their way."""
    bodies = Counter(
        message.body.decode() for topic in ("orders", "refused", "batches") for message in messages(cluster, topic)
    )
    assert {body: bodies[body] for body in expected if bodies[body] != 1 and "a delay" not in body} == {}


@contextmanager
def came_back(cluster: EmbeddedCluster) -> Iterator[None]:
    """Answers the first query of each route as before a broker came back, and all others as after."""
    asked: set[str] = set()

    async def unknown_once(request: Command, peer: Peer) -> Command | Pass:
        topic = request.ext["topic"]
        if topic in asked:
            return PASS
        asked.add(topic)
        return refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")

    forget()
    queries = cluster.control(RequestCode.GET_ROUTEINFO_BY_TOPIC, unknown_once)
    try:
        yield
    finally:
        queries.remove()
        forget()


@pytest.mark.parametrize("create", ["auto", "normal"])
def test_a_topic_whose_broker_comes_back_behind_the_look_up_is_written_as_it_is(create: str) -> None:
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster, came_back(cluster):
        options = {"nameServer": cluster.nameserver, "topic": "orders", "createTopic": create}
        row = StructType([StructField("body", StringType())])
        RocketMQDataSource(options).writer(row, overwrite=False).write(iter([pa.record_batch({"body": ["a"]})]))
        assert [message.body for message in messages(cluster, "orders")] == [b"a"]
        with Admin(nameserver=cluster.nameserver) as admin:
            assert [data.write_queue_nums for data in admin.route("orders").queue_datas] == [2]


def test_a_topic_whose_broker_comes_back_behind_the_look_up_is_read() -> None:
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster, came_back(cluster):
        reader = RocketMQDataSource({"nameServer": cluster.nameserver, "topic": "orders"}).reader(
            StructType([StructField("body", BinaryType())])
        )
        assert reader.partitions() is not None


def test_no_second_manifest_where_the_broker_of_the_first_comes_back_behind_the_look_up() -> None:
    with EmbeddedCluster(brokers=2, topics={"orders": 2}) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("orders_manifest", queues=1, broker="broker-b")
        with came_back(cluster):
            options = {"nameServer": cluster.nameserver, "topic": "orders", "delivery": "committed"}
            options["manifestTopic"] = "orders_manifest"
            RocketMQDataSource(options).writer(StructType([StructField("body", StringType())]), overwrite=False)
        brokers = {data.broker_name: data.read_queue_nums for data in admin.route("orders_manifest").queue_datas}
        assert brokers == {"broker-a": 0, "broker-b": 1}


def test_a_topic_that_no_broker_has_fails_at_once_while_brokers_are_there() -> None:
    with EmbeddedCluster(brokers=1, settings={"autoCreateTopicEnable": "false"}) as cluster:
        row = StructType([StructField("body", StringType())])
        options = {"nameServer": cluster.nameserver, "topic": "ordrs", "sendTimeoutMs": "3600000"}
        writer = RocketMQDataSource(options).writer(row, overwrite=False)
        with pytest.raises(RocketMQSparkError, match="RMQ_TOPIC_NOT_FOUND"):
            writer.write(iter([pa.record_batch({"body": ["a"]})]))
        forget()


@pytest.mark.parametrize("create", ["auto", "normal"])
def test_a_broker_that_stays_away_ends_the_write_with_what_to_do(create: str) -> None:
    row = StructType([StructField("body", StringType())])
    with EmbeddedCluster(brokers=1, topics={"orders": 4}) as cluster:
        cluster.stop("broker-a")
        options = {"nameServer": cluster.nameserver, "topic": "orders", "sendTimeoutMs": "500", "createTopic": create}
        with pytest.raises(RocketMQSparkError, match=r"\[RMQ_BROKER_UNAVAILABLE\].*start.*sendTimeoutMs"):
            RocketMQDataSource(options).writer(row, overwrite=False).write(iter([pa.record_batch({"body": ["a"]})]))
        forget()
