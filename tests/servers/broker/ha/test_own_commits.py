"""Offsets that were committed at a slave come back to its master, so that consumers repeat nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pyrmq_core.errors import ConnectFailed
from pyrmq_core.model import TopicConfig
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.servers.broker import clock
from pyrmq_core.servers.broker.ha.own_commits import OwnCommits
from pyrmq_core.servers.broker.tables.consumer_offsets import GroupOffsets
from tests.servers.broker.ha.slave_copies import MASTER, Copy, copy_of
from tests.servers.broker.memory_files import MemoryFiles
from tests.servers.broker.serving import Served, serving

OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET


def make_groups(served: Served, *groups: str) -> None:
    broker = served.running.broker
    broker.tables.topics.put(TopicConfig("T", 4, 4, 6), clock.now_ms())
    for group in groups:
        broker.tables.groups.put({"groupName": group}, clock.now_ms())


def sent_back(copy: Copy) -> list[tuple[str, str, str]]:
    fields = ("consumerGroup", "queueId", "commitOffset")
    headers = [request.ext for request in copy.asked if request.code == COMMIT]
    return [(ext[fields[0]], ext[fields[1]], ext[fields[2]]) for ext in headers]


async def test_greater_offsets_come_back_before_the_masters_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        master = served.running.broker.tables.offsets
        make_groups(served, "g", "new")
        for queue_id, offset in enumerate((10, 20, 30)):
            master.commit("g", "T", queue_id, offset)
        await copy.tables.fetch()
        for queue_id, offset in enumerate((15, 20, 25)):
            copy.offsets.commit("g", "T", queue_id, offset)
        copy.offsets.commit("new", "T", 3, 0)
        await copy.tables.fetch()
        assert sent_back(copy) == [("g", "0", "15"), ("new", "3", "0")]
        for offsets in (master, copy.offsets):
            assert offsets.of_group("g", "T") == {0: 15, 1: 20, 2: 30}
            assert offsets.of_group("new", "T") == {3: 0}
        assert f"the master at {MASTER} got 2 offsets that were committed at this slave" in caplog.text
        master.commit("g", "T", 0, 5)  # the group goes back, at the master
        await copy.tables.fetch()
        assert copy.offsets.of_group("g", "T") == {0: 5, 1: 20, 2: 30}
        assert len(sent_back(copy)) == 2


async def test_a_group_that_was_reset_at_the_master_keeps_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when a member has followed the reset already, so that commits count again."""
    caplog.set_level(logging.INFO)
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        master = served.running.broker.tables.offsets
        make_groups(served, "g")
        for queue_id in range(2):
            master.commit("g", "T", queue_id, 3)
        await copy.tables.fetch()
        for queue_id in range(2):
            copy.offsets.commit("g", "T", queue_id, 9)  # while the master is away
            master.reset("g", "T", queue_id, 1)
        assert master.moved_to("g", "T", 1, 9, now=0.0) == 1
        assert master.may_commit("g", "T", 1, 1, now=0.0)
        await copy.tables.fetch()
        assert len(sent_back(copy)) == 2
        for offsets in (master, copy.offsets):
            assert offsets.of_group("g", "T") == {0: 1, 1: 1}
        assert "group g was reset at the master: queue 1 of T keeps that" in caplog.text
        assert "got 2 offsets" not in caplog.text


async def test_offsets_that_the_master_refuses_are_dropped_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = {"autoCreateSubscriptionGroup": "false"}
    async with serving(tmp_path / "master", **closed) as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_groups(served, "g")
        copy.offsets.commit("unknown", "T", 0, 5)
        copy.offsets.commit("g", "T", 0, 5)
        for _ in range(2):
            await copy.tables.fetch()
        assert served.running.broker.tables.offsets.committed("g", "T", 0) == 5
        assert caplog.text.count("1 offsets that were committed at this slave are dropped") == 1
        assert "unknown" in caplog.text
        assert len(sent_back(copy)) == 2


async def test_a_group_that_began_at_the_slave_is_made_at_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its retry topic, which has no messages yet, is not: nothing is lost of it, and nothing is said."""
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_groups(served)
        copy.offsets.commit("new", "T", 0, 5)
        copy.offsets.commit("new", "T", 1, 6)
        copy.offsets.commit("new", "%RETRY%new", 0, 0)
        await copy.tables.fetch()
        assert served.running.broker.tables.offsets.of_group("new", "T") == {0: 5, 1: 6}
        assert "new" in served.running.broker.tables.groups
        assert copy.offsets.of_group("new", "T") == {0: 5, 1: 6}
        assert "are dropped" not in caplog.text
        await copy.tables.fetch()
        assert len(sent_back(copy)) == 4  # the first one twice, and none again


async def test_a_master_that_goes_away_again_takes_nothing_with_it(tmp_path: Path) -> None:
    async def gone(_: Command) -> Command:
        raise ConnectFailed(f"{MASTER} refuses connections", address=MASTER)

    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_groups(served, "g")
        served.running.broker.tables.offsets.commit("g", "T", 0, 3)
        copy.offsets.commit("g", "T", 0, 5)
        copy.answers[COMMIT] = gone
        assert not await copy.tables.fetch()
        assert copy.offsets.committed("g", "T", 0) == 5
        del copy.answers[COMMIT]
        await copy.tables.fetch()
        assert served.running.broker.tables.offsets.committed("g", "T", 0) == 5


@pytest.mark.parametrize("at", [OFFSETS, COMMIT])
async def test_a_commit_that_arrives_meanwhile_is_kept(tmp_path: Path, at: RequestCode) -> None:
    async with serving(tmp_path / "master") as served, copy_of(served.ask, tmp_path / "slave") as copy:
        make_groups(served, "g")
        served.running.broker.tables.offsets.commit("g", "T", 0, 3)

        async def committed_meanwhile(request: Command) -> Command:
            answer = await served.ask(request)
            if len(sent_back(copy)) <= 1:
                copy.offsets.commit("g", "T", 0, 7)
            return answer

        copy.offsets.commit("g", "T", 0, 5)
        copy.answers[at] = committed_meanwhile
        await copy.tables.fetch()
        assert copy.offsets.committed("g", "T", 0) == 7
        await copy.tables.fetch()
        assert copy.offsets.committed("g", "T", 0) == 7
        assert served.running.broker.tables.offsets.committed("g", "T", 0) == 7


def test_commits_are_bounded_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    offsets = GroupOffsets(MemoryFiles())
    own = OwnCommits(offsets, most=2)
    for queue_id in (0, 1, 1, 2, 3):
        offsets.commit("g", "T", queue_id, 5)
    assert len(own) == 2
    assert caplog.text.count("offsets of more than 2 queues were committed at this slave") == 1
