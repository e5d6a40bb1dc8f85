"""A broker's periodic work: it writes tables, samples statistics and removes silent clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Final

import trio

from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger
from pyrmq_core.network.standstill import sleep_and_hear
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.broker import Broker
from pyrmq_core.servers.broker.in_turns import take_all
from pyrmq_core.servers.broker.pop.ordered import FILE_NAME as ORDERED_FILE
from pyrmq_core.servers.broker.pop.ordered import OrderedQueues
from pyrmq_core.servers.broker.schedule.delay_levels import FILE_NAME as DELAYS_FILE
from pyrmq_core.servers.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.servers.broker.statistics.figures import BrokerFigures
from pyrmq_core.servers.broker.statistics.tallies import DAY, PERIODS, SECOND_MS
from pyrmq_core.servers.broker.store.disk.files import Files
from pyrmq_core.servers.broker.store_services.queue_removal import is_old_lite_queue, remove_queues
from pyrmq_core.servers.broker.tables.config_files import FOLDER
from pyrmq_core.servers.broker.tables.consumer_filters import FILE_NAME as FILTERS_FILE
from pyrmq_core.servers.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.servers.broker.tables.consumer_offsets import FILE_NAME as OFFSETS_FILE
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets

log = line_logger(__name__)

MINUTE_SECONDS: Final = 60
EXPIRY_SECONDS: Final = 10.0


def rarely_written(broker: Broker) -> dict[str, GroupOffsets | OrderedQueues | ConsumerFilters | DelayLevels]:
    return {
        f"{FOLDER}/{OFFSETS_FILE}": broker.tables.offsets,
        f"{FOLDER}/{ORDERED_FILE}": broker.deliveries.reviver.ordered,
        f"{FOLDER}/{FILTERS_FILE}": broker.tables.filters,
        f"{FOLDER}/{DELAYS_FILE}": broker.deliveries.delays,
    }


async def keep_written(broker: Broker) -> None:
    """Writes changed tables to their files, at every flushConsumerOffsetInterval.

    A failed write is repeated at the next interval. The commit log is synced before a write. Otherwise a power cut
    could keep a group's offset but lose the checkpoints of popped messages before it, which would never be revived.
    """
    while True:
        await trio.sleep(broker.settings.config.flush_consumer_offset_interval / 1000)
        for path, table in rarely_written(broker).items():
            if (text := table.unsaved()) is not None:
                try:
                    if not await broker.services.flusher.wait_flushed(broker.store.end):
                        raise StoreError(f"{path} waits for the sync of the messages that it belongs to")
                    await trio.to_thread.run_sync(_save, broker.store.files, path, text)
                except StoreError as error:
                    table.is_changed = True
                    log.error("%s", error)


def _save(files: Files, path: str, text: Callable[[], bytes]) -> None:
    files.save(path, text())


async def sample_figures(figures: BrokerFigures, now_ms: Callable[[], int] = clock.now_ms) -> None:
    """Samples the store's rates each second, and the counters every 10 s, 10 minutes and hour, until cancelled."""
    beat, today, began = 0, _day(now_ms()), trio.current_time()
    while True:
        figures.store.take_sample(now_ms())
        await take_all(figures.forget_deleted())
        for period in PERIODS:
            if beat * SECOND_MS % period.every_ms == 0:
                await take_all(figures.take_samples(period, now_ms()))
                if period is DAY:
                    await take_all(figures.forget_idle())
        if beat and beat % MINUTE_SECONDS == 0:
            figures.store.turn_minute()
        if (day := _day(now_ms())) != today:
            today = day
            figures.turn_day()
        beat += 1
        began = max(began, trio.current_time() - beat)  # after a pause of the process, missed samples are skipped
        await trio.sleep_until(began + beat)


def _day(now_ms: int) -> date:
    return datetime.fromtimestamp(now_ms / SECOND_MS).astimezone().date()


async def expire_lite_queues(broker: Broker) -> None:
    """Removes the queues of old lite topics at intervals. As in 5.5.0 the first removal is minLiteTTl after the
    start."""
    config = broker.settings.config
    await trio.sleep(config.min_lite_ttl / SECOND_MS)
    while True:
        try:
            await remove_old_lite_queues(broker, clock.now_ms())
        except StoreError as error:
            log.error("old lite topics are not removed: %s", error)
        await trio.sleep(config.lite_ttl_check_interval / SECOND_MS)


async def remove_old_lite_queues(broker: Broker, now_ms: int) -> None:
    store, topics, config = broker.store, broker.tables.topics, broker.settings.config
    await remove_queues(
        store,
        broker.services.flusher,
        broker.tables.offsets,
        broker.clients.table.has_members,
        lambda key: is_old_lite_queue(store, topics, config, key, now_ms),
    )


async def expire_clients(broker: Broker) -> None:
    """Removes clients that were silent for channelExpiredTimeout, and expired filters, locks and lite subscriptions."""
    while True:
        await sleep_and_hear(EXPIRY_SECONDS)
        now_ms = clock.running_ms()
        for changed in broker.clients.table.expire(now_ms - broker.settings.config.channel_expired_timeout):
            broker.clients.changes.note(changed)
            await trio.lowlevel.checkpoint()
        broker.tables.filters.clean(clock.now_ms())
        broker.clients.locks.expire(now_ms)
        lite_clients = broker.deliveries.reviver.waits.lite
        lite_clients.expire(now_ms - broker.settings.config.lite_subscription_check_timeout_mills)
