"""The tables that are written at intervals, as they change with every message."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.schedule.delay_levels import FILE_NAME as DELAYS_FILE
from pyrmq_core.broker.schedule.delay_levels import DelayLevels
from pyrmq_core.broker.tables.config_files import FOLDER
from pyrmq_core.broker.tables.consumer_filters import FILE_NAME as FILTERS_FILE
from pyrmq_core.broker.tables.consumer_filters import ConsumerFilters
from pyrmq_core.broker.tables.consumer_offsets import FILE_NAME as OFFSETS_FILE
from pyrmq_core.broker.tables.consumer_offsets import GroupOffsets
from pyrmq_core.errors import StoreError
from pyrmq_core.network.log_lines import line_logger

log = line_logger(__name__)


def rarely_written(broker: Broker) -> dict[str, GroupOffsets | ConsumerFilters | DelayLevels]:
    """Returns the tables that are written at intervals, by the path of their file."""
    return {
        f"{FOLDER}/{OFFSETS_FILE}": broker.offsets,
        f"{FOLDER}/{FILTERS_FILE}": broker.filters,
        f"{FOLDER}/{DELAYS_FILE}": broker.delays,
    }


async def keep_written(broker: Broker) -> None:
    """Writes these files at intervals; one that cannot be written is written again at the next."""
    while True:
        await trio.sleep(broker.config.flush_consumer_offset_interval / 1000)
        for path, table in rarely_written(broker).items():
            if (text := table.unsaved()) is not None:
                try:
                    await trio.to_thread.run_sync(_save, broker, path, text)
                except StoreError as error:
                    table.is_changed = True
                    log.error("%s", error)


def _save(broker: Broker, path: str, text: Callable[[], bytes]) -> None:
    broker.store.files.save(path, text())
