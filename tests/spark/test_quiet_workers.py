"""Spark's Python workers end without a traceback when Spark closes their sockets: the daemon here is Spark's own.

A worker that was idle for a minute is ended like this, a few of them in each job.
"""

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

import pyspark
import pytest

from pyrmq_spark import gc_freeze, session
from pyrmq_spark.pyspark_releases import has_unix_sockets
from pyrmq_spark.python_path.sitecustomize import end_quietly

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="waits for a process that is no child: Linux only"
)

ROOT = Path(__file__).parent.parent.parent
PYSPARK = Path(pyspark.__file__).parent.parent
END_OF_STREAM = struct.pack(">i", -4)
LOOKUP = "pyspark.sql.worker.lookup_data_sources"
PRINT_EXC = traceback.print_exc


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


# A whole job of the process that looks for sources: Python's version, no files, no broadcasts, no configuration.
LOOK = text("{}.{}".format(*sys.version_info)) + text("") + bytes(4 + 1 + 4 + 4) + END_OF_STREAM


def errors_after_hanging_up(path: Path | str, *, module: str = "pyspark.worker", job: bytes = b"") -> str:
    """Returns what a daemon and its worker print on standard error when Spark closes the worker's socket.

    `job` is what the worker is given before that.
    """
    if not has_unix_sockets():
        pytest.skip("before PySpark 4.1 it has no sockets of the file system")
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket is short
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(path), str(PYSPARK)]),
            "PYTHON_UNIX_DOMAIN_ENABLED": "True",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",  # Spark's default
            "SPARK_REUSE_WORKER": "1",
        }
        command = [sys.executable, "-m", "pyspark.daemon", module]
        with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, env=environment) as daemon:
            assert daemon.stdin is not None
            assert daemon.stdout is not None
            assert daemon.stderr is not None
            address = daemon.stdout.read(*struct.unpack(">i", daemon.stdout.read(4)))
            with socket.socket(socket.AF_UNIX) as spark:
                spark.connect(address)
                worker = os.pidfd_open(*struct.unpack(">i", spark.recv(4, socket.MSG_WAITALL)))
                spark.sendall(job)
                answer = b"" if job else END_OF_STREAM
                while not answer.endswith(END_OF_STREAM):
                    answer += (part := spark.recv(65536))
                    assert part, answer
            ended = select.poll()
            ended.register(worker, select.POLLIN)
            assert ended.poll(60_000)
            os.close(worker)
            daemon.stdin.close()  # the daemon's end
            return daemon.stderr.read().decode()


def test_spark_alone_prints_a_traceback() -> None:
    """The other tests are compared with this one."""
    assert "BrokenPipeError" in errors_after_hanging_up("")


def test_a_worker_under_the_settings_of_a_session_prints_none() -> None:
    assert errors_after_hanging_up(session.FOLDER) == ""


def test_a_process_that_has_loaded_the_source_prints_none_without_the_settings() -> None:
    """The process that looks for sources gets no setting of the session."""
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="before PySpark 4.2 a job has other parts")
    assert errors_after_hanging_up(ROOT, module=LOOKUP, job=LOOK) == ""


def test_other_errors_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken pipe of a user's own too: its last frame is not the daemon's."""
    monkeypatch.setattr(traceback, "print_exc", PRINT_EXC)
    end_quietly()
    end_quietly()
    for error in (BrokenPipeError("of a task"), ValueError("of a task")):
        try:
            raise error
        except Exception:
            traceback.print_exc()
        printed = capsys.readouterr().err
        assert printed.count("Traceback") == 1
        assert type(error).__name__ in printed


def test_a_process_that_spark_did_not_start_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceback, "print_exc", PRINT_EXC)
    monkeypatch.setattr(gc_freeze, "_modules_frozen", 0)
    gc_freeze.freeze_loaded_objects()
    assert traceback.print_exc is PRINT_EXC
