"""The settings of a Spark session that suit this source; they hold for every Python task of the session."""

from __future__ import annotations

import os


def session_settings() -> dict[str, bool | float | int | str | None]:
    """Returns settings for `SparkSession.builder.config(map=...)`, which have to be set before the session starts.

    `spark.python.unix.domain.socket.enabled`: the JVM talks to its Python workers over sockets of the file system. Over
    TCP each task in Python waits about 40 ms for a delayed acknowledgment. Windows has no such sockets, and gets none.
    """
    # The type is that of the builder's argument.
    return {} if os.name == "nt" else {"spark.python.unix.domain.socket.enabled": "true"}
