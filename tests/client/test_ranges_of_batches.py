"""Ranges of batch topics: a pull returns a whole batch, wherever in it the pull begins, and each is pulled once."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import DataLost, Message, PullStatus, RawPull, ReadWindow, encode_batch, unique_ids
from pyrmq_core.client.consumer.pull.pull_sizes import PullSizer
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages.record import encode_record
from pyrmq_core.protocol.messages.sysflag import BATCH_RECORD
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.client.reading import A0, read_all, requested
from tests.support.memory_broker import HOST
from tests.support.scripted import PULL, after, cut, later, refuse
from tests.support.stage import Stage, settled


class WholeBatches:
    """Answers each pull with the batch that holds its offset; a batch of one is a plain record."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.bases = [0, *accumulate(sizes)]

    @property
    def end(self) -> int:
        return self.bases[-1]

    def __call__(self, request: Command, peer: Peer) -> Command:
        number = bisect_right(self.bases, PullMessage.from_command(request).queue_offset) - 1
        base, following = self.bases[number : number + 2]
        answer = PullAnswer(
            next_begin_offset=following, min_offset=0, max_offset=self.end, records=stored(base, following)
        )
        return answer.to_command()


@cache
def stored(base: int, following: int) -> bytes:
    """Returns the record of a batch; for one message alone a plain one."""
    bodies = [b"%d" % offset for offset in range(base, following)]
    single = len(bodies) == 1
    batch = encode_batch([Message("orders", body) for body in bodies], unique_ids(len(bodies)))
    return encode_record(
        topic="orders",
        queue_id=0,
        queue_offset=base,
        commit_log_offset=0,
        body=bodies[0] if single else batch.body,
        properties="",
        sys_flag=0 if single else BATCH_RECORD,
        born_timestamp_ms=1,
        born_host=HOST,
        store_timestamp_ms=1,
        store_host=HOST,
    )


async def asks(stage: Stage, puller: Puller, batches: WholeBatches, start: int = 0, end: int | None = None) -> int:
    """Returns the number of pulls for a range, and checks that it is read whole."""
    end = batches.end if end is None else end
    stage.brokers["broker-a"].always(PULL, batches)
    before = len(requested(stage))
    offsets, _ = await read_all(puller, start, end)
    assert offsets == list(range(start, end))
    return len(requested(stage)) - before


async def test_batches_of_one_size_are_asked_for_once_each(stage: Stage, puller: Puller) -> None:
    assert await asks(stage, puller, WholeBatches([10] * 50)) == 50
    assert await asks(stage, puller, WholeBatches([10] * 50), 3, 487) == 49


async def test_batches_that_end_early_are_asked_for_once_each(stage: Stage, puller: Puller) -> None:
    """A writer's last request of each part is smaller, so the batches after it begin earlier than estimated."""
    assert await asks(stage, puller, WholeBatches([10, 10, 10, 10, 10, 7] * 20)) == 120


async def test_a_first_batch_that_is_small_costs_those_under_way_and_no_more(stage: Stage, puller: Puller) -> None:
    assert await asks(stage, puller, WholeBatches([90] + [300] * 60)) <= 61 + 4000 // 90
    assert await asks(stage, puller, WholeBatches([300] + [90] * 60)) == 61


async def test_batches_behind_single_messages_are_noticed(stage: Stage, puller: Puller) -> None:
    under_way = 128
    assert await asks(stage, puller, WholeBatches([1] * 40 + [300] * 60)) <= 100 + under_way
    assert await asks(stage, puller, WholeBatches([300, 1, 1, 1] * 20)) <= 90


@dataclass(slots=True)
class OneElsewhere:
    """Answers a pull of the batch `number` with messages from the offset `base` on, others as `batches` does."""

    batches: WholeBatches
    number: int
    base: int

    def __call__(self, request: Command, peer: Peer) -> Command:
        if PullMessage.from_command(request).queue_offset // 10 != self.number:
            return self.batches(request, peer)
        following = 10 * self.number + 10
        records = stored(self.base, self.base + 5)
        return PullAnswer(next_begin_offset=following, min_offset=0, max_offset=200, records=records).to_command()


elsewhere = pytest.mark.parametrize(("number", "base"), [(10, 105), (0, 10**12), (10, 10**12), (0, -(10**12))])


@elsewhere
async def test_a_batch_that_lies_elsewhere_is_named_when_its_pull_is_decoded(
    stage: Stage, puller: Puller, number: int, base: int
) -> None:
    stage.brokers["broker-a"].always(PULL, OneElsewhere(WholeBatches([10] * 20), number, base))
    with trio.fail_after(60):
        with pytest.raises(DataLost, match=f"of the offsets {10 * number} to {10 * number + 10} of orders/broker-a/0"):
            await read_all(puller, 0, 200)


@elsewhere
async def test_a_batch_that_lies_elsewhere_is_not_asked_for_again_and_again(
    stage: Stage, puller: Puller, number: int, base: int
) -> None:
    stage.brokers["broker-a"].always(PULL, OneElsewhere(WholeBatches([10] * 20), number, base))
    with trio.fail_after(60):
        offsets, _ = await read_all(puller, 0, 200, allow_gaps=True)
    left = [offset for offset in range(200) if offset // 10 != number]
    assert offsets == sorted([*left, *(offset for offset in range(base, base + 5) if 0 <= offset < 200)])
    assert len(requested(stage)) <= 30


@pytest.mark.parametrize("seed", range(12))
async def test_any_batches_and_answers_that_overtake_each_other_come_whole(
    stage: Stage, puller: Puller, jumping_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    largest = chance.choice([2, 10, 60])
    batches = WholeBatches([chance.choice([1, largest, chance.randint(1, largest)]) for _ in range(100)])
    stage.brokers["broker-a"].on(PULL, *[later(chance.random(), batches) for _ in range(400)])
    stage.brokers["broker-a"].always(PULL, batches)
    start, end = sorted(chance.sample(range(batches.end + 1), 2))
    window = ReadWindow(messages=chance.choice([1, 50, 4000]))
    offsets, _ = await read_all(puller, start, end, window=window)
    assert offsets == list(range(start, end))


@pytest.mark.parametrize("seed", range(6))
async def test_connections_that_end_meanwhile_lose_and_repeat_nothing(
    stage: Stage, puller: Puller, jumping_clock: MockClock, seed: int
) -> None:
    chance = random.Random(seed)
    batches = WholeBatches([chance.choice([1, 7, 30]) for _ in range(100)])
    steps = [cut, refuse(ResponseCode.SYSTEM_BUSY), *[later(0.5, batches)] * 8]
    stage.brokers["broker-a"].on(PULL, *[chance.choice(steps) for _ in range(100)])
    stage.brokers["broker-a"].always(PULL, batches)
    offsets, _ = await read_all(puller, 0, batches.end)
    assert offsets == list(range(batches.end))


def test_what_a_filter_passes_by_does_not_make_stretches_large() -> None:
    """Otherwise a slice of many messages would leave no room for another beside it."""
    plan = PullSizer()
    plan.begin(RawPull(A0, 0, 32, 0, 9999, PullStatus.FOUND))
    plan.learn(RawPull(A0, 32, 9000, 0, 9999, PullStatus.FOUND), 96, larger=True)
    assert plan.plan(9000, 9999, 1) == [(9064, False)]


@pytest.mark.parametrize(
    ("window", "expected"), [(ReadWindow(messages=50), 2), (ReadWindow(messages=500), 5), (ReadWindow(bytes=1), 1)]
)
async def test_two_batches_are_under_way_though_one_fills_the_window(
    stage: Stage, puller: Puller, window: ReadWindow, expected: int
) -> None:
    """Otherwise the broker would be idle while the first is decoded; the window's bound of bytes still holds."""
    batches = WholeBatches([100] * 20)
    release = trio.Event()
    stage.brokers["broker-a"].on(PULL, batches)
    stage.brokers["broker-a"].always(PULL, after(release, batches))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(read_all, puller, 0, batches.end, window=window))
        await settled()
        assert len(requested(stage)) == 1 + expected
        release.set()
