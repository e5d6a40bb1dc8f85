"""Reads that prove themselves: every offset has its message, every body its CRC, no answer skips to an empty place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, DataLost, PullConsumer, ReadWindow, TagFilter, decode
from pyrmq_core.client.consumer.pull.puller import Puller
from pyrmq_core.errors import BodyDamaged, BodyTooLarge, RecordError, RocketMQError
from pyrmq_core.network import Peer, ask
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.messages import payload
from pyrmq_core.protocol.messages.compression import CompressionType, compress
from pyrmq_core.protocol.requests.broker.pull_message import PullAnswer, PullMessage
from tests.client.reading import A0, fill, read_all
from tests.support.scripted import PULL, Step
from tests.support.stage import Stage

COLUMNS = ["queueOffset", "body"]
ZLIB = CompressionType.ZLIB


def changed(stage: Stage, change: Callable[[PullMessage, PullAnswer], PullAnswer]) -> Step:
    """Returns a step that sends the broker's answer to a pull, changed."""

    async def step(request: Command, peer: Peer) -> Command:
        answer = await ask(stage.stores["broker-a"], request, peer)
        assert answer is not None
        return change(PullMessage.from_command(request), PullAnswer.from_command(answer)).to_command()

    return step


def without(offset: int) -> Callable[[PullMessage, PullAnswer], PullAnswer]:
    """Returns a change that drops one entry, as a broker skips an unreadable one: the header does not show it."""

    def change(requested: PullMessage, answer: PullAnswer) -> PullAnswer:
        records, start = bytes(answer.records), requested.queue_offset
        if not start <= offset < answer.next_begin_offset or len(records) == 0:
            return answer
        size = len(records) // (answer.next_begin_offset - start)
        first = (offset - start) * size
        return replace(answer, records=records[:first] + records[first + size :])

    return change


async def arrow_offsets(consumer: PullConsumer, end: int, **how: object) -> list[int]:
    offsets: list[int] = []
    async with consumer.read_arrow(A0, 0, end, columns=COLUMNS, **how) as batches:  # type: ignore[arg-type]
        async for batch in batches:
            offsets += batch.column("queueOffset").to_pylist()
    return offsets


@pytest.fixture
def same_size(stage: Stage) -> int:
    for number in range(300):
        stage.stores["broker-a"].put("orders", 0, b"%03d" % number)
    return 300


@pytest.mark.parametrize("gap", [0, 1, 150, 299])
async def test_an_offset_passed_over_in_silence_is_lost_by_name(
    stage: Stage, client: Client, puller: Puller, same_size: int, gap: int
) -> None:
    stage.brokers["broker-a"].always(PULL, changed(stage, without(gap)))
    with pytest.raises(DataLost, match=rf"1 of the offsets \d+ to \d+ of orders/broker-a/0 .* {gap} is the first"):
        await read_all(puller, 0, same_size)
    left = [offset for offset in range(same_size) if offset != gap]
    assert (await read_all(puller, 0, same_size, allow_gaps=True))[0] == left
    async with PullConsumer("readers", client=client) as consumer:
        with pytest.raises(DataLost, match="allow_gaps=True"):
            await arrow_offsets(consumer, same_size)
        assert await arrow_offsets(consumer, same_size, allow_gaps=True) == left


async def test_a_filter_asks_for_gaps(stage: Stage, client: Client, puller: Puller) -> None:
    fill(stage, 300, tag_every=3)
    offsets, _ = await read_all(puller, 0, 300, tags="yes")
    assert offsets == list(range(0, 300, 3))
    async with PullConsumer("readers", client=client) as consumer:
        assert await arrow_offsets(consumer, 300, tags="yes") == offsets


@pytest.mark.parametrize("beyond", [1, 2**62, 2**63 - 1])
async def test_no_answer_goes_beyond_what_the_broker_says_it_has(
    stage: Stage, puller: Puller, jumping_clock: MockClock, beyond: int
) -> None:
    """With a filter there is no other proof: an empty answer that goes to the end would end the read."""
    fill(stage, 100, tag_every=50)

    def far(requested: PullMessage, answer: PullAnswer) -> PullAnswer:
        return replace(answer, code=20, next_begin_offset=min(2**63 - 1, 200 + beyond), max_offset=100, records=b"")

    stage.brokers["broker-a"].always(PULL, changed(stage, far))
    with pytest.raises(RecordError, match=r"next offset \d+, and that the queue ends at 100"):
        await read_all(puller, 0, 200, tags="yes", window=ReadWindow(patience=1.0))


async def test_a_broker_that_is_written_to_may_be_ahead_of_itself_once(
    stage: Stage, puller: Puller, jumping_clock: MockClock
) -> None:
    """4.9 looks at its maximum before it looks for messages."""
    fill(stage, 100)

    def behind(requested: PullMessage, answer: PullAnswer) -> PullAnswer:
        return replace(answer, max_offset=answer.next_begin_offset - 1)

    stage.brokers["broker-a"].on(PULL, *[changed(stage, behind)] * 4)
    assert (await read_all(puller, 0, 100))[0] == list(range(100))


@pytest.mark.parametrize(
    "change",
    [
        lambda requested, answer: replace(answer, next_begin_offset=-1),
        lambda requested, answer: replace(answer, next_begin_offset=requested.queue_offset),
        lambda requested, answer: replace(answer, next_begin_offset=-(2**63)),
        lambda requested, answer: replace(answer, records=bytes(answer.records) * 2),
        lambda requested, answer: replace(answer, records=bytes(answer.records)[:-1]),
        lambda requested, answer: replace(answer, records=b"\xff" * 200),
        lambda requested, answer: replace(answer, records=b""),
        lambda requested, answer: replace(answer, min_offset=2**63 - 1, max_offset=-(2**63)),
        lambda requested, answer: replace(answer, code=21, next_begin_offset=2**63 - 1),
        lambda requested, answer: replace(answer, code=20, next_begin_offset=2**63 - 1),
    ],
)
async def test_absurd_answers_end_the_read_by_name_and_nothing_else(
    stage: Stage,
    client: Client,
    puller: Puller,
    same_size: int,
    jumping_clock: MockClock,
    change: Callable[[PullMessage, PullAnswer], PullAnswer],
) -> None:
    window = ReadWindow(patience=1.0)
    for skip in (0, 3):  # the first answer, whose pull is sent alone, and one of many under way
        honest = changed(stage, lambda requested, answer: answer)
        stage.brokers["broker-a"].on(PULL, *[honest] * skip)
        stage.brokers["broker-a"].always(PULL, changed(stage, change))
        with trio.fail_after(60), pytest.raises((RocketMQError,)):
            await read_all(puller, 0, same_size, window=window)
        stage.brokers["broker-a"].always(PULL, None)
        async with PullConsumer("readers", client=client) as consumer:
            assert await arrow_offsets(consumer, same_size) == list(range(same_size))


@pytest.mark.parametrize("number", [0, 123, 299])
async def test_a_flipped_bit_is_reported_with_its_broker(
    stage: Stage, client: Client, puller: Puller, same_size: int, number: int
) -> None:
    def flipped(requested: PullMessage, answer: PullAnswer) -> PullAnswer:
        return replace(answer, records=bytes(answer.records).replace(b"%03d" % number, b"9x9"))

    stage.brokers["broker-a"].always(PULL, changed(stage, flipped))
    address = stage.brokers["broker-a"].address
    with pytest.raises(BodyDamaged, match=f"offset {number} of orders/broker-a/0.*{address}"):
        await read_all(puller, 0, same_size)
    async with PullConsumer("readers", client=client) as consumer:
        with pytest.raises(BodyDamaged, match=address) as caught:
            await arrow_offsets(consumer, same_size)
        assert (caught.value.offset, caught.value.address) == (number, address)
        assert len(await arrow_offsets(consumer, same_size, verify_crc=False)) == same_size
        with pytest.raises(BodyDamaged, match=address):
            await consumer.pull(A0, number)
        pulled = await consumer.pull(A0, number, verify_crc=False)
        assert pulled.messages[0].body == b"9x9"


async def test_bodies_that_swell_come_in_parts_of_pulls_and_batches(
    stage: Stage, client: Client, puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = compress(bytes(1024 * 1024), ZLIB)
    for _ in range(100):
        stage.stores["broker-a"].put("orders", 0, body, sys_flag=ZLIB.sys_flag)
    async with PullConsumer("readers", client=client) as consumer:
        async with consumer.read_arrow(A0, 0, 100, columns=["body"]) as batches:
            sizes = [batch.num_rows async for batch in batches]
        assert sizes == [32, 32, 32, 4]
        monkeypatch.setattr(payload, "MAX_DECOMPRESSED_BYTES", 10 * 1024 * 1024)
        pulled = await consumer.pull(A0, 5)
        assert (len(pulled.messages), pulled.next_offset) == (10, 15)
        with pytest.raises(BodyTooLarge, match="offset 5 of orders/broker-a/0"):
            await consumer.pull(A0, 5, max_body_bytes=1024)


async def test_a_pull_without_a_filter_says_so(stage: Stage, puller: Puller, same_size: int) -> None:
    assert (await puller.pull(A0, 0)).is_unfiltered
    filtered = await puller.pull(A0, 0, tags=TagFilter.parse("yes"))
    assert not filtered.is_unfiltered
    assert decode(filtered) == []
