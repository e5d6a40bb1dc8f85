"""RocketMQ for Spark: the data source `rocketmq`, over the client core `pyrmq_core`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyrmq_spark.progress import OffsetPublisher, QueueLag, commit_offsets, lag
    from pyrmq_spark.source import RocketMQDataSource

__all__ = ["OffsetPublisher", "QueueLag", "RocketMQDataSource", "commit_offsets", "lag"]

_MODULES: Final = {
    "OffsetPublisher": "pyrmq_spark.progress",
    "QueueLag": "pyrmq_spark.progress",
    "RocketMQDataSource": "pyrmq_spark.source",
    "commit_offsets": "pyrmq_spark.progress",
    "lag": "pyrmq_spark.progress",
}


def __getattr__(name: str) -> Any:
    """Loaded when first named: Spark imports this package in every process in which it looks for sources."""
    if name not in _MODULES:
        raise AttributeError(f"pyrmq_spark has no public name {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
