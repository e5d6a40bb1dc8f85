"""Sends wait until enough slaves have them, or their time is over."""

import random

import pytest
import trio
import trio.testing

from pyrmq_core.servers.broker.ha.log_transfer import BLOCK_HEAD, Reports, first_transfer, in_blocks
from pyrmq_core.servers.broker.ha.replicas import CopyRules, Replicas
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig


@pytest.mark.parametrize("copies", [1, 2, 3])
async def test_a_wait_ends_when_so_many_have_it(copies: int, autojump_clock: trio.testing.MockClock) -> None:
    replicas = Replicas(CopyRules(copies))
    slaves = [replicas.join(f"slave {number}") for number in range(3)]
    ended: list[int] = []

    async def wait(end: int) -> None:
        assert await replicas.wait(end, trio.current_time() + 60)
        ended.append(end)

    async with trio.open_nursery() as nursery:
        for end in (30, 10, 20):  # in no order, as after a flush
            nursery.start_soon(wait, end)
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == ([10, 20, 30] if copies == 1 else [])
        for number, slave in enumerate(slaves[: copies - 1], 1):
            replicas.acknowledge(slave, 20)
            await trio.testing.wait_all_tasks_blocked()
            assert (sorted(ended) == [10, 20]) is (number == copies - 1)
        for slave in slaves:
            replicas.acknowledge(slave, 30)
    assert sorted(ended) == [10, 20, 30]
    assert replicas._waiting == []


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_lower_number_of_copies_counts_at_once(copies: int, autojump_clock: trio.testing.MockClock) -> None:
    replicas = Replicas(CopyRules(3))
    slave = replicas.join("slave")
    replicas.acknowledge(slave, 10)
    ended: dict[int, bool] = {}

    async def wait(end: int) -> None:
        ended[end] = await replicas.wait(end, trio.current_time() + 60)

    async with trio.open_nursery() as nursery:
        for end in (10, 20):
            nursery.start_soon(wait, end)
        await trio.testing.wait_all_tasks_blocked()
        replicas.rules = CopyRules(copies)
        assert replicas.rules.copies == copies
    assert ended == {10: True, 20: copies == 1}
    assert replicas._waiting == []


async def test_a_wait_without_slaves_ends_in_its_time_and_leaves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    replicas = Replicas(CopyRules(2))
    began = trio.current_time()
    assert not await replicas.wait(10, trio.current_time() + 3)
    assert trio.current_time() - began == pytest.approx(3)
    with trio.move_on_after(1):
        await replicas.wait(20, trio.current_time() + 3)
    assert replicas._waiting == []


async def test_a_slave_that_left_counts_no_more(autojump_clock: trio.testing.MockClock) -> None:
    replicas = Replicas(CopyRules(2))
    slave = replicas.join("slave")
    replicas.acknowledge(slave, 10)
    assert replicas.is_copied(10)
    replicas.leave(slave)
    assert not await replicas.wait(10, trio.current_time() + 3)


async def test_a_wait_whose_time_is_over_sees_what_is_there(autojump_clock: trio.testing.MockClock) -> None:
    replicas = Replicas(CopyRules(2))
    replicas.acknowledge(replicas.join("slave"), 10)
    past = trio.current_time() - 1
    assert [await replicas.wait(end, past) for end in (10, 11)] == [True, False]


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, CopyRules(1)),
        ({"inSyncReplicas": "3", "slaveTimeout": "500", "haMaxGapNotInSync": "7"}, CopyRules(3, 0.5, 7)),
        ({"haSlaveFallbehindMax": "7", "haMaxGapNotInSync": "9"}, CopyRules(2, 3.0, 7, needs_slaves=True)),
        ({"haSlaveFallbehindMax": "7", "inSyncReplicas": "3"}, CopyRules(3, 3.0, 7, needs_slaves=True)),
        ({"haSlaveFallbehindMax": "-1"}, CopyRules(1)),
        (
            {"brokerRole": "ASYNC_MASTER", "haSlaveFallbehindMax": "7", "inSyncReplicas": "3"},
            CopyRules(1, 3.0, 7, True),
        ),
    ],
)
def test_the_settings_say_how_many_copies_a_send_waits_for(settings: dict[str, str], rules: CopyRules) -> None:
    assert CopyRules.of(BrokerConfig().with_settings({"brokerRole": "SYNC_MASTER", **settings})) == rules


@pytest.mark.parametrize(("gap", "copies", "enough"), [(11, 2, True), (10, 2, False), (11, 3, False)])
async def test_a_slave_is_in_sync_within_the_gap(gap: int, copies: int, enough: bool) -> None:
    for needs_slaves in (True, False):
        replicas = Replicas(CopyRules(copies, 3.0, gap, needs_slaves))
        replicas.join("not yet reported")
        replicas.acknowledge(replicas.join("10 bytes behind"), 90)
        assert replicas.can_copy(100) is (enough or not needs_slaves)


def test_the_last_whole_report_counts_however_the_bytes_are_cut() -> None:
    offsets = [0, 5, 10**12, 7]
    data = b"".join([offset.to_bytes(8) for offset in offsets])
    chance = random.Random(1)
    for _ in range(200):
        reports, reported_offsets, at = Reports(), [], 0
        while at < len(data):
            size = chance.randint(1, 12)
            if (offset := reports.feed(data[at : at + size])) is not None:
                reported_offsets.append(offset)
            at += size
        assert reported_offsets[-1] == 7
        assert set(reported_offsets) <= set(offsets)


@pytest.mark.parametrize(("reported", "end", "first"), [(0, 0, 0), (0, 100, 0), (0, 2500, 2000), (1234, 2500, 1234)])
def test_an_empty_slave_begins_at_the_newest_segment(reported: int, end: int, first: int) -> None:
    assert first_transfer(reported, end, 1000) == first


@pytest.mark.parametrize(
    ("part", "sizes"), [(b"", [0]), (b"x", [1]), (b"x" * 10, [10]), (b"x" * 11, [10, 1]), (bytes(range(30)), [10] * 3)]
)
def test_a_part_of_the_log_is_sent_in_blocks_of_the_greatest_size(part: bytes, sizes: list[int]) -> None:
    sent, block_sizes, body = in_blocks(500, part, 10), list[int](), b""
    while sent:
        offset, size = BLOCK_HEAD.unpack_from(sent)
        assert offset == 500 + len(body)
        block_sizes.append(size)
        body += sent[BLOCK_HEAD.size : BLOCK_HEAD.size + size]
        sent = sent[BLOCK_HEAD.size + size :]
    assert (block_sizes, body) == (sizes, part)
