"""A sink with a planted fault: it commits a batch that is decided, and its tasks write it once more."""

from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from pyrmq_core import CommitRecord, next_record
from pyrmq_spark import RocketMQDataSource
from pyrmq_spark.write import manifest


class Plant:
    """A part of the writer whose class is of this module: a process that unpickles the writer has the fault."""


class PlantedDataSource(RocketMQDataSource):
    """The source `planted`."""

    @classmethod
    def name(cls) -> str:
        return "planted"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        writer = super().streamWriter(schema, overwrite)
        vars(writer)["plant"] = Plant()
        return writer


def undecided(*arguments: Any, **more: Any) -> CommitRecord | None:
    """Returns a record as if nothing were decided."""
    return next_record(*arguments, **(more | {"decided": {}}))


vars(manifest)["is_batch_committed"] = lambda *_: False
vars(manifest)["next_record"] = undecided
