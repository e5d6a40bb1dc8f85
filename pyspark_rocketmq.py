"""Lets Spark find the source `rocketmq`: it looks for `DefaultSource` in top-level modules named `pyspark_*`."""

import contextlib

with contextlib.suppress(Exception):  # an error here would take every other Python data source away from Spark
    from pyrmq_spark import RocketMQDataSource as DefaultSource  # noqa: F401
