"""Lines 1 to 22, and the NameServer's part in lines 25 and 26."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core.model import TopicConfig
from pyrmq_core.network import ConnectionPool
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvConfig, PutKvConfig
from pyrmq_core.protocol.requests.nameserver.namesrv_config import UpdateNamesrvConfig
from pyrmq_core.protocol.routes.route import QueueData
from pyrmq_core.servers.nameserver import main
from pyrmq_core.servers.nameserver import server as running
from pyrmq_core.servers.nameserver.server import scan_rounds, tell_kv_rounds
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo
from pyrmq_core.servers.protocol.register_broker import RegisteredBroker, UnregisterBroker
from tests.servers.nameserver.desk import Desk, closed_because, json_body, peer, registration
from tests.servers.nameserver.serving import TIMEOUT, nameserver
from tests.servers.nameserver.test_process import booted_address, process

A, SLAVE = "127.0.0.1:10911", "127.0.0.1:10921"
KEY_A = BrokerAddrInfo("DefaultCluster", A)


# Start


def test_line_01_settings_file_print_and_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-c` sets the process's and the network's settings, and names the file for changes; `-p` prints all, exits 0."""
    file = tmp_path / "namesrv.conf"
    file.write_text("orderMessageEnable=true\nserverChannelMaxIdleTimeSeconds=60\n")
    assert main(["-c", str(file), "-p"]) == 0
    printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
    assert printed["orderMessageEnable"] == "true"
    assert printed["serverChannelMaxIdleTimeSeconds"] == "60"
    assert printed["listenPort"] == "9876"
    assert printed["configStorePath"] == str(file)


async def test_line_01_it_says_which_file_it_loaded(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=0\n")
    with process("-c", str(file), home=tmp_path) as started:
        assert started.stdout is not None
        line = await trio.to_thread.run_sync(started.stdout.readline)
    assert line == f"load config properties file OK, {file}\n"


async def test_line_02_kv_configuration_is_loaded_before_the_port_opens(tmp_path: Path) -> None:
    kv = tmp_path / "kvConfig.json"
    kv.write_text('{"configTable":{"N":{"k":"v"}}}')
    async with nameserver(kvConfigPath=kv) as (_, caller):
        assert (await caller().call(GetKvConfig("N", "k").to_command())).ext["value"] == "v"


async def test_line_02_a_background_round_prints_kv_settings(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk()
    await desk.ask(PutKvConfig("N", "k", "v").to_command())
    with trio.move_on_after(61):
        await tell_kv_rounds(desk.server)
    assert caplog.messages == ["KV configuration N: k = v"]


async def test_line_03_the_end_of_a_connection_reaches_the_tables_at_once() -> None:
    """By its close; idling is `test_line_03_idle`, and bytes that are no frame close the connection as well."""
    async with nameserver() as (_, caller):
        broker, client = caller(), caller()
        await broker.register(registration(topics=["T", "U"]))
        broker.hang_up()
        await client.wait_for("T", lambda route: route is None)


async def test_line_03_idle() -> None:
    async with nameserver(serverChannelMaxIdleTimeSeconds=1) as (_, caller):
        broker, client = caller(), caller()
        await broker.register(registration(topics=["T", "U"]))
        await client.wait_for("T", lambda route: route is None)


async def test_line_04_requests_under_way_are_bounded() -> None:
    """Ours run in one loop, not in serverWorkerThreads; a connection has at most so many requests under way."""
    under_way = 0
    let_go = trio.Event()
    limit = running.REQUESTS_PER_CONNECTION

    async def hold(request: Command, _: object) -> Command | None:
        nonlocal under_way
        under_way += 1
        await let_go.wait()
        return Command(0)

    async with nameserver(wrap=lambda _: hold) as (_, caller), trio.open_nursery() as nursery:
        client, other = caller(), caller()
        for number in range(limit + 20):
            nursery.start_soon(client.call, GetRouteInfo("T").to_command())
            with trio.fail_after(TIMEOUT):
                while under_way < min(number + 1, limit):
                    await trio.lowlevel.checkpoint()
        nursery.start_soon(other.call, GetRouteInfo("T").to_command())
        with trio.fail_after(TIMEOUT):
            while under_way < limit + 1:
                await trio.lowlevel.checkpoint()
        assert under_way == limit + 1  # the other connection's one; twenty wait in the first one's pipe
        let_go.set()


async def test_line_05_a_stop_closes_everything_in_order(tmp_path: Path) -> None:
    kv = tmp_path / "kv.json"
    file = tmp_path / "namesrv.conf"
    file.write_text(f"listenPort=0\nkvConfigPath={kv}\n")
    with process("-c", str(file), home=tmp_path) as started:
        address = await trio.to_thread.run_sync(booted_address, started)
        async with trio.open_nursery() as nursery:
            pool = ConnectionPool(nursery)
            await pool.call(address, PutKvConfig("N", "k", "v").to_command(), timeout=TIMEOUT)
            (connection,) = pool.connections
            started.send_signal(signal.SIGTERM)
            with trio.fail_after(TIMEOUT):
                while not connection.is_closed:
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        assert await trio.to_thread.run_sync(started.wait) == 0
    assert kv.read_text() == '{"configTable":{"N":{"k":"v"}}}'


async def test_line_06_routes_live_in_memory_and_nameservers_do_not_know_each_other() -> None:
    async with nameserver() as (_, first), nameserver() as (_, second):
        await first().register(registration(topics=["T", "U"]))
        client = second()
        assert await client.route("T") is None
        (connection,) = client.pool.connections
        assert connection.calls_under_way == 0  # the NameServer notifies no client: clients poll


# Tables


async def test_line_07_topic_queue_table() -> None:
    desk = Desk()
    await desk.register(topics=[TopicConfig("T", 4, 2, 6, topic_sys_flag=1)])
    assert desk.server.tables.topic_queue_table == {"T": {"broker-a": QueueData("broker-a", 4, 2, 6, 1)}}
    body = json_body(await desk.ask(GetRouteInfo("T").to_command()))
    assert body["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 1, "writeQueueNums": 2}
    ]
    old_spelling = {"brokerName": "b", "perm": 6, "readQueueNums": 4, "topicSynFlag": 1, "writeQueueNums": 2}
    assert QueueData.from_members(old_spelling).topic_sys_flag == 1


async def test_line_08_broker_addr_table() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    await desk.register(address=SLAVE, broker_id=1, topics=["T", "U"])
    broker = desk.server.tables.broker_addr_table["broker-a"]
    assert (broker.cluster, broker.broker_name, dict(broker.broker_addrs)) == (
        "DefaultCluster",
        "broker-a",
        {0: A, 1: SLAVE},
    )
    assert broker.master == A


async def test_line_09_cluster_addr_table() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    await desk.register("broker-b", SLAVE, topics=["T", "U"])
    assert {cluster: set(names) for cluster, names in desk.server.tables.cluster_addr_table.items()} == {
        "DefaultCluster": {"broker-a", "broker-b"}
    }


async def test_line_10_broker_live_table(mock_clock: MockClock) -> None:
    desk, broker = Desk(), peer()
    mock_clock.jump(5)
    await desk.register(topics=["T", "U"], version=3, of=broker)
    live = desk.server.tables.broker_live_table[KEY_A]
    assert live.last_update_ms == int(trio.current_time() * 1000)
    assert live.data_version.counter == 3
    assert live.connection is broker
    assert live.ha_server_addr == "127.0.0.1:10912"


async def test_line_11_filter_server_table() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"], filters=["127.0.0.1:9"])
    assert desk.server.tables.filter_server_table == {KEY_A: ("127.0.0.1:9",)}
    assert json_body(await desk.ask(GetRouteInfo("T").to_command()))["filterServerTable"] == {A: ["127.0.0.1:9"]}


# Registration


@pytest.mark.parametrize("compressed", [False, True])
async def test_line_12_header_and_body_of_a_registration(compressed: bool) -> None:
    desk = Desk()
    requested = registration(topics=["T", "U"], filters=["127.0.0.1:9"], compressed=compressed)
    command = requested.to_command()
    assert command.ext.keys() >= {
        "brokerAddr",
        "brokerId",
        "brokerName",
        "clusterName",
        "haServerAddr",
        "compressed",
        "bodyCrc32",
    }
    assert (await desk.ask(command)).code == 0
    assert set(desk.server.tables.topic_queue_table) == {"T", "U"}
    assert desk.server.tables.filter_server_table
    lie = Command(103, {**command.ext, "bodyCrc32": "1"}, command.body)
    assert (await desk.ask(lie)).remark == "crc32 not match"


async def test_line_12_versions_before_3_0_11_send_topics_alone() -> None:
    desk = Desk()
    requested = registration(topics=["T", "U"])
    wrapper = (
        b'{"dataVersion":{"counter":1,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T","perm":6,'
        b'"readQueueNums":4,"writeQueueNums":4}}}'
    )
    command = Command(103, {**requested.to_command().ext, "bodyCrc32": "0"}, wrapper, version=36)
    assert (await desk.ask(command)).code == 0
    assert set(desk.server.tables.topic_queue_table) == {"T"}


async def test_line_13_one_pure_step_in_order() -> None:
    """An address known under another id is removed first; an id without address is a first registration."""
    desk = Desk()
    await desk.register(topics=["T", "U"])
    await desk.register(address=SLAVE, broker_id=1, topics=["T", "U"])
    await desk.ask(UnregisterBroker("DefaultCluster", A, "broker-a", 0).to_command())
    await desk.register(address=SLAVE, broker_id=0, topics=[TopicConfig("T", 9, 9)])  # the version it always had
    assert dict(desk.server.tables.broker_addr_table["broker-a"].broker_addrs) == {0: SLAVE}
    assert desk.server.tables.topic_queue_table["T"]["broker-a"].read_queue_nums == 9


async def test_line_14_topics_from_the_master_when_first_or_changed() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    await desk.register(address=SLAVE, broker_id=1, topics=["T", "SlaveOnly"], version=9)
    await desk.register(topics=[TopicConfig("T", 9, 9)])  # the same version
    assert desk.server.tables.topic_queue_table["T"]["broker-a"].read_queue_nums == 4
    assert "SlaveOnly" not in desk.server.tables.topic_queue_table
    await desk.register(topics=[TopicConfig("T", 9, 9)], version=2)
    assert desk.server.tables.topic_queue_table["T"]["broker-a"].read_queue_nums == 9


async def test_line_15_equal_queue_data_is_kept_and_changed_replaced() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    queues = desk.server.tables.topic_queue_table
    kept, replaced = queues["T"]["broker-a"], queues["U"]["broker-a"]
    await desk.register(topics=["T", TopicConfig("U", 4, 4, 4)], version=2)
    assert queues["T"]["broker-a"] is kept
    assert queues["U"]["broker-a"] is not replaced
    assert queues["U"]["broker-a"].perm == 4


async def test_line_16_the_live_entry_is_replaced_and_an_empty_filter_list_removes(mock_clock: MockClock) -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"], filters=["127.0.0.1:9"])
    first = desk.server.tables.broker_live_table[KEY_A]
    mock_clock.jump(30)
    await desk.register(topics=["T", "U"])
    second = desk.server.tables.broker_live_table[KEY_A]
    assert second is not first
    assert second.last_update_ms - first.last_update_ms == 30_000
    assert not desk.server.tables.filter_server_table


async def test_line_17_a_slave_learns_its_master() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    answer = await desk.register(address=SLAVE, broker_id=1, topics=["T", "U"], ha="127.0.0.1:10922")
    assert RegisteredBroker.from_command(answer) == RegisteredBroker("127.0.0.1:10912", A)


# Leaving


async def test_line_18_scan_after_5_s_then_every_10_s_and_strictly_more_than_120_s(autojump_clock: MockClock) -> None:
    desk, broker = Desk(), peer()
    async with trio.open_nursery() as nursery:
        await desk.register(topics=["T", "U"], of=broker)
        nursery.start_soon(scan_rounds, desk.server)
        await trio.sleep(124.9)  # the look at 115 s; the next one is at 125 s
        assert desk.server.tables.broker_live_table
        await trio.sleep(0.2)
        assert not desk.server.tables.broker_live_table
        assert closed_because(broker)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("ms", "gone"), [(120_000, False), (120_001, True)])
async def test_line_18_strictly(mock_clock: MockClock, ms: int, gone: bool) -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    live = desk.server.tables.broker_live_table[KEY_A]
    assert live.is_expired(live.last_update_ms + ms) is gone


async def test_line_19_removal_goes_through_all_tables_a_log_line_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    desk, broker = Desk(), peer()
    await desk.register(topics=["T", "U"], filters=["127.0.0.1:9"], of=broker)
    await desk.register("broker-b", SLAVE, topics=["U", "V"], cluster="Other", of=peer())
    caplog.clear()
    desk.server.connection_closed(broker)
    tables = desk.server.tables
    assert (list(tables.broker_live_table), list(tables.broker_addr_table)) == ([("Other", SLAVE)], ["broker-b"])
    assert (list(tables.cluster_addr_table), tables.filter_server_table) == (["Other"], {})
    assert {topic: list(queues) for topic, queues in tables.topic_queue_table.items()} == {
        "U": ["broker-b"],
        "V": ["broker-b"],
    }
    assert caplog.messages == [
        "removed broker broker-a, id 0, 127.0.0.1:10911, cluster DefaultCluster: its connection closed",
        "removed broker name broker-a: no address is left",
        "removed cluster DefaultCluster: no broker is left",
        "removed topic T: no broker has it any more",
    ]


async def test_line_20_a_broker_that_stops_in_order_unregisters_at_once() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    assert (await desk.ask(UnregisterBroker("DefaultCluster", A, "broker-a", 0).to_command())).code == 0
    assert await desk.route("T") is None


async def test_line_21_otherwise_it_stays_for_up_to_120_s(autojump_clock: MockClock) -> None:
    """A machine that vanished sends no close. It stays for 120 s and at most a round more."""
    desk = Desk()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scan_rounds, desk.server)
        await trio.sleep(3)
        await desk.register(topics=["T", "U"])
        await trio.sleep(120)
        assert await desk.route("T") is not None
        await trio.sleep(10.1)
        assert await desk.route("T") is None
        nursery.cancel_scope.cancel()


# Routes


async def test_line_22_what_a_route_has_and_the_refusal_with_a_pointer_to_help() -> None:
    desk = Desk()
    await desk.ask(PutKvConfig("ORDER_TOPIC_CONFIG", "T", "broker-a:4").to_command())
    await desk.register(topics=["T", "U"])
    body = json_body(await desk.ask(GetRouteInfo("T").to_command()))
    assert body.keys() == {"queueDatas", "brokerDatas", "filterServerTable"}
    await desk.ask(UpdateNamesrvConfig({"orderMessageEnable": "true"}).to_command())
    body = json_body(await desk.ask(GetRouteInfo("T").to_command()))
    assert body["orderTopicConf"] == "broker-a:4"
    refusal = await desk.ask(GetRouteInfo("Nobody").to_command())
    assert refusal.code == 17
    assert refusal.remark == (
        "No topic route info in name server for the topic: Nobody\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


# The NameServer's side of lines 25 and 26


async def test_line_25_one_way_registration_is_taken() -> None:
    async with nameserver() as (running_one, caller):
        broker, client = caller(), caller()
        command = registration(topics=["T", "U"]).to_command()
        await broker.pool.send_oneway(running_one.address, command, timeout=TIMEOUT)
        await client.wait_for("T", lambda route: route is not None)


async def test_line_26_a_registration_of_one_new_topic_leaves_the_others() -> None:
    desk = Desk()
    await desk.register(topics=["T", "U"])
    await desk.register(topics=["New"], version=2)
    assert set(desk.server.tables.topic_queue_table) == {"T", "U", "New"}
    assert (await desk.question(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).code == 0
