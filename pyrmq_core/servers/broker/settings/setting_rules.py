"""RocketMQ's settings that this broker lacks: some are refused, others are ignored without harm.

It would do harm to ignore a setting that protects, removes or copies data, or stores it elsewhere. Such a setting is
refused, unless its value switches nothing on. The ignored settings tune what this broker does in another way, or belong
to requests that it refuses. This module and the class `BrokerConfig` of this broker together have all settings of
RocketMQ's classes BrokerConfig, MessageStoreConfig, AuthConfig, NettyServerConfig and NettyClientConfig (5.4.0).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pyrmq_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class RefusedSettings:
    """Settings that are refused unless their value is `harmless`. `why` has the reason and the remedy."""

    names: tuple[str, ...]
    why: str
    harmless: tuple[str, ...] = ("", "false")


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """Settings that are accepted and ignored. `why` says why that does no harm."""

    names: tuple[str, ...]
    why: str


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


REFUSED: Final = (
    RefusedSettings(
        _names("replicasPerDiskPartition"),
        "this broker looks at the whole disk, not at its share of it; set it to 1, and maxStoreBytes to its share",
        ("", "1"),
    ),
    RefusedSettings(
        _names("asyncLearner duplicationEnable"),
        "this broker is a master, or a slave that takes no messages but its master's; set it to false",
    ),
    RefusedSettings(
        _names("enableRemoteEscape"),
        "a slave that acts in its master's place delivers nothing by another broker: delayed messages, timers and "
        "transactions wait for a master; set it to false",
    ),
    RefusedSettings(
        _names("enableControllerMode enableDLegerCommitLog allAckInSyncStateSet enableAutoInSyncReplicas"),
        "no controller chooses masters here, a broker is one by brokerRole; set it to false",
    ),
    RefusedSettings(
        _names("totalReplicas minInSyncReplicas"),
        "a master waits for the slaves that inSyncReplicas counts; set it to 1",
        ("", "1"),
    ),
    RefusedSettings(_names("storeType"), "this broker stores in files; set it to default", ("", "default")),
    RefusedSettings(
        _names("messageStorePlugIn readOnlyCommitLogStorePaths"),
        "this broker has one store, in one directory; remove the line",
        ("",),
    ),
    RefusedSettings(
        _names("useSingleRocksDBForAllConfigs rocksdbCQDoubleWriteEnable timerRocksDBEnable transRocksDBEnable")
        + _names("indexRocksDBEnable"),
        "this broker keeps nothing in RocksDB; set it to false",
    ),
    RefusedSettings(
        _names("configManagerVersion"), "this broker keeps its tables in JSON files; set it to v1", ("", "v1")
    ),
    RefusedSettings(
        _names("enabledAppendPropCRC forceVerifyPropCRC"),
        "this broker stores no checksum of properties; set it to false",
    ),
    RefusedSettings(
        _names("timerStopEnqueue"),
        "this broker delivers timer messages as long as timerWheelEnable is true; remove the line",
    ),
    RefusedSettings(
        _names("rejectPullConsumerEnable disableConsumeIfConsumerReadSlowly"),
        "this broker shuts out no consumers; set it to false, or a group's consumeEnable",
    ),
    RefusedSettings(
        _names("startAcceptSendRequestTimeStamp"),
        "this broker takes messages from its start on; set it to 0",
        ("", "0"),
    ),
    RefusedSettings(
        _names("fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer"),
        "this broker registers with the addresses in namesrvAddr alone; set it to false",
    ),
    RefusedSettings(_names("useTLS"), "calls to NameServers speak TLS by tls.enable=true; remove the line"),
    RefusedSettings(_names("socksProxyConfig"), "this broker goes through no proxy; remove the line", ("", "{}")),
    RefusedSettings(
        _names("msgTraceTopicName"),
        "traces go to RMQ_SYS_TRACE_TOPIC here; remove the line",
        ("", "rmq_sys_trace_topic"),
    ),
    RefusedSettings(
        _names("defaultMessageRequestMode"),
        "groups pull here until setConsumeMode says that one pops; set it to PULL",
        ("", "pull"),
    ),
)

WITHOUT_EFFECT: Final = (
    WithoutEffect(
        _names(
            """sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
            adminBrokerThreadPoolNums litePullMessageThreadPoolNums ackMessageThreadPoolNums
            processReplyMessageThreadPoolNums queryMessageThreadPoolNums clientManageThreadPoolNums
            consumerManageThreadPoolNums recoverThreadPoolNums loadBalanceProcessorThreadPoolNums
            heartbeatThreadPoolNums endTransactionThreadPoolNums sendThreadPoolQueueCapacity
            putThreadPoolQueueCapacity pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity
            ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity queryThreadPoolQueueCapacity
            clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
            heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
            loadBalanceThreadPoolQueueCapacity brokerFastFailureEnable waitTimeMillsInSendQueue
            waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue
            waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue asyncSendEnable
            enableFastChannelEventProcess enableNetWorkFlowControl serverWorkerThreads serverSelectorThreads
            serverOnewaySemaphoreValue serverCallbackExecutorThreads serverAsyncSemaphoreValue serverSocketSndBufSize
            serverSocketRcvBufSize serverSocketBacklog serverPooledByteBufAllocatorEnable useEpollNativeSelector
            writeBufferLowWaterMark writeBufferHighWaterMark serverNettyWorkerGroupEnable enableShutdownGracefully
            shutdownWaitTimeSeconds clientCloseSocketIfTimeout clientWorkerThreads clientOnewaySemaphoreValue
            connectTimeoutMillis clientCallbackExecutorThreads channelNotActiveInterval clientAsyncSemaphoreValue
            clientChannelMaxIdleTimeSeconds clientSocketSndBufSize clientSocketRcvBufSize
            clientPooledByteBufAllocatorEnable disableCallbackExecutor disableNettyWorkerGroup
            maxReconnectIntervalTimeSeconds enableReconnectForGoAway scanAvailableNameSrv"""
        ),
        "threads, queues and buffers of Java: requests run in one loop, and each connection is bounded",
    ),
    WithoutEffect(
        _names(
            """transferMsgByHeap useReentrantLockWhenPutMessage warmMapedFileEnable flushLeastPagesWhenWarmMapedFile
            transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool commitIntervalCommitLog
            commitCommitLogLeastPages commitCommitLogThoroughInterval wakeCommitWhenPutMessage wakeFlushWhenPutMessage
            flushCommitLogTimed flushCommitLogLeastPages flushCommitLogThoroughInterval flushConsumeQueueLeastPages
            flushConsumeQueueThoroughInterval putMessageTimeout osPageCacheBusyTimeOutMills writeWithoutMmap
            accessMessageInMemoryHotRatio maxTransferBytesOnMessageInDisk
            maxTransferCountOnMessageInDisk diskFallRecorded debugLockEnable maxAsyncPutMessageRequests
            dispatchFromSenderThread dispatchCqThreads dispatchCqCacheNum enableAsyncReput recheckReputOffsetFromCq
            mappedFileSwapEnable commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
            logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
            cleanSwapedMapInterval searchBcqByCacheEnable pullBatchMaxMessageCount maxConsumeQueueScan
            sampleCountThreshold sampleSteps travelCqFileNumWhenGetMessage correctLogicMinOffsetSleepInterval
            correctLogicMinOffsetForceInterval coldDataFlowControlEnable coldDataScanEnable coldCtrStrategyEnable
            usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold dataReadAheadEnable topicQueueLockNum
            enableBuildConsumeQueueConcurrently batchDispatchRequestThreadPoolNums readUnCommitted maxTopicLength
            putConsumeQueueDataByFileChannel spinLockCollisionRetreatOptimalDegree useABSLock sharedByteBufferNum
            autoMessageVersionOnTopicLen enableRunningFlagsInFlush"""
        ),
        "how Java maps, caches, locks and flushes: what is stored and acknowledged here is never less",
    ),
    WithoutEffect(
        _names(
            """checkCRCOnRecover maxRecoveryCommitlogFiles recoverConcurrently enableAcceleratedRecovery
            commitLogRecoverMaxNum enableLogConsumeQueueRepeatedlyBuildWhenRecover"""
        ),
        "recovery always checks, from the last place that is known to be whole",
    ),
    WithoutEffect(
        _names(
            """destroyMapedFileIntervalForcibly maxBatchDeleteFilesNum logicalDiskSpaceCleanForciblyThreshold
            enableCleanExpiredOffset"""
        ),
        "how Java waits for readers of a file that goes, and counts replicas on a disk: no file here has such readers",
    ),
    WithoutEffect(
        _names("putMsgIndexHightWater maxRocksDBIndexQueryDays"),
        "the index of keys: it is in files, and messages wait for it in bounded memory",
    ),
    WithoutEffect(
        _names(
            """transactionMetricFlushInterval transactionOpMsgMaxSize transactionOpBatchInterval
            transWriteOriginTransHalfEnable"""
        ),
        "transactions: each end is recorded at once, and open ones are not counted",
    ),
    WithoutEffect(
        _names(
            """timerGetMessageThreadNum timerPutMessageThreadNum
            timerEnableCheckMetrics timerSkipUnknownError timerEnableRetryUntilSuccess
            timerWheelSnapshotFlush timerMetricSmallThreshold timerCongestNumEachSlot
            timerWheelSnapshotIntervalMs timerProgressLogIntervalMs timerInterceptDelayLevel
            timerColdDataCheckIntervalMs timerRocksDBRollMaxTps timerRocksDBTimeExpiredMaxTps
            timerRocksDBStopScan timerRocksDBPrecisionMs timerRecallToTimeWheelEnable timerRecallToTimelineEnable
            timerRocksDBRollIntervalHours timerRocksDBRollRangeHours disappearTimeAfterStart
            appendTopicForTimerDeleteKey
            enableScheduleMessageStats enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit
            scheduleAsyncDeliverMaxResendNum2Blocked flushDelayOffsetInterval delayOffsetUpdateVersionStep"""
        ),
        "how fast Java's threads deliver: a message is delivered here when it is due",
    ),
    WithoutEffect(
        _names(
            """enableCompaction compactionMappedFileSize compactionCqMappedFileSize compactionScheduleInternal
            compactionThreadNum maxOffsetMapSize"""
        ),
        "compaction: a topic that asks for it (cleanup.policy) is refused",
    ),
    WithoutEffect(
        _names(
            """popPollingSize popPollingMapSize popPollingMapExpireTimeSeconds maxPopPollingSize reviveQueueNum
            reviveInterval reviveMaxSlow reviveScanTime enableSkipLongAwaitingAck reviveAckWaitMs enablePopLog
            enablePopBufferMerge popCkStayBufferTime popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize
            enablePopBatchAck popLongPollingForceNotifyInterval enableNotifyBeforePopCalculateLag
            enableNotifyAfterPopOrderLockRelease initPopOffsetByCheckMsgInMem retrieveMessageFromPopRetryTopicV1
            popFromRetryProbabilityForPriority priorityOrderAsc
            popConsumerFSServiceInit popConsumerKVServiceLog popConsumerKVServiceInit popConsumerKVServiceEnable
            popReviveMaxReturnSizePerRead popReviveConcurrency popReviveMaxAttemptTimes useSeparateRetryQueue
            popResponseReturnActualRetryTopic popInflightMessageThreshold enablePopMessageThreshold
            skipWhenCKRePutReachMaxTimes appendAckAsync appendCkAsync clearRetryTopicWhenDeleteTopic
            defaultPopShareQueueNum serverLoadBalancerEnable loadBalancePollNameServerInterval"""
        ),
        "RocketMQ's threads and memory for pop consumption, and what it switches there: here as by default",
    ),
    WithoutEffect(
        _names(
            """brokerIP2 haFlowControlEnable maxHaTransferByteInSecond haMaxTimeSlaveNotCatchup
            offsetCheckInSlave syncMasterFlushOffsetWhenStartup maxChecksumRange maxSlaveResendLength
            syncFromLastFile dLegerGroup dLegerPeers dLegerSelfId preferredLeaderId enableBatchPush
            storePathDLedgerCommitLog storePathEpochFile storePathBrokerIdentity controllerAddr
            fetchControllerAddrByDnsLookup syncBrokerMetadataPeriod checkSyncStateSetPeriod
            syncControllerMetadataPeriod controllerHeartBeatTimeoutMills brokerElectionPriority skipPreOnline
            cleanOfflineBrokerInterval forwardTimeout inBrokerContainer lockInStrictMode"""
        ),
        "controllers, which would choose masters, and limits for slaves: what would switch them on is refused",
    ),
    WithoutEffect(
        _names(
            """rocksdbCompressionType cleanRocksDBDirtyCQIntervalMin statRocksDBCQIntervalSec memTableFlushIntervalMs
            realTimePersistRocksDBConfig enableRocksDBLog bottomMostCompressionTypeForConsumeQueueStore
            rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold combineCQPreferCQType combineCQLoadingCQTypes
            combineAssignOffsetCQType combineCQEnableCheckSelf combineCQMaxExtraSearchCommitLogFiles"""
        ),
        "RocksDB: what would switch it on is refused",
    ),
    WithoutEffect(
        _names(
            """userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond
            aclCacheRefreshSecond statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
            statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond configName clusterName"""
        ),
        "access control: each request is checked, and a change counts at once",
    ),
    WithoutEffect(
        _names(
            """enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter
            filterSupportRetry maxFilterMessageSize enableConsumeQueueExt mappedFileSizeConsumeQueueExt
            bitMapLengthConsumeQueueExt"""
        ),
        "bitmaps that quicken SQL filters: each message is looked at",
    ),
    WithoutEffect(
        _names(
            """highSpeedMode commercialBaseCount commercialSizePerMsg accountStatsEnable accountStatsPrintZeroValues
            maxStatsIdleTimeInMinutes enableDetailStat autoDeleteUnusedStats estimateAccumulation enableLmqStats
            consumerFallbehindThreshold printChannelGroups printChannelGroupsMinNum isolateLogEnable
            metricsOtelCardinalityLimit metricsGrpcExporterTarget metricsGrpcExporterHeader
            metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills metricLoggingExporterIntervalInMills
            metricsLabel metricsInDelta enableRemotingMetrics
            enableMessageStoreMetrics enablePopMetrics enableConnectionMetrics enableTransactionMetrics
            enableStatsMetrics enableRequestMetrics enableLagAndDlqMetrics"""
        ),
        "figures and logs: the page for Prometheus is always whole, and other exporters are refused",
    ),
    WithoutEffect(
        _names(
            """compressedRegister updateNameServerAddrPeriod fetchNamesrvAddrInterval
            compatibleWithOldNameSrv enableSingleTopicRegister enableSplitRegistration splitRegistrationSize
            enableSplitMetadata splitMetadataSize"""
        ),
        "the form of registrations: all topics at intervals, and at once each changed topic alone (at 4.9 with others)",
    ),
    WithoutEffect(
        _names(
            """flushConsumerOffsetHistoryInterval
            consumerOffsetUpdateVersionStep subscriptionExpiredTimeout useStaticSubscription
            realTimeNotifyConsumerChange
            enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond
            enableMixedMessageType validateSystemTopicWhenUpdateTopic enableRegisterProducer
            enableCreateSysGroup"""
        ),
        "places and habits of Java's broker: what they switch is always done here, or its request is refused by name",
    ),
)

KNOWN: Final = frozenset(name for row in (*REFUSED, *WITHOUT_EFFECT) for name in row.names)
_REFUSED: Final = {name: row for row in REFUSED for name in row.names}


def check(settings: Mapping[str, str]) -> None:
    """Raises `InvalidArgument` if any setting is refused. The error has the names and remedies of all of these."""
    faults = [
        f"{name}={text.strip()}: {row.why}"
        for name, text in settings.items()
        if (row := _REFUSED.get(name)) is not None and text.strip().lower() not in row.harmless
    ]
    if faults:
        raise InvalidArgument("; ".join(faults))


def nearest(unknown: Iterable[str], settings: Iterable[str]) -> list[str]:
    """Returns each unknown name, with a hint at the nearest existing name if there is a similar one."""
    names = [*settings, *KNOWN]
    hints = []
    for name in unknown:
        close = difflib.get_close_matches(name, names, 1)
        hints.append(f"{name} (did you mean {close[0]}?)" if close else name)
    return hints
