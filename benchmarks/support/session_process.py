"""A Spark session in a process of its own, which runs one job after another at a line of JSON.

The program in it is `benchmarks/peers/spark_jobs.py`. Everything blocks, and every job has a deadline.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.support.processes import CLOCK_TICKS, descendants, times_of
from benchmarks.support.spark_jobs import ROOT

PROGRAM: Final = ROOT / "benchmarks" / "peers" / "spark_jobs.py"
START_SECONDS: Final = 120.0
JOB_SECONDS: Final = 180.0
END_SECONDS: Final = 20.0
LOG_BYTES: Final = 3000


class JobFailed(Exception):
    """The error of a job that failed, ended its session, or took too long."""


@dataclass(frozen=True, slots=True)
class SessionCpu:
    """Processor seconds of a session since its start: of all its processes, and of Spark's Python workers alone."""

    all: float
    workers: float


class SparkProcess:
    """One session. `open_session` starts and ends it."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._name = name
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, bufsize=0
            )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, job: str, *, timeout: float = JOB_SECONDS, **arguments: object) -> dict[str, float]:
        """Runs one job and returns its figures. Raises `JobFailed`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"job": job, **arguments}).encode() + b"\n")
        except OSError as error:
            raise JobFailed(f"{self._name} has ended: {error}{self._last_lines()}") from None
        return self.answer(f"the job {job}", timeout)

    def answer(self, what: str, timeout: float) -> dict[str, float]:
        """Returns the next line that the session writes. Raises `JobFailed`, also for an error in it."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise JobFailed(f"{what} of {self._name} took longer than {timeout:g} s{self._last_lines()}")
            chunk = os.read(self._process.stdout.fileno(), 65536)
            if not chunk:
                raise JobFailed(f"{self._name} ended in {what}{self._last_lines()}")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        reply: dict[str, float] = json.loads(line)
        if "error" in reply:
            raise JobFailed(f"{what} of {self._name}: {reply['error']}")
        return reply

    def cpu(self) -> SessionCpu:
        return session_cpu(self.pid)

    def end(self) -> None:
        """Ends the session with its input, or kills it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            for pid in reversed(descendants(self.pid)):
                _kill(pid)
            self._process.wait()

    def _last_lines(self) -> str:
        return "\n" + self._log.read_bytes()[-LOG_BYTES:].decode(errors="replace")


@contextmanager
def open_session(
    connector: str,
    address: str,
    python: Path,
    directory: Path,
    *,
    heap: str,
    settings: Mapping[str, str],
    environment: Mapping[str, str],
) -> Iterator[SparkProcess]:
    """Yields a session once it is up, and ends it on leaving. Its heap is touched beforehand.

    `environment` is added to this process's own.
    """
    name = f"session-{len(list(directory.glob('*.log')))}-{connector}"
    first = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": heap,
        "spark.driver.extraJavaOptions": f"-Xms{heap} -XX:+AlwaysPreTouch",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    unwanted = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON"}
    own = {key: value for key, value in os.environ.items() if key not in unwanted}
    complete = {**own, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    all_settings = [f"{key}={value}" for key, value in {**first, **settings}.items()]
    process = SparkProcess(
        name, [str(python), str(PROGRAM), connector, address, *all_settings], complete, directory / f"{name}.log"
    )
    try:
        process.answer("the start", START_SECONDS)
        yield process
    finally:
        process.end()


def session_cpu(pid: int) -> SessionCpu:
    """Returns the processor time of a driver and all that it started. What Java started is Python."""
    everything = workers = 0.0
    for descendant in descendants(pid):
        name, own, ended = times_of(descendant)
        everything += own + ended
        if name == "java":
            workers += ended
        elif descendant != pid and name.startswith("python"):
            workers += own + ended
    return SessionCpu(everything, workers)


def cpu_of(pid: int) -> float:
    return times_of(pid)[1]


def family_cpu() -> float:
    """Returns the processor seconds of this process and all that it started."""
    return sum(own + ended for _, own, ended in map(times_of, descendants(os.getpid())))


def machine_cpu() -> float:
    """Returns the seconds for which the machine's processors have worked, for whatever process."""
    user, nice, system, _, _, irq, soft_irq, *_ = Path("/proc/stat").read_text().split()[1:9]
    return sum(map(int, (user, nice, system, irq, soft_irq))) / CLOCK_TICKS


def _kill(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        return
