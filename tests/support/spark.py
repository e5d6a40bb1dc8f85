"""One Spark session for all tests: two cores, a small heap, no page, this Python in its workers."""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyrmq_core import RocketMQError
from pyrmq_core.blocking import PullConsumer
from pyrmq_spark import session_settings
from pyrmq_spark.session import FOLDER

ROOT = Path(__file__).parent.parent.parent
# Of the two waits of Spark for a Python process that is to connect the one with a setting: 15 s are few under load.
CONNECT_SETTING: Final = ("spark.python.authenticate.socketTimeout", "120s")
# The other one is ten seconds, for each process that lives as long as a query.
NOT_CONNECTED: Final = re.compile(r"Python worker (failed )?to connect back|CANNOT_OPEN_SOCKET")
COMPILING: Final = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
INTERPRETING: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# A plan that is not adaptive is made once, not again behind each shuffle, and is compiled before it runs.
NOT_ADAPTIVE: Final = {"spark.sql.adaptive.enabled": "false"}


def python_path() -> str:
    """Returns the path of a driver's Python processes: this project, and the folder of `session_settings()`.

    A driver that finds the source by its name has that folder from the environment alone. Without it each query
    compiles PySpark anew: four tests of streams took 35.8 s of processor time in place of 26.8.
    """
    return os.pathsep.join(filter(None, (str(ROOT), str(FOLDER), os.environ.get("PYTHONPATH", ""))))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """`local[2]`; the source `rocketmq` is found by its name, nothing is registered."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here; install a JDK 17 or 21")
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": python_path(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("pyrmq tests")
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config(*CONNECT_SETTING)
            .config(map=session_settings())
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Has these settings in the session for a while."""
    old = {name: spark.conf.get(name, None) for name in values}
    try:
        for name, value in values.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, former in old.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Has Spark interpret its plans: to compile one of change data takes longer than a few messages do in it.

    `test_golden_changes.py` judges the tables of databases with compiled plans.
    """
    with settings(spark, INTERPRETING | NOT_ADAPTIVE):
        yield


def write(frame: DataFrame, nameserver: str, **options: Any) -> None:
    writer = frame.write.format("rocketmq").option("nameServer", nameserver)
    writer.options(**options).mode("append").save()


def read(spark: SparkSession, nameserver: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", nameserver).options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def wait_readable(nameserver: str, topic: str, messages: int, *, seconds: float = 120.0) -> None:
    """Waits until a topic holds so many: an acknowledged message is readable when the broker has indexed it."""
    deadline = time.monotonic() + seconds
    held = -1
    with PullConsumer("pyrmq-tests", nameserver=nameserver) as consumer:
        while held < messages:
            assert time.monotonic() < deadline, f"{topic} has {held} of {messages} messages after {seconds} s"
            try:
                bounds = consumer.offset_bounds(consumer.message_queues(topic))
                held = sum(queue_bounds.end - queue_bounds.start for queue_bounds in bounds.values())
            except RocketMQError:
                held = -1
