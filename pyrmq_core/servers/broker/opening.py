"""`StoreParts`: creates the store of a broker and the parts that work on it, and opens their files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

import trio

from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.protocol.messages.names import SCHEDULE_TOPIC
from pyrmq_core.servers.broker.clients.held_pulls import HeldPulls
from pyrmq_core.servers.broker.counts import Counts
from pyrmq_core.servers.broker.ha.ha_server import HaServer
from pyrmq_core.servers.broker.pop.waits import PopWaits
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels, entry_maker
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.measures import Measures
from pyrmq_core.servers.broker.store.appending import Dispatched
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store.message_store import MessageStore, StoreListener
from pyrmq_core.servers.broker.store.reading import QueueKey
from pyrmq_core.servers.broker.store_services.flush import Flusher
from pyrmq_core.servers.broker.store_services.key_indexing import KeyIndexing
from pyrmq_core.servers.broker.store_services.retention import Retention, unread_lines
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.servers.broker.tables.topics import TopicTable
from pyrmq_core.servers.broker.timers.service import Timers
from pyrmq_core.servers.broker.timers.timer_rules import TIMER_TOPIC

log = line_logger(__name__)


@dataclass(frozen=True)
class StoreParts(StoreListener):
    """A store and the parts that work on it. As the store's listener it passes the store's events on to them."""

    store: MessageStore
    topics: TopicTable
    offsets: GroupOffsets
    counts: Counts
    held: HeldPulls
    delays: DelayLevels
    timers: Timers
    flusher: Flusher
    index: KeyIndexing
    retention: Retention
    ha: HaServer
    waits: PopWaits

    @classmethod
    def make(cls, config: BrokerConfig, files: Files) -> StoreParts:
        topics, offsets = TopicTable(files, config), GroupOffsets(files)
        measures = Measures(topics.is_system) if config.exports_metrics else None
        counts = Counts(BrokerFigures(config.broker_cluster_name, topics.is_system), measures)
        store = MessageStore(files, config.store_settings, entry_maker(config.delays_ms()), topics.is_batch_topic)
        delays = DelayLevels(store, files, config.delays_ms(), on_delivered=counts.figures.note_delivery)
        timers = Timers(
            store,
            files,
            config.timer_settings,
            enabled=config.timer_wheel_enable and not config.is_slave,
            flush_ms=config.timer_flush_interval_ms,
            counts_topics=config.exports_metrics,
            on_taken=counts.timer_taken,
            on_delivered=counts.timer_delivered,
        )
        index = KeyIndexing(store, config)

        async def note_removal() -> None:
            delays.arrived()
            for line in unread_lines(store, offsets):
                log.error("%s", line)
            await index.remove_old()

        held = HeldPulls(config.held_limits)
        return cls(
            store,
            topics,
            offsets,
            counts,
            held,
            delays,
            timers,
            Flusher(store, config),
            index,
            Retention(store, config, on_removed=note_removal, other_bytes=lambda: index.stored_bytes),
            HaServer(store, config),
            PopWaits(held, config.revive_topic),
        )

    async def open(self, config: BrokerConfig) -> None:
        """Opens the store and the parts' files. Raises `StoreError` if that fails."""
        self.store.files.lock()
        self.topics.load()  # before the queues are opened, whose format depends on their topic
        opened = partial(self.store.open, os.getpid(), is_copy=config.is_slave, listener=self)
        recovery = await trio.to_thread.run_sync(opened)
        log.info("store opened: %s", recovery)
        for warning in recovery.warnings():
            log.warning("%s", warning)
        self.ha.open(clean=recovery.clean)
        await trio.to_thread.run_sync(partial(self.index.open, clean=recovery.clean))
        if not config.is_slave:
            await trio.to_thread.run_sync(self.timers.open)
        if config.message_index_safe:
            await self.index.catch_up()

    def readable(self, key: QueueKey, entries: bytes) -> None:
        self.held.wake(key, entries)
        self.waits.readable(key, entries)
        if key[0] == SCHEDULE_TOPIC:
            self.delays.arrived()
        elif key[0] == TIMER_TOPIC:
            self.timers.arrived()

    def dispatched(self, messages: Dispatched) -> None:
        self.index.note(messages)

    def replayed(self) -> None:
        self.index.note_replayed()

    def stored(self) -> None:
        self.flusher.want()
        self.ha.stored()

    def segment_begun(self) -> None:
        self.retention.want()

    def failed(self, reason: str) -> None:
        self.flusher.failed(reason)
