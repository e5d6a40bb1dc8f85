"""The line that a write ends with is read where the driver's log is: on its standard error, and by SQL."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq_core.blocking import Admin, EmbeddedCluster
from pyrmq_spark.driver_log import show
from pyrmq_spark.write.commit_message import PartitionWritten
from pyrmq_spark.write.writers import summary_line
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
assert writer.trigger(availableNow=True).start().awaitTermination(120)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(440)
def test_it_stands_on_the_drivers_standard_error_and_in_the_workers_logs(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("ended", queues=1)
    command = [sys.executable, "-c", JOB, cluster.nameserver, str(tmp_path), SECRET]
    done = subprocess.run(command, env=job_environment(ROOT), capture_output=True, text=True, timeout=400, check=False)
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
