"""UPDATE_BROKER_CONFIG (25): changes settings of a running broker, either all settings of a request or none.

The changes take effect at once, and are written to the file of the option `-c`, if there is one. Source:
broker/processor/AdminBrokerProcessor.java updateBrokerConfig, remoting/Configuration.java (5.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from pyrmq_core.errors import BodyError, InvalidArgument
from pyrmq_core.network import Peer
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.java.properties_text import format_java_properties, parse_java_properties
from pyrmq_core.servers.access.control import AccessControl
from pyrmq_core.servers.access.file_replacement import replace_keeping_previous
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.ha.ha_server import check_slaves_possible
from pyrmq_core.servers.broker.ha.replicas import CopyRules, Replicas
from pyrmq_core.servers.broker.processors.handlers import Answer, Handlers
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.settings import setting_rules
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig, unknown_names, unused_names
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.settings.setting_values import JVM_PREFIX, read_config_file
from pyrmq_core.servers.broker.store_services.retention import Retention
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.transactions.transactions import Transactions

log = line_logger(__name__)

MAX_SETTINGS_BYTES: Final = 64 * 1024
# The most characters of a refusal, which may repeat the settings.
MAX_REMARK_CHARS: Final = 1000

_NAMES: Final = """
    brokerPermission regionId traceOn maxMessageSize forceRegister fileReservedTime deleteWhen
    diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio cleanFileForciblyEnable
    cleanResourceInterval deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval deleteFileBatchMax
    redeleteHangedFileInterval maxStoreBytes recallMessageEnable allowRecallWhenBrokerNotWriteable
    rejectTransactionMessage transactionTimeOut transactionCheckMax transactionCheckInterval
    autoCreateTopicEnable autoCreateSubscriptionGroup enablePropertyFilter
    useServerSideResetOffset notifyConsumerIdsChangedEnable litePullMessageEnable longPollingEnable
    shortPollingTimeMills maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInMemory
    flushConsumerOffsetInterval channelExpiredTimeout maxHeartbeatBytes maxGroupsPerConnection
    maxSubscriptionsPerHeartbeat inSyncReplicas slaveTimeout haMaxGapNotInSync haSlaveFallbehindMax
    slaveReadEnable accessMessageInMemoryMaxRatio
"""
CHANGEABLE: Final = frozenset(_NAMES.split())
NAMES_SHOWN: Final = 1
MAX_NAME_CHARS: Final = 60
# These settings are never changed over the network (AdminBrokerProcessor.java).
ALWAYS_BLACK: Final = frozenset(("brokerConfigPath", "rocketmqHome", "configBlackList"))


@dataclass(frozen=True, slots=True)
class SettingRequests:
    """The handler of requests that change settings of a running broker. `turn` is the lock of the settings' file."""

    settings: LiveSettings
    access: AccessControl
    topics: TopicTable
    groups: GroupTable
    transactions: Transactions
    replicas: Replicas
    retention: Retention
    registration: BrokerRegistration
    turn: trio.Lock = field(default_factory=trio.Lock)

    def handlers(self) -> Handlers:
        return {RequestCode.UPDATE_BROKER_CONFIG: self.update_config}

    def update_config(self, request: Command, peer: Peer) -> Answer:
        if len(request.body) > MAX_SETTINGS_BYTES:
            return refusal(ResponseCode.INVALID_PARAMETER, f"the settings have more than {MAX_SETTINGS_BYTES} bytes")
        try:
            properties = parse_java_properties(bytes(request.body).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise BodyError(f"settings: {error}") from error
        if is_black(self.settings.config, properties):
            return refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            config = changed(self.settings.config, properties)
        except InvalidArgument as error:
            return refusal(ResponseCode.INVALID_PARAMETER, str(error)[:MAX_REMARK_CHARS])
        for name, text in sorted(properties.items()):
            log.info("setting %s=%s, by %s", name, text, peer.address)
        self.configure(config)
        return self._written(properties) if properties and config.broker_config_path else success()

    def configure(self, config: BrokerConfig) -> None:
        """Applies settings to the running broker. Only those in `CHANGEABLE` may differ from the old ones."""
        now_ms, version = clock.now_ms(), self.topics.data_version
        if config.broker_permission != self.settings.config.broker_permission:
            self.topics.touch(now_ms)
        self.settings.replace(config, now_ms)
        self.topics.configure(config, now_ms)
        if self.access.guard is not None:
            self.access.guard.max_body_bytes = config.max_heartbeat_bytes
        self.groups.auto_create = config.auto_create_subscription_group
        self.transactions.config = config
        self.replicas.rules = CopyRules.of(config)
        self.retention.configure(config)
        self.retention.want()
        self.registration.configure(config)
        if self.topics.data_version != version:
            self.registration.register_now()

    async def _written(self, properties: Mapping[str, str]) -> Command:
        path = Path(self.settings.config.broker_config_path)
        with trio.CancelScope(shield=True):
            async with self.turn:
                try:
                    await trio.to_thread.run_sync(_write, path, properties)
                except (OSError, InvalidArgument) as error:
                    remark = f"the settings are in force and not written to {path}: {error}"
                    return refusal(ResponseCode.SYSTEM_ERROR, remark)
        return success()


def _write(path: Path, properties: Mapping[str, str]) -> None:
    """Writes changed settings to a properties file, which keeps its other settings.

    Removes changed settings with the prefix `rocketmq.broker.`, since these would override the new ones at a start.
    """
    kept = {
        name: text
        for name, text in read_config_file(str(path)).items()
        if name.removeprefix(JVM_PREFIX) not in properties
    }
    replace_keeping_previous(path, format_java_properties({**kept, **properties}).encode())


def is_black(config: BrokerConfig, properties: Mapping[str, str]) -> bool:
    black = {name.strip() for name in config.config_black_list.split(";")}
    return not (black | ALWAYS_BLACK).isdisjoint(properties)


def changed(config: BrokerConfig, properties: Mapping[str, str]) -> BrokerConfig:
    """Returns the settings after changes. Raises `InvalidArgument` for a wrong value, or a setting that cannot change.

    Settings without an effect on this broker are ignored, as at its start.
    """
    setting_rules.check(properties)
    if unknown := _unknown(config, properties):
        raise InvalidArgument(f"there is no such setting: {', '.join(unknown)}")
    fixed = sorted(set(properties) - CHANGEABLE - set(unused_names(properties)))
    if fixed:
        raise InvalidArgument(
            f"{', '.join(fixed)}: read at the start only; change the file, and start the broker again"
        )
    result = config.with_settings(properties)
    check_slaves_possible(result)
    return result


def _unknown(config: BrokerConfig, properties: Mapping[str, str]) -> list[str]:
    known_names = {*config.to_properties(), *setting_rules.KNOWN, *CHANGEABLE}
    shown_names = [name[:MAX_NAME_CHARS] for name in properties if name not in known_names][:NAMES_SHOWN]
    return unknown_names(dict.fromkeys(shown_names, ""))
