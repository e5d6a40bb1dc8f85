"""A standalone Spark cluster of one master and its workers, as processes started by `spark-class`.

Each worker has an address of its own, as a machine would: Spark repeats a slow task on another host only.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from pyrmq_spark.session import FOLDER
from tests.support.apache import free_port
from tests.support.jvm import JavaProcess

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
BOOT_SECONDS = 120.0


@dataclass(frozen=True)
class Standalone:
    """A cluster's address, `spark://...`, and the processes of its workers, which start executors."""

    master: str
    workers: list[int] = field(default_factory=list)


@contextmanager
def boot_standalone(directory: Path, environment: Mapping[str, str], *, workers: int = 1) -> Iterator[Standalone]:
    """Yields a cluster with two cores in all, at least one a worker. All processes end on leaving."""
    port = free_port((0,))
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    cluster = Standalone(f"spark://127.0.0.1:{port}")
    cores = str(max(1, 2 // workers))
    worker = ["worker.Worker", "--cores", cores, "--memory", "1g", "--webui-port", "0"]
    registered = "Successfully registered with master"
    with ExitStack() as stack:
        for name, arguments, ready in (
            ("master", master, "I have been elected leader"),
            *(
                (
                    f"worker-{number}",
                    [*worker, "--host", f"127.0.0.{number}", "--work-dir", f"{directory}/{number}", cluster.master],
                    registered,
                )
                for number in range(1, workers + 1)
            ),
        ):
            log = directory / f"{name}.log"
            command = ["/bin/bash", str(SPARK_CLASS), f"{DEPLOY}.{arguments[0]}", *arguments[1:]]
            process = JavaProcess(name, command, log, {**environment, "SPARK_DAEMON_MEMORY": "256m"})
            stack.callback(process.kill)
            process.start()
            process.wait_until(lambda log=log, ready=ready: ready in log.read_text(), BOOT_SECONDS)  # type: ignore[misc]
            if ready == registered and process.pid is not None:
                cluster.workers.append(process.pid)
        yield cluster


def job_environment(root: Path, *more: Path) -> dict[str, str]:
    """Returns the environment of a driver and its children: this Python, PySpark and project, its folder for Spark."""
    path = [str(root), *map(str, more), str(FOLDER), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
