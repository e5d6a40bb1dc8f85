"""All options of the source `rocketmq`, one line each with name, type and default. Case does not matter in names.

The options become three frozen values: `ConnectionOptions` (both directions), `SourceOptions` and `SinkOptions`.
NAMESRV_ADDR is read on the driver, since executors may lack it. No secret appears in a repr or an error.
"""

# ruff: noqa: RUF009 - `option` is `dataclasses.field`

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pyrmq_core import MessageQueue, TagFilter, manifest_of, with_namespace
from pyrmq_spark.kafka_hints import option_hint
from pyrmq_spark.namespaces import Namespace
from pyrmq_spark.offsets import NoMatchStrategy
from pyrmq_spark.option_types import (
    Secret,
    addresses,
    at_least,
    milliseconds,
    one_of,
    page,
    pattern,
    secret,
    strategy,
    text,
    time_span,
    topics,
    yes_or_no,
)
from pyrmq_spark.positions import Position, Word, parse_assign, parse_end, parse_start, parse_time, parse_times
from pyrmq_spark.read_limits import ReadLimits
from pyrmq_spark.spark_errors import InvalidOption, UnknownOption

MIB: Final = 1024 * 1024
# The most bytes of a request: a broker refuses a batch body above 4 MiB (`maxMessageSize`), and stores nothing of it.
MAX_BATCH_BYTES: Final = 4 * MIB
# The default of `maxTriggerDelay`, 15 minutes as in Spark's Kafka source.
DEFAULT_TRIGGER_DELAY: Final = 900.0

ALIASES: Final = {"subscribe": "topic", "subscribepattern": "topicpattern", "subexpression": "tags"}
# The options that Spark itself adds to a source's or sink's options.
OPTIONS_OF_SPARK: Final = (
    "asyncProgressTrackingCheckpointIntervalMs",
    "asyncProgressTrackingEnabled",
    "checkpointLocation",
    "outputMode",
    "queryName",
)
# The most characters of an application's id, since each record of a manifest lists all applications.
MAX_APP_ID: Final = 255
MAX_TOPIC_CHARS: Final = 127
ASYNC_PROGRESS: Final = "asyncprogresstrackingenabled"
PATHS: Final = ("path", "paths")
# CREATE TABLE passes each option a second time, as a property of the table, and adds properties of its own
# (connector/catalog/TableCatalog.java, CatalogV2Util.convertTableProperties, 4.3).
TABLE_OPTION: Final = "option."
TABLE_PROPERTIES: Final = ("collation", "comment", "owner", "provider", "table_type")
TABLE_HINT: Final = (
    "; Spark 4.3 keeps no option of CREATE TABLE: write SELECT ... FROM orders WITH (nameServer '...', topic '...'), "
    "INSERT INTO orders WITH (...) in the place of CREATE TABLE ... AS SELECT, or use a temporary view, which keeps "
    "them"
)


# --- The table.


def option(name: str, parse: Callable[[str, str], Any], default: Any = None) -> Any:
    metadata = {"name": name, "parse": parse}
    return field(default=default, repr=parse is not secret, metadata=metadata)


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The cluster's address, and how a client connects to it. Equal values share a client. Times are seconds."""

    name_server: str = option("nameServer", addresses, "")
    name_server_url: str | None = option("nameServerUrl", page)
    unit_name: str | None = option("unitName", text)
    namespace: str | None = option("namespace", text)
    namespace_v2: str | None = option("namespaceV2", text)
    access_key: str | None = option("accessKey", secret)
    secret_key: str | None = option("secretKey", secret)
    security_token: str | None = option("securityToken", secret)
    use_tls: bool = option("useTls", yes_or_no, False)
    tls_ca_file: str | None = option("tlsCaFile", text)
    tls_cert_file: str | None = option("tlsCertFile", text)
    tls_key_file: str | None = option("tlsKeyFile", text)
    tls_verify: bool = option("tlsVerify", yes_or_no, True)
    poll_name_server_interval: float = option("pollNameServerIntervalMs", milliseconds(1000), 30.0)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read. Times are seconds."""

    topics: tuple[str, ...] | None = option("topic", topics)
    namespace: str | None = option("namespace", text)
    topic_pattern: str | None = option("topicPattern", pattern)
    assign: tuple[MessageQueue, ...] | None = option("assign", parse_assign)
    starting_offsets: Position | None = option("startingOffsets", parse_start)
    starting_timestamp: Position | None = option("startingTimestamp", parse_time)
    starting_offsets_by_timestamp: Position | None = option("startingOffsetsByTimestamp", parse_times)
    starting_strategy: NoMatchStrategy = option("startingOffsetsByTimestampStrategy", strategy, NoMatchStrategy.ERROR)
    ending_offsets: Position | None = option("endingOffsets", parse_end)
    ending_timestamp: Position | None = option("endingTimestamp", parse_time)
    ending_offsets_by_timestamp: Position | None = option("endingOffsetsByTimestamp", parse_times)
    tags: str = option("tags", text, "*")
    sql: str | None = option("sql", text)
    min_partitions: int | None = option("minPartitions", at_least(1))
    max_records_per_partition: int | None = option("maxRecordsPerPartition", at_least(1, 2**63 - 1))
    max_offsets_per_trigger: int | None = option("maxOffsetsPerTrigger", at_least(1, 2**63 - 1))
    min_offsets_per_trigger: int | None = option("minOffsetsPerTrigger", at_least(1, 2**63 - 1))
    max_trigger_delay: float | None = option("maxTriggerDelay", time_span)
    max_bytes_per_trigger: int | None = option("maxBytesPerTrigger", at_least(1, 2**63 - 1))
    fail_on_data_loss: bool = option("failOnDataLoss", yes_or_no, True)
    consumer_group: str | None = option("consumerGroup", text)
    pull_timeout: float = option("pullTimeoutMs", milliseconds(1), 20.0)
    pull_batch_size: int = option("pullBatchSize", at_least(1), 1024)
    on_undecodable_body: str = option("onUndecodableBody", one_of("fail", "keep"), "fail")
    verify_crc: bool = option("verifyCrc", yes_or_no, True)
    max_body_bytes: int = option("maxBodyBytes", at_least(1, 1024 * MIB), 64 * MIB)
    isolation: str = option("isolation", one_of("all", "committed"), "all")
    manifest_topic: str | None = option("manifestTopic", text)

    SELECTIONS: ClassVar = ("topic", "topicPattern", "assign")
    ENDS: ClassVar = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    LIMITS: ClassVar = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger")

    def start(self, default: Word) -> tuple[Position, str]:
        """Returns the position at which the read starts, and the name of the option that sets it.

        `startingTimestamp` overrides `startingOffsetsByTimestamp`, which overrides `startingOffsets`. If none is set,
        the position is `default`.
        """
        for position, name in (
            (self.starting_timestamp, "startingTimestamp"),
            (self.starting_offsets_by_timestamp, "startingOffsetsByTimestamp"),
            (self.starting_offsets, "startingOffsets"),
        ):
            if position is not None:
                return position, name
        return default, "startingOffsets"

    @property
    def limits(self) -> ReadLimits:
        delay = DEFAULT_TRIGGER_DELAY if self.max_trigger_delay is None else self.max_trigger_delay
        return ReadLimits(self.max_offsets_per_trigger, self.min_offsets_per_trigger, delay, self.max_bytes_per_trigger)

    def end(self) -> tuple[Position, str]:
        for position, name in (
            (self.ending_timestamp, "endingTimestamp"),
            (self.ending_offsets_by_timestamp, "endingOffsetsByTimestamp"),
            (self.ending_offsets, "endingOffsets"),
        ):
            if position is not None:
                return position, name
        return Word.LATEST, "endingOffsets"

    @property
    def is_committed(self) -> bool:
        return self.isolation == "committed"

    @property
    def manifest(self) -> str:
        return self.manifest_topic or manifest_of((self.topics or ("",))[0])

    def of_manifest(self) -> SourceOptions:
        """Returns the options with which a committed read reads its manifest, or `self` for any other read.

        A manifest is the topic in which committed writes record their batches. The positions and limits of a committed
        read are about the manifest's queue.
        """
        if not self.is_committed:
            return self
        return replace(self, topics=(self.manifest,), tags="*", sql=None, isolation="all", manifest_topic=None)

    @property
    def none_as_young(self) -> NoMatchStrategy:
        """The treatment of a queue without a message at or after its starting time: an error, or a start at its end.

        In a batch with an end option it is always a start at the end, so that the range is empty.
        """
        return NoMatchStrategy.LATEST if self.batch_only else self.starting_strategy

    @property
    def batch_only(self) -> tuple[str, ...]:
        return self._set_of(self.ENDS)

    @property
    def streaming_only(self) -> tuple[str, ...]:
        return self._set_of(self.LIMITS)

    def _set_of(self, names: tuple[str, ...]) -> tuple[str, ...]:
        values = {line.metadata["name"]: getattr(self, line.name) for line in fields(self)}
        return tuple(name for name in names if values[name] is not None)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write. Times are seconds, sizes bytes."""

    topic: str | None = option("topic", text)
    producer_group: str = option("producerGroup", text, "pyrmq-spark")
    send_timeout: float = option("sendTimeoutMs", milliseconds(1), 30.0)
    request_timeout: float = option("requestTimeoutMs", milliseconds(1), 3.0)
    retry_times_when_send_failed: int = option("retryTimesWhenSendFailed", at_least(0, 1000), 2)
    retry_another_broker_when_not_store_ok: bool = option("retryAnotherBrokerWhenNotStoreOK", yes_or_no, False)
    send_latency_fault_enable: bool = option("sendLatencyFaultEnable", yes_or_no, False)
    queue_selection: str = option("queueSelection", one_of("partition", "request"), "partition")
    compression: str = option("compression", one_of("none", "zlib", "lz4", "zstd"), "none")
    compress_body_over_bytes: int = option("compressBodyOverBytes", at_least(0), 4096)
    max_batch_bytes: int = option("maxBatchBytes", at_least(1, MAX_BATCH_BYTES), MIB)
    requests_in_flight: int = option("requestsInFlight", at_least(1, 1024), 4)
    default_topic_queue_nums: int = option("defaultTopicQueueNums", at_least(1, 1024), 4)
    create_topic: str = option("createTopic", one_of("auto", "normal", "batch"), "auto")
    topic_queue_nums: int | None = option("topicQueueNums", at_least(1, 1024))
    message_type: str | None = option(
        "messageType", one_of("normal", "fifo", "delay", "transaction", "priority", "lite")
    )
    on_rejected: str = option("onRejected", one_of("fail", "deadLetter"), "fail")
    dead_letter_topic: str | None = option("deadLetterTopic", text)
    message_ids: str | None = option("messageIds", one_of("unique", "content"))
    delivery: str = option("delivery", one_of("atLeastOnce", "committed"), "atLeastOnce")
    txn_app_id: str | None = option("txnAppId", text)
    txn_version: int | None = option("txnVersion", at_least(0, 2**63 - 1))
    manifest_topic: str | None = option("manifestTopic", text)
    commit_not_store_ok: bool = option("commitNotStoreOK", yes_or_no, False)

    @property
    def is_committed(self) -> bool:
        return self.delivery == "committed"

    @property
    def manifest(self) -> str:
        return self.manifest_topic or manifest_of(self.topic or "")


class Table(Protocol):
    """Any dataclass whose fields each hold an option: `ConnectionOptions`, `SourceOptions` or `SinkOptions`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


TABLES: Final = (ConnectionOptions, SourceOptions, SinkOptions)
NAMES: Final = tuple(dict.fromkeys(line.metadata["name"] for table in TABLES for line in fields(table)))
KNOWN: Final = {name.lower(): name for name in (*NAMES, *OPTIONS_OF_SPARK)} | {alias: alias for alias in ALIASES}

# The names of secrets in lower case, and then the names whose values errors may show.
SECRETS: Final = {
    line.metadata["name"].lower() for line in fields(ConnectionOptions) if line.metadata["parse"] is secret
}
SHOWN: Final = KNOWN.keys() - SECRETS
Options = Mapping[str, str]
T = TypeVar("T", bound=Table)


# --- Reading the options.


def hide_secrets(raw: Options) -> dict[str, str]:
    """Returns the options without the values of secrets and of unknown names, which may be misspelled secrets."""
    return {name: value if name.lower() in SHOWN else Secret(value) for name, value in raw.items()}


def check_names(raw: Options) -> None:
    """Raises `UnknownOption`, with the nearest name, unless all are options of reads, of writes or of Spark itself."""
    of_a_table = any(name.lower() == "provider" for name in raw)
    for name in raw:
        if of_a_table and (name.lower() in TABLE_PROPERTIES or name.lower().startswith(TABLE_OPTION)):
            continue
        if name.lower() in PATHS:
            raise InvalidOption(
                f'{name} is no option of rocketmq: a topic is no path. Name it with option("topic", ...) and call '
                "save() or load() without an argument"
            )
        if name.lower() not in KNOWN:
            if (kafka := option_hint(name)) is not None:
                raise UnknownOption(f"rocketmq has no option {name}: {kafka}")
            near = difflib.get_close_matches(name.lower(), KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean {KNOWN[near[0]]}?" if near else f"there are {', '.join(NAMES)}"
            raise UnknownOption(f"rocketmq has no option {name}; {hint}")


def read_connection(raw: Options, environment: Mapping[str, str]) -> ConnectionOptions:
    """Returns the connection's options. NAMESRV_ADDR of `environment` is used if `nameServer` is not set."""
    fallback = environment.get("NAMESRV_ADDR", "").strip()
    named = any(name.lower() in ("nameserver", "nameserverurl") for name in raw)
    connection = _read(ConnectionOptions, raw if named or not fallback else {**raw, "nameServer": fallback})
    if connection.name_server and connection.name_server_url is not None:
        raise InvalidOption("nameServer names addresses, nameServerUrl says where to fetch them: set one")
    if not connection.name_server and connection.name_server_url is None:
        raise InvalidOption(
            'no NameServer is named: set option("nameServer", "host:9876"), or NAMESRV_ADDR where the driver starts'
            + ("" if raw else TABLE_HINT)
        )
    if (connection.access_key is None) != (connection.secret_key is None):
        raise InvalidOption("accessKey and secretKey belong together; set both or neither")
    if not connection.use_tls and any(
        (connection.tls_ca_file, connection.tls_cert_file, connection.tls_key_file, not connection.tls_verify)
    ):
        raise InvalidOption("tlsCaFile, tlsCertFile, tlsKeyFile and tlsVerify need useTls=true")
    return connection


def read_source(raw: Options) -> SourceOptions:
    """Returns the options of a read. Topics have the names that brokers know, with the namespace."""
    options = _read(SourceOptions, raw)
    chosen = [
        name
        for name, value in zip(
            SourceOptions.SELECTIONS, (options.topics, options.topic_pattern, options.assign), strict=True
        )
        if value is not None
    ]
    if len(chosen) != 1:
        what = f"only one of them may be set, not {' and '.join(chosen)}" if chosen else "one of them has to be set"
        hint = "" if raw else TABLE_HINT
        raise InvalidOption(f"topic, topicPattern and assign choose what is read: {what}{hint}")
    start, _ = options.start(Word.EARLIEST)
    if start is Word.COMMITTED and options.consumer_group is None:
        raise InvalidOption("startingOffsets=committed needs consumerGroup: the group whose offsets are meant")
    if options.sql is not None and not TagFilter.parse(options.tags).passes_all:
        raise InvalidOption("tags and sql exclude each other; SQL can say TAGS = '...' itself")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}; no batch could be made"
        )
    if options.is_committed:
        _check_committed_read(options)
    elif options.manifest_topic is not None:
        raise InvalidOption("manifestTopic needs isolation=committed")
    return options if options.namespace is None else _in_namespace(options, options.namespace)


def _check_committed_read(options: SourceOptions) -> None:
    if options.topics is None or len(options.topics) != 1:
        raise InvalidOption("isolation=committed reads one topic and its manifest: name it by the option topic")
    if options.max_bytes_per_trigger is not None:
        raise InvalidOption("maxBytesPerTrigger: a manifest has no sizes; with isolation=committed limit the rows")
    _check_manifest_name(options.manifest, options.manifest_topic)


def _in_namespace(options: SourceOptions, namespace: str) -> SourceOptions:
    space = Namespace(namespace)
    return replace(
        options,
        topics=space.topics(options.topics),
        assign=space.queues(options.assign),
        manifest_topic=options.manifest_topic and with_namespace(options.manifest_topic, namespace),
        starting_offsets=space.position(options.starting_offsets),
        starting_offsets_by_timestamp=space.position(options.starting_offsets_by_timestamp),
        ending_offsets=space.position(options.ending_offsets),
        ending_offsets_by_timestamp=space.position(options.ending_offsets_by_timestamp),
    )


def read_sink(raw: Options, *, stream: bool = False) -> SinkOptions:
    """Returns the options of a write. `messageIds` is by default `content` in streams and `unique` in batches."""
    options = _read(SinkOptions, raw)
    if options.topic_queue_nums is not None and options.create_topic == "auto":
        raise InvalidOption(
            "topicQueueNums needs createTopic=normal or batch: brokers create topics by defaultTopicQueueNums"
        )
    if options.message_type is not None and options.create_topic != "normal":
        raise InvalidOption("messageType is the type of a topic that createTopic=normal makes: set that, too")
    if (options.on_rejected == "deadLetter") != (options.dead_letter_topic is not None):
        raise InvalidOption("onRejected=deadLetter and deadLetterTopic belong together; set both or neither")
    if options.dead_letter_topic is not None and options.dead_letter_topic == options.topic:
        raise InvalidOption(f"deadLetterTopic is {options.topic}, the topic that is written to; name another one")
    if options.is_committed:
        _check_committed_write(options, raw, stream=stream)
    for name, value in (
        ("txnAppId", options.txn_app_id),
        ("txnVersion", options.txn_version),
        ("manifestTopic", options.manifest_topic),
    ):
        if value is not None and not options.is_committed:
            raise InvalidOption(f"{name} needs delivery=committed")
    return replace(options, message_ids=options.message_ids or ("content" if stream else "unique"))


def _check_manifest_name(manifest: str, manifest_topic: str | None) -> None:
    if manifest_topic is None and len(manifest) > MAX_TOPIC_CHARS:
        raise InvalidOption(
            f"the manifest {manifest} has {len(manifest)} characters, and a topic {MAX_TOPIC_CHARS} at most: "
            "name a shorter one by manifestTopic, for the write and for its readers"
        )


def _check_committed_write(options: SinkOptions, raw: Options, *, stream: bool) -> None:
    if options.topic is None:
        raise InvalidOption("delivery=committed writes to one topic: name it by the option topic")
    _check_manifest_name(options.manifest, options.manifest_topic)
    if options.manifest in (options.topic, options.dead_letter_topic):
        raise InvalidOption(f"manifestTopic is {options.manifest}, to which rows are written; name another one")
    if (options.txn_app_id is None) != (options.txn_version is None):
        raise InvalidOption("txnAppId and txnVersion belong together; set both or neither")
    if len(options.txn_app_id or "") > MAX_APP_ID:
        raise InvalidOption(f"txnAppId has {len(options.txn_app_id or '')} characters; {MAX_APP_ID} at most")
    if stream and options.txn_app_id is not None:
        raise InvalidOption("txnAppId is for batch writes: a stream is committed by query id and batch number")
    if any(name.lower() == ASYNC_PROGRESS and value.strip().lower() == "true" for name, value in raw.items()):
        raise InvalidOption(
            "asyncProgressTrackingEnabled: Spark then repeats batches with other rows, and delivery=committed cannot "
            "tell them from the first; set one of them"
        )


def _read(table: type[T], raw: Options) -> T:
    by_name = _by_name(raw)
    values = {}
    for line in fields(table):
        name, parse = line.metadata["name"], line.metadata["parse"]
        if name.lower() in by_name:
            values[line.name] = parse(by_name[name.lower()], name)
    return table(**values)


def _by_name(raw: Options) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for name, value in raw.items():
        meant = ALIASES.get(name.lower(), name.lower())
        if meant in by_name:
            raise InvalidOption(f"{name} is another name of {KNOWN.get(meant, meant)}; set one of them")
        by_name[meant] = value
    return by_name
