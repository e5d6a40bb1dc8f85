"""`Broker`: the parts that the processors work on, and `Answer`, the type of their results."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core.network import LateAnswer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import UniqueIdMaker, month_start_ms
from pyrmq_core.protocol.routes.topic_config import NO_VERSION, DataVersion
from pyrmq_core.servers.access.control import AccessControl
from pyrmq_core.servers.broker.clients.client_table import BROADCASTING, ClientTable
from pyrmq_core.servers.broker.clients.consumer_calls import REPLIES, ConsumerCalls
from pyrmq_core.servers.broker.clients.group_notices import GroupNotices
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.clients.queue_locks import QueueLocks
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.ha_server import HaServer
from pyrmq_core.servers.broker.ha.replicas import CopyRules
from pyrmq_core.servers.broker.ha.slave_tables import SlaveTables
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.measures import Measures
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from pyrmq_core.servers.broker.store_services.retention import Retention
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.transactions.transactions import Transactions

# A coroutine or a late answer if the answer has to wait for something; None for no answer.
Answer: TypeAlias = Command | Coroutine[Any, Any, Command | None] | LateAnswer | None

# How many requests may read complete tables at a time, how many may read or wait, and the most seconds of waiting: each
# takes time of the loop, and memory for its answer.
LONG_REQUESTS_AT_ONCE: Final = 4
MOST_LONG_REQUESTS: Final = 64
LONG_TURN_SECONDS: Final = 5.0

HELP: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(slots=True)
class Broker:
    """The parts of one broker; clients connect to `address`, and `store_host` is its packed form in records and ids."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    filters: ConsumerFilters
    held: HeldPulls
    delays: DelayLevels
    timers: Timers
    transactions: Transactions
    flusher: Flusher
    ha: HaServer
    retention: Retention
    index: KeyIndexing
    registration: BrokerRegistration
    figures: BrokerFigures
    nursery: trio.Nursery
    address: str
    store_host: bytes
    ids: UniqueIdMaker
    clients: ClientTable
    access: AccessControl = field(default_factory=AccessControl)
    locks: QueueLocks = field(default_factory=QueueLocks)
    notices: GroupNotices = field(default_factory=GroupNotices)
    calls: ConsumerCalls = field(default_factory=ConsumerCalls)
    replies: ConsumerCalls = field(default_factory=lambda: ConsumerCalls(REPLIES))
    long_work: BoundedWork = field(
        default_factory=lambda: BoundedWork(LONG_REQUESTS_AT_ONCE, MOST_LONG_REQUESTS, LONG_TURN_SECONDS)
    )
    booted_ms: int = 0
    # This and the next field are set with metricsExporterType=PROM.
    metrics_address: str = ""
    measures: Measures | None = None
    # Set only on a slave.
    ha_client: HaClient | None = None
    slave_tables: SlaveTables | None = None
    acting: ActingMaster | None = None  # set with enableSlaveActingMaster
    settings_version: DataVersion = NO_VERSION
    # Senders to new topics that were announced, often many at once, go on one by one.
    sends_to_new_topics: trio.Lock = field(default_factory=trio.Lock)
    settings_turn: trio.Lock = field(default_factory=trio.Lock)
    id_counter: Any = field(default_factory=lambda: itertools.count(random.randrange(1 << 16)))

    def configure(self, config: BrokerConfig) -> None:
        """Applies new settings, which may differ from the old in the names of `CHANGEABLE` (`broker_settings`)."""
        now_ms, version = self.now_ms(), self.topics.data_version
        if config.broker_permission != self.config.broker_permission:
            self.topics.touch(now_ms)
        self.config = config
        self.topics.configure(config, now_ms)
        if self.access.guard is not None:
            self.access.guard.max_body_bytes = config.max_heartbeat_bytes
        self.groups.auto_create = config.auto_create_subscription_group
        self.transactions.config = config
        self.ha.replicas.rules = CopyRules.of(config)
        self.retention.configure(config)
        self.retention.want()
        self.registration.configure(config)
        self.settings_version = self.settings_version.next(now_ms)
        if self.topics.data_version != version:
            self.registration.register_now()

    @property
    def is_acting(self) -> bool:
        """True for a slave while it acts in its master's place."""
        return self.acting is not None and self.acting.is_acting

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def running_ms(self) -> int:
        """Returns a time that never goes back, for time-outs and locks: the system's clock may be set at any time."""
        return time.monotonic_ns() // 1_000_000

    def unique_id(self, now_ms: int) -> str:
        """Returns a UNIQ_KEY for a message that has none."""
        zone = datetime.now(UTC).astimezone().tzinfo or UTC
        return self.ids.make(now_ms, month_start_ms(now_ms, zone), next(self.id_counter))

    def notify_groups(self, groups: Iterable[str]) -> None:
        """Schedules notices to the groups' clients that members or subscriptions have changed.

        Broadcasting groups and groups that switched notices off are left out.
        """
        notified = []
        for name in groups:
            group, settings = self.clients.consumers.get(name), self.groups.known(name) or {}
            if group is None:
                self.filters.group_left(name, self.now_ms())
            elif group.message_model != BROADCASTING and settings.get("notifyConsumerIdsChangedEnable", True):
                notified.append(name)
        if self.config.notify_consumer_ids_changed_enable:
            self.notices.changed(notified)
