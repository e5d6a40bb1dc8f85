"""The members and the lag of a push consumer's group, as RocketMQ's own tool shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest
import trio

from pyrmq_core.blocking import EmbeddedCluster
from tests.support.apache import NEWEST_AND_LONG_OLDER, ApacheCluster
from tests.support.consumer_jobs import Seen, consuming, fresh, made_topic, send, total_committed
from tests.support.java_programs import mqadmin
from tests.support.waiting import until_readable

BODIES = [f"{number}" for number in range(6)]


@pytest.fixture(scope="module")
def our_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


async def shown(version: str, nameserver: str, *arguments: str) -> str:
    return await trio.to_thread.run_sync(partial(mqadmin, version, *arguments, nameserver=nameserver))


async def check_progress_and_members(version: str, nameserver: str) -> None:
    topic, group, seen = await made_topic(nameserver, 1), fresh("watched"), Seen()
    async with consuming(nameserver, group, topic, seen, tags="a || b"):
        await send(nameserver, topic, BODIES, tags="a")
        await seen.wait(len(BODIES))
        members = await shown(version, nameserver, "consumerConnection", "-g", group)
    assert "PYTHON" in members
    assert re.search(rf"{topic}\s+a \|\| b", members), members
    assert "ConsumeType: CONSUME_PASSIVELY" in members
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in members
    assert await total_committed(nameserver, group, topic) == len(BODIES)
    await send(nameserver, topic, BODIES[:2], tags="a")
    await until_readable(nameserver, topic, len(BODIES) + 2)
    progress = await shown(version, nameserver, "consumerProgress", "-g", group)
    assert re.search(r"Consume Diff Total: 2\b|Diff Total: 2\b", progress), progress


async def test_progress_and_members_at_apaches_brokers(apache: ApacheCluster) -> None:
    await check_progress_and_members(apache.version, apache.nameserver.address)


@pytest.mark.parametrize("version", NEWEST_AND_LONG_OLDER)
async def test_progress_and_members_at_our_brokers(our_cluster: EmbeddedCluster, version: str) -> None:
    await check_progress_and_members(version, our_cluster.nameserver)
