"""The work of a slave: it follows its master's log, and fetches its tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.ha.ha_client import HaClient
from pyrmq_core.broker.ha.master_checks import CannotFollow, check_master
from pyrmq_core.broker.ha.slave_tables import SlaveTables

CHECK_SECONDS: Final = 5.0
# A table may have 16 MiB.
TABLE_SECONDS: Final = 30.0


def slave_tasks(broker: Broker) -> list[Callable[[], Awaitable[None]]]:
    """Returns the tasks of a slave, of the master that NameServers, or haMasterAddress, name."""
    registration = broker.registration
    tables = SlaveTables(
        broker.store,
        broker.topics,
        broker.groups,
        broker.offsets,
        broker.delays,
        ask=partial(registration.ask_master, timeout=TABLE_SECONDS),
        master_address=lambda: registration.master_address,
    )

    async def check() -> None:
        address = registration.master_address
        if address is None:
            return
        await check_master(partial(registration.ask_master, timeout=CHECK_SECONDS), broker.store, address)
        await _wait_for_topics(broker, tables, address)

    client = HaClient(
        broker.store,
        broker.config,
        broker.flusher,
        lambda: registration.master_ha_address,
        registration.register_now,
        check,
    )
    broker.ha_client, broker.slave_tables = client, tables

    def look() -> None:
        tables.want()
        client.try_now()

    registration.on_master = look
    return [tables.run, client.run]


async def _wait_for_topics(broker: Broker, tables: SlaveTables, address: str) -> None:
    """Waits for the topics; raises `CannotFollow` if a new store would be filled without them.

    The log of a batch topic needs another kind of queue than that of an unknown one.
    """
    tables.want()  # a master that is back gets the offsets that were committed here, before consumers fetch its own
    await tables.tried.wait()
    if not broker.store.end and not tables.has_topics.is_set():
        raise CannotFollow(f"the topics of the master at {address} are not known yet; a line before this one says why")
