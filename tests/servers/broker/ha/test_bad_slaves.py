"""Slaves and strangers that do a master no good: each ends in a line that names it, and holds up nothing."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pyrmq_core.network import parse_address
from pyrmq_core.network.byte_server import MAX_BYTE_CONNECTIONS, ByteConnection
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.servers.broker.ha.ha_server import HaServer
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.broker.store.layout import StoreSettings
from tests.servers.broker.ha.following import REPORT, follower
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import serving, until
from tests.servers.broker.stores import Sent, opened, put


async def test_strangers_that_stay_do_not_keep_slaves_out(tmp_path: Path) -> None:
    """A slave that was there before stays, too."""
    async with serving(tmp_path, haSendHeartbeatInterval="40", haHousekeepingInterval="600000") as served:
        replicas = served.running.broker.cluster.ha.replicas
        await served.send("T")
        end = served.running.broker.store.end
        async with follower(served.running) as early:
            await early.report(end)
            await until(lambda: len(replicas.connected) == 1)
            first = next(iter(replicas.connected))
            place = parse_address(served.running.ha_address)
            strangers = [await trio.open_tcp_stream(*place) for _ in range(MAX_BYTE_CONNECTIONS)]
            with trio.fail_after(30):
                while True:
                    async with follower(served.running) as late:
                        await late.report(end)
                        if not await late.is_closed():
                            assert first in replicas.connected
                            break
            for stranger in strangers:
                await stranger.aclose()


async def test_each_refused_slave_has_its_own_line_and_a_stranger_that_leaves_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as served:
        for reported in (10**9, 10**9, 10**9 + 1):
            async with follower(served.running) as slave:
                await slave.report(reported)
                assert await slave.is_closed()
        async with follower(served.running) as stranger:
            await stranger.stream.send_all(b"half")
            address = stranger.address
        await until(lambda: address in caplog.text)
    lines = [line.message for line in caplog.records if "closing the connection" in line.message]
    assert [line.count(f"ends at {10**9},") for line in lines] == [1, 0, 0]
    assert [line.count(f"ends at {10**9 + 1},") for line in lines] == [0, 1, 0]
    assert lines[2] == f"closing the connection with {address}: it closed within a report"


async def test_a_slave_that_lags_is_named_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path, haMaxGapNotInSync="1000", haSendHeartbeatInterval="600000") as served:
        await served.send("T", bytes(5000))
        end = served.running.broker.store.end
        async with follower(served.running) as slave:
            await slave.report(0)
            await slave.follow(end)
            await until(lambda: f"the slave at {slave.address} is in sync again" in caplog.text)
            await served.send("T", bytes(500))
            await served.send("T", bytes(500))
            behind = served.running.broker.store.end - end
            text = f"the slave at {slave.address} is not in sync any more (haMaxGapNotInSync), {behind} bytes behind"
            await until(lambda: text in caplog.text)
    assert caplog.text.count("not in sync any more") == 1


async def test_an_empty_slave_does_not_lag_by_what_it_never_gets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, mappedFileSizeCommitLog="4096", haMaxGapNotInSync="4096") as served:
        while served.running.broker.store.end < 12_000:
            await served.send("T", bytes(1000))
        async with follower(served.running) as slave:
            await slave.report(0)
            await slave.follow(served.running.broker.store.end)
    assert "not in sync" not in caplog.text


async def test_slaves_of_one_id_are_two_copies(tmp_path: Path) -> None:
    """The bytes of this port name no brokerId."""
    async with (
        serving(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="3", slaveTimeout="20000") as served,
        trio.open_nursery() as nursery,
        follower(served.running) as first,
        follower(served.running) as second,
    ):
        answers: list[int] = []

        async def send() -> None:
            answers.append((await served.send("T")).code)

        for slave in (first, second):
            await slave.report(0)
        await until(lambda: len(served.running.broker.cluster.ha.replicas.connected) == 2)
        nursery.start_soon(send)
        await first.block()
        await first.report(served.running.broker.store.end)
        await second.block()
        assert answers == []
        await second.report(served.running.broker.store.end)
        await until(lambda: answers == [ResponseCode.SUCCESS])


async def test_a_name_is_looked_up_once_for_every_port(tmp_path: Path) -> None:
    """The name server is gone after the first look-up."""

    class OneAnswer(trio.abc.HostnameResolver):
        asked = 0

        async def getaddrinfo(
            self, host: object, port: object, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
        ) -> Any:
            self.asked += 1
            if self.asked > 1:
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            assert isinstance(port, int)
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

        async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
            raise NotImplementedError

    resolver = OneAnswer()
    trio.socket.set_custom_hostname_resolver(resolver)
    async with serving(tmp_path, bindAddress="broker.test", brokerIP1="127.0.0.1") as served:
        assert resolver.asked == 1
        async with follower(served.running) as slave:
            await slave.report(0)
            await until(lambda: bool(served.running.broker.cluster.ha.replicas.connected))


async def test_a_slave_is_cut_when_it_neither_takes_nor_acknowledges(
    caplog: pytest.LogCaptureFixture, mock_clock: trio.testing.MockClock
) -> None:
    """It reports all the time. What it acknowledges, slowly, keeps it; without that it is cut after 20 s."""
    store = opened(MemoryFiles(), StoreSettings(segment_bytes=4 << 20, queue_file_bytes=100_000))
    while store.end < 2_000_000:
        put(store, Sent("T", 0, (bytes(1000),)))
    ha = HaServer(store, BrokerConfig())
    left, right = trio.socket.socketpair()
    async with trio.SocketStream(left) as master, trio.SocketStream(right) as slave, trio.open_nursery() as nursery:
        nursery.start_soon(ha.serve_slave, ByteConnection(master, "127.0.0.1", 1))
        await slave.send_all(REPORT.pack(1))
        await trio.testing.wait_all_tasks_blocked(0.01)
        (replica,) = ha.replicas.connected
        assert replica.sent < store.end
        for acknowledged in range(2, 8):
            await slave.send_all(REPORT.pack(acknowledged))
            while replica.acknowledged < acknowledged:
                await trio.lowlevel.checkpoint()
            mock_clock.jump(15)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert replica in ha.replicas.connected
        for _ in range(4):
            if ha.replicas.connected:
                await slave.send_all(REPORT.pack(replica.acknowledged))
                await trio.testing.wait_all_tasks_blocked(0.01)
                mock_clock.jump(15)
                await trio.testing.wait_all_tasks_blocked(0.01)
    assert "closing the connection with 127.0.0.1:1: it took nothing for 20 s (haHousekeepingInterval)" in caplog.text
