"""`Broker`: holds all parts of one broker, in groups such as its tables and its clients.

`server.make_broker` creates it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import trio

from pyrmq_core.servers.access.control import AccessControl
from pyrmq_core.servers.broker.clients.client_table import ClientTable
from pyrmq_core.servers.broker.clients.consumer_calls import REPLIES, ConsumerCalls
from pyrmq_core.servers.broker.clients.group_notices import GroupNotices
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.clients.queue_locks import QueueLocks
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.ha.acting_master import ActingMaster
from pyrmq_core.servers.broker.ha.ha_client import HaClient
from pyrmq_core.servers.broker.ha.ha_server import HaServer
from pyrmq_core.servers.broker.ha.slave_tables import SlaveTables
from pyrmq_core.servers.broker.identity import Identity
from pyrmq_core.servers.broker.in_turns import BoundedWork
from pyrmq_core.servers.broker.member_changes import MemberChanges
from pyrmq_core.servers.broker.pop.reviver import Reviver
from pyrmq_core.servers.broker.registration import BrokerRegistration
from pyrmq_core.servers.broker.roles import SlaveRole
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.settings.live_settings import LiveSettings
from pyrmq_core.servers.broker.store.message_store import MessageStore
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from pyrmq_core.servers.broker.store_services.retention import Retention
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.request_modes import RequestModes
from pyrmq_core.servers.broker.tables.subscription_groups import GroupTable
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.topic_announcer import TopicAnnouncer
from pyrmq_core.servers.broker.transactions.transactions import Transactions

# Limits on requests that read complete tables, since each takes time of the event loop and memory: how many may read at
# a time, how many may read or wait, and how long one may wait.
LONG_REQUESTS_AT_ONCE: Final = 4
MOST_LONG_REQUESTS: Final = 64
LONG_TURN_SECONDS: Final = 5.0


def long_work() -> BoundedWork:
    return BoundedWork(LONG_REQUESTS_AT_ONCE, MOST_LONG_REQUESTS, LONG_TURN_SECONDS)


@dataclass(frozen=True, slots=True)
class Tables:
    """A broker's topics, consumer groups, committed offsets, SQL92 filters, and request modes (pull or pop) of groups.

    Each of these tables is kept in a JSON file.
    """

    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    filters: ConsumerFilters
    modes: RequestModes


@dataclass(frozen=True, slots=True)
class Clients:
    """The connected clients, their held pulls (which wait for a message), their queue locks, and notices to them.

    `calls` passes requests of administrators on to consumers. `replies` passes reply messages (request/reply) on to the
    client that sent the request message.
    """

    table: ClientTable
    held: HeldPulls
    notices: GroupNotices
    changes: MemberChanges
    locks: QueueLocks = field(default_factory=QueueLocks)
    calls: ConsumerCalls = field(default_factory=ConsumerCalls)
    replies: ConsumerCalls = field(default_factory=lambda: ConsumerCalls(REPLIES))


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The services that deliver messages later: delay levels, timers, transactions, and the reviver of popped
    messages."""

    delays: DelayLevels
    timers: Timers
    transactions: Transactions
    reviver: Reviver


@dataclass(frozen=True, slots=True)
class Services:
    """The background services, the limit on long requests, and the nursery of tasks that outlive a request."""

    flusher: Flusher
    retention: Retention
    index: KeyIndexing
    nursery: trio.Nursery
    long_work: BoundedWork = field(default_factory=long_work)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The connections to NameServers, and to this broker's master or slaves. `slave` is None on a master."""

    registration: BrokerRegistration
    announcer: TopicAnnouncer
    ha: HaServer
    slave: SlaveRole | None

    @property
    def ha_client(self) -> HaClient | None:
        return None if self.slave is None else self.slave.client

    @property
    def slave_tables(self) -> SlaveTables | None:
        return None if self.slave is None else self.slave.tables

    @property
    def acting(self) -> ActingMaster | None:
        return None if self.slave is None else self.slave.acting

    @property
    def is_acting(self) -> bool:
        """True if this broker is a slave that currently answers for its master."""
        return self.acting is not None and self.acting.is_acting


@dataclass(frozen=True, slots=True)
class Broker:
    """The parts of one broker. Each handler of requests gets only the parts that it uses."""

    settings: LiveSettings
    identity: Identity
    access: AccessControl
    store: MessageStore
    tables: Tables
    clients: Clients
    deliveries: Deliveries
    services: Services
    cluster: Cluster
    counts: Counts
