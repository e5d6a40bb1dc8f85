"""Slaves that are read in their master's place: messages they lack are waited for, and are no loss."""

from collections.abc import Awaitable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import BrokerNotFound, Client, DataLost, ReadWindow
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer
from pyrmq_core.protocol.routes.route import BrokerData
from tests.client.reading import fill, read_all
from tests.support.scripted import PULL, route_of
from tests.support.stage import Stage


def slave_route(stage: Stage, *, acts_as_master: bool = False) -> None:
    """Removes the master of broker-a; its slave is left, which 5.x's NameServer may name in its place."""
    address = stage.addresses["broker-a"]
    slave = BrokerData("DefaultCluster", "broker-a", {1: address})
    stage.table.brokers = {"broker-a": slave}
    routed = replace(slave, broker_addrs={0: address}) if acts_as_master else slave
    stage.table.routes["orders"] = replace(stage.table.routes["orders"], broker_datas=(routed,))


SLAVES_WORD = [
    PullAnswer(code=20, next_begin_offset=64, min_offset=0, max_offset=64),  # lags behind
    PullAnswer(code=19, next_begin_offset=64, min_offset=0, max_offset=64),
    PullAnswer(code=21, next_begin_offset=64, min_offset=0, max_offset=64),  # with offsetCheckInSlave
    PullAnswer(code=21, next_begin_offset=80, min_offset=80, max_offset=100),  # began when its master had so many
    PullAnswer(code=20, next_begin_offset=80, min_offset=0, max_offset=100),  # has removed a file before its master
]


@pytest.mark.parametrize("acts_as_master", [False, True])
@pytest.mark.parametrize("word", SLAVES_WORD)
async def test_no_loss_is_believed_of_a_slave(
    stage: Stage, client: Client, jumping_clock: MockClock, word: PullAnswer, acts_as_master: bool
) -> None:
    fill(stage, 64)
    slave_route(stage, acts_as_master=acts_as_master)
    server, store = stage.brokers["broker-a"], stage.stores["broker-a"]

    def lagging(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        return word.to_command() if int(request.ext["queueOffset"]) >= 64 else store(request, peer)

    server.always(PULL, lagging)
    began = trio.current_time()
    with pytest.raises(BrokerNotFound, match=r"broker-a has no master, and nothing is given up .* offsets 64 to "):
        await read_all(Puller(client._session, "g"), 0, 100, window=ReadWindow(patience=7))
    assert trio.current_time() - began == pytest.approx(7, abs=0.5)


async def test_a_master_that_is_back_is_read_in_its_slaves_place(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    """The master is looked up again during the wait for the slave's tail, and has the rows."""
    fill(stage, 64)
    slave_route(stage)
    stage.stores["broker-b"].queues["orders", 0] = [*stage.stores["broker-a"].queues["orders", 0]] * 2
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert (await read_all(Puller(client._session, "g"), 0, 128))[0] == list(range(128))

        nursery.start_soon(read)
        await trio.sleep(5)
        stage.table.routes["orders"] = back = route_of({"broker-a": stage.addresses["broker-b"]})
        stage.table.brokers = {broker.broker_name: broker for broker in back.broker_datas}


async def test_a_loss_is_believed_of_the_known_master_when_no_nameserver_says(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    fill(stage, 10)
    await stage.nameserver.stop()
    with pytest.raises(DataLost, match="keeps 0 to 10"):
        await read_all(puller, 50, 60)
