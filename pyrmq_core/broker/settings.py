"""`BrokerConfig`: the broker's settings under RocketMQ's names, from a properties file, command line, or Python.

Defaults are RocketMQ's (common/BrokerConfig.java, store/config/MessageStoreConfig.java, 5.4.0), with three exceptions:
the broker listens on 127.0.0.1, its name is broker-a as in RocketMQ's own example, and timer messages are off.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyrmq_core.broker import setting_rules
from pyrmq_core.broker.clients.held_pulls import HeldLimits
from pyrmq_core.broker.store.layout import LOG_FOLDER, StoreSettings
from pyrmq_core.broker.store.reading import GetLimits
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Permission
from pyrmq_core.network import ServerBounds, TlsSettings, local_ip
from pyrmq_core.network.server import MAX_CONNECTIONS, MAX_RECEIVED_BYTES, MAX_WAITING_BYTES
from pyrmq_core.network.tls_settings import NAMES as TLS_NAMES
from pyrmq_core.protocol.framing.frame import SERVER_HEADER_BYTES
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WILDCARDS: Final = ("", "0.0.0.0", "::")
ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"
# The characters of a topic's name, and dots: in RocketMQ a broker without a name has that of its host.
SERVER_NAME: Final = re.compile(r"(?!\.+$)[%|a-zA-Z0-9_.-]{1,127}")
ROLES: Final = ("ASYNC_MASTER", "SYNC_MASTER", "SLAVE")


def named(name: str, default: Any) -> Any:
    """Returns the field of a setting, with RocketMQ's name."""
    return dataclasses.field(default=default, metadata={"name": name})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """All settings that have an effect. As in RocketMQ's files, times are in ms unless a name says seconds."""

    broker_cluster_name: str = named("brokerClusterName", "DefaultCluster")
    broker_name: str = named("brokerName", "broker-a")
    broker_id: int = named("brokerId", 0)
    broker_role: str = named("brokerRole", "ASYNC_MASTER")
    broker_ip1: str = named("brokerIP1", "")
    broker_permission: int = named("brokerPermission", int(Permission.READ | Permission.WRITE))
    bind_address: str = named("bindAddress", "127.0.0.1")
    listen_port: int = named("listenPort", 10911)
    namesrv_addr: str = named("namesrvAddr", "")
    region_id: str = named("regionId", "DefaultRegion")
    trace_on: bool = named("traceOn", True)

    store_path_root_dir: str = named("storePathRootDir", "")
    store_path_commit_log: str = named("storePathCommitLog", "")
    mapped_file_size_commit_log: int = named("mappedFileSizeCommitLog", 1 << 30)
    mapped_file_size_consume_queue: int = named("mappedFileSizeConsumeQueue", 6_000_000)
    mapper_file_size_batch_consume_queue: int = named("mapperFileSizeBatchConsumeQueue", 13_800_000)
    max_message_size: int = named("maxMessageSize", 4 * 1024 * 1024)
    flush_disk_type: str = named("flushDiskType", ASYNC_FLUSH)
    flush_interval_commit_log: int = named("flushIntervalCommitLog", 500)
    flush_interval_consume_queue: int = named("flushIntervalConsumeQueue", 1000)
    sync_flush_timeout: int = named("syncFlushTimeout", 5000)
    in_sync_replicas: int = named("inSyncReplicas", 1)
    message_delay_level: str = named("messageDelayLevel", DELAY_LEVELS)
    timer_wheel_enable: bool = named("timerWheelEnable", False)

    auto_create_topic_enable: bool = named("autoCreateTopicEnable", True)
    default_topic_queue_nums: int = named("defaultTopicQueueNums", 8)
    cluster_topic_enable: bool = named("clusterTopicEnable", True)
    broker_topic_enable: bool = named("brokerTopicEnable", True)
    trace_topic_enable: bool = named("traceTopicEnable", False)
    auto_create_subscription_group: bool = named("autoCreateSubscriptionGroup", True)

    enable_property_filter: bool = named("enablePropertyFilter", False)
    lite_pull_message_enable: bool = named("litePullMessageEnable", True)
    long_polling_enable: bool = named("longPollingEnable", True)
    short_polling_time_mills: int = named("shortPollingTimeMills", 1000)
    # Not RocketMQ's, which sets no limit. A client holds one pull for each queue. A connection has at most 10,000
    # requests under way: if all of these were held pulls, it would be read no further.
    max_held_pulls: int = named("maxHeldPulls", 100_000)
    max_held_pulls_per_connection: int = named("maxHeldPullsPerConnection", 8_000)
    max_held_pull_bytes: int = named("maxHeldPullBytes", 1 << 30)
    max_held_pull_bytes_per_connection: int = named("maxHeldPullBytesPerConnection", 128 << 20)
    max_transfer_count_on_message_in_memory: int = named("maxTransferCountOnMessageInMemory", 32)
    max_transfer_bytes_on_message_in_memory: int = named("maxTransferBytesOnMessageInMemory", 262_144)
    flush_consumer_offset_interval: int = named("flushConsumerOffsetInterval", 5000)
    channel_expired_timeout: int = named("channelExpiredTimeout", 120_000)
    # Not RocketMQ's, which sets no limit. A client of some dozens of groups sends some kilobytes.
    max_heartbeat_bytes: int = named("maxHeartbeatBytes", 1 << 20)
    max_groups_per_connection: int = named("maxGroupsPerConnection", 2_000)
    max_subscriptions_per_heartbeat: int = named("maxSubscriptionsPerHeartbeat", 5_000)

    register_name_server_period: int = named("registerNameServerPeriod", 30_000)
    register_broker_timeout_mills: int = named("registerBrokerTimeoutMills", 24_000)

    server_channel_max_idle_time_seconds: int = named("serverChannelMaxIdleTimeSeconds", 120)
    # Not RocketMQ's: limits on all connections together, and on one frame's header.
    server_max_connections: int = named("serverMaxConnections", MAX_CONNECTIONS)
    server_max_received_bytes: int = named("serverMaxReceivedBytes", MAX_RECEIVED_BYTES)
    server_max_waiting_bytes: int = named("serverMaxWaitingBytes", MAX_WAITING_BYTES)
    server_max_header_bytes: int = named("serverMaxHeaderBytes", SERVER_HEADER_BYTES)

    tls: TlsSettings = dataclasses.field(default_factory=TlsSettings)

    def __post_init__(self) -> None:
        if self.broker_role not in ROLES:
            raise InvalidArgument(f"brokerRole is {self.broker_role!r}; {', '.join(ROLES)} exist")
        if self.broker_role == "SLAVE" or self.broker_id != 0:
            raise InvalidArgument("this broker is always a master: set brokerRole=ASYNC_MASTER and brokerId=0")
        if self.in_sync_replicas > 1:
            raise InvalidArgument("inSyncReplicas is above 1, and this broker has no slaves that could be waited for")
        if self.timer_wheel_enable:
            raise InvalidArgument("timerWheelEnable=true asks for timer messages, which this broker does not keep")
        if self.flush_disk_type not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise InvalidArgument(f"flushDiskType is {self.flush_disk_type!r}; {ASYNC_FLUSH} and {SYNC_FLUSH} exist")
        for name, value in (("brokerName", self.broker_name), ("brokerClusterName", self.broker_cluster_name)):
            if not SERVER_NAME.fullmatch(value):
                raise InvalidArgument(
                    f"{name} is {value!r}; it is 1 to 127 letters, digits and % | _ - . and becomes a topic's name"
                )
        if not 1 <= self.default_topic_queue_nums <= MAX_QUEUES_PER_TOPIC:
            raise InvalidArgument(
                f"defaultTopicQueueNums is {self.default_topic_queue_nums}; 1 to {MAX_QUEUES_PER_TOPIC} are possible"
            )
        self._check_numbers()

    def _check_numbers(self) -> None:
        for field in _plain_fields():
            if isinstance(value := getattr(self, field.name), int) and value < 0:
                raise InvalidArgument(f"{field.metadata['name']} is {value}; it cannot be negative")
        if 0 in (self.server_max_connections, *self.bounds_in_bytes):
            raise InvalidArgument("serverMaxConnections and the other bounds of the server are numbers above 0")
        if self.mapped_file_size_commit_log < 1024 or self.mapped_file_size_consume_queue < 20:
            raise InvalidArgument("mappedFileSizeCommitLog is at least 1024 bytes, mappedFileSizeConsumeQueue 20")
        if "," in self.store_path_commit_log:
            raise InvalidArgument("storePathCommitLog names several directories; this broker's log has one")
        if min(self.delays_ms(), default=-1) < 0:
            raise InvalidArgument(f"messageDelayLevel is {self.message_delay_level!r}; it needs a level, none below 0")
        if not self.server_channel_max_idle_time_seconds:
            raise InvalidArgument("serverChannelMaxIdleTimeSeconds is 0; a time above 0 is wanted")

    @property
    def advertised_ip(self) -> str:
        """The address for clients: brokerIP1, else the one that the broker listens on, or one of this machine's."""
        return self.broker_ip1 or (local_ip() if self.bind_address in WILDCARDS else self.bind_address)

    @property
    def store_root(self) -> Path:
        return Path(self.store_path_root_dir) if self.store_path_root_dir else Path.home() / "store"

    @property
    def bounds(self) -> ServerBounds:
        return ServerBounds(self.server_max_connections, *self.bounds_in_bytes)

    @property
    def bounds_in_bytes(self) -> tuple[int, int, int]:
        return self.server_max_received_bytes, self.server_max_waiting_bytes, self.server_max_header_bytes

    @property
    def store_settings(self) -> StoreSettings:
        return StoreSettings(
            segment_bytes=self.mapped_file_size_commit_log,
            queue_file_bytes=self.mapped_file_size_consume_queue,
            batch_queue_file_bytes=self.mapper_file_size_batch_consume_queue,
            readable_when_flushed=self.flush_disk_type == SYNC_FLUSH,
            log_folder=self.store_path_commit_log or LOG_FOLDER,
        )

    @property
    def pull_limits(self) -> GetLimits:
        return GetLimits(self.max_transfer_count_on_message_in_memory, self.max_transfer_bytes_on_message_in_memory)

    @property
    def held_limits(self) -> HeldLimits:
        return HeldLimits(
            pulls=self.max_held_pulls,
            pulls_of_connection=self.max_held_pulls_per_connection,
            held_bytes=self.max_held_pull_bytes,
            bytes_of_connection=self.max_held_pull_bytes_per_connection,
        )

    @property
    def nameservers(self) -> list[str]:
        return [address.strip() for address in self.namesrv_addr.split(";") if address.strip()]

    def delays_ms(self) -> list[int]:
        """Returns the delays of level 1, 2, ... in messageDelayLevel."""
        try:
            return [int(text[:-1]) * UNIT_MS[text[-1]] for text in self.message_delay_level.split()]
        except (ValueError, KeyError, IndexError) as error:
            raise InvalidArgument(
                f"messageDelayLevel is {self.message_delay_level!r}; write numbers with s, m, h or d: 1s 5s 1m"
            ) from error

    def to_properties(self) -> dict[str, str]:
        """Returns every setting by RocketMQ's name, sorted; passwords are hidden."""
        texts = {field.metadata["name"]: _text(getattr(self, field.name)) for field in _plain_fields()}
        return dict(sorted({**texts, **self.tls.to_settings()}.items()))

    def with_settings(self, properties: Mapping[str, str]) -> BrokerConfig:
        """Returns a copy with these settings; raises `InvalidArgument` for one that `setting_rules` refuses.

        Names that have no effect here are ignored; `unused_names` and `unknown_names` return them.
        """
        setting_rules.check(properties)
        fields = {field.metadata["name"]: field for field in _plain_fields()}
        values: dict[str, Any] = {
            fields[name].name: _parse(name, text, type(fields[name].default))
            for name, text in properties.items()
            if name in fields
        }
        return dataclasses.replace(self, **values, tls=self.tls.with_settings(properties))


def _plain_fields() -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(BrokerConfig) if "name" in field.metadata]


def unused_names(properties: Mapping[str, str]) -> list[str]:
    """Returns RocketMQ's names among these settings that have no effect on this broker, and do no harm."""
    return sorted(set(properties) & setting_rules.KNOWN)


def unknown_names(properties: Mapping[str, str]) -> list[str]:
    """Returns the names among these settings that do not exist, each with the nearest one that does."""
    known = [*(field.metadata["name"] for field in _plain_fields()), *TLS_NAMES]
    return setting_rules.nearest(sorted(set(properties) - {*known, *setting_rules.KNOWN}), known)


def read_config_file(path: str) -> dict[str, str]:
    """Returns the settings in a file of Java properties; raises `InvalidArgument` if it cannot be read."""
    try:
        return parse_java_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration file {path} cannot be read: {error}") from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(name: str, text: str, kind: type) -> object:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidArgument(f"{name} is {text!r}; true or false are possible")
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError as error:
            raise InvalidArgument(f"{name} is {text!r}; it is a whole number") from error
    return text
