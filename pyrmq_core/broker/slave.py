"""The work of a slave: it follows its master's log, and fetches its tables."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.ha.acting_master import ActingMaster
from pyrmq_core.broker.ha.ha_client import HaClient
from pyrmq_core.broker.ha.master_checks import CannotFollow, check_master
from pyrmq_core.broker.ha.slave_tables import SlaveTables
from pyrmq_core.broker.store.replay import UnknownTopic

CHECK_SECONDS: Final = 5.0
# A table may have 16 MiB.
TABLE_SECONDS: Final = 30.0
# A record of an unknown topic waits so long for the topic: its queue may be of either kind.
LEARN_SECONDS: Final = 5.0
MOST_LOOKED_UP: Final = 10_000


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

    looked_up: dict[str, None] = {}

    def check_topic(topic: str) -> None:
        if topic not in looked_up:
            raise UnknownTopic(topic)

    async def learn_topic(topic: str) -> None:
        with trio.move_on_after(LEARN_SECONDS):
            await tables.fetch_topics()
        if topic not in broker.topics:  # it was deleted, or its master is gone
            if len(looked_up) >= MOST_LOOKED_UP:
                looked_up.clear()
            looked_up[topic] = None

    broker.store.queues.on_unknown_topic = check_topic
    client = HaClient(
        broker.store,
        broker.config,
        broker.flusher,
        lambda: registration.master_ha_address,
        registration.register_now,
        check,
        learn_topic,
    )
    broker.ha_client, broker.slave_tables = client, tables

    def look() -> None:
        tables.want()
        client.try_now()

    registration.on_master = look
    if not broker.config.enable_slave_acting_master:
        return [tables.run, client.run]
    broker.acting = ActingMaster(broker.config, registration)
    broker.acting.on_end = broker.held.wake_all
    return [tables.run, client.run, broker.acting.run]


async def _wait_for_topics(broker: Broker, tables: SlaveTables, address: str) -> None:
    """Waits for the topics; raises `CannotFollow` if a new store would be filled without them.

    The log of a batch topic needs another kind of queue than that of an unknown one.
    """
    tables.want()  # a master that is back gets the offsets that were committed here, before consumers fetch its own
    await tables.tried.wait()
    if not broker.store.end and not tables.has_topics.is_set():
        raise CannotFollow(f"the topics of the master at {address} are not known yet; a line before this one says why")
