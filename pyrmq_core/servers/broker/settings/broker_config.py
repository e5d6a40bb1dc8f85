"""`BrokerConfig`: the broker's settings under RocketMQ's names, from a properties file, command line, or Python.

Defaults are RocketMQ's (common/BrokerConfig.java, store/config/MessageStoreConfig.java, 5.4.0), with two exceptions:
the broker and its metrics listen on 127.0.0.1, and its name is broker-a as in RocketMQ's own example.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.model import Permission
from pyrmq_core.network import ServerBounds, TlsSettings, local_ip, parse_address
from pyrmq_core.network.server import MAX_CONNECTIONS, MAX_RECEIVED_BYTES, MAX_WAITING_BYTES
from pyrmq_core.network.tls_settings import NAMES as TLS_NAMES
from pyrmq_core.protocol.framing.frame import SERVER_HEADER_BYTES
from pyrmq_core.protocol.java.integers import MAX_INT
from pyrmq_core.protocol.messages.names import REVIVE_PREFIX
from pyrmq_core.protocol.requests.pop.receipt import RETRY_V1, RETRY_V2
from pyrmq_core.servers.access.settings import NAMES as ACCESS_NAMES
from pyrmq_core.servers.access.settings import AccessSettings
from pyrmq_core.servers.broker.clients.held_pulls import HeldLimits
from pyrmq_core.servers.broker.settings import setting_rules
from pyrmq_core.servers.broker.settings.setting_values import (
    JVM_PREFIX,
    RATIOS,
    SHOWN,
    check_numbers,
    parse,
    text_of,
    with_ratios,
)
from pyrmq_core.servers.broker.store.index.index_file import Layout
from pyrmq_core.servers.broker.store.layout import LOG_FOLDER, StoreSettings
from pyrmq_core.servers.broker.store.reading import GetLimits
from pyrmq_core.servers.broker.store.retention_rules import (
    CLEAN_RANGE,
    HOUR_MS,
    MAX_USED_RANGE,
    WARNING_RANGE,
    RetentionRules,
    hours_of,
    percent_within,
)
from pyrmq_core.servers.broker.timers.timer_rules import MAX_ROLL_SLOTS, PRECISIONS_MS, TimerSettings
from pyrmq_core.servers.exporter.start import DEFAULT_HOST, PROM, check_exporter

DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
WILDCARDS: Final = ("", "0.0.0.0", "::")
ASYNC_FLUSH: Final = "ASYNC_FLUSH"
SYNC_FLUSH: Final = "SYNC_FLUSH"
# The characters of a topic's name, and dots, since RocketMQ names a broker after its host by default.
SERVER_NAME: Final = re.compile(r"(?!\.+$)[%|a-zA-Z0-9_.-]{1,127}")
MAX_DELAY_MS: Final = MAX_INT * UNIT_MS["s"]
MAX_REGION_CHARS: Final = 127

ASYNC_MASTER: Final = "ASYNC_MASTER"
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"
ROLES: Final = (ASYNC_MASTER, SYNC_MASTER, SLAVE)
# The id of a master (common/MixAll.java). Its slaves have greater ids.
MASTER_ID: Final = 0


def named(name: str, default: Any) -> Any:
    return dataclasses.field(default=default, metadata={"name": name})


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A broker's settings that have an effect, in RocketMQ's units.

    Times are in ms unless the name says seconds. `file_reserved_time` is in hours.
    """

    broker_cluster_name: str = named("brokerClusterName", "DefaultCluster")
    broker_name: str = named("brokerName", "broker-a")
    broker_id: int = named("brokerId", 0)
    broker_role: str = named("brokerRole", ASYNC_MASTER)
    broker_ip1: str = named("brokerIP1", "")
    broker_permission: int = named("brokerPermission", int(Permission.READ | Permission.WRITE))
    bind_address: str = named("bindAddress", "127.0.0.1")
    listen_port: int = named("listenPort", 10911)
    namesrv_addr: str = named("namesrvAddr", "")
    region_id: str = named("regionId", "DefaultRegion")
    trace_on: bool = named("traceOn", True)
    # The file of the option `-c`. Changes of settings at run time are written to it.
    broker_config_path: str = named("brokerConfigPath", "")
    config_black_list: str = named("configBlackList", "configBlackList;brokerConfigPath")

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
    file_reserved_time: int = named("fileReservedTime", 72)
    delete_when: str = named("deleteWhen", "04")
    disk_max_used_space_ratio: int = named("diskMaxUsedSpaceRatio", 75)
    disk_space_clean_forcibly_ratio: int = named("diskSpaceCleanForciblyRatio", 85)
    disk_space_warning_level_ratio: int = named("diskSpaceWarningLevelRatio", 90)
    clean_file_forcibly_enable: bool = named("cleanFileForciblyEnable", True)
    clean_resource_interval: int = named("cleanResourceInterval", 10_000)
    delete_commit_log_files_interval: int = named("deleteCommitLogFilesInterval", 100)
    delete_consume_queue_files_interval: int = named("deleteConsumeQueueFilesInterval", 100)
    delete_file_batch_max: int = named("deleteFileBatchMax", 10)
    redelete_hanged_file_interval: int = named("redeleteHangedFileInterval", 120_000)
    # The limit of the store's size, or 0 for no limit. RocketMQ has no such setting.
    max_store_bytes: int = named("maxStoreBytes", 0)
    # The port for slaves; -1 means listenPort + 1.
    ha_listen_port: int = named("haListenPort", -1)
    # The address of the master's port for slaves. If empty, it is queried from the NameServers.
    ha_master_address: str = named("haMasterAddress", "")
    slave_read_enable: bool = named("slaveReadEnable", False)
    # Lets a slave answer for its master while that is unreachable. The NameServers need supportActingMaster=true.
    enable_slave_acting_master: bool = named("enableSlaveActingMaster", False)
    broker_heartbeat_interval: int = named("brokerHeartbeatInterval", 1000)
    broker_not_active_timeout_millis: int = named("brokerNotActiveTimeoutMillis", 10_000)
    send_heartbeat_timeout_millis: int = named("sendHeartbeatTimeoutMillis", 1000)
    sync_broker_member_group_period: int = named("syncBrokerMemberGroupPeriod", 1000)
    access_message_in_memory_max_ratio: int = named("accessMessageInMemoryMaxRatio", 40)
    ha_send_heartbeat_interval: int = named("haSendHeartbeatInterval", 5000)
    ha_housekeeping_interval: int = named("haHousekeepingInterval", 20_000)
    ha_transfer_batch_size: int = named("haTransferBatchSize", 32_768)
    ha_max_gap_not_in_sync: int = named("haMaxGapNotInSync", 256 << 20)
    in_sync_replicas: int = named("inSyncReplicas", 1)
    slave_timeout: int = named("slaveTimeout", 3000)
    # RocketMQ 4.9's name for haMaxGapNotInSync. If set, sends follow the rule of 4.9. -1 means not set.
    ha_slave_fallbehind_max: int = named("haSlaveFallbehindMax", -1)
    message_delay_level: str = named("messageDelayLevel", DELAY_LEVELS)
    timer_wheel_enable: bool = named("timerWheelEnable", True)
    timer_precision_ms: int = named("timerPrecisionMs", 1000)
    timer_max_delay_sec: int = named("timerMaxDelaySec", 259_200)
    timer_roll_window_slot: int = named("timerRollWindowSlot", 172_800)
    timer_flush_interval_ms: int = named("timerFlushIntervalMs", 1000)
    mapped_file_size_timer_log: int = named("mappedFileSizeTimerLog", 104_857_600)
    # The form of the retry topics' names to which popped messages return. Pops read retry topics of both forms.
    enable_retry_topic_v2: bool = named("enableRetryTopicV2", False)
    pop_from_retry_probability: int = named("popFromRetryProbability", 20)
    recall_message_enable: bool = named("recallMessageEnable", False)
    allow_recall_when_broker_not_writeable: bool = named("allowRecallWhenBrokerNotWriteable", True)

    reject_transaction_message: bool = named("rejectTransactionMessage", False)
    store_reply_message_enable: bool = named("storeReplyMessageEnable", True)
    transaction_time_out: int = named("transactionTimeOut", 6000)
    transaction_check_max: int = named("transactionCheckMax", 15)
    transaction_check_interval: int = named("transactionCheckInterval", 30_000)

    auto_create_topic_enable: bool = named("autoCreateTopicEnable", True)
    default_topic_queue_nums: int = named("defaultTopicQueueNums", 8)
    cluster_topic_enable: bool = named("clusterTopicEnable", True)
    broker_topic_enable: bool = named("brokerTopicEnable", True)
    trace_topic_enable: bool = named("traceTopicEnable", False)
    auto_create_subscription_group: bool = named("autoCreateSubscriptionGroup", True)

    message_index_enable: bool = named("messageIndexEnable", True)
    message_index_safe: bool = named("messageIndexSafe", False)
    index_file_write_enable: bool = named("indexFileWriteEnable", True)
    index_file_read_enable: bool = named("indexFileReadEnable", True)
    max_hash_slot_num: int = named("maxHashSlotNum", 5_000_000)
    max_index_num: int = named("maxIndexNum", 20_000_000)
    max_msgs_num_batch: int = named("maxMsgsNumBatch", 64)
    default_query_max_num: int = named("defaultQueryMaxNum", 32)

    enable_property_filter: bool = named("enablePropertyFilter", False)
    filter_data_clean_time_span: int = named("filterDataCleanTimeSpan", 86_400_000)
    use_server_side_reset_offset: bool = named("useServerSideResetOffset", True)
    notify_consumer_ids_changed_enable: bool = named("notifyConsumerIdsChangedEnable", True)
    # Lite topics have their own queues if both are true.
    enable_lmq: bool = named("enableLmq", False)
    enable_multi_dispatch: bool = named("enableMultiDispatch", False)
    max_lmq_consume_queue_num: int = named("maxLmqConsumeQueueNum", 20_000)
    min_lite_ttl: int = named("minLiteTTl", 900_000)
    lite_ttl_check_interval: int = named("liteTtlCheckInterval", 120_000)
    max_lite_subscription_count: int = named("maxLiteSubscriptionCount", 100_000)
    lite_subscription_check_timeout_mills: int = named("liteSubscriptionCheckTimeoutMills", 180_000)
    lite_pull_message_enable: bool = named("litePullMessageEnable", True)
    long_polling_enable: bool = named("longPollingEnable", True)
    short_polling_time_mills: int = named("shortPollingTimeMills", 1000)
    # These four are not settings of RocketMQ, which has no limits. A client has one held pull for each queue. The
    # second is below 10,000, since a connection with so many unanswered requests is not read any more.
    max_held_pulls: int = named("maxHeldPulls", 100_000)
    max_held_pulls_per_connection: int = named("maxHeldPullsPerConnection", 8_000)
    max_held_pull_bytes: int = named("maxHeldPullBytes", 1 << 30)
    max_held_pull_bytes_per_connection: int = named("maxHeldPullBytesPerConnection", 128 << 20)
    max_transfer_count_on_message_in_memory: int = named("maxTransferCountOnMessageInMemory", 32)
    max_transfer_bytes_on_message_in_memory: int = named("maxTransferBytesOnMessageInMemory", 262_144)
    flush_consumer_offset_interval: int = named("flushConsumerOffsetInterval", 5000)
    channel_expired_timeout: int = named("channelExpiredTimeout", 120_000)
    # These three are not settings of RocketMQ, which has no limits. A client with dozens of groups
    # sends a few kilobytes.
    max_heartbeat_bytes: int = named("maxHeartbeatBytes", 1 << 20)
    max_groups_per_connection: int = named("maxGroupsPerConnection", 2_000)
    max_subscriptions_per_heartbeat: int = named("maxSubscriptionsPerHeartbeat", 5_000)

    register_name_server_period: int = named("registerNameServerPeriod", 30_000)
    force_register: bool = named("forceRegister", True)
    register_broker_timeout_mills: int = named("registerBrokerTimeoutMills", 24_000)

    server_channel_max_idle_time_seconds: int = named("serverChannelMaxIdleTimeSeconds", 120)
    # These four are not settings of RocketMQ. They limit all connections together, and the header of one frame.
    server_max_connections: int = named("serverMaxConnections", MAX_CONNECTIONS)
    server_max_received_bytes: int = named("serverMaxReceivedBytes", MAX_RECEIVED_BYTES)
    server_max_waiting_bytes: int = named("serverMaxWaitingBytes", MAX_WAITING_BYTES)
    server_max_header_bytes: int = named("serverMaxHeaderBytes", SERVER_HEADER_BYTES)

    # PROM serves /metrics (extra `metrics`) on 127.0.0.1 by default. RocketMQ serves it on all addresses.
    metrics_exporter_type: str = named("metricsExporterType", "DISABLE")
    metrics_prom_exporter_port: int = named("metricsPromExporterPort", 5557)
    metrics_prom_exporter_host: str = named("metricsPromExporterHost", DEFAULT_HOST)

    tls: TlsSettings = dataclasses.field(default_factory=TlsSettings)
    access: AccessSettings = dataclasses.field(default_factory=AccessSettings)

    def __post_init__(self) -> None:
        check_role(self.broker_role, self.broker_id, self.ha_master_address)
        if self.flush_disk_type not in (ASYNC_FLUSH, SYNC_FLUSH):
            raise InvalidArgument(f"flushDiskType is {self.flush_disk_type!r}; {ASYNC_FLUSH} and {SYNC_FLUSH} exist")
        for name, value in (("brokerName", self.broker_name), ("brokerClusterName", self.broker_cluster_name)):
            if not SERVER_NAME.fullmatch(value):
                raise InvalidArgument(
                    f"{name} is {value!r}; it is 1 to 127 letters, digits and % | _ - . and becomes a topic's name"
                )
        check_exporter(self.metrics_exporter_type)
        self._check_numbers()

    def _check_numbers(self) -> None:
        numbers = {field.metadata["name"]: getattr(self, field.name) for field in _plain_fields()}
        check_numbers({name: number for name, number in numbers.items() if type(number) is int})
        if "," in self.store_path_commit_log:
            raise InvalidArgument("storePathCommitLog names several directories; this broker's log has one")
        if self.timer_precision_ms not in PRECISIONS_MS:
            raise InvalidArgument(f"timerPrecisionMs is {self.timer_precision_ms}; 100, 200, 500 and 1000 are possible")
        delays_ms = self.delays_ms()
        if not delays_ms or not 0 <= min(delays_ms) <= max(delays_ms) <= MAX_DELAY_MS:
            raise InvalidArgument(
                f"messageDelayLevel is {self.message_delay_level!r}; it needs a level, none below 0 or above 24855 days"
            )
        if 0 < self.max_store_bytes < 2 * self.mapped_file_size_commit_log:
            raise InvalidArgument(
                f"maxStoreBytes is {self.max_store_bytes}; it is 0, or at least twice mappedFileSizeCommitLog, since "
                "the newest file of the log always stays"
            )
        if not (self.max_hash_slot_num > 0 and self.max_index_num > 1 and self.index_layout.file_bytes <= MAX_INT):
            raise InvalidArgument("maxHashSlotNum is 1 or more, maxIndexNum 2; 4 and 20 times these are at most 2 GiB")
        hours_of(self.delete_when)
        if not self.region_id.isprintable() or len(self.region_id) > MAX_REGION_CHARS:
            raise InvalidArgument(
                f"regionId is {self.region_id[:SHOWN]!r}; it is at most {MAX_REGION_CHARS} printable characters, "
                "since it becomes a property of each message"
            )

    @property
    def advertised_ip(self) -> str:
        """The IP address that clients connect to: brokerIP1, else the listening address, or an address of this host."""
        return self.broker_ip1 or (local_ip() if self.bind_address in WILDCARDS else self.bind_address)

    @property
    def exports_metrics(self) -> bool:
        return self.metrics_exporter_type.upper() == PROM

    @property
    def is_slave(self) -> bool:
        return self.broker_role == SLAVE

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
    def keeps_lite_queues(self) -> bool:
        return self.enable_lmq and self.enable_multi_dispatch

    @property
    def store_settings(self) -> StoreSettings:
        return StoreSettings(
            segment_bytes=self.mapped_file_size_commit_log,
            queue_file_bytes=self.mapped_file_size_consume_queue,
            batch_queue_file_bytes=self.mapper_file_size_batch_consume_queue,
            readable_when_flushed=self.flush_disk_type == SYNC_FLUSH,
            log_folder=self.store_path_commit_log or LOG_FOLDER,
            keeps_lite_queues=self.keeps_lite_queues,
        )

    @property
    def index_layout(self) -> Layout:
        return Layout(self.max_hash_slot_num, self.max_index_num)

    @property
    def retention(self) -> RetentionRules:
        return RetentionRules(
            reserved_ms=self.file_reserved_time * HOUR_MS,
            hours=hours_of(self.delete_when),
            max_used_percent=percent_within(self.disk_max_used_space_ratio, MAX_USED_RANGE),
            clean_percent=percent_within(self.disk_space_clean_forcibly_ratio, CLEAN_RANGE),
            warning_percent=percent_within(self.disk_space_warning_level_ratio, WARNING_RANGE),
            is_forcible=self.clean_file_forcibly_enable,
            max_store_bytes=self.max_store_bytes,
            segment_bytes=self.mapped_file_size_commit_log,
        )

    @property
    def timer_settings(self) -> TimerSettings:
        # As in 5.4.0, a number below 2, or above that of the wheel's usable slots, stands for all usable slots.
        roll_slots = self.timer_roll_window_slot
        return TimerSettings(
            precision_ms=self.timer_precision_ms,
            max_delay_ms=self.timer_max_delay_sec * 1000,
            roll_slots=roll_slots if 2 <= roll_slots <= MAX_ROLL_SLOTS else MAX_ROLL_SLOTS,
            log_file_bytes=self.mapped_file_size_timer_log,
        )

    @property
    def pull_limits(self) -> GetLimits:
        return GetLimits(self.max_transfer_count_on_message_in_memory, self.max_transfer_bytes_on_message_in_memory)

    @property
    def pop_retry_mark(self) -> str:
        return RETRY_V2 if self.enable_retry_topic_v2 else RETRY_V1

    @property
    def revive_topic(self) -> str:
        return REVIVE_PREFIX + self.broker_cluster_name

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
        """Returns the delays of levels 1, 2, ... in ms, parsed from messageDelayLevel."""
        try:
            return [int(text[:-1]) * UNIT_MS[text[-1]] for text in self.message_delay_level.split()]
        except (ValueError, KeyError, IndexError) as error:
            raise InvalidArgument(
                f"messageDelayLevel is {self.message_delay_level!r}; write numbers with s, m, h or d: 1s 5s 1m"
            ) from error

    def to_properties(self) -> dict[str, str]:
        """Returns every setting by RocketMQ's name, sorted. Passwords are hidden."""
        texts = {field.metadata["name"]: text_of(getattr(self, field.name)) for field in _plain_fields()}
        return dict(sorted({**texts, **self.tls.to_settings(), **self.access.to_settings()}.items()))

    def with_settings(self, properties: Mapping[str, str]) -> BrokerConfig:
        """Returns a copy with the given settings. Raises `InvalidArgument` for a refused setting or a wrong value.

        Names without an effect are ignored. `unused_names` and `unknown_names` return them.
        """
        setting_rules.check(properties)
        properties = with_ratios(properties)
        fields = {field.metadata["name"]: field for field in _plain_fields()}
        values: dict[str, Any] = {
            fields[name].name: parse(name, text, type(fields[name].default))
            for name, text in properties.items()
            if name in fields
        }
        tls, access = self.tls.with_settings(properties), self.access.with_settings(properties)
        return dataclasses.replace(self, **values, tls=tls, access=access)


def _plain_fields() -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(BrokerConfig) if "name" in field.metadata]


def unused_names(properties: Mapping[str, str]) -> list[str]:
    """Returns the names in `properties` of RocketMQ's settings that this broker ignores without harm."""
    return sorted(set(properties) & setting_rules.KNOWN)


def unknown_names(properties: Mapping[str, str]) -> list[str]:
    """Returns the names in `properties` that are no settings, each with a hint at a similar name if there is one."""
    names = [
        *(field.metadata["name"] for field in _plain_fields()),
        *TLS_NAMES,
        *ACCESS_NAMES,
        *(JVM_PREFIX + name for name in RATIOS),
    ]
    return setting_rules.nearest(sorted(set(properties) - {*names, *setting_rules.KNOWN}), names)


def check_role(role: str, broker_id: int, ha_master_address: str) -> None:
    """Raises `InvalidArgument` unless brokerRole, brokerId and haMasterAddress agree."""
    if role not in ROLES:
        raise InvalidArgument(f"brokerRole is {role!r}; {', '.join(ROLES)} exist")
    if role != SLAVE and broker_id != MASTER_ID:
        raise InvalidArgument(f"brokerId is {broker_id} and brokerRole {role}: a master has brokerId=0")
    if role == SLAVE and broker_id <= MASTER_ID:
        raise InvalidArgument(
            f"brokerId is {broker_id} and brokerRole {role}: a slave has a brokerId of 1 or more, of its own"
        )
    if ha_master_address:
        try:
            parse_address(ha_master_address)
        except InvalidArgument as error:
            raise InvalidArgument(f"haMasterAddress: {error}") from error
