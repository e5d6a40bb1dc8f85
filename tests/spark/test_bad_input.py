"""Jobs that cannot work, in a session: each error is one line with a stable condition, and needs no cluster."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark import read, write

pytestmark = pytest.mark.spark

NOBODY = "127.0.0.1:1"


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(0, 2, 1, 1).selectExpr("'x' as body")


@pytest.fixture
def garbage() -> Iterator[str]:
    """A server that answers every request with bytes that are no frame."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_garbage, args=(server,), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def answer_garbage(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)


Job = Callable[[SparkSession, DataFrame], object]


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (
            lambda spark, frame: frame.write.format("rocketmq").option("topic", "t").mode("append").save(),
            r"\[RMQ_INVALID_OPTION\] no NameServer is named: set option\(\"nameServer\", \"host:9876\"\)",
        ),
        (
            lambda spark, frame: spark.read.format("rocketmq").option("topic", "t").load(),
            r"\[RMQ_INVALID_OPTION\] no NameServer is named",
        ),
        (
            lambda spark, frame: write(frame, NOBODY, topic="t", tpic="t"),
            r"\[RMQ_UNKNOWN_OPTION\] rocketmq has no option tpic; did you mean topic\?",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, startingOffset="earliest", topic="t"),
            r"\[RMQ_UNKNOWN_OPTION\] .*; did you mean startingOffsets\?",
        ),
        (
            lambda spark, frame: (
                frame.write.format("rocketmq").option("nameServer", NOBODY).mode("append").save("orders")
            ),
            r"\[RMQ_INVALID_OPTION\] path is no option of rocketmq: a topic is no path",
        ),
        (
            lambda spark, frame: (
                frame.write.format("rocketmq").options(nameServer=NOBODY, topic="t").mode("overwrite").save()
            ),
            r"\[RMQ_UNSUPPORTED_MODE\] a topic cannot be overwritten, .*mode\(\"append\"\)",
        ),
        (
            lambda spark, frame: frame.write.format("rocketmq").options(nameServer=NOBODY, topic="t").save(),
            r"\[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] .*\"ErrorIfExists\" mode.*\"Append\"",
        ),
        (
            lambda spark, frame: (
                frame.write.format("rocketmq").options(nameServer=NOBODY, topic="t").mode("ignore").save()
            ),
            r"\[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] .*\"Ignore\" mode.*\"Append\"",
        ),
        (
            lambda spark, frame: write(frame, NOBODY),
            r"\[RMQ_INVALID_COLUMN\] .*neither a column topic nor the option topic",
        ),
        (
            lambda spark, frame: write(frame.selectExpr("1 as body"), NOBODY, topic="t"),
            r"\[RMQ_INVALID_COLUMN\] .*body is binary or string, not int",
        ),
        (
            lambda spark, frame: write(frame, NOBODY, topic="two words"),
            r"\[RMQ_INVALID_ARGUMENT\] topic 'two words' holds characters",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, "body int", topic="t").count(),
            r"\[RMQ_INVALID_COLUMN\] .*column body is binary or string, not int",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, topic="t", startingOffsets="latest").count(),
            r"\[RMQ_INVALID_OFFSETS\] option startingOffsets: a batch read cannot start at latest",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, topic="t", startingOffsets='{"t":{"broker-a":{"0":1,}}}').count(),
            r"\[RMQ_INVALID_OFFSETS\] option startingOffsets is .*: that is no JSON: .* at character 25",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, topicPattern="a(b").count(),
            r"\[RMQ_INVALID_OPTION\] option topicPattern is 'a\(b', which is no regular expression: .*at position 1",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, topic="t", tags="||").count(),
            r"\[RMQ_INVALID_ARGUMENT\] the tag expression '\|\|' names no tag",
        ),
        (
            lambda spark, frame: write(frame, NOBODY, topic="t", sendTimeoutMs=1000),
            r"\[RMQ_\w+\] partition 0: .*127\.0\.0\.1:1.*\(0 rows of this partition were acknowledged before\)",
        ),
        (
            lambda spark, frame: read(spark, NOBODY, topic="t").count(),
            r"\[RMQ_\w+\] .*127\.0\.0\.1:1",
        ),
        (
            lambda spark, frame: read(spark, "somewhere", topic="t").count(),
            r"\[RMQ_INVALID_OPTION\] option nameServer is 'somewhere': .* 'somewhere' is not host:port",
        ),
    ],
    ids=lambda value: None if callable(value) else value[2:60],
)
def test_a_job_that_cannot_work_fails_with_the_reason(
    spark: SparkSession, frame: DataFrame, job: Job, line: str
) -> None:
    with pytest.raises(PySparkException, match=line):
        job(spark, frame)


def test_a_name_server_that_answers_garbage(spark: SparkSession, frame: DataFrame, garbage: str) -> None:
    with pytest.raises(PySparkException, match=rf"\[RMQ_\w+\] .*{garbage}"):
        read(spark, garbage, topic="t").count()
    with pytest.raises(PySparkException, match=rf"\[RMQ_\w+\] partition 0: .*{garbage}"):
        write(frame, garbage, topic="t", sendTimeoutMs=2000)


def test_secrets_stay_out_of_plans_and_errors(spark: SparkSession) -> None:
    frame = read(spark, NOBODY, topic="t", accessKey="AK-visible", secretKey="SK-visible")
    plan = frame._jdf.queryExecution().toString()
    with pytest.raises(PySparkException) as error:
        frame.count()
    for secret in ("AK-visible", "SK-visible"):
        assert secret not in plan
        assert secret not in str(error.value)
