"""`StoreParts`: an opened store, and what is opened with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from pyrmq_core.broker.settings import BrokerConfig
from pyrmq_core.broker.store.message_store import MessageStore
from pyrmq_core.broker.store_services.key_indexing import KeyIndexing
from pyrmq_core.broker.timers.service import Timers


@dataclass(frozen=True, slots=True)
class StoreParts:
    """The opened store, and what is opened with it; `is_clean` is False if the store was not closed in order."""

    store: MessageStore
    index: KeyIndexing
    timers: Timers
    is_clean: bool


async def open_parts(config: BrokerConfig, store: MessageStore, *, clean: bool) -> StoreParts:
    """Opens what belongs to a store that was opened."""
    index = KeyIndexing(store, config)
    timers = Timers(
        store,
        store.files,
        config.timer_settings,
        enabled=config.timer_wheel_enable and not config.is_slave,
        flush_ms=config.timer_flush_interval_ms,
        counts_topics=config.exports_metrics,
    )
    await trio.to_thread.run_sync(partial(index.open, clean=clean))
    if not config.is_slave:
        await trio.to_thread.run_sync(timers.open)
    if config.message_index_safe:
        await index.catch_up()
    return StoreParts(store, index, timers, clean)
