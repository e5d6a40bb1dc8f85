"""The work of a slave: it follows its master's log."""

from __future__ import annotations

from functools import partial
from typing import Final

from pyrmq_core.broker.broker import Broker
from pyrmq_core.broker.ha.ha_client import HaClient
from pyrmq_core.broker.ha.master_checks import check_master

CHECK_SECONDS: Final = 5.0


def slave_client(broker: Broker) -> HaClient:
    """Returns the client that follows the master that NameServers, or haMasterAddress, name."""
    registration = broker.registration

    async def check() -> None:
        address = registration.master_address
        if address is not None:
            await check_master(partial(registration.ask_master, timeout=CHECK_SECONDS), broker.store, address)

    client = HaClient(
        broker.store,
        broker.config,
        broker.flusher,
        lambda: registration.master_ha_address,
        registration.register_now,
        check,
    )
    broker.ha_client = client
    return client
