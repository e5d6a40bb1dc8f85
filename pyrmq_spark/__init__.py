"""RocketMQ for Spark: the data source `rocketmq`, over the client core `pyrmq_core`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_core.lazy_names import load_when_named

if TYPE_CHECKING:
    from pyrmq_spark.source import RocketMQDataSource
    from pyrmq_spark.stream.progress import OffsetPublisher, QueueLag, commit_offsets, lag

__all__ = ["OffsetPublisher", "QueueLag", "RocketMQDataSource", "commit_offsets", "lag"]

# Spark imports this package in every process in which it looks for sources.
_LAZY: Final = {
    "OffsetPublisher": "pyrmq_spark.stream.progress",
    "QueueLag": "pyrmq_spark.stream.progress",
    "RocketMQDataSource": "pyrmq_spark.source",
    "commit_offsets": "pyrmq_spark.stream.progress",
    "lag": "pyrmq_spark.stream.progress",
}

if not TYPE_CHECKING:  # else every name would pass for one of these
    __getattr__, __dir__ = load_when_named(__name__, __all__, _LAZY)
