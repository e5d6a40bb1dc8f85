"""Reading from a slave: the broker that answers suggest, and the offsets at which a slave lets readers wait."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from tests.servers.broker.ha.test_ha_client import caught_up, slave_of
from tests.servers.broker.serving import Served, serving, until

READ_FROM_SLAVES = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
# Recorded with RocketMQ 5.4.0 and 4.9.7: 40 messages in queue 0, none in queue 1.
BESIDE_THE_QUEUE = [
    (0, 41, "OFFSET_OVERFLOW_BADLY", 40),
    (0, 100, "OFFSET_OVERFLOW_BADLY", 40),
    (0, -1, "OFFSET_TOO_SMALL", 0),
    (1, 5, "NO_MESSAGE_IN_QUEUE", 0),
]


@asynccontextmanager
async def pair(tmp_path: Path, **settings: str) -> AsyncIterator[tuple[Served, Served]]:
    """Yields a master with 40 messages in queue 0, and its slave, which has them all."""
    async with serving(tmp_path / "master", **settings) as master:
        for number in range(40):
            await master.send("T", b"%d" % number)
        async with slave_of(master, tmp_path / "slave", **settings) as slave:
            give_topics(master, slave)
            await caught_up(slave, master)
            yield master, slave


def give_topics(master: Served, slave: Served) -> None:
    """Gives the slave its master's topics at once."""
    for topic in master.running.broker.tables.topics:
        slave.running.broker.tables.topics.put(topic, 0)


def words(answer: PullAnswer) -> tuple[int, str | None, int, int]:
    return answer.code, answer.remark, answer.next_begin_offset, answer.suggest_which_broker_id


async def test_a_reader_far_behind_is_sent_to_the_slave(tmp_path: Path) -> None:
    async with pair(tmp_path, **READ_FROM_SLAVES) as (master, slave):
        for broker in (master, slave):
            assert [(await broker.pull("T", offset=offset)).suggest_which_broker_id for offset in (0, 39, 40)] == [
                1,
                1,
                0,
            ]


@pytest.mark.parametrize(
    "settings",
    [
        {"slaveReadEnable": "false", "accessMessageInMemoryMaxRatio": "0"},
        {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "100"},
    ],
)
async def test_other_readers_stay_with_the_master(tmp_path: Path, settings: dict[str, str]) -> None:
    async with serving(tmp_path, **settings) as master:
        await master.send("T")
        assert (await master.pull("T")).suggest_which_broker_id == 0


async def test_a_group_names_the_brokers_that_are_suggested(tmp_path: Path) -> None:
    async with serving(tmp_path, **READ_FROM_SLAVES) as master:
        await master.send("T")
        await master.pull("T")
        groups = master.running.broker.tables.groups
        groups.put({**(groups.known("G") or {}), "whichBrokerWhenConsumeSlowly": 2, "brokerId": 3}, 0)
        assert [(await master.pull("T", offset=offset)).suggest_which_broker_id for offset in (0, 1)] == [2, 3]


@pytest.mark.parametrize(("queue_id", "offset", "remark", "moved"), BESIDE_THE_QUEUE)
async def test_a_slave_moves_no_reader(tmp_path: Path, queue_id: int, offset: int, remark: str, moved: int) -> None:
    async with pair(tmp_path) as (master, slave):
        there = await master.pull("T", queue_id, offset)
        assert words(there) == (ResponseCode.PULL_OFFSET_MOVED, remark, moved, 0)
        here = await slave.pull("T", queue_id, offset)
        assert words(here) == (ResponseCode.PULL_RETRY_IMMEDIATELY, remark, offset, 0)
        assert (here.min_offset, here.max_offset) == (there.min_offset, there.max_offset)
        end = await slave.pull("T", 0, 40)
        assert words(end) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 40, 0)


async def test_a_slave_holds_a_pull_for_messages_that_it_lacks(tmp_path: Path) -> None:
    """The reader is at an offset that the slave gets two messages later."""
    async with pair(tmp_path, shortPollingTimeMills="60000") as (master, slave):
        answers: list[PullAnswer] = []

        async def pull() -> None:
            answers.append(await slave.pull("T", 0, 41, wait_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await until(lambda: slave.running.broker.clients.held.count == 1)
            await master.send("T", b"40")
            await caught_up(slave, master)
            assert not answers
            await master.send("T", b"41")
        assert words(answers[0]) == (ResponseCode.SUCCESS, "FOUND", 42, 0)


@pytest.mark.parametrize(("offset", "wait_ms"), [(-1, 60_000), (60, 60_000), (60, 20)])
async def test_a_slave_holds_it_for_a_short_time(tmp_path: Path, offset: int, wait_ms: int) -> None:
    """The reader is then sent to its master, which may have the messages, or asks again."""
    short = "20" if wait_ms > 20 else "60000"
    async with pair(tmp_path, shortPollingTimeMills=short) as (_, slave):
        with trio.fail_after(40):
            answer = await slave.pull("T", 0, offset, wait_ms=wait_ms)
        assert (answer.code, answer.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, offset)


async def test_a_slave_holds_a_pull_at_its_end_as_a_master_does(tmp_path: Path) -> None:
    async with pair(tmp_path, shortPollingTimeMills="1") as (master, slave):
        answers: list[PullAnswer] = []

        async def pull() -> None:
            answers.append(await slave.pull("T", 0, 40, wait_ms=60_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await until(lambda: slave.running.broker.clients.held.count == 1)
            await master.send("T", b"40")
        assert words(answers[0]) == (ResponseCode.SUCCESS, "FOUND", 41, 0)


async def test_tools_see_how_a_slave_follows(tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    async with pair(tmp_path) as (master, slave):

        async def state() -> dict[str, Any]:
            answer = await slave.ask(Command(RequestCode.GET_BROKER_HA_STATUS))
            loaded: dict[str, Any] = json.loads(bytes(answer.body))
            return loaded

        info = await state()
        following = info.pop("haClientRuntimeInfo")
        nothing = {"haConnectionInfo": [], "inSyncSlaveNums": 0, "master": False, "masterCommitLogMaxOffset": 0}
        assert info == nothing
        end = master.running.broker.store.end
        expected = {"masterAddr": master.running.ha_address, "maxOffset": end, "masterFlushOffset": 0}
        assert {name: following[name] for name in expected} == expected
        assert 0 < following["transferredByteInSecond"] <= end
        for name in ("lastReadTimestamp", "lastWriteTimestamp"):
            assert before_ms - 1000 < following[name] < before_ms + 60_000
        master.running.kill()
        client = slave.running.broker.cluster.ha_client
        assert client is not None
        await until(lambda: client.master is None)
        ended = (await state())["haClientRuntimeInfo"]
        assert ended == {**expected, "transferredByteInSecond": 0, "lastReadTimestamp": 0, "lastWriteTimestamp": 0}
        figures = json.loads(bytes((await slave.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body))["table"]
        assert (figures["brokerActive"], figures["dispatchBehindBytes"]) == ("false", "0")
