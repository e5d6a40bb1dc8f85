"""A NameServer over real sockets: connections that end, brokers that come back, several NameServers, notices."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pyrmq_core.network import ConnectionPool, Handler, Peer, ask, serve
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, refusal
from pyrmq_core.protocol.requests.nameserver.kv_config import PutKvConfig
from pyrmq_core.servers.nameserver.server import scan_rounds, tell_kv_rounds
from pyrmq_core.servers.protocol.broker_heartbeat import NotifyMinBrokerIdChange
from pyrmq_core.servers.protocol.register_broker import UnregisterBroker
from tests.servers.nameserver.desk import Desk, closed_because, peer, registration
from tests.servers.nameserver.serving import TIMEOUT, nameserver


async def test_a_closed_connection_takes_its_broker_out_at_once() -> None:
    async with nameserver() as (_, caller):
        broker, client = caller(), caller()
        await broker.register(registration(topics=["T", "U"]))
        assert await client.route("T") is not None
        broker.hang_up()
        await client.wait_for("T", lambda route: route is None)


async def test_a_broker_that_came_over_a_new_connection_survives_the_close_of_the_old_one() -> None:
    async with nameserver() as (running, caller):
        old, new, client = caller(), caller(), caller()
        await old.register(registration(topics=["T", "U"]))
        await new.register(registration(topics=["T", "U"]))
        old.hang_up()
        with trio.fail_after(TIMEOUT):
            while len(running.listening.connections) > 1:
                await trio.lowlevel.checkpoint()
        assert await client.route("T") is not None
        new.hang_up()
        await client.wait_for("T", lambda route: route is None)


async def test_a_broker_says_good_bye() -> None:
    async with nameserver() as (_, caller):
        broker, client = caller(), caller()
        await broker.register(registration(topics=["T", "U"]))
        gone = UnregisterBroker("DefaultCluster", "127.0.0.1:10911", "broker-a", 0)
        assert (await broker.call(gone.to_command())).code == 0
        assert await client.route("T") is None


async def test_the_connection_of_a_silent_broker_is_closed() -> None:
    async with nameserver() as (running, caller):
        broker = caller()
        await broker.register(registration(topics=["T", "U"], heartbeat_timeout_ms=-1))
        (connection,) = broker.pool.connections
        running.server.scan()
        with trio.fail_after(TIMEOUT):
            while not connection.is_closed:
                await trio.lowlevel.checkpoint()
        assert await caller().route("T") is None


async def test_an_idle_connection_is_closed_and_takes_its_broker_along() -> None:
    async with nameserver(serverChannelMaxIdleTimeSeconds=1) as (_, caller):
        broker, client = caller(), caller()
        await broker.register(registration(topics=["T", "U"]))
        await client.wait_for("T", lambda route: route is None)


async def test_nameservers_know_nothing_of_each_other() -> None:
    async with nameserver() as (_, first), nameserver() as (_, second):
        await first().register(registration(topics=["T", "U"]))
        assert await second().route("T") is None


async def test_stopping_closes_connections_and_port_and_writes_what_is_not_written(tmp_path: Path) -> None:
    kv = tmp_path / "kv.json"
    async with trio.open_nursery() as nursery:
        pool = ConnectionPool(nursery)
        async with nameserver(kvConfigPath=kv) as (running, _):
            assert (
                await pool.call(running.address, PutKvConfig("N", "k", "1").to_command(), timeout=TIMEOUT)
            ).code == 0
            running.kv.put("N", "k", "2")
            (connection,) = pool.connections
        with trio.fail_after(TIMEOUT):
            while not connection.is_closed:
                await trio.lowlevel.checkpoint()
        assert kv.read_text() == '{"configTable":{"N":{"k":"2"}}}'
        nursery.cancel_scope.cancel()


async def test_a_wrapped_handler_sees_and_changes_answers() -> None:
    seen: list[int] = []

    def wrap(handler: Handler) -> Handler:
        async def wrapped(request: Command, whom: Peer) -> Command | None:
            seen.append(request.code)
            return refusal(2, "busy") if request.code == 106 else await ask(handler, request, whom)

        return wrapped

    async with nameserver(wrap=wrap) as (_, caller):
        client = caller()
        assert (await client.call(Command(RequestCode.GET_BROKER_CLUSTER_INFO))).remark == "busy"
        assert await client.route("T") is None
    assert seen == [106, 105]


@pytest.mark.parametrize("asked_for", [True, False])
async def test_brokers_are_notified_of_another_smallest_id_if_the_settings_say_so(asked_for: bool) -> None:
    reported: list[Command] = []

    def hear(request: Command, _: Peer) -> None:
        reported.append(request)

    async with (
        trio.open_nursery() as nursery,
        nameserver(notifyMinBrokerIdChanged=asked_for) as (_, caller),
    ):
        listening = await nursery.start(serve, hear, "127.0.0.1", 0)
        master, slave, client = caller(), caller(), caller()
        await master.register(registration(topics=["T", "U"]))
        await slave.register(registration(address=listening.address, broker_id=1, topics=["T", "U"]))
        master.hang_up()
        await client.wait_for("T", lambda route: route is not None and route.broker_datas[0].master is None)
        if asked_for:
            with trio.fail_after(TIMEOUT):
                while not reported:
                    await trio.lowlevel.checkpoint()
            notice = NotifyMinBrokerIdChange.from_command(reported[0])
            assert notice == NotifyMinBrokerIdChange(1, listening.address, "127.0.0.1:10911", None)
            assert reported[0].is_oneway
        else:
            assert not reported
        nursery.cancel_scope.cancel()


async def test_a_broker_that_cannot_be_notified_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    async with nameserver(notifyMinBrokerIdChanged=True) as (_, caller):
        master, slave, client = caller(), caller(), caller()
        await master.register(registration(topics=["T", "U"]))
        await slave.register(registration(address="127.0.0.1:1", broker_id=1, topics=["T", "U"]))
        master.hang_up()
        with trio.fail_after(TIMEOUT):
            while not any("gets no notice of its group's smallest id" in line for line in caplog.messages):
                await client.route("T")


async def test_silent_brokers_are_looked_for_first_after_5_s_then_every_10_s(autojump_clock: MockClock) -> None:
    desk = Desk()
    looks: list[float] = []
    started = trio.current_time()
    desk.server.scan = lambda: looks.append(trio.current_time() - started)  # type: ignore[method-assign]
    with trio.move_on_after(40):
        await scan_rounds(desk.server)
    assert looks == [5, 15, 25, 35]


async def test_a_nameserver_that_stood_still_hears_its_brokers_first(mock_clock: MockClock) -> None:
    """Their registrations wait in its sockets when it goes on."""
    desk, broker = Desk(), peer("127.0.0.1:7")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scan_rounds, desk.server)
        await desk.register(topics=["T"], of=broker)
        await wait_all_tasks_blocked()
        mock_clock.jump(500)
        await wait_all_tasks_blocked()
        assert await desk.route("T") is not None
        await desk.register(topics=["T"], of=broker)
        mock_clock.jump(10)
        await wait_all_tasks_blocked()
        assert await desk.route("T") is not None
        nursery.cancel_scope.cancel()


async def test_a_silent_broker_is_gone_after_120_s_by_the_rounds_alone(autojump_clock: MockClock) -> None:
    desk, broker = Desk(), peer("127.0.0.1:7")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scan_rounds, desk.server)
        await desk.register(topics=["T", "U"], of=broker)
        await trio.sleep(119)
        assert await desk.route("T") is not None
        await trio.sleep(11)
        assert await desk.route("T") is None
        assert closed_because(broker)
        nursery.cancel_scope.cancel()


async def test_rounds_log_the_kv_configuration(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    desk.server.kv.put("N", "k", "v")
    with trio.move_on_after(700):
        await tell_kv_rounds(desk.server)
    assert caplog.messages == ["KV configuration N: k = v"] * 2


@pytest.mark.parametrize(("end", "is_written"), [("stop", True), ("kill", False)])
async def test_a_stop_writes_what_is_not_in_the_file_yet_and_a_kill_does_not(
    tmp_path: Path, end: str, is_written: bool
) -> None:
    path = tmp_path / "kvConfig.json"
    async with nameserver(kvConfigPath=path) as (running, caller):
        assert (await caller().call(PutKvConfig("N", "k", "v").to_command())).code == 0
        path.unlink()
        running.kv.put("N", "later", "v")  # as if its write were still to come
        getattr(running, end)()
    assert path.exists() == is_written
