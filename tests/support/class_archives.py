"""Archives of the classes that Spark and Apache's servers load at their start: a JVM that maps one starts sooner.

A session of Spark took 15 s of processor time in place of 24, a broker 3.4 in place of 4.9. An archive belongs to one
JDK and one class path: where it does not fit, or is missing, a JVM loads its classes as ever.

python -m tests.support.class_archives     makes those that are missing (`make test-rest` does)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.support.apache import ApacheServer

# No Java of a test lives long enough to repay the second compiler or threads that collect garbage.
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
FOLDER: Final = Path(sys.prefix) / "classes"
SPARK: Final = FOLDER / "spark.jsa"
SERVERS: Final = ("NamesrvStartup", "BrokerStartup")
STOP_SECONDS: Final = 300.0  # the end of a JVM that hangs; it writes its archive within 15 s of processor time
PROGRAM: Final = """
import sys, tempfile
from pyspark.sql import SparkSession
from tests.support.spark import read, wait_readable, write

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
nameserver, directory = sys.argv[1], tempfile.mkdtemp()
rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as body", "cast(id % 3 as string) as tags")
write(rows, nameserver, topic="t")
wait_readable(nameserver, "t", 100)
print(read(spark, nameserver, topic="t").groupBy("tags").count().collect())
stream = spark.readStream.format("rocketmq").options(nameServer=nameserver, topic="t", startingOffsets="earliest")
writer = stream.load().writeStream.format("parquet").option("checkpointLocation", directory + "/checkpoint")
writer.option("path", directory + "/rows").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def mapped(archive: Path) -> list[str]:
    """Returns the options of a JVM that maps the archive, if there is one; it is silent about one that does not fit."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"] if archive.exists() else []


def written(archive: Path) -> str:
    """Returns the option of a JVM that writes the archive at its end."""
    return f"-XX:ArchiveClassesAtExit={archive}"


def of_server(version: str, main: str) -> Path:
    """Returns the archive of a release's server, by the class that starts it, with its package or without."""
    return FOLDER / f"rocketmq-{version}-{main.rpartition('.')[2]}.jsa"


def make_missing(archives: Sequence[Path], make: Callable[[Sequence[Path]], None]) -> None:
    """Has archives made under other names first: a JVM that is killed leaves half a file."""
    if not all(archive.exists() for archive in archives):
        unfinished = [archive.with_suffix(".part") for archive in archives]
        make(unfinished)
        for part, archive in zip(unfinished, archives, strict=True):
            part.replace(archive)


def make_spark(archives: Sequence[Path]) -> None:
    """Runs a batch and a stream; returns after the end of the JVM, which holds the pipes of the program too."""
    from pyrmq_core.blocking import EmbeddedCluster
    from tests.support.spark import ROOT
    from tests.support.standalone import job_environment

    (archive,) = archives
    arguments = f"--driver-java-options {written(archive)} pyspark-shell"
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        command = [sys.executable, "-c", PROGRAM, cluster.nameserver]
        environment = job_environment(ROOT) | {"PYSPARK_SUBMIT_ARGS": arguments}
        subprocess.run(command, env=environment, capture_output=True, check=True)


def make_servers(version: str, archives: Sequence[Path]) -> None:
    """Boots a NameServer and a broker, sends a message, and ends both in order."""
    from pyrmq_core import Message
    from pyrmq_core.blocking import Producer
    from tests.support.apache import ApacheBroker, ApacheNameServer
    from tests.support.java_programs import temporary_directory

    def end(server: ApacheServer) -> None:
        assert server.process.pid is not None
        os.kill(server.process.pid, signal.SIGTERM)
        server.process.wait_for_exit(STOP_SECONDS)

    with temporary_directory(version) as home:
        nameserver = ApacheNameServer(version, home / "namesrv", {}, [written(archives[0])])
        nameserver.start()
        broker = ApacheBroker("broker-a", version, nameserver.address, home / "broker", {}, [written(archives[1])])
        broker.start()
        with Producer("setup", nameserver=nameserver.address, send_timeout=60) as producer:
            producer.send(Message("t", b"x"))
        end(broker)
        end(nameserver)


def main() -> None:
    """Makes what is missing; without Maven or network the servers' tests are skipped anyway."""
    from tests.support.apache import VERSIONS
    from tests.support.maven import ApacheUnavailable

    os.environ["JDK_JAVA_OPTIONS"] = " ".join(QUICK)
    FOLDER.mkdir(exist_ok=True)
    make_missing([SPARK], make_spark)
    with suppress(ApacheUnavailable):
        for version in VERSIONS:
            make_missing([of_server(version, name) for name in SERVERS], partial(make_servers, version))


if __name__ == "__main__":
    main()
