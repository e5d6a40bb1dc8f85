"""RocketMQ for Spark: the data source `rocketmq`, over the client core `pyrmq_core`.

    source                        the entry that Spark finds
    read, stream, write           batch reads, streaming reads, and writes of both kinds
    options, positions, offsets   parse options and turn them into offsets, without input or output
    read_limits, kafka_hints      the limits of a micro-batch, and hints for users of Spark's Kafka source
    namespaces                    names in a tenant's namespace
    worker, patience              the clients of a Python process, and waiting for brokers
    spark_errors                  the errors that Spark shows
    tables                        views of topics
    cdc, cloud_events             rows of changes, and columns of events
    session                       a driver's session in threads, and settings for it
    python_path                   a folder that such a setting puts on the path of Spark's Python processes
    gc_freeze, pyspark_releases   adapt to Spark's processes and releases

The names in `__all__` are loaded at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_spark.cloud_events import cloudevents
    from pyrmq_spark.session import activate_session, session_settings
    from pyrmq_spark.source import RocketMQDataSource, register
    from pyrmq_spark.stream.lag_listener import LagListener
    from pyrmq_spark.stream.lineage_listener import LineageListener
    from pyrmq_spark.stream.progress import OffsetPublisher, QueueLag, commit_offsets, lag
    from pyrmq_spark.tables import infer_schema, topics, typed, unframed

__all__ = [
    "LagListener",
    "LineageListener",
    "OffsetPublisher",
    "QueueLag",
    "RocketMQDataSource",
    "activate_session",
    "cloudevents",
    "commit_offsets",
    "infer_schema",
    "lag",
    "register",
    "session_settings",
    "topics",
    "typed",
    "unframed",
]

# Loaded at first use: Spark imports this package in every process in which it looks for sources.
_LAZY: Final = {
    "pyrmq_spark.cloud_events": "cloudevents",
    "pyrmq_spark.session": "activate_session session_settings",
    "pyrmq_spark.source": "RocketMQDataSource register",
    "pyrmq_spark.stream.lag_listener": "LagListener",
    "pyrmq_spark.stream.lineage_listener": "LineageListener",
    "pyrmq_spark.stream.progress": "OffsetPublisher QueueLag commit_offsets lag",
    "pyrmq_spark.tables": "infer_schema topics typed unframed",
}

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would accept any name
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
