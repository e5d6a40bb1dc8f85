"""RocketMQ for Spark: the data source `rocketmq`, over the client core `pyrmq_core`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyrmq_spark.source import RocketMQDataSource

__all__ = ["RocketMQDataSource"]


def __getattr__(name: str) -> Any:
    if name != "RocketMQDataSource":
        raise AttributeError(f"pyrmq_spark has no public name {name!r}")
    from pyrmq_spark.source import RocketMQDataSource

    return RocketMQDataSource
