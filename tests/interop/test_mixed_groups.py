"""Groups that our push consumers share with Java's and Go's, while members of all join and leave."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio

from tests.support.apache import VERSIONS, ApacheCluster
from tests.support.go_programs import built
from tests.support.groups.java_members import JavaMembers, open_go_members, open_java_members
from tests.support.groups.mixed_group import SECONDS, MixedGroup, change_at_random
from tests.support.groups.numbered_messages import made_queues, sending
from tests.support.maven import ApacheUnavailable
from tests.support.our_cluster import boot_our_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(400)

RATE = 80.0  # messages a second over all queues
LONG_SECONDS = 240.0


async def test_members_of_both_kinds_join_and_leave(apache: ApacheCluster) -> None:
    """One group concurrent and one orderly, on the same topic."""
    async with two_groups(apache.version, apache.nameserver.address) as groups, trio.open_nursery() as nursery:
        for group in groups:
            nursery.start_soon(some_changes, group)


async def some_changes(group: MixedGroup) -> None:
    for ours in (False, True, True):
        await group.join(ours=ours)
        await group.settle()
        await group.consume(20)
    await group.leave(group.names(ours=True)[0])
    await group.settle()
    await group.consume(20)
    await group.join(ours=False)
    await group.leave(group.names(ours=False)[0])
    await group.settle()
    await group.consume(20)


async def test_members_of_three_languages_join_and_leave_on_our_broker() -> None:
    with boot_our_cluster() as cluster:
        await three_languages(cluster.nameserver.address)


@pytest.mark.soak
async def test_members_of_three_languages_join_and_leave(apache_5: ApacheCluster) -> None:
    await three_languages(apache_5.nameserver.address)


@pytest.mark.soak
async def test_members_of_three_languages_divide_queues_by_circle() -> None:
    with boot_our_cluster() as cluster:
        await three_languages(cluster.nameserver.address, by_circle=True)


async def three_languages(nameserver: str, *, by_circle: bool = False) -> None:
    try:
        built()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    async with (
        open_go_members(nameserver, seconds=5 * SECONDS) as go,
        two_groups("5.4.0", nameserver, go) as (group,),
    ):
        group.by_circle = by_circle
        for ours, in_go in ((False, True), (True, False), (False, False)):
            await group.join(ours=ours, in_go=in_go)
        await group.settle()
        await group.consume(20)
        for name in (group.names(ours=True)[0], next(name for name in group.members if name.startswith("go-"))):
            await group.leave(name)
        await group.settle()
        await group.consume(20)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_ours", [True, False], ids=["ours", "5.4.0"])
async def test_an_orderly_group_of_go_and_python_survives_a_kill(request: pytest.FixtureRequest, is_ours: bool) -> None:
    if is_ours:
        with boot_our_cluster() as cluster:
            await go_and_python_in_order(cluster.nameserver.address)
    else:
        apache_5: ApacheCluster = request.getfixturevalue("apache_5")
        await go_and_python_in_order(apache_5.nameserver.address)


async def go_and_python_in_order(nameserver: str) -> None:
    """Members of both join and leave, and a process in Go is killed: `MixedGroup.check` is the judge."""
    try:
        built()
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    mark = uuid.uuid4().hex[:8]
    queues = await made_queues(nameserver, f"mixed_{mark}")
    began = time.time()
    async with (
        open_go_members(nameserver, seconds=10 * SECONDS) as stays,
        open_go_members(nameserver, seconds=10 * SECONDS) as dies,
        trio.open_nursery() as nursery,
    ):
        group = MixedGroup(nameserver, f"orderly_{mark}", f"mixed_{mark}", queues, stays, nursery, True, stays)
        async with sending(nameserver, queues, RATE) as sent:
            for ours, group.go in ((True, stays), (False, dies), (False, stays)):
                await group.join(ours=ours, in_go=not ours)
            await settled_and_consumed(group)
            await group.die(dies)
            await settled_and_consumed(group)
            await group.join(ours=True)
            await settled_and_consumed(group)
            await group.leave(group.names(ours=True)[0])
            await group.join(ours=False, in_go=True)
            await settled_and_consumed(group)
        ended = time.time()
        await until(lambda: sent.keys() <= {record.place for record in group.records}, 2 * SECONDS)
        await group.stop()
    print(group.check(sent, began, ended))  # noqa: T201 - shown when it fails, and by `make soak`
    assert {record.member.partition("-")[0] for record in group.records} == {"go", "ours"}


async def settled_and_consumed(group: MixedGroup) -> None:
    await group.settle()
    await group.consume(20)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [random.randrange(1_000_000)])
async def test_members_join_and_leave_at_random_for_minutes(apache: ApacheCluster, seed: int) -> None:
    await soak(apache.version, apache.nameserver.address, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", [random.randrange(1_000_000)])
async def test_members_join_and_leave_on_our_broker_for_minutes(version: str, seed: int) -> None:
    with boot_our_cluster() as cluster:
        await soak(version, cluster.nameserver.address, seed)


async def soak(version: str, nameserver: str, seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201 - shown when it fails, and by `make soak`
    async with two_groups(version, nameserver) as groups, trio.open_nursery() as nursery:
        for number, group in enumerate(groups):
            nursery.start_soon(random_changes, group, random.Random(seed + number))


async def random_changes(group: MixedGroup, draw: random.Random) -> None:
    await group.join(ours=True)
    await group.join(ours=False)
    await group.settle()
    ends_at = trio.current_time() + LONG_SECONDS
    while trio.current_time() < ends_at:
        for _ in range(draw.choice((1, 1, 1, 2, 3))):
            await change_at_random(group, draw, most=6)
            await trio.sleep(draw.uniform(0, 3))
        await group.settle()
        await group.consume(draw.randrange(10, 60))


@asynccontextmanager
async def two_groups(
    version: str, nameserver: str, go: JavaMembers | None = None
) -> AsyncIterator[Sequence[MixedGroup]]:
    """Yields a concurrent and an orderly group without members, while messages are sent; checks their records.

    With Go's members there is a concurrent group alone: an orderly member of theirs keeps the lock of a queue that it
    loses until it ends at the broker after 60 s.
    """
    mark = uuid.uuid4().hex[:8]
    topic = f"mixed_{mark}"
    queues = await made_queues(nameserver, topic)
    began = time.time()
    async with (
        open_java_members(version, nameserver, seconds=5 * SECONDS + LONG_SECONDS) as java,
        trio.open_nursery() as nursery,
    ):
        groups = [
            MixedGroup(nameserver, f"{kind}_{mark}", topic, queues, java, nursery, kind == "orderly", go)
            for kind in (("concurrent",) if go else ("concurrent", "orderly"))
        ]
        async with sending(nameserver, queues, RATE) as sent:
            yield groups
        ended = time.time()
        for group in groups:
            await until(lambda group=group: sent.keys() <= {record.place for record in group.records}, SECONDS)  # type: ignore[misc]
            await group.stop()
    for group in groups:
        print(f"{version} {group.check(sent, began, ended)}")  # noqa: T201 - shown when it fails, and by `make soak`
