"""Offsets of many queues by one request a broker, and by single requests where that one does not do."""

from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, MessageQueue, NetworkError, OffsetRange, PullConsumer, ResponseError
from pyrmq_core.client.consumer.topic_statistics import FEW_OF_MANY, MANY_QUEUES, REFUSED_SECONDS
from pyrmq_core.embedded import EmbeddedCluster
from pyrmq_core.errors import HeaderError
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command, success
from pyrmq_core.protocol.requests.figures.topic_stats import GetTopicStats, TopicOffset, TopicStatsTable
from tests.support.memory_broker import FIRST_STORE_MS
from tests.support.scripted import Step, cut, refuse
from tests.support.stage import Stage
from tests.support.statistics_jobs import compare_with_single_requests

STATS = RequestCode.GET_TOPIC_STATS_INFO
SINGLE = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET)
QUEUES = [MessageQueue("many", broker, number) for broker in ("broker-a", "broker-b") for number in range(MANY_QUEUES)]


@pytest.fixture
async def many(stage: Stage) -> Stage:
    """Topic `many` with as many queues on each broker as make statistics worth it; both serve them."""
    stage.topic("many", queues=MANY_QUEUES)
    for name in stage.brokers:
        serve(stage, name, {number: (number, 10 + number) for number in range(MANY_QUEUES)})
    return stage


@pytest.fixture
async def consumer(client: Client) -> AsyncIterator[PullConsumer]:
    async with PullConsumer("readers", client=client) as consumer:
        yield consumer


def serve(stage: Stage, name: str, rows: Mapping[int, tuple[int, int]], **also: TopicOffset) -> None:
    """Has a broker answer 202 with these rows, and single requests for the same queues with the same offsets."""
    stage.brokers[name].always(STATS, table(name, rows))
    for number, (first, end) in rows.items():
        stage.stores[name].first_offset["many", number] = first
        for _ in range(end - first):
            stage.stores[name].put("many", number, b"x")


def table(name: str, rows: Mapping[int, Sequence[int]]) -> Step:
    def step(request: Command, peer: Peer) -> Command:
        topic = GetTopicStats.from_command(request).topic
        offsets = {MessageQueue(topic, name, number): TopicOffset(*row) for number, row in rows.items()}
        return TopicStatsTable(offsets, 0.0).to_command()

    return step


def expected(queues: list[MessageQueue] = QUEUES) -> dict[MessageQueue, OffsetRange]:
    return {queue: OffsetRange(queue.queue_id, 10 + queue.queue_id) for queue in queues}


def counts(stage: Stage) -> tuple[int, int]:
    """Returns the requests for statistics and those for single queues."""
    brokers = stage.brokers.values()
    return sum(len(broker.of(STATS)) for broker in brokers), sum(len(broker.of(*SINGLE)) for broker in brokers)


async def test_one_request_a_broker(many: Stage, consumer: PullConsumer) -> None:
    assert await consumer.offset_bounds(QUEUES) == expected()
    assert await consumer.offset_bounds(iter(QUEUES), dict.fromkeys(QUEUES, 7)) == expected()
    assert counts(many) == (4, 0)


async def test_few_queues_are_requested_one_by_one(many: Stage, consumer: PullConsumer) -> None:
    assert await consumer.offset_bounds(QUEUES[1:MANY_QUEUES]) == expected(QUEUES[1:MANY_QUEUES])
    assert counts(many) == (0, 2 * (MANY_QUEUES - 1))


async def test_a_few_of_very_many_queues_are_so_the_second_time(many: Stage, consumer: PullConsumer) -> None:
    serve(many, "broker-a", {number: (number, 10 + number) for number in range(FEW_OF_MANY * MANY_QUEUES + 1)})
    queues = QUEUES[:MANY_QUEUES]
    for _ in range(2):
        assert (await consumer.offset_bounds(queues)).keys() == set(queues)
    assert counts(many) == (1, 2 * MANY_QUEUES)


async def test_a_change_of_any_offset_is_seen(many: Stage, consumer: PullConsumer) -> None:
    before = await consumer.offset_bounds(QUEUES)
    many.brokers["broker-b"].always(STATS, table("broker-b", dict.fromkeys(range(MANY_QUEUES), (8, 99))))
    after = await consumer.offset_bounds(QUEUES)
    assert {queue for queue in QUEUES if before[queue] != after[queue]} == set(QUEUES[MANY_QUEUES:])
    assert after[QUEUES[-1]] == OffsetRange(8, 99)


async def test_other_queues_of_the_same_answer(many: Stage, consumer: PullConsumer) -> None:
    """An answer that equals the last one is not read again: its queues have to be the same, too."""
    many.topic("many", queues=MANY_QUEUES + 1)
    serve(many, "broker-a", {number: (number, 10 + number) for number in range(MANY_QUEUES + 1)})
    queues = [MessageQueue("many", "broker-a", number) for number in range(MANY_QUEUES + 1)]
    assert await consumer.offset_bounds(queues[:-1]) == expected(queues[:-1])
    assert await consumer.offset_bounds(queues[1:]) == expected(queues[1:])


async def test_a_queue_without_a_row_is_requested_by_itself(many: Stage, consumer: PullConsumer) -> None:
    """4.9.7 lists no more queues than may be written to."""
    many.brokers["broker-a"].always(STATS, table("broker-a", {0: (0, 10), 1: (1, 11)}))
    assert await consumer.offset_bounds(QUEUES) == expected()
    assert counts(many) == (2, 2 * (MANY_QUEUES - 2))


@pytest.mark.parametrize("other", ["topic", "broker"])
async def test_rows_of_other_queues_count_for_none(many: Stage, consumer: PullConsumer, other: str) -> None:
    def step(request: Command, peer: Peer) -> Command:
        names = ("other", "broker-a") if other == "topic" else ("many", "broker-z")
        offsets = {MessageQueue(*names, number): TopicOffset(0, 1) for number in range(MANY_QUEUES)}
        return TopicStatsTable(offsets, 0.0).to_command()

    many.brokers["broker-a"].always(STATS, step)
    assert await consumer.offset_bounds(QUEUES) == expected()


@pytest.mark.parametrize(
    "step",
    [
        refuse(ResponseCode.NO_PERMISSION),
        refuse(ResponseCode.TOPIC_NOT_EXIST),
        refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED),
        refuse(ResponseCode.SYSTEM_ERROR, "a queue's file cannot be read"),
        lambda request, peer: success(body=b"{{{"),
        lambda request, peer: success(body=b'{"offsetTable":{"many":{"minOffset":0}}}'),
        lambda request, peer: success(),
    ],
)
async def test_without_statistics_queues_are_requested_one_by_one(
    many: Stage, consumer: PullConsumer, step: Step, jumping_clock: MockClock
) -> None:
    many.brokers["broker-a"].always(STATS, step)
    for _ in range(3):
        assert await consumer.offset_bounds(QUEUES) == expected()
    assert counts(many) == (1 + 3, 3 * 2 * MANY_QUEUES)
    await trio.sleep(REFUSED_SECONDS + 1)
    serve(many, "broker-a", {})
    many.brokers["broker-a"].always(STATS, table("broker-a", dict.fromkeys(range(MANY_QUEUES), (1, 2))))
    assert (await consumer.offset_bounds(QUEUES))[QUEUES[0]] == OffsetRange(1, 2)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
async def test_a_busy_broker_gets_no_more_requests(many: Stage, consumer: PullConsumer, code: ResponseCode) -> None:
    many.brokers["broker-a"].always(STATS, refuse(code))
    with pytest.raises(ResponseError) as caught:
        await consumer.offset_bounds(QUEUES)
    assert caught.value.code == code
    assert counts(many)[1] == 0


async def test_a_broker_that_is_down_is_no_broker_that_refuses(many: Stage, consumer: PullConsumer) -> None:
    many.brokers["broker-a"].always(STATS, cut)
    with pytest.raises(NetworkError):
        await consumer.offset_bounds(QUEUES)
    serve(many, "broker-a", {})
    many.brokers["broker-a"].always(STATS, table("broker-a", dict.fromkeys(range(MANY_QUEUES), (0, 5))))
    assert (await consumer.offset_bounds(QUEUES))[QUEUES[0]] == OffsetRange(0, 5)


async def test_offsets_that_contradict_each_other_are_named(many: Stage, consumer: PullConsumer) -> None:
    """The single requests say so of the queue, and a stream goes on with what there is."""
    rows = dict.fromkeys(range(MANY_QUEUES), (9, 3))
    many.brokers["broker-a"].always(STATS, table("broker-a", rows))
    many.stores["broker-a"].first_offset["many", 0] = 50
    many.stores["broker-a"].queues["many", 0].clear()
    many.brokers["broker-a"].always(RequestCode.GET_MAX_OFFSET, lambda request, peer: Command(0, {"offset": "3"}))
    with pytest.raises(HeaderError, match="many/broker-a/0 begins at offset 50 and ends at 3"):
        await consumer.offset_bounds(QUEUES)
    assert (await consumer.offset_bounds(QUEUES, {}))[QUEUES[0]] == OffsetRange(3, 3)


async def test_a_tenants_topic_has_its_own_name_on_the_wire(many: Stage, client: Client) -> None:
    many.topic("tenant%many", queues=MANY_QUEUES)
    async with PullConsumer("readers", client=client, namespace="tenant") as consumer:
        assert await consumer.offset_bounds(QUEUES) == expected()
    topics = {
        GetTopicStats.from_command(request).topic for server in many.brokers.values() for request in server.of(STATS)
    }
    assert topics == {"tenant%many"}
    assert counts(many)[1] == 0


async def test_a_minimum_is_not_requested_where_nothing_is_new(many: Stage, consumer: PullConsumer) -> None:
    queue = QUEUES[1]
    assert await consumer.offset_bounds([queue], {queue: 11}) == {queue: OffsetRange(11, 11)}
    assert counts(many) == (0, 1)
    assert await consumer.offset_bounds([queue], {queue: 10}) == {queue: OffsetRange(1, 11)}


LAST = FIRST_STORE_MS + 9


def searches(stage: Stage) -> int:
    return sum(len(broker.of(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)) for broker in stage.brokers.values())


@pytest.mark.parametrize(("when", "offset", "searched"), [(LAST + 1, 10, 0), (LAST, 9, 1), (LAST - 4, 5, 1)])
async def test_only_queues_with_messages_so_late_are_searched_by_time(
    many: Stage, consumer: PullConsumer, when: int, offset: int, searched: int
) -> None:
    for name in many.brokers:
        rows = {number: (number, 10 + number, LAST) for number in range(MANY_QUEUES)}
        many.brokers[name].always(STATS, table(name, rows))
    times = dict.fromkeys(QUEUES, when) | {QUEUES[0]: LAST + 1}
    offsets = await consumer.offsets_at(times)
    assert list(offsets) == QUEUES
    assert offsets == {queue: queue.queue_id + offset for queue in QUEUES} | {QUEUES[0]: 10}
    assert searches(many) == searched * (len(QUEUES) - 1)
    assert counts(many) == (2, 0)


async def test_a_queue_without_messages_is_not_searched_by_time(many: Stage, consumer: PullConsumer) -> None:
    many.brokers["broker-a"].always(STATS, table("broker-a", dict.fromkeys(range(MANY_QUEUES), (7, 7, 0))))
    assert await consumer.offsets_at(dict.fromkeys(QUEUES[:MANY_QUEUES], 0)) == dict.fromkeys(QUEUES[:MANY_QUEUES], 7)
    assert searches(many) == 0


@pytest.mark.parametrize("unknown", [0, -1])
async def test_a_last_message_of_unknown_time_is_searched(many: Stage, consumer: PullConsumer, unknown: int) -> None:
    rows = {number: (number, 10 + number, unknown) for number in range(MANY_QUEUES)}
    many.brokers["broker-a"].always(STATS, table("broker-a", rows))
    times = dict.fromkeys(QUEUES[:MANY_QUEUES], LAST)
    assert await consumer.offsets_at(times) == {queue: queue.queue_id + 9 for queue in times}
    assert searches(many) == MANY_QUEUES


async def test_our_broker_answers_as_it_does_single_requests() -> None:
    async with EmbeddedCluster(brokers=2) as cluster:
        await compare_with_single_requests(cluster.nameserver)
