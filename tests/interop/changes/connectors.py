"""Debezium's embedded engine as a process that is started, waited for, and killed.

It sends to RocketMQ as Debezium Server's sink does (`tests/interop/java/SendChanges.java`).
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.changes.databases import Database, PostgreSQL
from tests.support.class_archives import QUICK
from tests.support.java_programs import java_environment
from tests.support.jvm import JavaProcess
from tests.support.maven import alone, cache_directory, jars_of, java

SUPPORT: Final = Path(__file__).parents[2] / "support"
SOURCE: Final = Path(__file__).parents[1] / "java" / "SendChanges.java"
# The releases whose connectors take these databases: MariaDB's of 3.2.0 is the last that takes 10.11.
DEBEZIUM: Final = {"postgres": "3.6.1.Final", "mariadb": "3.2.0.Final"}
# Of the connectors' JVMs. MariaDB's reads a TIMESTAMP of a snapshot in it, whatever the zone of its session.
CONNECTOR_ZONE: Final = {"postgres": "America/New_York", "mariadb": "UTC"}
CAUGHT_UP_SECONDS: Final = 120.0
COMPILE_SECONDS: Final = 120.0
MARKER: Final = "marker"

# What every engine has: none of these changes what a message says.
ENGINE: Final = {
    "name": "judge",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "0",
    "poll.interval.ms": "50",
    "errors.max.retries": "0",
    "tombstones.on.delete": "false",
}


class Debezium:
    """A connector of one database: `start` begins where the last one stood, `catch_up` waits for what was committed."""

    def __init__(
        self, database: Database, name: str, nameserver: str, settings: Mapping[str, str], *, order: str = "as-sink"
    ) -> None:
        self.database = database
        self.name = name
        self.tool = "postgres" if isinstance(database, PostgreSQL) else "mariadb"
        self.home = database.home / f"connector-{name}"
        self.home.mkdir()
        self.settings = {**ENGINE, **self._source(), **settings}
        owner = "public" if self.tool == "postgres" else name
        package = f"debezium-{self.tool}"
        command = [
            java(),
            *QUICK,
            "-Xmx256m",
            f"-Duser.timezone={CONNECTOR_ZONE[self.tool]}",
            f"-Djava.io.tmpdir={self.home}",
        ]
        command += [
            f"-Duser.home={self.home}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            compiled(SOURCE, package, DEBEZIUM[self.tool], SUPPORT / f"pom-{package}.xml"),
        ]
        command += ["SendChanges", nameserver, str(self.home / "engine"), f"{name}_{owner}_{MARKER}", order]
        environment = {key: text for key, text in java_environment().items() if key != "JDK_JAVA_OPTIONS"}
        self.process = JavaProcess(f"Debezium of {self.tool}", command, self.home / "output.log", environment)
        self._session = database.session(name)
        self._marks = 0

    def start(self) -> None:
        """Starts it; returns at once."""
        (self.home / "engine").write_text("".join(f"{key}={text}\n" for key, text in self.settings.items()))
        self.process.start()

    def catch_up(self) -> None:
        """Returns when all that was committed before this call is in the topics.

        A mark that came as a row of a snapshot says nothing of what came after the snapshot: another follows it.
        """
        while True:
            self._marks += 1
            self._session.run(f"insert into {MARKER} values ({self._marks})")
            self.process.wait_until(lambda: bool(self._operations_of(self._marks)), CAUGHT_UP_SECONDS)
            if "c" in self._operations_of(self._marks):
                return

    def kill(self) -> None:
        """Sends SIGKILL: the next one sends again what the last one had not noted as sent."""
        self.process.kill()

    def forget(self) -> None:
        """Removes what it noted, so that the next start takes a snapshot; for a connector that was killed."""
        for path in self.home.glob("*.dat"):
            path.unlink()

    def _operations_of(self, mark: int) -> set[str]:
        """Returns by which operations of Debezium a mark was sent."""
        lines = self.process.log.read_text(errors="replace").splitlines()
        sent = [line.split(" ", 2) for line in lines if line.startswith("sent ") and line.endswith("}")]
        return {operation for _, operation, key in sent if f'"id":{mark}}}' in key}

    def _source(self) -> dict[str, str]:
        source = {
            "offset.storage.file.filename": str(self.home / "offsets.dat"),
            "topic.prefix": self.name,
            "database.hostname": "127.0.0.1",
            "database.port": str(self.database.port),
        }
        if self.tool == "postgres":
            return source | {
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.user": "postgres",
                "database.dbname": self.name,
                "plugin.name": "pgoutput",
                "slot.name": self.name,
                "slot.retry.delay.ms": "500",
                "slot.max.retries": "60",
                "publication.name": self.name,
                "signal.data.collection": "public.dbz_signal",
            }
        return source | {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.user": "root",
            "database.server.id": str(1000 + len(list(self.database.home.glob("connector-*")))),
            "database.include.list": self.name,
            "database.ssl.mode": "disable",
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self.home / "history.dat"),
            "signal.data.collection": f"{self.name}.dbz_signal",
        }


def compiled(source: Path, name: str, version: str, pom: Path) -> str:
    """Returns the class path of a program and of the jars that it needs; compiles it the first time."""
    jars = f"{jars_of(name, version, pom)}/*"
    folder = cache_directory() / f"{name}-{version}-program"
    classes = folder / f"{source.stem}.class"
    with alone(folder.with_name(f"{folder.name}.lock")):
        if not classes.exists() or classes.stat().st_mtime < source.stat().st_mtime:
            command = [str(Path(java()).with_name("javac")), "-cp", jars, "-d", str(folder), str(source)]
            subprocess.run(command, check=True, timeout=COMPILE_SECONDS, capture_output=True)
    return f"{folder}{os.pathsep}{jars}"
