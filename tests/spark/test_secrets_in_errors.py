"""No error of the source shows a secret, also where Spark prints the values of all locals.

`spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled` has PySpark's processes do that, by a function of its own
that these tests call on each error.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.util import handle_worker_exception

from pyrmq_core import MessageQueue
from pyrmq_core.blocking import EmbeddedCluster
from pyrmq_spark import OffsetPublisher, RocketMQDataSource, infer_schema, worker
from pyrmq_spark.options import hide_secrets
from pyrmq_spark.read.range_planner import QueueRange, RangePartition
from pyrmq_spark.stream.lineage_listener import LineageListener

SECRETS = {"accessKey": "AK-visible", "secretKey": "SK-visible", "securityToken": "ST-visible"}
OTHERS = "ENV-visible"
SCHEMA = StructType([StructField("body", StringType())])
SOON = {"pullTimeoutMs": "1", "sendTimeoutMs": "1"}

Options = Mapping[str, str]


def source(options: Options) -> RocketMQDataSource:
    return RocketMQDataSource(CaseInsensitiveDict(dict(options)))


def ranges() -> InputPartition:
    return RangePartition(QueueRange(MessageQueue("orders", "broker-a", 0), 0, 10))


def stream_look(options: Options) -> None:
    reader = source(options).streamReader(SCHEMA)
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


# What each call does with options that have the secrets, and the option or column by which it fails.
CALLS: dict[str, tuple[Options, Callable[[Options], object]]] = {
    "an option that does not exist": ({"startingOffset": "earliest"}, source),
    "a secret by a misspelt name": ({"secretkeys": "SK-visible"}, source),
    "a secret of Kafka's": ({"kafka.sasl.jaas.config": "SK-visible"}, source),
    "a value that is none": ({"useTls": "perhaps"}, source),
    "two names of one option": ({"subscribe": "orders"}, lambda o: source(o).reader(SCHEMA)),
    "a start that is none": ({"startingOffsets": "soon"}, lambda o: source(o).reader(SCHEMA)),
    "a filter that is none": ({"tags": "||"}, lambda o: source(o).streamReader(SCHEMA)),
    "a write option": ({"maxBatchBytes": "0"}, lambda o: source(o).writer(SCHEMA, False)),
    "overwrite": ({}, lambda o: source(o).writer(SCHEMA, True)),
    "complete": ({}, lambda o: source(o).streamWriter(SCHEMA, True)),
    "a column": ({}, lambda o: source(o).writer(StructType([StructField("value2", StringType())]), False)),
    "planning": ({}, lambda o: source(o).reader(SCHEMA).partitions()),
    "a task's read": ({}, lambda o: list(source(o).reader(SCHEMA).read(ranges()))),
    "a stream's look": ({}, stream_look),
    "createTopic": ({"createTopic": "normal"}, lambda o: source(o).streamWriter(SCHEMA, False)),
    "committed": ({"delivery": "committed"}, lambda o: source(o).writer(SCHEMA, False)),
    "a task's write": (
        {},
        lambda o: source(o).writer(SCHEMA, False).write(iter([pa.record_batch({"body": ["a"]})])),
    ),
    "a schema": ({"nothing": ""}, lambda o: infer_schema(**o)),  # type: ignore[arg-type]
    "a publisher": ({"nothing": ""}, lambda o: OffsetPublisher("audit", **o)),
    "a lineage": ({"nothing": ""}, lambda o: LineageListener(print, **o)),  # type: ignore[arg-type]
}


@pytest.fixture(autouse=True)
def with_locals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SPARK_TRACEBACK_WITH_LOCALS", "1")
    monkeypatch.setenv("PASSWORD_OF_ANOTHER_PROGRAM", OTHERS)
    yield
    worker.close()


def options_with(more: Options, nameserver: str = "127.0.0.1:1") -> dict[str, str]:
    return {"nameServer": nameserver, "topic": "orders"} | SOON | SECRETS | dict(more)


def shown(error: BaseException) -> str:
    """Returns the text that Spark's processes make of the error, from the product's first frame on."""
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None and "pyrmq_spark" not in traceback.tb_frame.f_code.co_filename:
        traceback = traceback.tb_next
    out = io.BytesIO()
    try:
        raise error.with_traceback(traceback)
    except BaseException as again:
        handle_worker_exception(again, out)
    return out.getvalue().decode(errors="replace")


@pytest.mark.parametrize("name", CALLS)
def test_no_error_of_the_source_shows_a_secret_among_its_locals(name: str) -> None:
    more, call = CALLS[name]
    with pytest.raises(Exception, match=r"^\[RMQ_") as raised:
        call(options_with(more))
    text = shown(raised.value)
    assert "RMQ_" in text
    assert " = " in text, "no locals are shown"
    assert not [secret for secret in (*SECRETS.values(), OTHERS) if secret in text]


def test_no_frame_of_the_source_ever_has_a_secret_to_show() -> None:
    """An error of another kind, such as an interrupt, may come at any line: each frame is looked at when it returns."""
    seen: dict[str, str] = {}

    def look(frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and f"{os.sep}pyrmq_spark{os.sep}" in frame.f_code.co_filename:
            callers = {frame.f_code, frame.f_back and frame.f_back.f_code}
            if hide_secrets.__code__ in callers:
                return  # the one function that takes them, which cannot fail
            for name, local in frame.f_locals.items():
                text = repr(local)
                if any(secret in text for secret in (*SECRETS.values(), OTHERS)):
                    seen[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] = name

    with EmbeddedCluster(brokers=1, topics={"orders": 1}) as cluster:
        options = options_with({"sendTimeoutMs": "30000", "pullTimeoutMs": "30000"}, cluster.nameserver)
        sys.setprofile(look)
        try:
            origin = source(options)
            writer = origin.writer(SCHEMA, False)
            writer.commit([writer.write(iter([pa.record_batch({"body": ["a"]})]))])
            reader = origin.reader(SCHEMA)
            rows = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]  # type: ignore[union-attr]
            stream = origin.streamReader(SCHEMA)
            stream.initialOffset()
        finally:
            sys.setprofile(None)
        worker.close()
    assert sum(rows) == 1
    assert seen == {}
