"""A slave that finds its master by the NameServer: it has the master's tables before the first byte of its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trio

from pyrmq_core.network import Listening, Peer, serve
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, refusal, success
from pyrmq_core.protocol.requests.broker.consumer_offsets import UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from pyrmq_core.protocol.routes.topic_config import TopicConfigTable
from pyrmq_core.servers.protocol.register_broker import RegisteredBroker
from tests.servers.broker.ha.test_ha_client import SLAVE, caught_up, stored_files
from tests.servers.broker.serving import Served, serving, until
from tests.servers.nameserver.serving import nameserver


@dataclass
class Cluster:
    """A NameServer, and where master and slave keep their files."""

    nameserver: str
    home: Path

    @asynccontextmanager
    async def master(self, **settings: str) -> AsyncIterator[Served]:
        async with serving(self.home / "master", namesrvAddr=self.nameserver, **settings) as served:
            yield served

    @asynccontextmanager
    async def slave(self, **settings: str) -> AsyncIterator[Served]:
        async with serving(self.home / "slave", namesrvAddr=self.nameserver, **SLAVE, **settings) as served:
            yield served


@asynccontextmanager
async def cluster(home: Path) -> AsyncIterator[Cluster]:
    async with nameserver() as (running, _):
        yield Cluster(running.address, home)


async def commit(served: Served, offset: int) -> None:
    answer = await served.ask(UpdateConsumerOffset("g", "T", 0, offset).to_command())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def make_group(served: Served, group: str) -> None:
    body = b'{"groupName":"%s"}' % group.encode()
    answer = await served.ask(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    assert answer.code == ResponseCode.SUCCESS


async def test_a_new_slave_keeps_batch_topics_as_its_master_does(tmp_path: Path) -> None:
    async with cluster(tmp_path) as pair, pair.master() as master:
        creation = UpdateTopic("Whole", 1, 1, 6, attributes="+queue.type=BatchCQ")
        assert (await master.ask(creation.to_command())).code == ResponseCode.SUCCESS
        for number in range(10):
            await master.send("Whole", b"%d" % number)
        async with pair.slave() as slave:
            await caught_up(slave, master)
            answer = await slave.ask(Command(RequestCode.GET_ALL_TOPIC_CONFIG))
            assert TopicConfigTable.from_json(answer.body) == master.running.broker.tables.topics.table()
    files = stored_files(tmp_path / "slave")
    assert files == stored_files(tmp_path / "master")
    assert any(name.startswith("batchconsumequeue/Whole") for name in files)


async def test_a_new_slave_takes_nothing_before_it_knows_the_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path / "master") as master, trio.open_nursery() as nursery:
        refuses = True

        async def pass_on(request: Command, _: Peer) -> Command:
            """Answers for the NameServer and for the master, which refuses its topics at first."""
            if request.code == RequestCode.REGISTER_BROKER:
                return RegisteredBroker(master.running.ha_address, listening.address).to_command()
            if request.code == RequestCode.UNREGISTER_BROKER:
                return success()
            if request.code == RequestCode.GET_ALL_TOPIC_CONFIG and refuses:
                return refusal(ResponseCode.SYSTEM_ERROR, "not now")
            return replace(await master.ask(replace(request, opaque=0)), opaque=request.opaque)

        listening: Listening = await nursery.start(serve, pass_on, "127.0.0.1", 0)
        await master.send("T")
        async with serving(tmp_path / "slave", namesrvAddr=listening.address, **SLAVE) as slave:
            await until(lambda: "are not known yet" in caplog.text)
            assert slave.running.broker.store.end == 0
            assert "SYSTEM_ERROR (1): not now" in caplog.text
            refuses = False
            await caught_up(slave, master)
            assert "T" in slave.running.broker.tables.topics
            refuses = True
            await master.send("Later")
            await caught_up(slave, master)  # messages wait for no topic that cannot be fetched
            assert slave.running.broker.store.reader.bounds(("Later", 0)) == (0, 1)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["SimpleCQ", "BatchCQ"])
async def test_a_topic_that_is_made_while_a_slave_follows_is_there_with_its_first_message(
    tmp_path: Path, kind: str
) -> None:
    """A message alone does not say that its topic is a batch topic."""
    async with cluster(tmp_path) as pair, pair.master() as master, pair.slave() as slave:
        await master.send("Old")
        await caught_up(slave, master)
        creation = UpdateTopic("New", 1, 1, 6, attributes=f"+queue.type={kind}")
        assert (await master.ask(creation.to_command())).code == ResponseCode.SUCCESS
        await master.send("New")
        await master.send("Auto")
        await caught_up(slave, master)
        assert slave.running.broker.tables.topics.table() == master.running.broker.tables.topics.table()
        assert (await slave.pull("Auto")).code == ResponseCode.SUCCESS
    assert stored_files(tmp_path / "slave") == stored_files(tmp_path / "master")
    async with cluster(tmp_path) as pair, pair.slave():
        pass  # its queues are those of its topics


async def test_a_topic_that_the_master_deleted_is_asked_for_once_and_its_messages_pass(tmp_path: Path) -> None:
    async with cluster(tmp_path) as pair, pair.master() as master:
        for topic in ("Kept", "Gone", "Kept", "Gone"):
            await master.send(topic)
        deleted = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
        assert (await master.ask(deleted)).code == ResponseCode.SUCCESS
        async with pair.slave() as slave:
            await caught_up(slave, master)
            assert slave.running.broker.store.reader.bounds(("Kept", 0)) == (0, 2)
            assert "Gone" not in slave.running.broker.tables.topics


async def test_two_slaves_of_one_id_are_named_once_and_both_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as pair, pair.master() as master, pair.slave() as first:
        follows = {**SLAVE, "namesrvAddr": pair.nameserver}
        async with serving(tmp_path / "other", **follows) as second:
            await master.send("T")
            for slave in (first, second, first, second):
                await caught_up(slave, master)
                await slave.running.broker.cluster.registration.register_anew(pair.nameserver)
            addresses = second.running.address, first.running.address
    warnings = [line for line in caplog.messages if "takes the place of" in line]
    assert warnings == [
        "{} takes the place of {} as broker-a, id 1, which is alive: give each broker a brokerId of its own".format(
            *addresses
        )
    ]


async def test_offsets_committed_at_the_slave_come_back_to_a_master_that_was_away(tmp_path: Path) -> None:
    async with cluster(tmp_path) as pair, pair.master() as master:
        await make_group(master, "g")
        await master.send("T")
        await commit(master, 10)
        async with pair.slave() as slave:
            offsets = slave.running.broker.tables.offsets
            await caught_up(slave, master)
            await until(lambda: offsets.committed("g", "T", 0) == 10)
            port = str(master.running.listening.port)
            master.running.stop()
            await master.ended.wait()
            await commit(slave, 15)
            async with pair.master(listenPort=port) as again:
                back = again.running.broker.tables.offsets
                await until(lambda: back.committed("g", "T", 0) == 15)
            assert offsets.committed("g", "T", 0) == 15
