"""The modules that the processes of a Spark job load: a reader no producer, a planner no decoder.

Loading them is half of a first job's time.
"""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_spark import gc_freeze
from pyrmq_spark.gc_freeze import loading
from tests.support.spark import wait_readable

MESSAGES = 100
WRITING = {
    "pyrmq_core.client.producer.producer",
    "pyrmq_core.client.producer.bulk.send_arrow",
    "pyrmq_core.columnar.encoding.encode",
    "pyrmq_core.columnar.encoding.sink_rows",
    "pyrmq_core.columnar.encoding.row_parts",
    "pyrmq_spark.write.write_task",
}
SERVING_AND_ASKING = {
    "pyrmq_core.client.admin.admin",
    "pyrmq_core.client.admin.message_queries",
    "pyrmq_core.client.routes.name_server_url",
    "pyrmq_core.network.server",
    "pyrmq_core.client.consumer.group.consumer_requests",
    "pyrmq_core.client.producer.request_reply",
    "pyrmq_core.client.producer.transactions",
}
DECODING = {"pyrmq_spark.read.partition_reader", "pyrmq_core.columnar.decoding.decode", "pyarrow.compute"}
HEAVY = {"pyarrow", "numpy", "trio"}

MAKE = """
import pickle, sys
from pyspark.sql.types import BinaryType, StringType, StructField, StructType
from pyrmq_spark.source import RocketMQDataSource
reader = RocketMQDataSource({"nameServer": sys.argv[1], "topic": "orders"}).reader(
    StructType([StructField("body", BinaryType()), StructField("tags", StringType())])
)
print(*sorted(sys.modules))
"""
PLAN = f"""
{MAKE}
partitions = list(reader.partitions())
with open(sys.argv[2], "wb") as file:
    pickle.dump((reader, partitions), file)
print(*sorted(sys.modules))
"""
STREAM = """
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from pyrmq_spark.source import RocketMQDataSource
options = {"nameServer": sys.argv[1], "topic": "orders", "startingOffsets": "earliest"}
reader = RocketMQDataSource(options).streamReader(StructType([StructField("body", BinaryType())]))
start = reader.initialOffset()
print(len(reader.partitions(start, reader.latestOffset(start))))
print(*sorted(sys.modules))
"""
READ = """
import pickle, sys
with open(sys.argv[2], "rb") as file:
    reader, partitions = pickle.load(file)
print(sum(batch.num_rows for partition in partitions for batch in reader.read(partition)))
print(*sorted(sys.modules))
"""
PLAN_A_WRITE = """
import pickle, sys
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType
from pyrmq_spark.source import RocketMQDataSource
strings = MapType(StringType(), StringType())
writer = RocketMQDataSource({"nameServer": "127.0.0.1:9", "topic": "orders"}).writer(
    StructType([StructField("body", BinaryType()), StructField("properties", strings)]), False
)
with open(sys.argv[1], "wb") as file:
    pickle.dump(writer, file)
print(*sorted(sys.modules))
"""
CLOSE_A_WRITE = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    writer = pickle.load(file)
writer.commit([])
writer.abort([])
print(*sorted(sys.modules))
"""


def test_planning_a_write_and_closing_it_load_no_columns_and_no_network(tmp_path: Path) -> None:
    for step in (PLAN_A_WRITE, CLOSE_A_WRITE):
        command = [sys.executable, "-c", step, str(tmp_path / "writer")]
        loaded = set(subprocess.check_output(command, text=True, timeout=280).split())
        assert "pyrmq_spark.write.writers" in loaded
        assert loaded & (HEAVY | WRITING) == set()


def test_each_step_of_a_read_loads_what_it_needs(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1) as cluster:
        with Admin(nameserver=cluster.nameserver) as admin:
            admin.create_topic("orders", queues=2)
        with Producer("setup", nameserver=cluster.nameserver) as producer:
            producer.send_batch([Message("orders", b"row", tags="t")] * MESSAGES)
        wait_readable(cluster.nameserver, "orders", MESSAGES)

        def lines_of(script: str) -> list[str]:
            command = [sys.executable, "-c", script, cluster.nameserver, str(tmp_path / "reader")]
            return subprocess.check_output(command, text=True, timeout=280).splitlines()

        modules, planned = (set(line.split()) for line in lines_of(PLAN))
        rows, read = lines_of(READ)
        tasks, followed = lines_of(STREAM)
    assert "trio" not in modules
    assert "trio" in planned
    assert planned & (WRITING | SERVING_AND_ASKING | DECODING) == set()
    assert int(rows) == MESSAGES
    assert set(read.split()) & (WRITING | SERVING_AND_ASKING) == set()
    assert set(read.split()) > DECODING
    assert int(tasks) == 1
    assert set(followed.split()) & (WRITING | SERVING_AND_ASKING | DECODING) == set()


@pytest.mark.parametrize("is_ours", [True, False])
def test_nothing_is_collected_while_spark_loads_the_source(monkeypatch: pytest.MonkeyPatch, is_ours: bool) -> None:
    monkeypatch.setattr(gc_freeze, "started_by_spark", lambda: is_ours)

    def fail_to_load() -> None:
        with loading():
            assert gc.isenabled() is not is_ours
            raise ImportError

    with pytest.raises(ImportError):
        fail_to_load()
    assert gc.isenabled()
    gc.disable()
    try:
        with loading():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_loaded_modules_are_out_of_reach_before_the_next_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_freeze, "started_by_spark", lambda: True)
    monkeypatch.setattr(gc_freeze, "_modules_frozen", 0)
    gc.unfreeze()
    try:
        with loading():
            assert gc.get_freeze_count() == 0
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
