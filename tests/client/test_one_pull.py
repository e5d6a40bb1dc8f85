"""One pull: the request as Java makes it, every outcome, waits, and failures that are not tried again."""

from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import (
    CallTimeout,
    Client,
    InvalidArgument,
    MessageQueue,
    ProtocolError,
    PullConsumer,
    PullStatus,
    RawPull,
    ResponseError,
    TagFilter,
    decode,
)
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.errors import BrokerNotFound, ConnectionClosed
from pyrmq_core.protocol.framing.command import Command
from tests.client.reading import A0, fill, requested
from tests.support.memory_broker import MemoryBroker
from tests.support.scripted import PULL, Step, answer, cut, later, refuse, route_of, silence
from tests.support.stage import Stage

# --- One pull


async def test_a_pull_says_what_java_says(stage: Stage, puller: Puller) -> None:
    fill(stage, 3)
    pull = await puller.pull(A0, 1)
    (request,) = requested(stage)
    assert (request.consumer_group, request.topic, request.queue_id, request.queue_offset) == (
        "readers",
        "orders",
        0,
        1,
    )
    assert (request.max_msg_nums, request.sys_flag, request.subscription) == (32, 4, "*")
    assert (request.suspend_timeout_ms, request.commit_offset, request.expression_type) == (0, 0, "TAG")
    assert request.broker_name == "broker-a"
    assert (pull.status, pull.start, pull.next_offset, pull.min_offset, pull.max_offset) == (
        PullStatus.FOUND,
        1,
        3,
        0,
        3,
    )
    assert [message.body for message in decode(pull)] == [b"1|", b"2|"]


async def test_every_outcome_of_a_pull_has_its_status(stage: Stage, puller: Puller) -> None:
    fill(stage, 3)
    stage.stores["broker-a"].first_offset["orders", 0] = 10
    outcomes = [(await puller.pull(A0, offset)) for offset in (10, 13, 5, 99)]
    assert [(pull.status, pull.next_offset) for pull in outcomes] == [
        (PullStatus.FOUND, 13),
        (PullStatus.NO_NEW_MSG, 13),
        (PullStatus.OFFSET_ILLEGAL, 10),
        (PullStatus.OFFSET_ILLEGAL, 13),
    ]
    unmatched = await puller.pull(A0, 10, tags=TagFilter.parse("nobody"))
    assert (unmatched.status, unmatched.next_offset) == (PullStatus.NO_MATCHED_MSG, 13)


async def test_a_pull_waits_for_a_first_message(stage: Stage, puller: Puller) -> None:
    pulls: list[RawPull] = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            pulls.append(await puller.pull(A0, 0, wait=20))

        nursery.start_soon(wait)
        await stage.brokers["broker-a"].wait_seen(PULL)
        fill(stage, 1)
    assert [message.body for message in decode(pulls[0])] == [b"0|"]
    (request,) = requested(stage)
    assert (request.sys_flag, request.suspend_timeout_ms) == (6, 20_000)


async def test_a_held_pull_may_be_answered_late(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    """A broker looks at held pulls every five seconds: the answer comes up to five seconds after the limit."""
    stage.brokers["broker-a"].always(PULL, later(14.5, stage.stores["broker-a"]))
    fill(stage, 1)
    assert (await puller.pull(A0, 0, wait=10, timeout=3)).status is PullStatus.FOUND


async def test_a_silent_broker_ends_a_pull(stage: Stage, puller: Puller, jumping_clock: MockClock) -> None:
    stage.brokers["broker-a"].always(PULL, silence)
    began = trio.current_time()
    with pytest.raises(CallTimeout, match=stage.addresses["broker-a"]):
        await puller.pull(A0, 0, timeout=3)
    assert trio.current_time() - began == pytest.approx(3, abs=0.1)


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (refuse(17, "topic[orders] not exist"), ResponseError, "TOPIC_NOT_EXIST"),
        (refuse(16, "no"), ResponseError, "NO_PERMISSION"),
        (cut, ConnectionClosed, "PULL_MESSAGE"),
        (answer(Command(0)), ProtocolError, "nextBeginOffset"),
    ],
)
async def test_one_pull_is_not_tried_again(
    stage: Stage, puller: Puller, step: Step, error: type[Exception], words: str
) -> None:
    stage.brokers["broker-a"].on(PULL, step)
    with pytest.raises(error, match=words):
        await puller.pull(A0, 0)
    assert len(requested(stage)) == 1


async def test_a_pull_finds_an_unknown_broker_by_its_topic(stage: Stage, client: Client) -> None:
    fill(stage, 1)
    assert (await Puller(client._session, "g").pull(A0, 0)).status is PullStatus.FOUND
    with pytest.raises(BrokerNotFound, match="broker-z"):
        await Puller(client._session, "g").pull(MessageQueue("orders", "broker-z", 0), 0)


async def test_a_slave_is_read_when_the_master_is_gone(stage: Stage, client: Client) -> None:
    fill(stage, 1)
    route = route_of({"broker-a": stage.addresses["broker-a"]})
    only_slave = replace(route.broker_datas[0], broker_addrs={1: stage.addresses["broker-a"]})
    stage.table.routes["orders"] = replace(route, broker_datas=(only_slave,))
    assert (await Puller(client._session, "g").pull(A0, 0)).status is PullStatus.FOUND


async def test_an_sql_expression_goes_to_the_broker(stage: Stage, client: Client) -> None:
    fill(stage, 3)
    async with PullConsumer("g", client=client) as consumer:
        stage.brokers["broker-a"].always(PULL, MemoryBroker("broker-a"))  # whose queues are empty
        await consumer.pull(A0, 0, sql="amount > 3")
        with pytest.raises(InvalidArgument, match="exclude each other"):
            await consumer.pull(A0, 0, tags="paid", sql="amount > 3")
        with pytest.raises(InvalidArgument, match="SQL expression is empty"):
            await consumer.pull(A0, 0, sql=" ")
    (request,) = requested(stage)
    assert (request.expression_type, request.subscription) == ("SQL92", "amount > 3")
