"""A slave acts in its master's place while that is gone: it serves readers, stores nothing, and gives way again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from pyrmq_core.model import MessageQueue
from pyrmq_core.network import Handler, Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.consumer_send_back import ConsumerSendMsgBack
from pyrmq_core.protocol.requests.broker.lock_queues import LockedQueues, LockQueues
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage, PullSysFlag
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.requests.nameserver.topic_lists import TopicList
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.broker import clock, registration
from pyrmq_core.servers.broker.ha.acting_master import acts
from pyrmq_core.servers.broker.timers.timer_checkpoint import TimerCheckpoint
from pyrmq_core.servers.protocol.broker_heartbeat import NotifyMinBrokerIdChange
from pyrmq_core.servers.protocol.master_info import MasterInfo
from tests.servers.broker.ha.test_ha_client import caught_up
from tests.servers.broker.ha.test_slaves_by_nameserver import make_group
from tests.servers.broker.serving import Served, serving, until
from tests.servers.nameserver.serving import Caller, nameserver

FAST = {
    "enableSlaveActingMaster": "true",
    "brokerHeartbeatInterval": "100",
    "syncBrokerMemberGroupPeriod": "60",
    "brokerNotActiveTimeoutMillis": "2000",
}
SLAVE = {**FAST, "brokerRole": "SLAVE", "brokerId": "1"}
KEEPS_LITE = {"enableLmq": "true", "enableMultiDispatch": "true"}


@pytest.mark.parametrize(
    ("members", "was_acting", "expected"),
    [
        ({0: "m", 1: "own", 2: "s"}, True, False),
        ({1: "own", 2: "s"}, False, True),
        ({1: "own"}, False, True),
        ({2: "s"}, True, True),  # a NameServer that has lost this slave
        ({2: "s"}, False, False),
        ({}, True, True),
        ({}, False, False),
        ({0: "m"}, True, False),
    ],
)
def test_the_smallest_id_acts_without_a_master(members: dict[int, str], was_acting: bool, expected: bool) -> None:
    assert acts(1, members, was_acting) is expected


def test_a_slave_with_a_greater_id_does_not_act() -> None:
    assert not acts(2, {1: "s", 2: "own"}, True)


@dataclass
class Stage:
    """A NameServer that supports acting masters, and where master and slave keep their files."""

    nameserver: str
    caller: Caller
    home: Path
    asked: Counter[int]

    @asynccontextmanager
    async def master(self, **settings: str) -> AsyncIterator[Served]:
        async with serving(self.home / "master", namesrvAddr=self.nameserver, **FAST, **settings) as served:
            yield served

    @asynccontextmanager
    async def slave(self, **settings: str) -> AsyncIterator[Served]:
        async with serving(self.home / "slave", namesrvAddr=self.nameserver, **{**SLAVE, **settings}) as served:
            yield served

    async def routed(self, address: str, perm: int) -> None:
        """Returns when the route of T has this broker as its master, with this permission."""
        await self.caller.wait_for("T", _has(address, perm))


def _has(address: str, perm: int) -> Callable[[TopicRouteData | None], bool]:
    def holds(route: TopicRouteData | None) -> bool:
        return route is not None and (
            [broker.broker_addrs.get(0) for broker in route.broker_datas],
            [queue.perm for queue in route.queue_datas],
        ) == ([address], [perm])

    return holds


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    asked: Counter[int] = Counter()

    def counting(handler: Handler) -> Handler:
        def handle(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
            asked[request.code] += 1
            return handler(request, peer)

        return handle

    settings = {"supportActingMaster": True, "scanNotActiveBrokerInterval": 100}
    async with nameserver(wrap=counting, **settings) as (running, callers):
        yield Stage(running.address, callers(), tmp_path, asked)


@asynccontextmanager
async def ended(stage: Stage, slave: Served, master: Served, *, in_order: bool = False) -> AsyncIterator[None]:
    """Kills the master, or stops it, once the slave has all of it, and waits until the slave acts."""
    await caught_up(slave, master)
    tables = slave.running.broker.tables
    await until(
        lambda: "T" in tables.topics and tables.groups.data_version == master.running.broker.tables.groups.data_version
    )
    if in_order:
        master.running.stop()
    else:
        master.running.kill()
    await master.ended.wait()
    await until(lambda: slave.running.broker.cluster.is_acting)
    await stage.routed(slave.running.address, 4)
    yield


async def pull_code(served: Served) -> int:
    request = PullMessage("G", "T", 0, 0, 32, int(PullSysFlag.SUBSCRIPTION))
    return (await served.ask(request.to_command())).code


async def commit(served: Served, queue_id: int, offset: int) -> None:
    assert (await served.ask(UpdateConsumerOffset("G", "T", queue_id, offset).to_command())).code == 0


async def test_an_acting_slave_serves_readers_and_stores_nothing(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage.master() as master, stage.slave() as slave:
        for number in range(5):
            await master.send("T", b"%d" % number)
        await stage.routed(master.running.address, 6)
        assert await pull_code(slave) == ResponseCode.SYSTEM_BUSY  # slaveReadEnable is false
        assert (await slave.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        async with ended(stage, slave, master):
            pulled = await slave.pull("T")
            assert (pulled.code, pulled.next_begin_offset, pulled.suggest_which_broker_id) == (0, 5, 0)
            assert (await slave.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            back = ConsumerSendMsgBack(offset=0, group="G", delay_level=0, origin_topic="T")
            refused = await slave.ask(back.to_command())
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "no master available along with 127.0.0.1" in (refused.remark or "")
            lock = LockQueues("G", "client", (MessageQueue("T", "broker-a", 0),))
            locked = LockedQueues.from_command(await slave.ask(lock.to_command()))
            assert len(locked.queues) == 1
            assert slave.running.broker.store.end == master.running.broker.store.end
    assert "this slave acts in its place" in caplog.text
    assert "enableSlaveActingMaster" not in caplog.text


async def test_a_master_that_is_back_takes_offsets_before_its_route_is_there(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    lite_queue = "%LMQ%$L$s"
    async with stage.master(**KEEPS_LITE) as master, stage.slave(**KEEPS_LITE) as slave:
        request = UpdateTopic("L", 1, 1, 6, attributes="+message.type=LITE").to_command()
        assert (await master.ask(request)).code == ResponseCode.SUCCESS
        await master.send("L", properties="__LITE_TOPIC\x01s\x02")
        for number in range(8):
            await master.send("T", b"%d" % number, queue_id=number % 2)
        await make_group(master, "G")
        await commit(master, 0, 1)
        await commit(master, 1, 3)
        port = str(master.running.listening.port)
        async with ended(stage, slave, master, in_order=True):
            waiting = trio.Event()

            async def wait_at_the_end() -> None:
                answer = await slave.pull("T", 0, 4, wait_ms=60_000)
                assert answer.code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY)
                waiting.set()

            slave.nursery.start_soon(wait_at_the_end)
            await commit(slave, 0, 3)
            await commit(slave, 1, 2)  # a consumer went back here; the master's own is greater
            await commit(slave, 2, 7)  # behind what the queue has
            slave.running.broker.tables.offsets.commit("G", lite_queue, 0, 1)
            async with stage.master(listenPort=port, **KEEPS_LITE) as again:
                offsets = again.running.broker.tables.offsets
                assert [offsets.committed("G", "T", queue_id) for queue_id in range(3)] == [3, 3, None]
                assert offsets.committed("G", lite_queue, 0) == 1
                await until(lambda: not slave.running.broker.cluster.is_acting)
                await stage.routed(again.running.address, 6)
                assert (await again.send("T", b"more")).code == 0
                await caught_up(slave, again)
                assert await pull_code(slave) == ResponseCode.SYSTEM_BUSY
                with trio.fail_after(30):
                    await waiting.wait()
    assert "had later offsets of 2 queues" in caplog.text


async def test_a_slave_answers_for_the_timers_that_it_keeps(stage: Stage) -> None:
    """Checks what RocketMQ's master needs before it registers: an answer that takes it no further back."""
    request = Command(RequestCode.GET_TIMER_CHECK_POINT)
    async with stage.master(timerFlushIntervalMs="50") as master, stage.slave() as slave:
        assert (await slave.ask(request)).body == bytes(56)
        timer = f"TIMER_DELIVER_MS\x01{clock.now_ms() + 3_600_000}\x02"
        assert (await master.send("T", b"later", timer)).code == 0
        checkpoints = master.running.broker.deliveries.timers.messages.files
        await until(lambda: checkpoints.saved.queue_offset == 1)
        kept = None
        with trio.fail_after(60):
            while kept is None or kept.queue_offset != 1:
                kept = TimerCheckpoint.decode(bytes((await slave.ask(request)).body))
        assert kept.changes <= checkpoints.saved.changes


async def test_delayed_messages_wait_for_the_master_and_come_once(stage: Stage) -> None:
    async with stage.master() as master, stage.slave() as slave:
        await master.send("T")
        await master.send("T", b"later", "DELAY\x012\x02")
        async with ended(stage, slave, master):
            assert (await slave.pull("T")).max_offset == 1
            async with stage.master() as again:
                store = again.running.broker.store
                await until(lambda: store.reader.bounds(("T", 0))[1] == 2)
                await caught_up(slave, again)
                assert store.reader.bounds(("T", 0))[1] == 2


async def test_a_slave_that_a_nameserver_forgot_is_registered_again_soon(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_REPEAT_SECONDS", 3600.0)
    async with stage.master() as master, stage.slave() as slave:
        await master.send("T")
        await caught_up(slave, master)
        registered = slave.running.broker.cluster.registration
        with trio.fail_after(30):
            while set(await registered.members(3.0)) != {0, 1}:
                pass
        await registered.unregister()
        assert set(await registered.members(3.0)) == {0}
        with trio.fail_after(60):  # the next registration without a heartbeat follows after an hour
            while set(await registered.members(3.0)) != {0, 1}:
                pass
        slave.running.stop()
        await slave.ended.wait()
        assert set(await master.running.broker.cluster.registration.members(3.0)) == {0}


async def test_a_notice_of_another_id_leads_to_a_query_and_is_not_believed(stage: Stage) -> None:
    def queries() -> int:
        return stage.asked[RequestCode.GET_BROKER_MEMBER_GROUP]

    async with stage.master() as master, stage.slave(syncBrokerMemberGroupPeriod="600000") as slave:
        await until(lambda: queries() == 2)  # of the master at its start, too
        notice = NotifyMinBrokerIdChange(1, slave.running.address, master.running.address).to_command()
        assert (await slave.ask(notice)).code == 0
        await until(lambda: queries() == 3)
        for _ in range(100):
            await slave.ask(notice)
        assert queries() < 10
        assert not slave.running.broker.cluster.is_acting
        master.running.kill()
        await master.ended.wait()
        await stage.caller.wait_for("TBW102", lambda route: route is not None and route.queue_datas[0].perm == 5)
        assert (await slave.ask(notice)).code == 0
        await until(lambda: slave.running.broker.cluster.is_acting)


async def test_addresses_of_a_master_count_while_there_is_none(stage: Stage) -> None:
    async with stage.master() as master, stage.slave() as slave:
        await master.send("T")
        registration = slave.running.broker.cluster.registration
        told = MasterInfo(master.running.ha_address, 0, master.running.address)
        answer = await master.ask(MasterInfo().to_command())
        expected = MasterInfo(master.running.ha_address, master.running.broker.store.end, master.running.address)
        assert MasterInfo.from_command(answer) == expected
        other = MasterInfo("127.0.0.1:1", 0, "127.0.0.1:2")
        await caught_up(slave, master)
        assert (await slave.ask(other.to_command())).code == 0
        assert registration.master_address == told.address
        async with ended(stage, slave, master):
            bad = await slave.ask(MasterInfo("nowhere", 0, "127.0.0.1:2").to_command())
            assert bad.code == ResponseCode.SYSTEM_ERROR
            assert (await slave.ask(other.to_command())).code == 0
            assert (registration.master_address, registration.master_ha_address) == ("127.0.0.1:2", "127.0.0.1:1")


async def test_the_topic_of_members_has_no_acting_master(stage: Stage) -> None:
    async with stage.master() as master, stage.slave() as slave:
        await master.send("T")
        name = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        answer = await master.ask(Command(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
        assert name in TopicList.from_command(answer).topics
        async with ended(stage, slave, master):
            route = await stage.caller.route(name)
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {1: slave.running.address}
