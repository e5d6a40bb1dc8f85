"""A driver's Spark session: settings for this source, its activation in threads, and a check of the workers' Python."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyrmq_core import line_logger
from pyrmq_spark.gc_freeze import started_by_spark
from pyrmq_spark.pyspark_releases import has_unix_sockets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = line_logger(__name__)

W = TypeVar("W")

FOLDER: Final = Path(__file__).parent / "python_path"
# The command that Spark starts if PYSPARK_PYTHON is not set.
DEFAULT_PYTHON: Final = "python3"
PYTHON_SECONDS: Final = 10.0
HIDE_TRACEBACK: Final = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"

_is_python_checked = False


def session_settings() -> dict[str, bool | float | int | str | None]:
    """Returns settings for `SparkSession.builder.config(map=...)`, which have to be set before the session starts.

    `spark.python.unix.domain.socket.enabled`: the JVM talks to its Python workers over sockets of the file system. Over
    TCP each task in Python waits about 40 ms for a delayed acknowledgment. TCP is used on Windows, which lacks these
    sockets, and under PySpark 4.0, which lacks the setting.

    `spark.executorEnv.PYTHONPATH`: a folder of this package, from which Spark's Python processes import an installed
    PySpark with its bytecode. Otherwise each new query compiles PySpark. These processes also compute with one thread
    where `OMP_NUM_THREADS` is not set, as Spark's tasks do anyway. On Linux, the process that forks workers loads
    PySpark and PyArrow before, since Spark ends each worker that was idle for a minute. A query's process collects
    garbage more rarely, and a worker that Spark no longer needs prints no traceback. Append paths of your own with
    `os.pathsep`. Spark passes the folder to a registered source (`register(spark)`). For a source that Spark finds
    itself, set the driver's environment variable PYTHONPATH instead.

    `spark.sql.execution.pyspark.udf.hideTraceback.enabled`: an error in Python, of this source or of a function, is
    shown as its message. `spark.conf.set` with "false" brings back its traceback.

    An interrupt (Ctrl-C, the stop button of a notebook) takes the active session from the main thread, and Spark then
    finds no Python source to write to. After this call, `format("rocketmq")` of a writer restores it.

    Logs a warning if Spark would start another Python than this one.
    """
    warn_of_another_python()
    _mend_interrupted_writers()
    # The argument of `SparkSession.builder.config` has this type.
    settings: dict[str, bool | float | int | str | None] = {HIDE_TRACEBACK: "true"}
    if os.name != "nt" and has_unix_sockets():
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if FOLDER.is_dir():  # the package may lie in an archive
        settings["spark.executorEnv.PYTHONPATH"] = str(FOLDER)
    return settings


def activate_session(spark: SparkSession) -> None:
    """Makes `spark` the active session of the calling thread, where Spark looks for the source of a write or a stream.

    Spark 4.3 finds a Python source by its name only in a thread with an active session, which a new thread lacks:
    `df.write...save()` and `writeStream...start()` fail there with DATA_SOURCE_NOT_FOUND. Call it at the beginning of
    each thread: `ThreadPoolExecutor(initializer=activate_session, initargs=(spark,))`. A session of Spark Connect needs
    no such call, and is left unchanged.
    """
    from pyspark.sql import SparkSession

    if isinstance(spark, SparkSession):
        jvm: Any = spark._jvm
        jvm.SparkSession.setActiveSession(spark._jsparkSession)


def restore_session(spark: SparkSession | None = None) -> None:
    """Makes `spark`, or the driver's session, active in the main thread again if an interrupt has taken it."""
    if threading.current_thread() is not threading.main_thread():
        return
    from pyspark.sql import SparkSession

    session = getattr(SparkSession, "_instantiatedSession", None) if spark is None else spark
    if not isinstance(session, SparkSession) or session._sc._jsc is None:  # of Spark Connect, or stopped
        return
    jvm: Any = session._jvm
    if jvm.SparkSession.getActiveSession().isEmpty():
        activate_session(session)


def _mend_interrupted_writers() -> None:
    """Patches `format` of Spark's writers so that it restores the session before Spark calls code of this source."""
    try:
        from pyspark.sql.readwriter import DataFrameWriter
        from pyspark.sql.streaming.readwriter import DataStreamWriter
    except ImportError:  # a client of Spark Connect has no JVM, and no active session to lose
        return
    writers: tuple[Any, ...] = (DataFrameWriter, DataStreamWriter)
    for writer in writers:
        if not hasattr(writer.format, "__wrapped__"):
            writer.format = _mending(writer.format)


def _mending(choose: Callable[[W, str], W]) -> Callable[[W, str], W]:
    @wraps(choose)
    def format(self: W, source: str) -> W:
        if source.lower() == "rocketmq":
            restore_session(getattr(self, "_spark", None))
        return choose(self, source)

    return format


def name_server_variable() -> dict[str, str]:
    return {"NAMESRV_ADDR": os.environ.get("NAMESRV_ADDR", "")}


def warn_of_another_python() -> None:
    """Logs one warning in a driver if the Python that Spark starts by default has other packages than this one."""
    global _is_python_checked
    if _is_python_checked or started_by_spark():
        return
    _is_python_checked = True
    if not sys.executable or {"PYSPARK_PYTHON", "SPARK_REMOTE"} & os.environ.keys():
        return
    import shutil

    other = shutil.which(DEFAULT_PYTHON)
    if other is None:
        where = f"no {DEFAULT_PYTHON} is on the path"
    elif os.path.dirname(other) == os.path.dirname(sys.executable) or _prefix(other) == os.path.realpath(sys.prefix):
        return
    else:
        where = f"the first on the path is {other}, without the packages of this one"
    log.warning(
        "PYSPARK_PYTHON is not set, so Spark starts its Python processes by the command %s, and %s: set "
        "PYSPARK_PYTHON=%s before the session starts",
        DEFAULT_PYTHON,
        where,
        sys.executable,
    )


def _prefix(python: str) -> str | None:
    # The path alone does not show the environment, as it may be a link or a script.
    import subprocess

    try:
        answer = subprocess.run(
            [python, "-c", "import sys; print(sys.prefix)"],
            capture_output=True,
            text=True,
            timeout=PYTHON_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return os.path.realpath(answer.stdout.strip())
