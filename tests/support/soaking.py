"""The parts of soaks of Spark's sink: a driver that is killed with its processes, files to stream, the rows stored."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pyrmq_core import OffsetRange, RocketMQError, decode
from pyrmq_core.blocking import PullConsumer
from tests.support.spark import python_path

ROOT = Path(__file__).parent.parent.parent
POLL_SECONDS = 0.05
# Rows of a file; its keys are those of every second file, so that a batch of two files has each key in one of them.
KEYS = 3
ROWS_A_KEY = 100


class Driver:
    """The process of a job, with its JVM and Python workers; `hosts` are processes that start executors for it."""

    def __init__(
        self,
        nameserver: str,
        directory: Path,
        job: str = "tests.spark.soak_job",
        *arguments: str,
        hosts: Sequence[int] = (),
    ) -> None:
        self._command = [sys.executable, "-m", job, nameserver, str(directory), *arguments]
        self._directory = directory
        self._hosts = hosts
        self._process: subprocess.Popen[bytes] | None = None
        self._ever: set[int] = set()
        self.log = directory / "driver.log"

    def ensure(self) -> None:
        """Starts it, unless it runs."""
        if self._process is None or self.has_ended:
            self.start()

    def start(self) -> None:
        """Starts it anew."""
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": python_path(),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self._directory / "work"),
        }
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    @property
    def has_ended_well(self) -> bool:
        return self._process is not None and self._process.poll() == 0

    def workers(self) -> list[int]:
        """Returns its Python processes that run tasks, and those that make and close writers."""
        pids = [
            pid
            for pid in self._descendants(*self._hosts)
            if b"pyspark" in command_of(pid) and b"java" not in command_of(pid)
        ]
        self._ever.update(pids)
        return pids

    def executors(self) -> list[int]:
        """Returns the JVMs of its executors, where these are processes of their own."""
        return [pid for pid in self._descendants(*self._hosts) if b"CoarseGrainedExecutorBackend" in command_of(pid)]

    def ever(self) -> list[int]:
        """Returns the Python processes that it has, and those that earlier ones left behind."""
        self.workers()
        return sorted(self._ever)

    def kill(self) -> None:
        """Sends SIGKILL to its Python and its JVM; its workers are left behind, as a machine's would be."""
        self.workers()
        if self._process is not None:
            for pid in (*self._descendants(), self._process.pid):
                if pid not in self._ever:
                    kill(pid)
            self._process.wait(60)

    def end(self) -> None:
        """Kills it and every process it started."""
        self.kill()
        for pid in self._ever:
            if b"pyspark" in command_of(pid):
                kill(pid)

    def _descendants(self, *others: int) -> list[int]:
        """Returns the processes below its own, and below others."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and (parent := _parent_of(int(entry.name))) is not None:
                children.setdefault(parent, []).append(int(entry.name))
        pids, waiting = [], [*others, *([self._process.pid] if self._process is not None else [])]
        while waiting:
            below = children.get(waiting.pop(), [])
            pids += below
            waiting += below
        return pids


def kill(pid: int) -> None:
    """Sends SIGKILL, if the process still exists."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def ancestors_of(pid: int) -> list[int]:
    """Returns its parent, that one's parent, and so on."""
    ancestors = []
    while pid := _parent_of(pid) or 0:
        ancestors.append(pid)
    return ancestors


def _parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


class Feed:
    """Files of rows, each complete when it appears; a key's numbers count up over them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._directory.mkdir()
        self._began = time.time() - 3600
        self._files = 0
        self._numbers: dict[str, int] = {}

    @property
    def rows(self) -> set[str]:
        """Returns the bodies of all rows so far."""
        return {f"{key} {number}" for key, count in self._numbers.items() for number in range(count)}

    def add(self) -> None:
        """Writes one more file. Streams take files by their modification times."""
        rows = []
        for key in [f"{self._files % 2}-{number}" for number in range(KEYS)] + ["none"]:
            first = self._numbers.get(key, 0)
            self._numbers[key] = first + ROWS_A_KEY
            rows += [(key, number) for number in range(first, first + ROWS_A_KEY)]
        rows.sort(key=lambda row: row[1] % ROWS_A_KEY)
        draft = self._directory / f".{self._files}"
        pq.write_table(pa.table({"key": [key for key, _ in rows], "number": [number for _, number in rows]}), draft)
        os.utime(draft, (self._began + self._files,) * 2)
        draft.rename(self._directory / f"{self._files:05d}.parquet")
        self._files += 1


def batches_of_files(checkpoint: Path) -> dict[int, int]:
    """Returns the batch of each file. A kill between Spark's two logs puts the files of two into one."""
    entry_of = {
        int(Path(entry["path"]).stem): int(entry["batchId"])
        for log in (checkpoint / "sources" / "0").glob("[0-9]*")
        for entry in map(json.loads, log.read_text().splitlines()[1:])
    }
    logs = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda log: int(log.name))
    ends = [int(json.loads(log.read_text().splitlines()[-1])["logOffset"]) for log in logs]
    return {file: bisect_left(ends, entry) for file, entry in entry_of.items()}


def file_of(key: str, number: int) -> int:
    """Returns the number of the file that `Feed` put a row into."""
    return 2 * (number // ROWS_A_KEY) + int(key[0])


def held(consumer: PullConsumer, topic: str) -> int | None:
    """Returns the number of messages in a topic; None while a broker is away."""
    try:
        bounds = consumer.offset_bounds(consumer.message_queues(topic))
        return sum(queue_bounds.end - queue_bounds.start for queue_bounds in bounds.values())
    except RocketMQError:
        return None


def stored_rows(consumer: PullConsumer, topic: str) -> dict[str, list[tuple[str, str]]]:
    """Returns body and id of the messages in each queue, in its order."""
    rows = {}
    for queue, bounds in consumer.offset_bounds(consumer.message_queues(topic)).items():
        with consumer.read_arrow(queue, bounds.start, bounds.end, columns=["body", "msgId"]) as batches:
            columns = [(batch.column("body").to_pylist(), batch.column("msgId").to_pylist()) for batch in batches]
        rows[str(queue)] = [
            (body.decode(), msg_id) for bodies, ids in columns for body, msg_id in zip(bodies, ids, strict=True)
        ]
    return rows


def committed_rows(consumer: PullConsumer, topic: str) -> list[str]:
    """Returns the bodies that a committed read gives."""
    with consumer.read_committed(topic) as pulls:
        return [
            message.body.decode()
            for pull in pulls
            for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
        ]


def wait_until(condition: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Returns when the condition holds; after so many seconds it fails with the name of the missing thing."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(POLL_SECONDS)
