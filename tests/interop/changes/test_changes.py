"""Debezium over a real PostgreSQL and a real MariaDB: the table in Spark is the table in the database, row by row.

A life of random work is drawn from a seed, which a failure names; PYRMQ_SEED=7 lives that one.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyrmq_core.blocking import EmbeddedCluster
from tests.interop.changes.databases import Database, DatabaseUnavailable, boot_mariadb, boot_postgresql
from tests.interop.changes.judge import Verdict, faults, judge
from tests.interop.changes.lives import Life, live
from tests.interop.changes.ways import by_batch, by_stream
from tests.interop.changes.work import Table
from tests.support.maven import ApacheUnavailable
from tests.support.spark import read, spark

__all__ = ["spark"]

pytestmark = pytest.mark.spark

BOOT = {"postgresql": boot_postgresql, "mariadb": boot_mariadb}
# One seed each: both have open transactions at the snapshot, and a second snapshot.
SEEDS = {"postgresql": 5, "mariadb": 5}
SOAKED = 200
AT_ONCE = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module", params=list(BOOT))
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with ExitStack() as stack:
        try:
            database = stack.enter_context(BOOT[request.param]())
        except DatabaseUnavailable as reason:
            pytest.skip(str(reason))
        yield database


def verdicts(spark: SparkSession, nameserver: str, life: Life, folder: Path) -> list[Verdict]:
    """Judges each table by one batch, and the first of them by a stream, too."""

    def seen(table: Table) -> DataFrame:
        return by_batch(read(spark, nameserver, topic=life.topic(table)), table, folder, "debezium")

    def streamed(table: Table) -> DataFrame:
        source = {"nameServer": nameserver, "topic": life.topic(table)}
        return by_stream(spark, source, table, folder, "debezium", life.work.random, AT_ONCE)

    tables = life.work.tables
    ways = [*((table, seen) for table in tables), (tables[0], streamed)]
    return [judge(table, life.rows[table.full_name], partial(way, table)) for table, way in ways]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_table_equals_its_database(
    database: Database, cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """Also by a stream that ends behind two of its batches, and is started again."""
    seed = int(os.environ.get("PYRMQ_SEED", SEEDS[database.kind]))
    try:
        life = live(database, cluster.nameserver, seed)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    assert faults(life.work.tables, verdicts(spark, cluster.nameserver, life, tmp_path)) == [], (
        f"seed {seed}, {life.events}"
    )


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_lives(database: Database, cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path) -> None:
    first = int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000)))
    failures, outcomes = [], Counter[str]()
    for seed in range(first, first + SOAKED):
        life = live(database, cluster.nameserver, seed)
        results = verdicts(spark, cluster.nameserver, life, tmp_path)
        outcomes.update("refused" if verdict.refusal else "right" for verdict in results if not verdict.differences)
        failures += [f"seed {seed}, {life.events}: {fault}" for fault in faults(life.work.tables, results)]
    print(f"{database.kind}: seeds {first} to {first + SOAKED - 1}, {dict(outcomes)}")  # noqa: T201
    assert failures == []
