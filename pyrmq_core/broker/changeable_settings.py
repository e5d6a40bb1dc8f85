"""The settings that may change while a broker runs (UPDATE_BROKER_CONFIG, 25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyrmq_core.broker import setting_rules
from pyrmq_core.broker.ha.ha_port import check_slaves_possible
from pyrmq_core.broker.settings import BrokerConfig, unknown_names, unused_names
from pyrmq_core.errors import InvalidArgument

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
# Where settings are, and what may not change: never changed over the network (AdminBrokerProcessor.java).
ALWAYS_BLACK: Final = frozenset(("brokerConfigPath", "rocketmqHome", "configBlackList"))


def is_black(config: BrokerConfig, properties: Mapping[str, str]) -> bool:
    """Returns True if one of these settings is in configBlackList."""
    black = {name.strip() for name in config.config_black_list.split(";")}
    return not (black | ALWAYS_BLACK).isdisjoint(properties)


def changed(config: BrokerConfig, properties: Mapping[str, str]) -> BrokerConfig:
    """Returns the settings with these in place; raises `InvalidArgument` if one cannot change, or has no such value.

    Those that have no effect on this broker change nothing, as at its start.
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
    """Returns some of the names that do not exist, each with the nearest one: to look for that takes milliseconds."""
    known = {*config.to_properties(), *setting_rules.KNOWN, *CHANGEABLE}
    some = [name[:MAX_NAME_CHARS] for name in properties if name not in known][:NAMES_SHOWN]
    return unknown_names(dict.fromkeys(some, ""))
