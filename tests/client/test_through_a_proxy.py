"""The client behind a proxy of 5.x, where it differs: a scripted one, and 5.4.0's in `tests/interop/test_proxy.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import trio

from pyrmq_core import (
    Client,
    ConsumeFromWhere,
    MessageExt,
    MessageQueue,
    OffsetRange,
    PullConsumer,
    PushConsumer,
    ResponseError,
)
from pyrmq_core.client.consumer.pull.pull_sizes import PROXY_BYTES
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.network import Peer, ask
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_list import ConsumerList
from pyrmq_core.protocol.requests.broker.pull_message import PullSysFlag
from tests.support.scripted import PULL, ROUTE, ScriptedServer, refuse
from tests.support.stage import Stage, settled

BROKERS_KNOWN = RequestCode.GET_BROKER_CLUSTER_INFO
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
GIVE_BACK = RequestCode.CONSUMER_SEND_MSG_BACK
UNKNOWN = refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type not supported")
A0 = MessageQueue("orders", "broker-a", 0)
BODY = b"x" * 500
COUNT = 1000


class Proxied:
    """The pulls of a broker behind a proxy, which adds fields to each answer; notes the bytes under way at once."""

    def __init__(self, stage: Stage) -> None:
        self._store = stage.stores["broker-a"]
        self._bytes = self.most_bytes = 0
        self.queues: set[int] = set()
        self.most_queues = 0

    async def __call__(self, request: Command, peer: Peer) -> Command | None:
        answer = await ask(self._store, request, peer)
        assert answer is not None
        queue = int(request.ext["queueId"])
        self.queues.add(queue)
        self._bytes += len(answer.body)
        self.most_bytes = max(self.most_bytes, self._bytes)
        self.most_queues = max(self.most_queues, len(self.queues))
        await settled()  # every pull that the client has posted arrives meanwhile
        self._bytes -= len(answer.body)
        self.queues.discard(queue)
        return replace(answer, ext={**answer.ext, "TRACE_ON": "false", "MSG_REGION": ""})


@pytest.fixture
def proxied(stage: Stage) -> Proxied:
    for queue in range(4):
        for _ in range(COUNT):
            stage.stores["broker-a"].put("orders", queue, BODY, "")
    step = Proxied(stage)
    stage.brokers["broker-a"].always(PULL, step)
    return step


async def test_answers_of_a_range_stay_below_what_a_proxy_drops(proxied: Proxied, puller: Puller) -> None:
    async with puller.read(A0, 0, COUNT) as pulls:
        ends = [pull.next_offset async for pull in pulls]
    assert ends[-1] == COUNT
    assert 0 < proxied.most_bytes <= PROXY_BYTES


async def test_ranges_follow_one_another_at_an_address_that_is_also_the_nameservers(
    stage: Stage, proxied: Proxied, puller: Puller
) -> None:
    """A proxy's routes name its own address for each broker: it is known before the first pull."""
    client = puller._client
    client.nameservers.set_addresses([stage.brokers["broker-a"].address], random_start=0)
    ranges = [(MessageQueue("orders", "broker-a", number), OffsetRange(0, COUNT)) for number in range(4)]
    messages = 0
    async with puller.read_ranges(ranges) as lists:
        async for part in lists:
            messages += sum(pull.next_offset - pull.start for pull in part)
    assert messages == 4 * COUNT
    assert proxied.most_queues == 1
    assert proxied.most_bytes <= PROXY_BYTES


async def test_queues_of_a_group_are_pulled_in_turn_while_they_are_behind(stage: Stage, proxied: Proxied) -> None:
    stage.topic("orders", brokers=["broker-a"])
    proxy = stage.brokers["broker-a"]
    proxy.always(ROUTE, stage.table)
    received: list[int] = []
    done = trio.Event()

    async def handle(messages: Sequence[MessageExt]) -> None:
        received.append(len(messages))
        if sum(received) == 4 * COUNT:
            done.set()

    async with Client(nameserver=proxy.address) as client, trio.open_nursery() as nursery:
        members = ConsumerList((client.client_id,)).to_command()
        proxy.always(RequestCode.GET_CONSUMER_LIST_BY_GROUP, lambda request, peer: members)
        first = ConsumeFromWhere.FIRST_OFFSET
        async with PushConsumer("billing", client=client, consume_from_where=first) as consumer:
            await consumer.subscribe("orders")
            nursery.start_soon(consumer.run, handle)
            with trio.fail_after(60):
                await done.wait()
            assert (proxied.most_queues, proxied.most_bytes <= PROXY_BYTES) == (1, True)
            while held(proxy) != {"0", "1", "2", "3"}:
                await proxy.wait_seen(PULL, len(proxy.of(PULL)) + 1)
            await consumer.stop()


def held(proxy: ScriptedServer) -> set[str]:
    """Returns the queues whose pulls the proxy was asked to hold."""
    return {pull.ext["queueId"] for pull in proxy.of(PULL) if int(pull.ext["sysFlag"]) & PullSysFlag.SUSPEND}


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("readers", client=client) as consumer:
        yield consumer


async def test_the_brokers_of_all_current_routes_count(stage: Stage, consumer: PullConsumer) -> None:
    stage.topic("payments", brokers=["broker-a"])
    stage.nameserver.always(BROKERS_KNOWN, UNKNOWN)
    assert (await consumer.cluster_info()).broker_addr_table == {}
    await consumer.current_queues(["orders"])
    info = await consumer.cluster_info()
    assert {name: broker.master for name, broker in info.broker_addr_table.items()} == stage.addresses
    assert set(info.cluster_addr_table["DefaultCluster"]) == {"broker-a", "broker-b"}
    await consumer.current_queues(["orders", "payments"])
    assert set((await consumer.cluster_info()).broker_addr_table) == {"broker-a"}
    del stage.table.routes["payments"]
    assert (await consumer.cluster_info()).broker_addr_table == {}


async def test_other_refusals_are_raised(stage: Stage, consumer: PullConsumer) -> None:
    stage.nameserver.always(BROKERS_KNOWN, refuse(ResponseCode.NO_PERMISSION))
    with pytest.raises(ResponseError, match="NO_PERMISSION"):
        await consumer.cluster_info()


async def test_a_group_is_made_by_what_a_proxy_passes_on(stage: Stage, consumer: PullConsumer) -> None:
    broker = stage.brokers["broker-a"]
    broker.on(COMMIT, refuse(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST))
    broker.always(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, UNKNOWN)
    await consumer.current_queues(["orders"])
    await consumer.commit(A0, 7)
    assert broker.of(GIVE_BACK)[0].ext["group"] == "readers"
    committed = [command.ext["commitOffset"] for command in broker.of(COMMIT)]
    assert committed == ["7", "7"]
