"""The differences between the supported releases of PySpark, 4.0 to 4.3. Features are detected, not version numbers.

PySpark's modules are imported inside of the functions, so that a process loads only those that it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyrmq_spark.spark_errors import OldPySpark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# The first release with Python data sources that write Arrow batches.
FLOOR: Final = (4, 0)


def check_pyspark() -> None:
    """Raises `OldPySpark` before PySpark 4.0, which would find the source and later fail in a task."""
    import pyspark

    release = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdecimal())
    if release < FLOOR:
        raise OldPySpark(_text(pyspark.__version__))


def needs_pyspark() -> ImportError:
    from importlib import metadata

    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = "none"
    return ImportError(_text(version))


def _text(version: str) -> str:
    return (
        f"pyrmq_spark needs PySpark {FLOOR[0]}.{FLOOR[1]} or newer, and {version} is installed: "
        'pip install "pyrmq-spark[spark]"'
    )


def has_admission_control() -> bool:
    """Returns whether Spark passes limits to a Python stream, and announces `availableNow` (4.2, SPARK-55304)."""
    from importlib.util import find_spec

    return find_spec("pyspark.sql.streaming.datasource") is not None


def has_stream_arrow_writer() -> bool:
    """Returns whether a Python data source can write a stream by Arrow batches (4.1, SPARK-53030)."""
    from pyspark.sql import datasource

    return hasattr(datasource, "DataSourceStreamArrowWriter")


def has_unix_sockets() -> bool:
    """Returns whether the JVM can talk to Python workers over sockets of the file system (4.1, SPARK-51688).

    Python cannot see the setting itself, but `has_stream_arrow_writer` detects the same release.
    """
    return has_stream_arrow_writer()


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns a Spark schema as an Arrow schema, with times in UTC."""
    from inspect import signature

    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:  # since 4.2; earlier releases use UTC
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)
