"""Several ranges in one read: each whole, in the order that was given, the next ones pulled ahead within a bound."""

from collections.abc import Iterable

import pytest
import trio

from pyrmq_core import DataLost, MessageQueue, OffsetRange, RawPull, ReadWindow, decode
from pyrmq_core.client.consumer.pull import ranges_reader
from pyrmq_core.client.consumer.pull.puller import JOIN_MESSAGES, Puller
from pyrmq_core.client.consumer.pull.ranges_reader import HOLD_SECONDS, RANGES_AT_ONCE, SMALL_RANGES_AT_ONCE
from pyrmq_core.network import Peer, ask
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.pull_message import PullMessage
from tests.support.scripted import PULL, after, refuse
from tests.support.stage import Stage, settled
from tests.support.waiting import until

COUNT = 40


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


def fill(stage: Stage, queues: int, count: int = COUNT) -> list[tuple[MessageQueue, OffsetRange]]:
    """Stores so many messages in each queue; returns the whole of each."""
    for number in range(queues):
        for offset in range(count):
            stage.stores["broker-a"].put("orders", number, b"%d %d" % (number, offset), "")
    return [(queue(number), OffsetRange(0, count)) for number in range(queues)]


async def bodies(
    puller: Puller,
    ranges: Iterable[tuple[MessageQueue, OffsetRange]],
    window: ReadWindow | None = None,
) -> list[bytes]:
    contents: list[bytes] = []
    async with puller.read_ranges(ranges, window=window or ReadWindow()) as lists:
        async for pulls in lists:
            assert len({pull.queue for pull in pulls}) == 1
            contents += [message.body for pull in pulls for message in decode(pull, own(pull))]
    return contents


def own(pull: RawPull) -> OffsetRange:
    return OffsetRange(pull.start, pull.next_offset)


def requested_queues(stage: Stage) -> set[int]:
    return {PullMessage.from_command(command).queue_id for command in stage.brokers["broker-a"].of(PULL)}


@pytest.mark.parametrize("queues", [1, 2, RANGES_AT_ONCE, RANGES_AT_ONCE + 1, 3 * RANGES_AT_ONCE])
async def test_every_range_comes_whole_and_in_its_turn(stage: Stage, puller: Puller, queues: int) -> None:
    ranges = fill(stage, queues)
    expected = [b"%d %d" % (number, offset) for number in range(queues) for offset in range(COUNT)]
    assert await bodies(puller, ranges) == expected


async def test_parts_of_one_queue_may_be_among_them_and_empty_ranges(stage: Stage, puller: Puller) -> None:
    fill(stage, 2)
    parts = [(queue(1), OffsetRange(7, 9)), (queue(0), OffsetRange(3, 3)), (queue(1), OffsetRange(9, 10))]
    assert await bodies(puller, parts) == [b"1 7", b"1 8", b"1 9"]
    assert await bodies(puller, []) == []


async def test_the_next_few_are_pulled_while_the_first_waits(stage: Stage, puller: Puller) -> None:
    ranges = fill(stage, 3 * RANGES_AT_ONCE)
    release = trio.Event()
    stage.brokers["broker-a"].always(PULL, after(release, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bodies, puller, ranges, ReadWindow(messages=COUNT * RANGES_AT_ONCE))
        await settled()
        assert requested_queues(stage) == set(range(RANGES_AT_ONCE))
        release.set()


@pytest.mark.parametrize(("messages", "expected"), [(4000, SMALL_RANGES_AT_ONCE), (60, 30)])
async def test_more_small_ones_are_pulled_at_once(stage: Stage, puller: Puller, messages: int, expected: int) -> None:
    """While they have no more messages together than a read window."""
    ranges = fill(stage, SMALL_RANGES_AT_ONCE + 30, 2)
    release = trio.Event()
    stage.brokers["broker-a"].always(PULL, after(release, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bodies, puller, ranges, ReadWindow(messages=messages))
        await settled()
        assert requested_queues(stage) == set(range(expected))
        release.set()


async def shared_lists(
    puller: Puller, ranges: Iterable[tuple[MessageQueue, OffsetRange]], lists_found: list[list[RawPull]]
) -> None:
    async with puller.read_ranges(ranges, share_lists=True) as lists:
        async for pulls in lists:
            lists_found += [pulls]


def bodies_of(lists: Iterable[list[RawPull]]) -> list[bytes]:
    return [message.body for pulls in lists for pull in pulls for message in decode(pull, own(pull))]


@pytest.mark.parametrize("queues", [1, RANGES_AT_ONCE + 1, SMALL_RANGES_AT_ONCE + 30])
async def test_small_ranges_share_a_list(stage: Stage, puller: Puller, queues: int) -> None:
    lists: list[list[RawPull]] = []
    await shared_lists(puller, [*fill(stage, queues, 3), (queue(0), OffsetRange(2, 2))], lists)
    assert bodies_of(lists) == [b"%d %d" % (number, offset) for number in range(queues) for offset in range(3)]
    assert len(lists) <= 1 + queues // SMALL_RANGES_AT_ONCE


async def test_shared_lists_have_the_bounds_of_others(
    stage: Stage, puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list ends where the next pulls would lead it beyond its bounds."""
    monkeypatch.setattr(ranges_reader, "HOLD_SECONDS", 60.0)
    large = JOIN_MESSAGES + 100
    fill(stage, 3, 50)
    fill(stage, 1, large - 50)
    ranges = [(queue(1), OffsetRange(0, 50)), (queue(0), OffsetRange(0, large)), (queue(2), OffsetRange(0, 50))]
    lists: list[list[RawPull]] = []
    await shared_lists(puller, ranges, lists)
    sizes = [sum(pull.next_offset - pull.start for pull in pulls) for pulls in lists]
    assert sum(sizes) == large + 100
    assert [{pull.queue.queue_id for pull in pulls} for pulls in lists] == [{1}, {0}, {0, 2}]
    assert max(sizes) < JOIN_MESSAGES + 64


async def test_an_error_ends_a_shared_list(stage: Stage, puller: Puller) -> None:
    ranges = fill(stage, 4)
    stage.stores["broker-a"].first_offset["orders", 2] = 100
    lists: list[list[RawPull]] = []
    with pytest.raises(DataLost) as caught:
        await shared_lists(puller, ranges, lists)
    assert caught.value.queue == queue(2)
    assert bodies_of(lists) == [b"%d %d" % (number, offset) for number in (0, 1) for offset in range(COUNT)]


async def test_a_range_that_waits_holds_back_none_before_it(stage: Stage, puller: Puller) -> None:
    ranges = fill(stage, 3, 20)
    broker, store = stage.brokers["broker-a"], stage.stores["broker-a"]
    release = trio.Event()

    async def first_alone(request: Command, peer: Peer) -> Command | None:
        if PullMessage.from_command(request).queue_id > 0:
            await release.wait()
        return await ask(store, request, peer)

    broker.always(PULL, first_alone)
    lists: list[list[RawPull]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shared_lists, puller, ranges, lists)
        await trio.sleep(10 * HOLD_SECONDS)
        assert bodies_of(lists) == [b"0 %d" % offset for offset in range(20)]
        release.set()
    assert bodies_of(lists) == [b"%d %d" % (number, offset) for number in range(3) for offset in range(20)]


async def test_a_large_range_comes_in_several_lists(stage: Stage, puller: Puller) -> None:
    ranges = fill(stage, 1, JOIN_MESSAGES + 100)
    ranges += fill(stage, 1, 0)
    contents = await bodies(puller, ranges)
    assert contents == [b"0 %d" % offset for offset in range(JOIN_MESSAGES + 100)]


async def test_a_read_that_is_left_early_ignores_the_pulls_under_way(
    stage: Stage, puller: Puller, caplog: pytest.LogCaptureFixture
) -> None:
    ranges = fill(stage, 3, 400)
    broker, store = stage.brokers["broker-a"], stage.stores["broker-a"]
    release = trio.Event()
    broker.on(PULL, store, store, store)
    broker.always(PULL, after(release, refuse(ResponseCode.SYSTEM_BUSY)))

    async def read() -> None:
        async with puller.read_ranges(ranges) as lists:
            await anext(lists)
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await until(lambda: len(broker.of(PULL)) > len(ranges))
        nursery.cancel_scope.cancel()
    await settled()
    before = len(broker.of(PULL))
    release.set()
    await settled()
    assert len(broker.of(PULL)) == before
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}]
    broker.always(PULL, store)
    assert len(await bodies(puller, ranges)) == 1200
