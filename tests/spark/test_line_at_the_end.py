"""The line that a write ends with is read where the driver's log is: on its standard error, and by SQL."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from pyspark import TaskContext
from pyspark.sql import SparkSession

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_core.embedded import PASS, Pass
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_spark.options import ConnectionOptions, read_sink
from pyrmq_spark.write.columns import SinkSchema
from pyrmq_spark.write.commit_message import PartitionWritten, WriteAttempt
from pyrmq_spark.write.write_task import PartitionWrite
from pyrmq_spark.write.writers import RocketMQStreamWriter, RocketMQWriter, show, summary_line
from tests.support.spark import wait_readable, write
from tests.support.standalone import job_environment

ROOT = Path(__file__).parent.parent.parent
SECRET = "not-for-the-log"
LINE = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO pyrmq_spark\.write\.writers: (.*)$", re.MULTILINE)
JOB = """
import json, sys
from pyspark.sql import SparkSession

nameserver, directory, secret = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"nameServer": nameserver, "topic": "ended", "accessKey": "reader", "secretKey": secret}

def write(rows):
    frame = spark.range(0, rows, 1, 2).selectExpr("cast(id as string) as body")
    frame.write.format("rocketmq").options(**options).mode("append").save()

write(600)
spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
write(40)
rows = spark.tvf.python_worker_logs().collect()
print(json.dumps([row.msg for row in rows if row.logger == "pyrmq_spark.write.writers"]))

spark.range(0, 300, 1, 2).write.parquet(directory + "/rows")
stream = spark.readStream.schema("id long").parquet(directory + "/rows").selectExpr("cast(id as string) as body")
writer = stream.writeStream.format("rocketmq").options(checkpointLocation=directory + "/checkpoint", **options)
assert writer.trigger(availableNow=True).start().awaitTermination(600)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(1300)
def test_it_stands_on_the_drivers_standard_error_and_in_the_workers_logs(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("ended", queues=1)
    command = [sys.executable, "-c", JOB, cluster.nameserver, str(tmp_path), SECRET]
    done = subprocess.run(command, env=job_environment(ROOT), capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    first, second, batch = LINE.findall(done.stderr)
    for line, begins, rows in ((first, "", 600), (second, "", 40), (batch, "batch 0: ", 300)):
        assert re.match(rf"{begins}{rows} rows \(\d+ bytes\) acknowledged in \d+ requests of 2 tasks; ", line), line
        queues = re.findall(r"ended/broker-[ab]/0: (\d+)", line)
        assert sum(map(int, queues)) == rows, line
        assert line.endswith("; 0 retries")
    assert json.loads(done.stdout.splitlines()[-1]) == [second]
    assert SECRET not in done.stderr + done.stdout


def test_a_logger_that_somebody_set_up_is_left_alone() -> None:
    quiet = logging.getLogger("tests.quiet")
    quiet.setLevel(logging.ERROR)
    show(quiet)
    assert (quiet.handlers, quiet.level) == ([], logging.ERROR)
    plain = logging.getLogger("tests.plain")
    show(plain)
    show(plain)
    assert (len(plain.handlers), plain.level, plain.propagate) == (1, logging.INFO, True)


def test_a_brokers_name_makes_no_second_line() -> None:
    written = PartitionWritten(0, 1, 1, 1, rows_by_queue={"t/a\nINFO all is well/0": 1})
    assert summary_line([written]).isprintable()


STAY = "what they sent stays in the topic, is not counted here, and"
NOWHERE = ConnectionOptions(name_server="127.0.0.1:1")
SCHEMA = SinkSchema({"body": 0}, "ended")
REPORT = PartitionWritten(1, 30, 300, 3, rows_by_queue={"ended/a/0": 30})
GO_ON = ". Tasks of an interrupted cell may go on sending: spark.sparkContext.cancelAllJobs() ends them first"
COUNTS = "30 rows (300 bytes) acknowledged in 3 requests of 1 tasks; rows per queue: ended/a/0: 30; 0 retries"


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        (
            [None, None],
            f"the write failed: 2 of 2 tasks did not finish; {STAY} is stored once more by a second run{GO_ON}",
        ),
        (
            [None, REPORT, None],
            f"the write failed: 2 of 3 tasks did not finish; {STAY} is stored once more by a second run. The others "
            f"finished, and their rows stay too: {COUNTS}{GO_ON}",
        ),
        (
            [REPORT],
            "the write failed: all of its 1 tasks finished, and what they sent stays and is stored once more by a "
            f"second run: {COUNTS}",
        ),
        (
            [],
            f"the write failed: no task finished; {STAY} is stored once more by a second run",
        ),
    ],
    ids=["none finished", "one finished", "all finished", "no task is listed"],
)
def test_a_write_that_failed_says_what_is_not_counted(
    messages: list[PartitionWritten | None], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a finished task there is no count: one of 0 rows would look like a topic without them."""
    RocketMQWriter(NOWHERE, read_sink({}), SCHEMA).abort(messages)
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", line)]


def test_a_batch_of_a_stream_that_failed_says_that_its_rows_come_again(caplog: pytest.LogCaptureFixture) -> None:
    RocketMQStreamWriter(NOWHERE, read_sink({}, stream=True), SCHEMA).abort([None, REPORT], 7)
    assert caplog.messages == [
        f"batch 7 failed: 1 of 2 tasks did not finish; {STAY} comes again when the query goes on. The others finished, "
        f"and their rows stay too: {COUNTS}{GO_ON}"
    ]


def test_a_repeated_task_says_that_its_earlier_attempts_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of an attempt that failed half way stay, and Spark keeps no report of it."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()
    context._attemptNumber, context._partitionId, context._localProperties = 1, 4, {}  # as Spark's task sets them
    for attempt in (WriteAttempt.of_batch("w", 0), WriteAttempt.of_stream()):
        assert attempt.partition == 4
        written = PartitionWrite(NOWHERE, read_sink({}), SCHEMA, attempt).run(iter([]))
        assert summary_line([written, REPORT]).endswith(
            "; 1 task is a repeat: what its earlier attempts sent stays and is not counted"
        )
    assert "repeats" not in summary_line([REPORT])


@pytest.mark.spark
def test_a_cancelled_write_counts_no_rows(spark: SparkSession, cluster: EmbeddedCluster) -> None:
    """The topic has rows when the write is cancelled: the first request is stored, and the others are held."""
    requests = 0

    async def hold_all_but_the_first(request: Command, peer: Peer) -> Pass:
        nonlocal requests
        requests += 1
        if requests > 1:
            await trio.sleep_forever()
        return PASS

    def cancel() -> None:
        wait_readable(cluster.nameserver, "cut_short", 1, seconds=200.0)
        spark.sparkContext.cancelAllJobs()

    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("cut_short", queues=1)
    control = cluster.control(RequestCode.SEND_BATCH_MESSAGE, hold_all_but_the_first)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        frame = spark.range(0, 20_000, 1, 1).selectExpr("cast(id as string) as body")
        with pytest.raises(Exception, match="cancelled"):
            write(frame, cluster.nameserver, topic="cut_short", sendTimeoutMs=300_000, requestTimeoutMs=300_000)
        lines = [row.msg for row in spark.tvf.python_worker_logs().where("level = 'WARNING'").collect()]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
        control.remove()
        canceller.join()
    assert f"1 of 1 tasks did not finish; {STAY}" in lines[-1]
    assert "0 rows" not in lines[-1]
