"""The least and the greatest number of each of a broker's settings.

Java keeps most of them in an int, which is the limit here for all: as a time in ms it is 24 days. Sizes and counts that
RocketMQ does not bound may be larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from pyrmq_core.broker.store.batch_queue import BATCH_ENTRY_BYTES
from pyrmq_core.broker.store.consume_queue import ENTRY_BYTES
from pyrmq_core.errors import InvalidArgument
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC

MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1
# The shortest time between two rounds of a task that writes or looks for work: without a wait it would take the loop.
MIN_INTERVAL_MS: Final = 10
# Fewer bytes would refuse the heartbeats of a small client, and with access control the requests of administrators.
MIN_HEARTBEAT_BYTES: Final = 1024
# A Java slave's buffer has 4 MiB, the head of the block included (store/ha/DefaultHAClient.java).
MAX_BLOCK_BYTES: Final = (4 << 20) - 64
# More slaves than connections that are accepted could never be waited for.
MAX_REPLICAS: Final = 64


class Range(NamedTuple):
    """The least and the greatest number that are possible."""

    least: int = 0
    most: int = MAX_INT


RANGES: Final[Mapping[str, Range]] = {
    "brokerPermission": Range(0, 7),  # WRITE 2, READ 4, INHERIT 1 (common/constant/PermName.java)
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
    """Raises `InvalidArgument` with the name and the range of a number that is impossible."""
    for name, number in numbers.items():
        least, most = RANGES.get(name, ANY)
        if not least <= number <= most:
            raise InvalidArgument(f"{name} is {number}; {least} to {most} are possible")
