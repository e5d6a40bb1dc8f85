"""Lets Spark find the source `rocketmq`: Spark looks for `DefaultSource` in top-level modules named `pyspark_*`."""

import contextlib

with contextlib.suppress(Exception):  # an error here would hide all Python data sources from Spark
    from pyrmq_spark import RocketMQDataSource as DefaultSource  # noqa: F401
