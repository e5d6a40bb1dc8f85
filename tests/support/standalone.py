"""A standalone Spark cluster of one master and its workers, as processes started by `spark-class`."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from pyrmq_spark.session import FOLDER
from tests.support.apache import free_port
from tests.support.jvm import JavaProcess

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
BOOT_SECONDS = 120.0


@contextmanager
def boot_standalone(directory: Path, environment: Mapping[str, str], *, workers: int = 1) -> Iterator[str]:
    """Yields its address, `spark://...`; two cores in all, at least one a worker. All end on leaving."""
    port = free_port((0,))
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    address = f"spark://127.0.0.1:{port}"
    cores = str(max(1, 2 // workers))
    worker = ["worker.Worker", "--host", "127.0.0.1", "--cores", cores, "--memory", "1g", "--webui-port", "0"]
    registered = "Successfully registered with master"
    with ExitStack() as stack:
        for name, arguments, ready in (
            ("master", master, "I have been elected leader"),
            *(
                (f"worker-{number}", [*worker, "--work-dir", str(directory / f"work-{number}"), address], registered)
                for number in range(workers)
            ),
        ):
            log = directory / f"{name}.log"
            command = ["/bin/bash", str(SPARK_CLASS), f"{DEPLOY}.{arguments[0]}", *arguments[1:]]
            process = JavaProcess(name, command, log, {**environment, "SPARK_DAEMON_MEMORY": "256m"})
            stack.callback(process.kill)
            process.start()
            process.wait_until(lambda log=log, ready=ready: ready in log.read_text(), BOOT_SECONDS)  # type: ignore[misc]
        yield address


def job_environment(root: Path, *more: Path) -> dict[str, str]:
    """Returns the environment of a driver and its children: this Python, this project, and its folder for Spark."""
    return os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (root, *more, FOLDER))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
