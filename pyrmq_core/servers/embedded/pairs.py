"""`Pair`: a running master with a running slave, and functions that wait until slaves follow or have all data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import trio

from pyrmq_core.errors import InvalidState
from pyrmq_core.servers.broker import RunningBroker

# The longest wait for a slave that does not follow and logs no reason.
FOLLOW_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class Pair:
    """A running master and a running slave of it, with their names in the cluster."""

    master_name: str
    master: RunningBroker
    slave_name: str
    slave: RunningBroker

    def follows(self) -> bool:
        """Returns True if the slave replicates, that is, if the master has received a report from it."""
        client = self.slave.broker.cluster.ha_client
        if client is None or client.master is None:
            return False
        connected = self.master.broker.cluster.ha.replicas.connected
        return any(slave.address == client.own_address and slave.acknowledged >= 0 for slave in connected)


def pairs_of(running: Mapping[str, RunningBroker]) -> list[Pair]:
    masters = {broker.name: (name, broker) for name, broker in running.items() if not broker.config.is_slave}
    slaves = [(name, broker) for name, broker in running.items() if broker.config.is_slave and broker.name in masters]
    return [Pair(*masters[slave.name], name, slave) for name, slave in slaves]


async def follow(pairs: Iterable[Pair]) -> None:
    """Waits until each slave follows its master or has logged why it cannot, at most `FOLLOW_SECONDS`."""
    async with trio.open_nursery() as nursery:
        for pair in pairs:
            nursery.start_soon(_follow, pair)


async def have_all(pairs: Iterable[Pair], timeout: float) -> None:
    """Waits until each slave has its master's current messages and tables. Raises `InvalidState` at the timeout."""
    late: list[str] = []
    async with trio.open_nursery() as nursery:
        for pair in pairs:
            nursery.start_soon(_has_all, pair, timeout, late)
    if late:
        raise InvalidState("; ".join(late))


async def _follow(pair: Pair) -> None:
    client = pair.slave.broker.cluster.ha_client
    assert client is not None, "a slave's"
    before = client.attempts  # failures of earlier attempts are ignored: the master may not have run yet
    pair.slave.broker.cluster.registration.register_now()  # a restarted master may have another port
    client.try_now()
    with trio.move_on_after(FOLLOW_SECONDS):
        await _until(lambda: pair.follows() or client.refused_attempt > before)


async def _has_all(pair: Pair, timeout: float, late: list[str]) -> None:
    store, end = pair.slave.broker.store, pair.master.broker.store.end
    tables = pair.slave.broker.cluster.slave_tables
    assert tables is not None, "a slave's"
    with trio.move_on_after(timeout):
        await _until(lambda: store.readable_end >= end)
        while True:
            if await tables.fetch() and not tables.failed:
                return
            await trio.sleep(LOOK_SECONDS)
    client = pair.slave.broker.cluster.ha_client
    reason = "" if client is None or client.master is not None else f": {client.failure}"
    unread = f"; its {', '.join(sorted(tables.failed))} cannot be fetched" if tables.failed else ""
    late.append(
        f"{pair.slave_name} has the log up to {store.readable_end} after {timeout:g} s, and {pair.master_name} had it "
        f"up to {end}{reason}{unread}"
    )


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - brokers set no events for a test
        await trio.sleep(LOOK_SECONDS)
