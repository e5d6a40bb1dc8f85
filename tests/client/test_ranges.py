"""Whole ranges: many pulls under way, bounded, delivered in order and without a gap."""

from collections.abc import Awaitable

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, ReadWindow, decode
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.command import Command
from tests.client.reading import A0, fill, read_all, requested
from tests.support.scripted import PULL, after, later
from tests.support.stage import Stage, settled, staged

# --- Ranges


@pytest.mark.parametrize("count", [1, 31, 32, 33, 500, 3000])
async def test_a_range_comes_whole_and_in_order(stage: Stage, puller: Puller, count: int) -> None:
    fill(stage, count)
    offsets, _ = await read_all(puller, 0, count)
    assert offsets == list(range(count))


async def test_a_part_of_a_queue_is_read(stage: Stage, puller: Puller) -> None:
    fill(stage, 500)
    offsets, _ = await read_all(puller, 77, 333)
    assert offsets == list(range(77, 333))


async def test_nothing_is_asked_for_an_empty_range(stage: Stage, puller: Puller) -> None:
    for start, end in ((5, 5), (9, 3)):
        assert await read_all(puller, start, end) == ([], [])
    assert requested(stage) == []


async def test_several_stretches_are_under_way_at_once(stage: Stage, puller: Puller) -> None:
    """The first answer shows how much the broker returns; then the next slices are pulled together."""
    fill(stage, 400)
    release = trio.Event()
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"])
    stage.brokers["broker-a"].always(PULL, after(release, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_all, puller, 0, 400)
        await settled()
        starts = [request.queue_offset for request in requested(stage)]
        assert starts == list(range(0, 400, 32))
        release.set()


@pytest.mark.parametrize(
    ("window", "expected"),
    [(ReadWindow(messages=100), 3), (ReadWindow(bytes=1), 1), (ReadWindow(messages=1), 1)],
)
async def test_what_is_under_way_is_bounded(stage: Stage, puller: Puller, window: ReadWindow, expected: int) -> None:
    fill(stage, 1000)
    release = trio.Event()
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"])
    stage.brokers["broker-a"].always(PULL, after(release, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            assert (await read_all(puller, 0, 1000, window=window))[0] == list(range(1000))

        nursery.start_soon(read)
        await settled()
        assert len(requested(stage)) == 1 + expected
        release.set()


async def test_bytes_under_way_follow_the_size_of_messages(stage: Stage, puller: Puller) -> None:
    fill(stage, 200, size=10_000)
    release = trio.Event()
    stage.brokers["broker-a"].on(PULL, stage.stores["broker-a"])
    stage.brokers["broker-a"].always(PULL, after(release, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: read_all(puller, 0, 200, window=ReadWindow(bytes=1_000_000)))
        await settled()
        assert len(requested(stage)) == 1 + 3  # 32 messages of 10 kB each: three answers are a megabyte
        release.set()


async def test_a_caller_that_stops_reading_is_not_read_for(stage: Stage, puller: Puller) -> None:
    """Pulled messages that the reader has not taken stay within the window, however slow the reader is."""
    fill(stage, 2000)
    async with puller.read(A0, 0, 2000, window=ReadWindow(messages=320)) as pulls:
        await anext(pulls)
        await anext(pulls)
        await settled()
        assert len(requested(stage)) <= 1 + 10 + 1


async def test_answers_that_overtake_each_other_are_put_in_order(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    fill(stage, 320)
    store = stage.stores["broker-a"]
    stage.brokers["broker-a"].on(PULL, *[later(1 - index / 20, store) for index in range(10)])
    offsets, _ = await read_all(puller, 0, 320)
    assert offsets == list(range(320))


async def test_short_answers_are_asked_for_again(stage: Stage, puller: Puller) -> None:
    """A broker returns fewer messages than requested when bodies are large: the rest of the slice is pulled again."""
    fill(stage, 320)
    store = stage.stores["broker-a"]

    def seven(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        store.pull_cap = 7
        return store(request, peer)

    stage.brokers["broker-a"].on(PULL, store, *[seven] * 5)
    offsets, pulls = await read_all(puller, 0, 320)
    assert offsets == list(range(320))
    assert len(pulls) > 40


async def test_a_broker_that_gives_eight_at_once(jumping_clock: MockClock) -> None:
    """A broker returns messages on disk eight at a time (maxTransferCountOnMessageInDisk)."""
    async with staged("broker-a", pull_cap=8) as stage, Client(nameserver=stage.nameserver.address) as client:
        stage.topic("orders")
        fill(stage, 1000)
        offsets, pulls = await read_all(Puller(client._session, "g"), 0, 1000)
        assert offsets == list(range(1000))
        assert len(pulls) == 125


async def test_a_first_answer_that_was_short_does_not_last(stage: Stage, puller: Puller) -> None:
    """A file of the queue may end behind it, or the oldest messages lie on disk: more comes at once later."""
    fill(stage, 10_000)
    store = stage.stores["broker-a"]

    def three(request: Command, peer: Peer) -> Command | Awaitable[Command | None] | None:
        store.pull_cap = 3
        try:
            return store(request, peer)
        finally:
            store.pull_cap = 32

    stage.brokers["broker-a"].on(PULL, three)
    offsets, pulls = await read_all(puller, 0, 10_000)
    assert offsets == list(range(10_000))
    assert len(pulls) < 1000
    assert pulls[-2].next_offset - pulls[-2].start >= 12


async def test_lists_of_pulls_are_as_large_as_asked(stage: Stage, puller: Puller) -> None:
    bodies = fill(stage, 5000, size=100)
    async with puller.read_joined(A0, 0, 5000, join_messages=1000, join_bytes=10**9) as source:
        lists = [[message.queue_offset for pull in pulls for message in decode(pull)] async for pulls in source]
    assert [offset for offsets in lists for offset in offsets] == list(range(5000))
    assert {len(offsets) for offsets in lists[:-1]} == {1024}
    record_bytes = len(bodies[0]) + 100
    async with puller.read_joined(A0, 0, 5000, join_messages=10**9, join_bytes=100_000) as source:
        sizes = [sum(len(pull.records) for pull in pulls) async for pulls in source]
    assert min(sizes[:-1]) >= 100_000
    assert max(sizes) < 100_000 + 64 * record_bytes


async def test_while_no_list_is_taken_no_more_than_the_window_is_requested(stage: Stage, puller: Puller) -> None:
    fill(stage, 3000)
    async with puller.read_joined(A0, 0, 3000, join_messages=640, window=ReadWindow(messages=320)) as source:
        assert sum(pull.next_offset - pull.start for pull in await anext(source)) == 640
        await settled()
        assert len(requested(stage)) == 20 + 10


@pytest.mark.parametrize("tag_every", [2, 7, 100, 5000])
async def test_what_is_filtered_away_leaves_no_gap(stage: Stage, puller: Puller, tag_every: int) -> None:
    fill(stage, 3000, tag_every=tag_every)
    offsets, pulls = await read_all(puller, 0, 3000, tags="yes")
    assert offsets == list(range(0, 3000, tag_every))
    assert pulls[-1].next_offset == 3000


async def test_only_the_end_is_filtered_away(stage: Stage, puller: Puller) -> None:
    fill(stage, 40, tag_every=100)
    offsets, pulls = await read_all(puller, 0, 40, tags="yes || no")
    assert offsets == [0]
    assert pulls[-1].next_offset == 40
