"""Topics as tables: a view of Spark SQL for each topic, with the columns of its bodies.

Each query of a view is a batch read of its topic up to the messages stored at that time. It does not fail because of a
body that does not fit the columns.

A view of a frame would always show the rows of its first query, since Spark plans a Python source once for it. So a
view's SQL calls a table function of the session, which loads the source anew for each query, in the driver's Python.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own short name

from pyrmq_core import BodySchema, RocketMQError, line_logger
from pyrmq_spark import worker
from pyrmq_spark.json_texts import MARK, STRINGS, with_json
from pyrmq_spark.namespaces import name_of_tenant
from pyrmq_spark.options import ConnectionOptions, check_names, hide_secrets, read_connection, read_source
from pyrmq_spark.read.queue_selection import candidate_topics
from pyrmq_spark.session import name_server_variable, restore_session
from pyrmq_spark.spark_errors import InvalidOption, as_spark_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

log = line_logger(__name__)

CORRUPT: Final = "_corrupt"
PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def topics(
    spark: SparkSession, *, pattern: str = ".*", sample: int = 100, limit: int = 100, **options: str
) -> dict[str, str]:
    """Makes a temporary view of each topic whose full name matches `pattern`. Returns the views' SQL names by topic.

    RocketMQ's own topics, retry and dead-letter topics, and manifests have no view. A view has the columns of a
    message, then the columns of its bodies, inferred from each queue's newest `sample` messages, as in `typed`.
    `sample=0` leaves them out. A topic that cannot be sampled now is logged and has a view without them. Spark takes a
    tenth of a second or more for a view, so more than `limit` topics are refused. `options` are options of the source:
    nameServer, accessKey, startingOffsets, ...

    Over Spark Connect a view shows the rows of its first query, of which a warning is logged: call `topics` again.
    """
    options = hide_secrets(options)
    restore_session(spark)
    with as_spark_error("topics"):
        connection = _connection(options)
        selection = read_source({**options, "topicPattern": pattern})
        consumer = worker.consumer_of(connection, selection)
        names = [name_of_tenant(topic, selection.namespace) or topic for topic in candidate_topics(consumer, selection)]
        if len(names) > limit:
            raise InvalidOption(
                f"pattern={pattern!r} matches {len(names)} topics, and at most {limit} views are made: name fewer by a "
                'pattern such as "orders.*", or set limit'
            )
    views: dict[str, str] = {}
    for topic in names:
        schema: BodySchema | None = None
        if sample:
            try:
                schema = _inferred(options, topic, sample)
            except RocketMQError as error:
                log.warning(
                    "the view of %s has no columns of its bodies, since they cannot be sampled: %s", topic, error
                )
        views[topic] = _view_name(topic, views)
        _make_view(views[topic], _Load(spark, {**options, "topic": topic}, schema))
    return views


class _Load:
    """The table function of a view. Spark calls `apply` for each query, to load the topic with its bodies' columns."""

    class Java:
        implements: Final = ("scala.Function1",)

    def __init__(self, spark: SparkSession, options: dict[str, str], schema: BodySchema | None) -> None:
        self.spark = spark
        self._options = options
        self._schema = schema

    def frame(self) -> DataFrame:
        frame = self.spark.read.format("rocketmq").options(**self._options).load()
        return frame if self._schema is None else typed(frame, self._schema)

    def apply(self, arguments: object) -> object:
        frame: Any = self.frame()
        return frame._jdf.queryExecution().analyzed()


def _make_view(name: str, load: _Load) -> None:
    session: Any = load.spark
    if not hasattr(session, "_jsparkSession"):
        log.warning(
            "the view %s shows what its first query reads, since Spark Connect plans it once: call topics again for "
            "what the topic holds then",
            name,
        )
        load.frame().createOrReplaceTempView(name)
        return
    from pyspark import java_gateway

    start_callbacks: Any = java_gateway.ensure_callback_server_started
    start_callbacks(session.sparkContext._gateway)
    registry = session._jsparkSession.sessionState().tableFunctionRegistry()
    function = f"rocketmq_{uuid.uuid5(uuid.NAMESPACE_URL, name.lower()).hex}"
    registry.createOrReplaceTempFunction(function, load, "scala_udf")
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS SELECT * FROM {function}()")


def infer_schema(
    topic: str, *, sample: int = 100, on_progress: Callable[[int], object] | None = None, **options: str
) -> BodySchema:
    """Returns the columns of a topic's bodies, inferred from each queue's newest `sample` messages. Needs no session.

    `options` describe the connection, and with `tags` or `sql` the messages. The default of `nameServer` is
    NAMESRV_ADDR. `on_progress` is called with the number of bodies read so far. Logs a warning if the bodies have
    more names than columns are made for.
    """
    options = hide_secrets(options)
    with as_spark_error(f"topic {topic}"):
        return _inferred(options, topic, sample, on_progress)


def typed(frame: DataFrame, schema: BodySchema) -> DataFrame:
    """Returns the batch or streaming frame with further columns: those of `schema`, read from `body`, and `_corrupt`.

    `_corrupt` is the text of a body that does not fit the schema, whose unfit columns are null. All columns are null
    for a body that is not one JSON object.
    """
    text = F.col("body").cast("string")
    if schema.form == "text":
        is_text = F.is_valid_utf8(text)
        columns = [F.when(is_text, text).alias(schema.columns[0].name), F.when(~is_text, F.make_valid_utf8(text))]
        return frame.select("*", columns[0], columns[1].alias(CORRUPT))
    if not schema.columns:
        return frame.select("*", F.lit(None).cast("string").alias(CORRUPT))
    helper = f"{MARK}body"
    while any(column.name.startswith(helper) for column in schema.columns):
        helper += MARK
    frame, row = with_json(frame, text, schema.json_ddl, schema.ddl, name=helper)
    own = [row.value(column.name).alias(column.name) for column in schema.columns]
    # Does not use `frame.columns`, which is not allowed in functions of a declarative pipeline.
    own.append(F.when(text.isNotNull() & ~row.fits(), F.make_valid_utf8(text)).alias(CORRUPT))
    return frame.select("*", *own).drop(helper, helper + STRINGS)


def unframed(body: Column, *, protobuf: bool = False) -> Column:
    """Returns the bodies without the five bytes that serializers of Confluent's schema registry write before them.

    With `protobuf`, the byte that selects the schema's first message type is removed, too. Bodies without these bytes
    become null.
    """
    head = "00" if protobuf else ""
    start = 7 if protobuf else 6
    is_framed = (F.hex(F.substring(body, 1, 1)) == "00") & (F.length(body) >= start - 1)
    if head:
        is_framed &= F.hex(F.substring(body, 6, 1)) == head
    return F.when(is_framed, body.substr(F.lit(start), F.length(body)))


def _connection(options: dict[str, str]) -> ConnectionOptions:
    check_names(options)
    return read_connection(options, name_server_variable())


def _inferred(
    options: dict[str, str], topic: str, sample: int, on_progress: Callable[[int], object] | None = None
) -> BodySchema:
    connection, source = _connection(options), read_source({**options, "topic": topic})
    consumer = worker.consumer_of(connection, source)
    schema = consumer.infer_schema(
        worker.name_on_brokers(connection, topic),
        sample=sample,
        tags=source.tags,
        sql=source.sql,
        on_progress=on_progress,
    )
    if schema.is_cut:
        log.warning("the bodies of %s have more names than columns are made for: the rest stays in the body", topic)
    return schema


def _view_name(topic: str, views: dict[str, str]) -> str:
    others = {view.lower() for view in views.values()}
    name, number = topic, 2
    while _quoted(name).lower() in others:
        name, number = f"{topic}_{number}", number + 1
    return _quoted(name)


def _quoted(name: str) -> str:
    return name if PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
