"""`PullConsumer`: queues, offsets, commits, times of both generations, and its beginning and end."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from pyrmq_core import (
    CallTimeout,
    Client,
    InvalidArgument,
    InvalidState,
    MessageQueue,
    NoRoute,
    OffsetRange,
    ProtocolError,
    PullConsumer,
    PullStatus,
    ResponseError,
    decode,
)
from pyrmq_core.client.arguments import EPOCH, first_millisecond
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound, SearchOffset
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData
from tests.support.memory_broker import FIRST_STORE_MS
from tests.support.scripted import PULL, ROUTE, answer, cut, refuse, silence
from tests.support.stage import Stage

A0 = MessageQueue("orders", "broker-a", 0)
SEARCH = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
MAX = RequestCode.GET_MAX_OFFSET
COMMIT = RequestCode.UPDATE_CONSUMER_OFFSET
CONFIG = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("readers", client=client) as consumer:
        yield consumer


def at(millisecond: float) -> datetime:
    return EPOCH + timedelta(milliseconds=FIRST_STORE_MS + millisecond)


def fill(stage: Stage, count: int, *, tags: str | None = None) -> None:
    for number in range(count):
        stage.stores["broker-a"].put("orders", 0, b"%d" % number, f"TAGS\x01{tags}\x02" if tags else "")


# --- Queues and pulls


async def test_the_queues_that_can_be_read(stage: Stage, consumer: PullConsumer) -> None:
    route = stage.topic("orders")
    stage.table.routes["orders"] = TopicRouteData(
        queue_datas=(QueueData("broker-b", 2, 0, 4), QueueData("broker-a", 1, 9, 6), QueueData("broker-c", 5, 5, 2)),
        broker_datas=(*route.broker_datas, BrokerData("DefaultCluster", "broker-c", {})),
    )
    assert [str(queue) for queue in await consumer.message_queues("orders")] == [
        "orders/broker-a/0",
        "orders/broker-b/0",
        "orders/broker-b/1",
    ]


async def test_queues_are_those_of_this_moment(stage: Stage, consumer: PullConsumer) -> None:
    """A second broker has made the topic a moment later; half of its queues would be missing for 30 s."""
    stage.topic("orders", brokers=["broker-a"])
    assert len(await consumer.message_queues("orders")) == 4
    stage.topic("orders")
    assert len(await consumer.message_queues("orders")) == 8
    del stage.table.routes["orders"]
    with pytest.raises(NoRoute):
        await consumer.message_queues("orders")


async def test_an_unknown_topic_has_no_queues(stage: Stage, consumer: PullConsumer) -> None:
    """A reader does not look at TBW102: nothing is created by reading."""
    stage.auto_create()
    with pytest.raises(NoRoute, match="No route info of this topic: unheard") as caught:
        await consumer.message_queues("unheard")
    assert caught.value.topic == "unheard"
    assert len(stage.nameserver.of(ROUTE)) == 1


async def test_a_topic_of_an_impossible_name_is_refused(stage: Stage, consumer: PullConsumer) -> None:
    with pytest.raises(InvalidArgument, match="topic 'no such topic!' holds characters"):
        await consumer.message_queues("no such topic!")
    assert stage.nameserver.seen == []


async def test_all_topics_of_the_nameserver(stage: Stage, consumer: PullConsumer) -> None:
    stage.topic("audit")
    assert await consumer.topics() == ("audit", "orders")
    stage.nameserver.always(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, refuse(1, "oops"))
    with pytest.raises(ResponseError, match="oops") as caught:
        await consumer.topics()
    assert stage.nameserver.address in str(caught.value)


async def test_one_pull_gives_messages(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 40)
    pulled = await consumer.pull(A0, 3)
    assert [message.body for message in pulled.messages] == [b"%d" % number for number in range(3, 35)]
    assert (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset) == (PullStatus.FOUND, 35, 0, 40)
    assert {message.broker_name for message in pulled.messages} == {"broker-a"}
    assert len((await consumer.pull(A0, 3, max_messages=5)).messages) == 5


async def test_tags_are_compared_again(stage: Stage, consumer: PullConsumer) -> None:
    """A broker compares hashes: "Aa" and "BB" have the same one in Java."""
    fill(stage, 2, tags="Aa")
    fill(stage, 3, tags="BB")
    fill(stage, 1)
    stage.brokers["broker-a"].always(
        PULL, lambda request, peer: stage.stores["broker-a"](replace(request, ext={**request.ext, **ALL}), peer)
    )
    pulled = await consumer.pull(A0, 0, tags="Aa")
    assert [message.tags for message in pulled.messages] == ["Aa", "Aa"]
    assert pulled.next_offset == 6
    assert len((await consumer.pull(A0, 0, tags="*")).messages) == 6


ALL = {"subscription": "*"}


@pytest.mark.parametrize("tags", ["||", " || "])
async def test_an_expression_without_tags_is_refused(consumer: PullConsumer, tags: str) -> None:
    with pytest.raises(InvalidArgument, match="names no tag"):
        await consumer.pull(A0, 0, tags=tags)
    with pytest.raises(InvalidArgument, match="names no tag"):
        consumer.read(A0, 0, 1, tags=tags)


async def test_impossible_waits_and_counts_are_refused(consumer: PullConsumer) -> None:
    for wait in (-1.0, 601.0, float("nan")):
        with pytest.raises(InvalidArgument, match="wait="):
            await consumer.pull(A0, 0, wait=wait)
    with pytest.raises(InvalidArgument, match="max_messages=0"):
        await consumer.pull(A0, 0, max_messages=0)


async def test_a_pull_can_wait(stage: Stage, consumer: PullConsumer, jumping_clock: MockClock) -> None:
    began = trio.current_time()
    assert (await consumer.pull(A0, 0, wait=20)).status is PullStatus.NO_NEW_MSG
    assert trio.current_time() - began == pytest.approx(20, abs=0.2)


async def test_a_whole_range(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 200)
    await consumer.message_queues("orders")
    async with consumer.read(A0, 10, 200) as pulls:
        bodies = [
            message.body async for pull in pulls for message in decode(pull, OffsetRange(pull.start, pull.next_offset))
        ]
    assert bodies == [b"%d" % number for number in range(10, 200)]


# --- Offsets


async def test_minimum_and_maximum(stage: Stage, consumer: PullConsumer) -> None:
    assert (await consumer.min_offset(A0), await consumer.max_offset(A0)) == (0, 0)
    fill(stage, 7)
    stage.stores["broker-a"].first_offset["orders", 0] = 100
    assert (await consumer.min_offset(A0), await consumer.max_offset(A0)) == (100, 107)


async def test_bounds_of_many_queues_come_together(stage: Stage, consumer: PullConsumer) -> None:
    queues = await consumer.message_queues("orders")
    fill(stage, 3)
    bounds = await consumer.offset_bounds([*queues, queues[0]])
    assert list(bounds) == list(queues)
    assert bounds[A0] == OffsetRange(0, 3)
    assert {bounds[queue] for queue in queues if queue != A0} == {OffsetRange(0, 0)}
    assert await consumer.offset_bounds([]) == {}


async def test_one_failure_ends_the_rest_and_is_raised_as_it_is(
    stage: Stage, consumer: PullConsumer, jumping_clock: MockClock
) -> None:
    queues = await consumer.message_queues("orders")
    stage.brokers["broker-a"].always(MAX, silence)
    stage.brokers["broker-b"].always(MAX, refuse(1, "broken index"))
    with pytest.raises(ResponseError, match="broken index") as caught, trio.fail_after(2):
        await consumer.offset_bounds(queues)
    for part in ("broker-b", stage.addresses["broker-b"], "GET_MAX_OFFSET (30)", "orders/broker-b/"):
        assert part in str(caught.value)


async def test_a_silent_broker_ends_a_question(stage: Stage, client: Client, jumping_clock: MockClock) -> None:
    stage.brokers["broker-a"].always(MAX, silence)
    async with PullConsumer("g", client=client, timeout=1.5) as consumer:
        began = trio.current_time()
        with pytest.raises(CallTimeout, match=stage.addresses["broker-a"]):
            await consumer.max_offset(A0)
        assert trio.current_time() - began == pytest.approx(1.5, abs=0.1)


async def test_a_question_after_a_cut_works_again(stage: Stage, consumer: PullConsumer) -> None:
    stage.brokers["broker-a"].on(MAX, cut)
    with pytest.raises(Exception, match="GET_MAX_OFFSET"):
        await consumer.max_offset(A0)
    assert await consumer.max_offset(A0) == 0


async def test_a_master_without_address_is_reported(stage: Stage, consumer: PullConsumer) -> None:
    stage.table.routes["orders"] = TopicRouteData(
        queue_datas=(QueueData("broker-a", 1, 1, 6),), broker_datas=(BrokerData("DefaultCluster", "broker-a", {}),)
    )
    with pytest.raises(Exception, match="broker broker-a has no address in the route of orders"):
        await consumer.max_offset(A0)


# --- Commits


async def test_what_is_committed_is_found(stage: Stage, consumer: PullConsumer) -> None:
    assert await consumer.committed(A0) is None
    await consumer.commit(A0, 17)
    assert await consumer.committed(A0) == 17
    await consumer.commit(A0, 3)
    assert await consumer.committed(A0) == 3
    other = MessageQueue("orders", "broker-b", 0)
    assert await consumer.committed_offsets([A0, other]) == {A0: 3, other: None}
    (query, *_) = stage.brokers["broker-a"].of(RequestCode.QUERY_CONSUMER_OFFSET)
    assert query.ext["setZeroIfNotFound"] == "false"
    assert query.ext["consumerGroup"] == "readers"


async def test_a_group_that_5x_does_not_know_is_made(stage: Stage, consumer: PullConsumer) -> None:
    """15 to an unknown group is refused by 5.x; 352 makes it, and the commit is repeated."""
    stage.stores["broker-a"].groups = set()
    await consumer.commit(A0, 5)
    assert await consumer.committed(A0) == 5
    codes = [code for code in stage.brokers["broker-a"].codes if code in (COMMIT, CONFIG)]
    assert codes == [COMMIT, CONFIG, COMMIT]


async def test_a_group_that_may_not_be_made_is_reported(stage: Stage, consumer: PullConsumer) -> None:
    stage.stores["broker-a"].groups = set()
    stage.brokers["broker-a"].always(CONFIG, refuse(26, "autoCreateSubscriptionGroup is off"))
    with pytest.raises(ResponseError, match="autoCreateSubscriptionGroup is off"):
        await consumer.commit(A0, 5)


async def test_a_refused_commit_is_reported(stage: Stage, consumer: PullConsumer) -> None:
    stage.brokers["broker-a"].always(COMMIT, refuse(17, "no such topic"))
    with pytest.raises(ResponseError, match="no such topic"):
        await consumer.commit(A0, 5)
    with pytest.raises(InvalidArgument, match="offset to commit of orders/broker-a/0=-1"):
        await consumer.commit(A0, -1)


async def test_a_refused_query_is_not_nothing(stage: Stage, consumer: PullConsumer) -> None:
    """ "Nothing committed" is one code; every other one must not be taken for it."""
    stage.brokers["broker-a"].always(RequestCode.QUERY_CONSUMER_OFFSET, refuse(1, "oops"))
    with pytest.raises(ResponseError, match="oops"):
        await consumer.committed(A0)


# --- Times, of both generations


class OldSearch:
    """A search by time (29) as 4.9.7 answers it, which differs from 5.x.

    After the last message it returns the last offset, between two the earlier one, and of an equal run any member, here
    the one in its middle.
    """

    def __init__(self, stage: Stage) -> None:
        self.times = [message.store_ms for message in stage.stores["broker-a"].queues["orders", 0]]
        self.first = stage.stores["broker-a"].first_offset["orders", 0]

    def __call__(self, request: Command, peer: Peer) -> Command:
        when = SearchOffset.from_command(request).timestamp_ms
        run = [index for index, time in enumerate(self.times) if time == when]
        index = run[len(run) // 2] if run else max(0, lower(self.times, when) - 1)
        return replace(OffsetFound(self.first + index).to_command(), version=407)


def lower(times: list[int], when: int) -> int:
    return sum(time < when for time in times)


CASES = [0, 1, 2.5, 3, 4, 7, 8, 9, 100, -5]


@pytest.mark.parametrize("generation", ["5.x", "4.9"])
@pytest.mark.parametrize("millisecond", CASES)
async def test_the_first_message_at_or_after_a_time(
    stage: Stage, consumer: PullConsumer, generation: str, millisecond: float
) -> None:
    """Store times 0 1 2 3 3 3 3 3 8: between two, an equal run, before the first, after the last."""
    fill(stage, 9)
    store = stage.stores["broker-a"]
    store.queues["orders", 0] = [
        replace(message, store_ms=FIRST_STORE_MS + (3 if 3 <= index <= 7 else index))
        for index, message in enumerate(store.queues["orders", 0])
    ]
    store.first_offset["orders", 0] = 1000
    if generation == "4.9":
        stage.brokers["broker-a"].always(SEARCH, OldSearch(stage))
    times = [message.store_ms for message in store.queues["orders", 0]]
    expected = 1000 + lower(times, FIRST_STORE_MS + -(-int(millisecond * 10) // 10))
    assert await consumer.offset_at(A0, at(millisecond)) == expected


@pytest.mark.parametrize("generation", ["5.x", "4.9"])
async def test_an_empty_queue_has_one_offset_for_all_times(
    stage: Stage, consumer: PullConsumer, generation: str
) -> None:
    if generation == "4.9":
        stage.brokers["broker-a"].always(SEARCH, answer(replace(OffsetFound(0).to_command(), version=407)))
    assert await consumer.offset_at(A0, at(5)) == 0


async def test_an_old_broker_that_turns_in_circles_is_reported(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 5)
    stage.brokers["broker-a"].always(SEARCH, OldSearch(stage))
    stuck = PullAnswer(code=20, next_begin_offset=1, min_offset=0, max_offset=5).to_command()
    stage.brokers["broker-a"].always(PULL, answer(stuck))
    with pytest.raises(ProtocolError, match="does not go forward"), trio.fail_after(60):
        await consumer.offset_at(A0, at(3))


async def test_a_search_by_time_that_takes_too_long_says_so(
    stage: Stage, client: Client, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(SEARCH, answer(replace(OffsetFound(0).to_command(), version=407)))

    async def on_and_on(request: Command, peer: Peer) -> Command:
        await trio.sleep(20)
        following = PullMessage.from_command(request).queue_offset + 1
        return PullAnswer(code=20, next_begin_offset=following, min_offset=0, max_offset=1_000_000).to_command()

    stage.brokers["broker-a"].always(PULL, on_and_on)
    async with PullConsumer("readers", client=client, timeout=60) as consumer:
        with pytest.raises(CallTimeout, match="the search by time in orders/broker-a/0 got to offset 61"):
            await consumer.offset_at(A0, at(3))


async def test_times_of_many_queues(stage: Stage, consumer: PullConsumer) -> None:
    fill(stage, 5)
    other = MessageQueue("orders", "broker-b", 0)
    assert await consumer.offsets_at({A0: FIRST_STORE_MS + 2, other: 0}) == {A0: 2, other: 0}


async def test_a_time_without_zone_is_refused(consumer: PullConsumer) -> None:
    with pytest.raises(InvalidArgument, match="has no time zone"):
        await consumer.offset_at(A0, datetime(2026, 1, 1))


@given(st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)), st.integers(-12, 12))
def test_times_become_the_next_whole_millisecond(when: datetime, hours: int) -> None:
    """A microsecond too early would find one message too many."""
    aware = when.replace(tzinfo=timezone(timedelta(hours=hours)))
    microseconds = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert 0 <= first_millisecond(aware) * 1000 - microseconds < 1000


# --- Beginning and end


async def test_outside_its_block_a_consumer_does_nothing(stage: Stage) -> None:
    consumer = PullConsumer("g", nameserver=stage.nameserver.address)

    async def every_call_is_refused() -> None:
        for call in (consumer.min_offset, consumer.max_offset, consumer.committed):
            with pytest.raises(InvalidState, match="consumer g is used inside its `async with` block"):
                await call(A0)
        with pytest.raises(InvalidState):
            await consumer.message_queues("orders")
        with pytest.raises(InvalidState):
            await consumer.pull(A0, 0)
        with pytest.raises(InvalidState):
            consumer.read(A0, 0, 1)

    await every_call_is_refused()
    async with consumer:
        await consumer.message_queues("orders")
    await every_call_is_refused()
    with pytest.raises(InvalidState, match="starts once; make a new one"):
        await consumer.__aenter__()


async def test_answers_without_fields_are_reported(stage: Stage, consumer: PullConsumer) -> None:
    stage.brokers["broker-a"].always(MAX, answer(success()))
    with pytest.raises(ProtocolError, match="offset"):
        await consumer.max_offset(A0)
