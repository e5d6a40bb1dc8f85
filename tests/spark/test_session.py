"""The settings for a session: the session of all Spark tests has them, so its Python workers use such sockets."""

import os

import pytest
from pyspark.sql import SparkSession

from pyrmq_spark import session_settings


def test_workers_of_a_session_use_sockets_of_the_file_system(spark: SparkSession) -> None:
    assert session_settings()
    assert session_settings().items() <= dict(spark.sparkContext.getConf().getAll()).items()
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED"))
    assert [str(one).lower() for one in found.collect()] == ["true"]


def test_a_system_without_such_sockets_gets_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "name", "nt")
    settings = session_settings()
    monkeypatch.undo()
    assert settings == {}
