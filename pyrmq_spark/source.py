"""The data source `rocketmq`, as Spark calls it, and its batch reader, whose offsets are fixed at planning.

Heavy modules are loaded late: Spark starts a Python process for each step of a job, and most steps need few of them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyrmq_spark.pyspark_releases import check_pyspark, has_admission_control, needs_pyspark

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
except ImportError as missing:
    raise needs_pyspark() from missing

from pyrmq_core import TagFilter, line_logger
from pyrmq_spark.gc_freeze import freeze_loaded_objects, loading
from pyrmq_spark.offsets import check_batch_start
from pyrmq_spark.options import (
    ConnectionOptions,
    SinkOptions,
    SourceOptions,
    check_names,
    hide_secrets,
    read_connection,
    read_sink,
    read_source,
)
from pyrmq_spark.positions import Word
from pyrmq_spark.session import name_server_variable, warn_of_another_python
from pyrmq_spark.spark_errors import InvalidOption, OldPySpark, UnsupportedMode, as_spark_error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from pyrmq_spark.read.columns import SourceSchema
    from pyrmq_spark.write.columns import SinkSchema

log = line_logger(__name__)

# The default columns of `read.columns` as DDL, written out since that module loads Arrow: the process that only needs
# the schema starts sooner.
SCHEMA: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
    "body binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)


class RocketMQDataSource(DataSource):
    """The source behind `spark.read`, `df.write`, `spark.readStream` and `df.writeStream` with `.format("rocketmq")`.

    Spark finds it without registration where this package is installed. Elsewhere use `pyrmq_spark.register`.
    """

    _ends_batches = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        options = hide_secrets(options)  # hidden, since Spark may show this frame's locals with an error
        super().__init__(options)
        with as_spark_error():
            check_pyspark()
            check_names(options)
            self._connection = read_connection(options, name_server_variable())
        freeze_loaded_objects()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restores a pickled source, and marks it as a copy, with which Spark ends each batch of a stream."""
        self.__dict__.update(state, _ends_batches=True)

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format`: rocketmq.

        It is the first call in a process that looks for sources, and in a driver that registers this source.
        """
        freeze_loaded_objects()
        warn_of_another_python()
        return "rocketmq"

    def schema(self) -> str:
        with as_spark_error():
            read_source(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyrmq_spark.read.columns import source_schema

        with as_spark_error():
            options = read_source(self.options)
            check_batch_start(*options.start(Word.EARLIEST))
            TagFilter.parse(options.tags)
            return RocketMQReader(self._connection, options, source_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyrmq_spark.write.writers import RocketMQWriter

        with as_spark_error():
            if overwrite:
                raise UnsupportedMode(
                    'a topic cannot be overwritten, rows are only ever added to it: use mode("append"), in SQL INSERT '
                    "INTO; for an empty topic, delete it and create it again"
                )
            return RocketMQWriter(self._connection, *self._sink(schema, stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        with loading():
            from pyrmq_spark.read.columns import source_schema
            from pyrmq_spark.stream.stream_reader import RocketMQStreamReader

        with as_spark_error():
            options = read_source(self.options)
            if options.batch_only:
                raise InvalidOption(
                    f"{', '.join(options.batch_only)}: a stream has no end; for what is there now use "
                    "trigger(availableNow=True), or spark.read"
                )
            if options.limits.are_set and not has_admission_control():
                raise OldPySpark(
                    "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need PySpark 4.2 or later: "
                    "older ones pass no limits, and would end availableNow after one batch; without these options each "
                    "batch takes everything there is"
                )
            if options.max_trigger_delay is not None and options.min_offsets_per_trigger is None:
                raise InvalidOption(
                    "maxTriggerDelay needs minOffsetsPerTrigger: it bounds how long a batch waits for so many; without "
                    "it no batch waits, and how often one begins is the trigger's processingTime"
                )
            TagFilter.parse(options.tags)
            return RocketMQStreamReader(self._connection, options, source_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from pyrmq_spark.write.writers import RocketMQStreamWriter

        with as_spark_error():
            if overwrite:
                raise UnsupportedMode(
                    "output mode complete would write the whole result anew with every batch, and a topic only ever "
                    'grows: use outputMode("append") with a watermark, or foreachBatch'
                )
            return RocketMQStreamWriter(self._connection, *self._sink(schema, stream=True))

    def _sink(self, schema: StructType, *, stream: bool) -> tuple[SinkOptions, SinkSchema]:
        from pyrmq_core import check_topic
        from pyrmq_spark.write.columns import sink_schema

        options = read_sink(self.options, stream=stream)
        for topic in filter(None, (options.topic, options.dead_letter_topic)):
            check_topic(topic)
        if options.compression != "none":
            from pyrmq_core.columnar import CompressionType

            CompressionType[options.compression.upper()].check_library()
        columns = sink_schema(schema, options.topic)
        if columns.left_out:
            log.info("not written, since a broker sets them: %s", ", ".join(columns.left_out))
        if options.is_committed:
            columns.check_not_delayed()
        if self._ends_batches:  # the batch's plan has looked up the topics, and its rows are stored
            return options, columns
        if options.topic is not None and options.create_topic != "auto":
            from pyrmq_spark.write.create_topic import create_topic

            create_topic(self._connection, options, options.topic, columns.message_type)
        if options.topic is not None and "shardingKey" in columns.columns:
            from pyrmq_spark.write.create_topic import keep_order

            keep_order(self._connection, options.topic)
        if options.is_committed:
            from pyrmq_spark.patience import wait_to_write
            from pyrmq_spark.write.manifest import ensure_manifest

            wait_to_write(lambda: ensure_manifest(self._connection, options), options.send_timeout)
        return options, columns


def register(spark: SparkSession) -> None:
    """Registers the source `rocketmq` with a session. Does no harm if the source is registered or found already.

    PySpark 4.0 refuses to register a source that it finds by its name, and then uses the source that it found. Later
    releases use the registered one.
    """
    from pyspark.errors import PySparkException

    try:
        spark.dataSource.register(RocketMQDataSource)
    except PySparkException as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


class RocketMQReader(DataSourceReader):
    """A batch read from a fixed start to a fixed end, which Spark's planning resolves once for each `load()`.

    It has no `pushFilters`. Spark 4.3 keeps one plan of a Python source for each `load()`, in which the last pushed
    filter applies to every scan. Two filters over one frame would therefore give wrong rows.
    """

    def __init__(self, connection: ConnectionOptions, options: SourceOptions, schema: SourceSchema) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        freeze_loaded_objects()
        with loading():
            from pyrmq_spark.read.queue_selection import plan_batch
            from pyrmq_spark.read.task_planner import TaskPlanner
            from pyrmq_spark.worker import consumer_of

        with as_spark_error():
            options = self._options
            if options.streaming_only:
                log.warning("a batch read has no use for %s", ", ".join(options.streaming_only))
            consumer = consumer_of(self._connection, options)
            ranges = plan_batch(consumer, options)
            return TaskPlanner(lambda: consumer, options).tasks(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_loaded_objects()
        with loading():
            from pyrmq_spark.read.partition_reader import read_ranges
            from pyrmq_spark.read.range_planner import RangePartition

        if isinstance(partition, RangePartition):  # Spark passes a partition of its own if there is nothing to read
            yield from read_ranges(self._connection, self._options, self._schema, partition.ranges)
