"""The settings of a Spark session that suit this source; they hold for every Python process of the session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "python_path"


def session_settings() -> dict[str, bool | float | int | str | None]:
    """Returns settings for `SparkSession.builder.config(map=...)`, which have to be set before the session starts.

    `spark.python.unix.domain.socket.enabled`: the JVM talks to its Python workers over sockets of the file system. Over
    TCP each task in Python waits about 40 ms for a delayed acknowledgment. Windows has no such sockets, and goes
    without.

    `spark.executorEnv.PYTHONPATH`: a folder of this package, with which Spark's Python processes import an installed
    PySpark with its bytecode; else each new query compiles it anew. With it they compute with one thread where
    `OMP_NUM_THREADS` is not set, as Spark's tasks do anyway, and a query's process collects garbage more rarely. Append
    paths of your own with `os.pathsep`. Spark passes it to a source that is registered
    (`spark.dataSource.register(RocketMQDataSource)`); for one that Spark finds itself, its driver has it from the
    environment variable PYTHONPATH alone.
    """
    # The type is that of the builder's argument.
    settings: dict[str, bool | float | int | str | None] = {}
    if os.name != "nt":
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if FOLDER.is_dir():  # the package may lie in an archive
        settings["spark.executorEnv.PYTHONPATH"] = str(FOLDER)
    return settings
