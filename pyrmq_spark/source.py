"""The data source `rocketmq` as Spark sees it, and its batch reader: offsets frozen at planning, one range a task.

Heavy modules are loaded where they are needed: Spark starts a Python process for each step of a job, and most need few.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pyrmq_core import DataLost, TagFilter
from pyrmq_spark.conditions import NotBuilt, UnsupportedMode, told
from pyrmq_spark.offsets import check_batch_start
from pyrmq_spark.options import Connection, SourceOptions, check_names, read_connection, read_sink, read_source
from pyrmq_spark.planning import QueueRange
from pyrmq_spark.positions import Word

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from pyrmq_core.blocking import PullConsumer
    from pyrmq_spark.columns import SourceSchema

log = logging.getLogger(__name__)

DEFAULT_CONSUMER_GROUP: Final = "pyrmq-spark"
# `columns.default_schema()`, without loading Arrow in the process that asks for it.
SCHEMA: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, tags string, keys string, "
    "body binary, properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)


class RocketMQDataSource(DataSource):
    """`spark.read.format("rocketmq")` and `df.write.format("rocketmq")`.

    Found by Spark without registration where this package is installed; else `spark.dataSource.register` takes it.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with told():
            check_names(options)
            self._connection = read_connection(options, os.environ)

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> str:
        with told():
            read_source(self.options)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyrmq_spark.columns import source_schema

        with told():
            options = read_source(self.options)
            check_batch_start(*options.start(Word.EARLIEST))
            return RocketMQReader(self._connection, options, source_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyrmq_core import check_topic
        from pyrmq_spark.columns import sink_schema
        from pyrmq_spark.sink import RocketMQWriter

        with told():
            if overwrite:
                raise UnsupportedMode(
                    'a topic cannot be overwritten, rows are only ever added to it: use mode("append"); for an empty '
                    "topic, delete it and create it again"
                )
            options = read_sink(self.options)
            if options.topic is not None:
                check_topic(options.topic)
            return RocketMQWriter(self._connection, options, sink_schema(schema, options.topic))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        with told():
            raise NotBuilt("readStream is not supported by this version; read the topic as a batch")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        with told():
            raise NotBuilt("writeStream is not supported by this version; write batches with foreachBatch")


class RangePartition(InputPartition):
    """What one task reads. The reader is sent before partitions are planned, so this holds all a task needs to know."""

    def __init__(self, wanted: QueueRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class RocketMQReader(DataSourceReader):
    """Reads from fixed start to fixed end, both resolved when Spark plans the read, once for each `load()`."""

    def __init__(self, connection: Connection, options: SourceOptions, schema: SourceSchema) -> None:
        self._connection = connection
        self._options = options
        self._schema = schema
        self._tags = TagFilter.parse(options.tags)

    def partitions(self) -> Sequence[InputPartition]:
        from pyrmq_spark import worker
        from pyrmq_spark.choosing import plan_batch

        with told():
            options = self._options
            if options.streaming_only:
                log.warning("a batch read has no use for %s", ", ".join(options.streaming_only))
            ranges = plan_batch(self._consumer(), worker.admin(self._connection), options)
            return [RangePartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RangePartition):  # Spark makes up one of its own when there is nothing to read
            with told(str(partition.wanted.queue)):
                yield from self._read(partition.wanted)

    def _read(self, wanted: QueueRange) -> Iterator[pa.RecordBatch]:
        from pyrmq_core import ReadWindow
        from pyrmq_core.columnar import decode_records
        from pyrmq_spark import worker

        options, position = self._options, wanted.start
        window = ReadWindow(max_messages_a_pull=options.pull_batch_size, patience=options.pull_timeout)
        worker.settle()
        while position < wanted.end:
            try:
                with self._consumer().read(
                    wanted.queue, position, wanted.end, tags=options.tags, window=window
                ) as reader:
                    for pulls in reader:
                        position = pulls[-1].next_offset
                        batch = decode_records(
                            pulls,
                            self._schema.columns,
                            wanted.offsets,
                            tags=self._tags,
                            keep_undecodable=options.on_undecodable_body == "keep",
                        )
                        if batch.num_rows:
                            yield self._schema.as_given(batch)
                return
            except DataLost as lost:
                position = self._after_loss(lost, position, wanted)

    def _after_loss(self, lost: DataLost, position: int, wanted: QueueRange) -> int:
        """Where to go on with failOnDataLoss=false; nothing is read twice."""
        if self._options.fail_on_data_loss:
            raise lost
        following = max(position, lost.min_offset) if lost.min_offset > position else wanted.end
        log.warning("%s: offsets %d to %d are skipped: %s", wanted.queue, position, min(following, wanted.end), lost)
        return following

    def _consumer(self) -> PullConsumer:
        from pyrmq_spark import worker

        return worker.consumer(self._connection, self._options.consumer_group or DEFAULT_CONSUMER_GROUP)
