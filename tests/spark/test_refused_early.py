"""Writes that lack a library or a later PySpark fail on the driver."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyrmq_spark import RocketMQDataSource
from pyrmq_spark.spark_errors import RocketMQSparkError

OPTIONS = {"nameServer": "127.0.0.1:9", "topic": "orders"}
BODY = StructType([StructField("body", BinaryType())])
NO_SOURCES = "import sys; sys.modules['pyspark.sql.datasource'] = None; "


@pytest.mark.parametrize(("library", "compression"), [("lz4.frame", "lz4"), ("zstandard", "zstd")])
def test_a_compression_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, library: str, compression: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    source = RocketMQDataSource({**OPTIONS, "compression": compression})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(RocketMQSparkError, match=rf'pip install "pyrmq-spark\[{compression}\]"'):
            make(BODY, False)


@pytest.mark.parametrize("version", ["3.5.1", "3.6.0.dev0"])
def test_a_pyspark_that_is_too_old(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(
        RocketMQSparkError, match=rf"\[RMQ_OLD_PYSPARK\] .*needs PySpark 4.0 or newer, and {version} is installed"
    ):
        RocketMQDataSource(OPTIONS)


@pytest.mark.parametrize("version", ["4.0.0", "4.10.0", "5.0.0.dev1"])
def test_a_pyspark_that_is_young_enough(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert RocketMQDataSource(OPTIONS).name() == "rocketmq"


def test_a_pyspark_without_python_data_sources() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{NO_SOURCES}from pyrmq_spark import RocketMQDataSource"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: pyrmq_spark needs PySpark 4.0 or newer, and ")


def test_spark_keeps_its_other_sources_there() -> None:
    subprocess.run([sys.executable, "-c", f"{NO_SOURCES}import pyspark_rocketmq"], check=True, timeout=280)
