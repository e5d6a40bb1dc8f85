"""The values of settings: their parsing from text, their formatting, and the limits of numbers.

Numbers are limited to 2**31 - 1, as most are in Java. A time in ms is thus limited to 24 days. Sizes and counts that
RocketMQ does not limit may be larger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.java.integers import MAX_INT, MAX_LONG
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from pyrmq_core.servers.broker.store.batch_queue import BATCH_ENTRY_BYTES
from pyrmq_core.servers.broker.store.consume_queue import ENTRY_BYTES

# The prefix of the JVM properties by which RocketMQ overrides settings of its file. Here these properties are in the
# file, too.
JVM_PREFIX: Final = "rocketmq.broker."
RATIOS: Final = ("diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
NUMBER: Final = re.compile(r"[+-]?[0-9]+")
# The most characters of a wrong value that an error shows.
SHOWN: Final = 40

# The shortest interval of a periodic task. Without a pause, the task would occupy the event loop.
MIN_INTERVAL_MS: Final = 10
# The least maxHeartbeatBytes. A lower one would refuse heartbeats of small clients, and requests of administrators.
MIN_HEARTBEAT_BYTES: Final = 1024
# The largest block of the log for a slave. With its header it must fit in a Java slave's buffer of 4 MiB
# (store/ha/DefaultHAClient.java).
MAX_BLOCK_BYTES: Final = (4 << 20) - 64
# The highest inSyncReplicas, since no more slaves can connect.
MAX_REPLICAS: Final = 64


def with_ratios(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with RocketMQ's disk ratios, such as 0.90, replaced by percentages.

    A percentage has the name of the ratio without `rocketmq.broker.`. Raises `InvalidArgument` if a ratio is no number.
    """
    settings = dict(properties)
    for name in RATIOS:
        if (text := settings.pop(JVM_PREFIX + name, "").strip()) != "":
            try:
                settings[name] = str(round(100 * float(text)))
            except (ValueError, OverflowError) as error:
                raise InvalidArgument(f"{JVM_PREFIX}{name} is {text!r}; it is a fraction such as 0.90") from error
    return settings


def read_config_file(path: str) -> dict[str, str]:
    """Reads the settings in a file of Java properties. Raises `InvalidArgument` if it cannot be read."""
    try:
        return parse_java_properties(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the configuration file {path} cannot be read: {error}") from error


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(name: str, text: str, kind: type) -> object:
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidArgument(f"{name} is {text[:SHOWN]!r}; true or false are possible")
        return text.lower() == "true"
    if kind is int:
        if not NUMBER.fullmatch(text) or len(text) > SHOWN:
            raise InvalidArgument(f"{name} is {text[:SHOWN]!r}; it is a whole number of at most 19 digits")
        return int(text)
    return text


class Range(NamedTuple):
    least: int = 0
    most: int = MAX_INT


RANGES: Final[Mapping[str, Range]] = {
    "brokerId": Range(0, MAX_LONG),
    "brokerPermission": Range(0, 7),  # the sum of READ 4, WRITE 2 and INHERIT 1 (common/constant/PermName.java)
    "listenPort": Range(0, 65_535),
    "metricsPromExporterPort": Range(0, 65_535),
    "haListenPort": Range(-1, 65_535),
    "haSendHeartbeatInterval": Range(MIN_INTERVAL_MS),
    "haHousekeepingInterval": Range(MIN_INTERVAL_MS),
    "haSlaveFallbehindMax": Range(-1),
    "brokerHeartbeatInterval": Range(MIN_INTERVAL_MS),
    "brokerNotActiveTimeoutMillis": Range(MIN_INTERVAL_MS),
    "sendHeartbeatTimeoutMillis": Range(MIN_INTERVAL_MS),
    "syncBrokerMemberGroupPeriod": Range(MIN_INTERVAL_MS),
    "haTransferBatchSize": Range(1, MAX_BLOCK_BYTES),
    "accessMessageInMemoryMaxRatio": Range(0, 100),
    "inSyncReplicas": Range(1, MAX_REPLICAS),
    "mappedFileSizeCommitLog": Range(1024),
    "mappedFileSizeConsumeQueue": Range(ENTRY_BYTES),
    "mapperFileSizeBatchConsumeQueue": Range(BATCH_ENTRY_BYTES),
    "mappedFileSizeTimerLog": Range(1024),
    "flushIntervalCommitLog": Range(1),
    "flushIntervalConsumeQueue": Range(1),
    "flushConsumerOffsetInterval": Range(MIN_INTERVAL_MS),
    "timerFlushIntervalMs": Range(MIN_INTERVAL_MS),
    "transactionCheckInterval": Range(MIN_INTERVAL_MS),
    "cleanResourceInterval": Range(MIN_INTERVAL_MS),
    "liteTtlCheckInterval": Range(MIN_INTERVAL_MS),
    "liteSubscriptionCheckTimeoutMills": Range(MIN_INTERVAL_MS),
    "deleteFileBatchMax": Range(1),
    "maxStoreBytes": Range(0, MAX_LONG),
    "defaultTopicQueueNums": Range(1, MAX_QUEUES_PER_TOPIC),
    "maxHeartbeatBytes": Range(MIN_HEARTBEAT_BYTES),
    "maxHeldPullBytes": Range(0, MAX_LONG),
    "maxHeldPullBytesPerConnection": Range(0, MAX_LONG),
    "serverChannelMaxIdleTimeSeconds": Range(1),
    "serverMaxConnections": Range(1),
    "serverMaxReceivedBytes": Range(1, MAX_LONG),
    "serverMaxWaitingBytes": Range(1, MAX_LONG),
    "serverMaxHeaderBytes": Range(1),
}
ANY: Final = Range()


def check_numbers(numbers: Mapping[str, int]) -> None:
    """Raises `InvalidArgument` for a number out of its range, with its name and the range."""
    for name, number in numbers.items():
        least, most = RANGES.get(name, ANY)
        if not least <= number <= most:
            raise InvalidArgument(f"{name} is {number}; {least} to {most} are possible")
