"""`Broker`: the parts that the processors work on, and `Answer`, the type of what they return."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import trio

from pyrmq_core.broker.clients.client_table import ClientTable
from pyrmq_core.broker.clients.group_notices import GroupNotices
from pyrmq_core.broker.clients.held_pulls import HeldPulls
from pyrmq_core.broker.clients.queue_locks import QueueLocks
from pyrmq_core.broker.registration import BrokerRegistration
from pyrmq_core.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.store_services.flush import Flusher
from pyrmq_core.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.broker.tables.subscription_groups import GroupTable
from pyrmq_core.broker.tables.topics import TopicTable
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.message_id import UniqueIdMaker, month_start_ms

# A coroutine if the answer has to wait for something; None for no answer.
Answer: TypeAlias = Command | Coroutine[Any, Any, Command | None] | None

HELP: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(slots=True)
class Broker:
    """One broker's parts; `address` is the one that clients use, `store_host` the same packed for records and ids."""

    config: BrokerConfig
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: GroupOffsets
    held: HeldPulls
    delays: DelayLevels
    flusher: Flusher
    registration: BrokerRegistration
    nursery: trio.Nursery
    address: str
    store_host: bytes
    ids: UniqueIdMaker
    clients: ClientTable = field(default_factory=ClientTable)
    locks: QueueLocks = field(default_factory=QueueLocks)
    notices: GroupNotices = field(default_factory=GroupNotices)
    booted_ms: int = 0
    id_counter: Any = field(default_factory=lambda: itertools.count(random.randrange(1 << 16)))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def running_ms(self) -> int:
        """Returns a time that never goes back, for silence and locks: the system's clock may be set meanwhile."""
        return time.monotonic_ns() // 1_000_000

    def unique_id(self, now_ms: int) -> str:
        """Returns a UNIQ_KEY for a message without one."""
        zone = datetime.now(UTC).astimezone().tzinfo or UTC
        return self.ids.make(now_ms, month_start_ms(now_ms, zone), next(self.id_counter))

    def notify_groups(self, groups: Iterable[str]) -> None:
        """Notifies each group's clients, soon, that its members or subscriptions changed."""
        self.notices.changed(groups)
