"""A network that passes bytes one way, and a slave's full disk: each is one line, and ends by itself."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from pyrmq_core.network import parse_address
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.servers.broker import RunningBroker, run_broker
from tests.servers.broker.ha.test_ha_client import SLAVE, caught_up, slave_of, stored_files
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import config, serving, until

TIMES = {"haHousekeepingInterval": "400", "haSendHeartbeatInterval": "50"}
WAITS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "500"}


@dataclass
class OneWay:
    """A proxy before a master's port for slaves, which passes no bytes in the directions that are `cut`."""

    master: str
    cut: set[str] = field(default_factory=set)

    async def serve(self, slave: trio.SocketStream) -> None:
        async with await trio.open_tcp_stream(*parse_address(self.master)) as master, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, slave, master, "to master", nursery.cancel_scope)
            await self._pass(master, slave, "to slave", nursery.cancel_scope)

    async def _pass(self, here: trio.SocketStream, there: trio.SocketStream, way: str, scope: trio.CancelScope) -> None:
        """Passes bytes until either end closes, which is seen in both directions: a cut takes bytes alone."""
        try:
            while data := await here.receive_some():
                if way not in self.cut:
                    await there.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


@asynccontextmanager
async def one_way(master: str) -> AsyncIterator[tuple[OneWay, str]]:
    async with trio.open_nursery() as nursery:
        proxy = OneWay(master)
        serve = partial(trio.serve_tcp, proxy.serve, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        yield proxy, f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("way", ["to master", "to slave"])
async def test_a_network_that_is_cut_one_way_is_named_and_recovers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    caplog.set_level(logging.INFO)
    async with (
        serving(tmp_path / "master", **WAITS, **TIMES) as master,
        one_way(master.running.ha_address) as (proxy, address),
        slave_of(master, tmp_path / "slave", **TIMES, haMasterAddress=address) as slave,
    ):
        await caught_up(slave, master)
        assert (await master.send("T")).code == ResponseCode.SUCCESS
        caplog.clear()
        proxy.cut = {way}
        began = trio.current_time()
        assert (await master.send("T")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert trio.current_time() - began < 60  # slaveTimeout is 0.5 s
        silence = "was silent for 0.4 s (haHousekeepingInterval)"
        peer = f"it {silence}" if way == "to master" else f"{address} {silence}"
        await until(lambda: peer in caplog.text)
        proxy.cut = set()
        replicas, end = master.running.broker.cluster.ha.replicas, master.running.broker.store.end
        await until(lambda: any(replica.acknowledged == end for replica in replicas.connected))
        assert (await master.send("T")).code == ResponseCode.SUCCESS
        assert caplog.text.count("does not follow its master") == 1
    assert stored_files(tmp_path / "slave") == stored_files(tmp_path / "master")


async def test_a_slave_without_room_acknowledges_nothing_and_goes_on_when_it_has_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    async with serving(tmp_path / "master", **WAITS) as master, trio.open_nursery() as nursery:
        follows = config(tmp_path / "slave", **SLAVE, haMasterAddress=master.running.ha_address)
        slave: RunningBroker = await nursery.start(partial(run_broker, follows, files=files))
        store = slave.broker.store
        await until(lambda: len(master.running.broker.cluster.ha.replicas.connected) == 1)
        assert (await master.send("T")).code == ResponseCode.SUCCESS
        await until(lambda: store.readable_end == master.running.broker.store.end)
        files.room = 100
        for _ in range(3):
            assert (await master.send("T", bytes(1000))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        await until(lambda: "this slave does not follow its master" in caplog.text)
        files.room = None
        await until(lambda: store.readable_end == master.running.broker.store.end)
        assert store.reader.bounds(("T", 0)) == (0, 4)
        assert caplog.text.count("does not follow its master") == 1
        slave.stop()
