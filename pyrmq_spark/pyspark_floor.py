"""The oldest PySpark that this package runs on, and the errors that say so instead of an import that fails."""

from __future__ import annotations

from typing import Final

from pyrmq_spark.spark_errors import OldPySpark

# The first release whose Python data sources write Arrow batches and stream with admission control.
FLOOR: Final = (4, 3)


def check_pyspark() -> None:
    """Raises `OldPySpark` under an older PySpark, which would find the source and then fail in a task."""
    import pyspark

    release = tuple(int(part) for part in pyspark.__version__.split(".")[:2] if part.isdecimal())
    if release < FLOOR:
        raise OldPySpark(_text(pyspark.__version__))


def needs_pyspark() -> ImportError:
    """Returns the error for a PySpark without Python data sources, or for none at all."""
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
