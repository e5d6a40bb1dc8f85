"""Debezium over a real PostgreSQL and MariaDB, and Canal over MariaDB: the table in Spark is that of the database.

A life of random work is drawn from a seed, which a failure names; PYRMQ_SEED=7 lives that one. Lives of `make soak` are
longer, so its failures come again there alone.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyrmq_core.blocking import EmbeddedCluster
from tests.interop.changes.databases import DatabaseUnavailable, boot_mariadb, boot_postgresql
from tests.interop.changes.judge import Verdict, faults, judge
from tests.interop.changes.lives import Life, live, live_by_canal
from tests.interop.changes.ways import by_batch, by_killed_driver, by_stream
from tests.interop.changes.work import Table
from tests.support.maven import ApacheUnavailable
from tests.support.spark import interpreted, read, spark

__all__ = ["interpreted", "spark"]

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

BOOT = {"postgresql": boot_postgresql, "mariadb": boot_mariadb}
PARTIES = {"Debezium, PostgreSQL": "postgresql", "Debezium, MariaDB": "mariadb", "Canal, MariaDB": "mariadb"}
# Of MariaDB the other tests judge golden messages, which are of lives like these.
OF_SOAK = ("Debezium, MariaDB", "Canal, MariaDB")
# Short lives, of which PostgreSQL's has open transactions at the first snapshot, and both have a second one.
SHORT = 14
SEEDS = {"Debezium, PostgreSQL": 9, "Debezium, MariaDB": 5, "Canal, MariaDB": 5}
SOAKED = 200
AT_ONCE = 60

Live = Callable[..., Life]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.soak if name in OF_SOAK else ()) for name in PARTIES]
)
def party(request: pytest.FixtureRequest, cluster: EmbeddedCluster) -> Iterator[Live]:
    """Lives of a tool and a database, by their seeds."""
    with ExitStack() as stack:
        try:
            database: Any = stack.enter_context(BOOT[PARTIES[request.param]]())
        except DatabaseUnavailable as reason:
            pytest.skip(str(reason))
        yield partial(live_by_canal if "Canal" in request.param else live, database, cluster.nameserver)


def verdicts(
    spark: SparkSession, nameserver: str, life: Life, folder: Path, *, of_batches: Sequence[Table]
) -> list[Verdict]:
    """Judges the first table by a stream, and each of `of_batches` by one batch."""

    def seen(table: Table) -> DataFrame:
        return by_batch(read(spark, nameserver, topic=life.topic(table)), table, folder, life.tool)

    def streamed(table: Table) -> DataFrame:
        source = {"nameServer": nameserver, "topic": life.topic(table)}
        return by_stream(spark, source, table, folder, life.tool, life.work.random, AT_ONCE)

    ways = [*((table, seen) for table in of_batches), (life.work.tables[0], streamed)]
    return [judge(table, life.rows[table.full_name], partial(way, table)) for table, way in ways]


@pytest.mark.timeout(1800)
def test_a_table_equals_its_database(
    party: Live, cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One table by a stream that ends in two of its batches, two by a batch: Spark takes its time for each."""
    seed = int(os.environ.get("PYRMQ_SEED", SEEDS[request.node.callspec.params["party"]]))
    try:
        life = party(seed, steps=SHORT)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    results = verdicts(spark, cluster.nameserver, life, tmp_path, of_batches=life.work.tables[1:])
    assert faults(life.work.tables, results) == [], f"seed {seed}, {life.events}"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_driver_is_killed(party: Live, cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path) -> None:
    life = party(int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000))))
    table = life.work.tables[0]
    source = {"nameServer": cluster.nameserver, "topic": life.topic(table)}
    ways = partial(by_killed_driver, spark, source, table, tmp_path, life.tool, life.work.random, AT_ONCE // 3)
    verdict = judge(table, life.rows[table.full_name], ways)
    assert faults([table], [verdict]) == [], f"{life.work.name}, {life.events}"


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_lives(
    party: Live, cluster: EmbeddedCluster, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = int(os.environ.get("PYRMQ_SEED", random.randrange(1_000_000)))
    failures, outcomes = [], Counter[str]()
    for seed in range(first, first + SOAKED):
        life = party(seed)
        results = verdicts(spark, cluster.nameserver, life, tmp_path, of_batches=life.work.tables)
        outcomes.update("refused" if verdict.refusal else "right" for verdict in results if not verdict.differences)
        failures += [f"seed {seed}, {life.events}: {fault}" for fault in faults(life.work.tables, results)]
    print(f"{request.node.name}: seeds {first} to {first + SOAKED - 1}, {dict(outcomes)}")  # noqa: T201
    assert failures == []
