"""Queues that change hands between members of a group while a handler is at work on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
import trio.testing

from pyrmq_core import MessageExt
from pyrmq_core.client.consumer.consume import assigned_queues
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.framing.command import refusal
from pyrmq_core.protocol.requests.broker.lock_queues import LockQueues
from pyrmq_core.testing import PASS, Command, EmbeddedCluster, Peer, RequestCode
from tests.support.consumer_jobs import SECONDS, Seen, consuming, fresh, made_topic, send
from tests.support.waiting import until


class HeldUp(Seen):
    """A handler whose calls end when `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = trio.Event()

    async def __call__(self, messages: Sequence[MessageExt]) -> None:
        await super().__call__(messages)
        await self.go_on.wait()


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


def lock_requests(cluster: EmbeddedCluster) -> Counter[str]:
    """Returns the number of requests for locks by client id, as it goes on."""
    counts: Counter[str] = Counter()

    async def count(request: Command, peer: Peer) -> object:
        counts[LockQueues.from_command(request).client_id] += 1
        return PASS

    cluster.control(RequestCode.LOCK_BATCH_MQ, count)  # type: ignore[arg-type]
    return counts


async def test_an_orderly_queue_changes_hands_when_its_handler_has_ended(cluster: EmbeddedCluster) -> None:
    topic, group, held_up, seen = await made_topic(cluster.nameserver), fresh("group"), HeldUp(), Seen()
    bodies = [str(number) for number in range(8)]
    await send(cluster.nameserver, topic, bodies)
    requests = lock_requests(cluster)
    async with consuming(cluster.nameserver, group, topic, held_up, orderly=True) as first:
        await held_up.wait(2)  # one message of each queue
        async with consuming(cluster.nameserver, group, topic, seen, orderly=True) as other:
            own_id = other._session.client_id
            await until(lambda: seen.messages or requests[own_id] >= 4, SECONDS)
            await until(lambda: len([queue for queue in first.assigned_queues if queue.topic == topic]) == 1, SECONDS)
            assert not seen.messages
            held_up.go_on.set()
            await until(lambda: len(held_up.messages) + len(seen.messages) >= 8, SECONDS)
            assert len(seen.messages) == 3
    assert Counter(held_up.bodies + seen.bodies) == Counter(bodies)


async def test_an_orderly_handler_that_hangs_does_not_keep_its_queue(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assigned_queues, "LONGEST_HOLD_SECONDS", 0.05)
    topic, group, held_up, seen = await made_topic(cluster.nameserver), fresh("group"), HeldUp(), Seen()
    await send(cluster.nameserver, topic, [str(number) for number in range(8)])
    async with consuming(cluster.nameserver, group, topic, held_up, orderly=True):
        await held_up.wait(2)
        async with consuming(cluster.nameserver, group, topic, seen, orderly=True):
            await seen.wait(4)


async def test_a_lock_that_is_granted_after_its_consumer_stopped_is_given_back(cluster: EmbeddedCluster) -> None:
    topic, group, seen = await made_topic(cluster.nameserver), fresh("group"), Seen()
    requested, go_on = trio.Event(), trio.Event()

    async def hold(request: Command, peer: Peer) -> object:
        requested.set()
        await go_on.wait()
        return PASS

    cluster.control(RequestCode.LOCK_BATCH_MQ, hold)  # type: ignore[arg-type]
    async with (
        consuming(cluster.nameserver, group, topic, Seen(), orderly=True) as consumer,
        trio.open_nursery() as nursery,
    ):
        await requested.wait()
        nursery.start_soon(consumer.stop)
        await trio.testing.wait_all_tasks_blocked()
        go_on.set()
    await send(cluster.nameserver, topic, [str(number) for number in range(8)])
    async with consuming(cluster.nameserver, group, topic, seen, orderly=True):
        await seen.wait(8)


async def test_the_lock_of_a_queue_that_could_not_be_started_is_given_back_to_its_next_owner(
    cluster: EmbeddedCluster,
) -> None:
    topic, group = await made_topic(cluster.nameserver), fresh("group")
    requests, given_back = lock_requests(cluster), trio.Event()

    async def note(request: Command, peer: Peer) -> object:
        given_back.set()
        return PASS

    async def refuse(request: Command, peer: Peer) -> object:
        return refusal(ResponseCode.SYSTEM_ERROR, "not now")

    cluster.control(RequestCode.UNLOCK_BATCH_MQ, note)  # type: ignore[arg-type]
    cluster.control(RequestCode.QUERY_CONSUMER_OFFSET, refuse)  # type: ignore[arg-type]
    async with consuming(cluster.nameserver, group, topic, Seen(), orderly=True):
        await until(lambda: requests, SECONDS)
        async with consuming(cluster.nameserver, group, topic, Seen(), orderly=True):
            with trio.fail_after(SECONDS):
                await given_back.wait()
