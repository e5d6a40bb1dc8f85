"""Spark's Declarative Pipelines: the examples, one from a topic to a table and a sink, one from changes to a table."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pyspark
import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import EmbeddedCluster, Producer
from tests.support.connect import connect_client
from tests.support.maven import ApacheUnavailable
from tests.support.row_level_catalog import SETTINGS, compiled_catalog, table_lines
from tests.support.sink import messages
from tests.support.source_table import COLUMNS, Change, SourceTable, canal_messages
from tests.support.spark import CONNECT_SETTING, NOT_CONNECTED, wait_readable
from tests.support.standalone import job_environment

ROOT = Path(__file__).parent.parent.parent
SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 1200  # the end of a run that hangs
SENT = [(f"{number}.50".encode(), "EUR" if number % 2 else "USD") for number in range(10)]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2600)]


@pytest.fixture
def client() -> Path:
    """The packages of a client of Spark Connect, which a pipeline is."""
    try:
        return connect_client()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def test_the_example_fills_its_table_and_its_sink(tmp_path: Path, client: Path) -> None:
    sent = [Message("payments", body, tags=tags) for body, tags in SENT]
    with finished("pipeline", {"payments": 2, "euros": 1}, sent, tmp_path, client) as (cluster, _):
        wait_readable(cluster.nameserver, "euros", len(SENT) // 2)
        euros = messages(cluster, "euros")
    assert sorted((message.body, message.tags) for message in euros) == [row for row in SENT if row[1] == "EUR"]


@pytest.mark.soak
def test_changes_of_a_database_become_its_table(tmp_path: Path, client: Path) -> None:
    """Into a table of a catalog of the tests: no released connector with tables for Auto CDC loads on Spark 4.3."""
    source, lines = captured(tmp_path, client, SETTINGS)
    rows = [tuple(None if value is None else str(value) for value in row) for row in source.rows()]
    assert sorted((line[: len(COLUMNS)] for line in lines), key=repr) == sorted(rows, key=repr)


@pytest.mark.soak
def test_changes_of_a_database_become_all_versions_of_its_rows(tmp_path: Path, client: Path) -> None:
    versions = {**SETTINGS, 'keys=["id"]': 'keys=["id"], stored_as_scd_type=2'}
    source, lines = captured(tmp_path, client, versions)
    # Behind the columns are `__START_AT`, `__END_AT` and Spark's own record of them.
    kept = [(line[: len(COLUMNS)], line[len(COLUMNS) + 1] is None) for line in lines]
    assert sorted(kept, key=repr) == sorted(versions_of(source.changes()), key=repr)


def captured(
    tmp_path: Path, client: Path, settings: Mapping[str, str]
) -> tuple[SourceTable, list[tuple[str | None, ...]]]:
    """Runs the example over the changes of a database; returns this, and the lines of the table that they became."""
    source = SourceTable()
    source.live(60, seed=7)
    sent = [Message("binlog", body.encode()) for body in canal_messages(source.changes())]
    catalog = ("--conf", f"spark.driver.extraClassPath={compiled_catalog(tmp_path / 'classes')}")
    with finished("change_pipeline", {"binlog": 1}, sent, tmp_path, client, settings, *catalog) as (_, home):
        return source, table_lines(home / "lake" / "customers.tsv")


def versions_of(changes: Sequence[Change]) -> list[tuple[tuple[str | None, ...], bool]]:
    """Returns the values of each version of each row, and whether it is the row's present one."""
    ended, present = [], dict[str | None, tuple[str | None, ...]]()
    for _, before, after in changes:
        old, new = (
            row and tuple(None if row[name] is None else str(row[name]) for name in COLUMNS) for row in (before, after)
        )
        if old and old != new:
            ended.append((present.pop(old[0]), False))
        if new:
            present[new[0]] = new
    return ended + [(row, True) for row in present.values()]


@contextmanager
def finished(
    example: str,
    topics: Mapping[str, int],
    sent: Sequence[Message],
    home: Path,
    client: Path,
    changes: Mapping[str, str] = MappingProxyType({}),
    *arguments: str,
) -> Iterator[tuple[EmbeddedCluster, Path]]:
    """Runs an example whose texts have `changes`; yields its cluster and its files, in place of those in /tmp.

    It runs once more, on others, if a Python process of Spark came too late.
    """
    for attempt in (1, 2):
        files = home / str(attempt)
        directory = files / "example"
        shutil.copytree(ROOT / "examples" / example, directory)
        texts = [directory / "spark-pipeline.yml", *(directory / "transformations").glob("*.py")]
        for old, new in changes.items():
            (file,) = (text for text in texts if old in text.read_text())
            file.write_text(file.read_text().replace(old, new))
        texts[0].write_text(re.sub(r"/tmp/pyrmq-\w+", str(files), texts[0].read_text()))
        with EmbeddedCluster(topics=topics) as cluster:
            with Producer("setup", nameserver=cluster.nameserver) as producer:
                for message in sent:
                    producer.send(message)
            wait_readable(cluster.nameserver, sent[0].topic, len(sent))
            done = ran(directory, cluster.nameserver, client, arguments)
            if attempt == 1 and done.returncode and NOT_CONNECTED.search(done.stdout):
                continue
            assert done.returncode == 0, done.stdout[-6000:]
            yield cluster, files
            return


def ran(directory: Path, nameserver: str, client: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = job_environment(ROOT, client) | {"NAMESRV_ADDR": nameserver, "SPARK_HOME": str(SPARK_HOME)}
    settings = ["--conf", "spark.ui.enabled=false", "--conf", "=".join(CONNECT_SETTING), *arguments]
    command = ["/bin/bash", str(SPARK_HOME / "bin" / "spark-pipelines"), "run", *settings]
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
