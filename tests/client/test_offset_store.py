"""`RemoteOffsetStore`: what it sends to brokers and when, and offsets that must not be lost or overwritten."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from pyrmq_core import Client, MessageQueue, ResponseError
from pyrmq_core.client.consumer.offsets.offset_store import COMMITS_AT_ONCE, RemoteOffsetStore
from pyrmq_core.client.consumer.queue_offsets import QueueOffsets
from pyrmq_core.network import Peer
from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.requests.broker.consumer_offsets import QueryConsumerOffset, UpdateConsumerOffset
from pyrmq_core.protocol.requests.broker.offsets import OffsetFound
from tests.support.scripted import ScriptedServer, after, answer, refuse
from tests.support.stage import Stage, settled

QUERY, UPDATE = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET
A0, A1 = (MessageQueue("orders", "broker-a", number) for number in range(2))
B0, B1 = (MessageQueue("orders", "broker-b", number) for number in range(2))


@pytest.fixture
def store(stage: Stage, client: Client) -> RemoteOffsetStore:
    return RemoteOffsetStore(QueueOffsets(client._session, "readers", timeout=3.0), client._session.problems)


def commits(server: ScriptedServer) -> list[tuple[int, int, bool]]:
    """Returns queue id, offset and whether it was one-way of each commit, in the order of arrival."""
    updates = [(UpdateConsumerOffset.from_command(command), command.is_oneway) for command in server.of(UPDATE)]
    return [(update.queue_id, update.commit_offset, oneway) for update, oneway in updates]


async def test_only_what_changed_is_sent(stage: Stage, store: RemoteOffsetStore) -> None:
    broker = stage.brokers["broker-a"]
    store.update(A0, 3)
    store.update(A1, 4)
    await store.persist([A0, A1, B0])
    await broker.wait_seen(UPDATE, 2)
    store.update(A1, 5)
    await store.persist([A0, A1])
    await store.persist([A0, A1])
    await broker.wait_seen(UPDATE, 3)
    await settled()
    assert commits(broker) == [(0, 3, False), (1, 4, True), (1, 5, False)]
    assert broker.of(UPDATE)[0].ext["bname"] == "broker-a"
    assert stage.brokers["broker-b"].of(UPDATE) == []
    assert stage.stores["broker-a"].committed == {("readers", "orders", 0): 3, ("readers", "orders", 1): 5}


async def test_only_the_named_queues_are_stored(stage: Stage, store: RemoteOffsetStore) -> None:
    store.update(A0, 3)
    store.update(A1, 4)
    await store.persist([A1], confirmed=True)
    assert commits(stage.brokers["broker-a"]) == [(1, 4, False)]
    assert store.known(A0) == 3


async def test_an_offset_rises_unless_it_may_fall(store: RemoteOffsetStore) -> None:
    store.update(A0, 7)
    store.update(A0, 5)
    assert store.known(A0) == 7
    store.update(A0, 5, increase_only=False)
    assert store.known(A0) == 5


async def test_a_lower_offset_is_sent_too(stage: Stage, store: RemoteOffsetStore) -> None:
    store.update(A0, 7)
    await store.persist([A0], confirmed=True)
    store.update(A0, 5, increase_only=False)
    await store.persist([A0], confirmed=True)
    assert commits(stage.brokers["broker-a"]) == [(0, 7, False), (0, 5, False)]


async def test_a_moved_offset_is_sent_though_it_came_back_to_the_last_one(
    stage: Stage, store: RemoteOffsetStore
) -> None:
    """The broker itself moved the group back, and its member has consumed again as much as before."""
    store.update(A0, 3)
    await store.persist([A0], confirmed=True)
    store.update(A0, 0, increase_only=False)
    store.update(A0, 3)
    await store.persist([A0], confirmed=True)
    assert commits(stage.brokers["broker-a"]) == [(0, 3, False), (0, 3, False)]


async def test_a_frozen_offset_stays_until_the_queue_is_forgotten(store: RemoteOffsetStore) -> None:
    store.update(A0, 7)
    store.freeze(A0, 3)
    store.update(A0, 9)
    store.update(A0, 1, increase_only=False)
    store.freeze(A1, 4)
    store.update(A1, 9)
    assert (store.known(A0), store.known(A1)) == (3, 4)
    store.forget(A0)
    assert store.known(A0) is None
    store.update(A0, 1)
    assert store.known(A0) == 1


async def test_a_frozen_offset_is_stored(stage: Stage, store: RemoteOffsetStore) -> None:
    store.freeze(A0, 3)
    await store.persist([A0], confirmed=True)
    assert commits(stage.brokers["broker-a"]) == [(0, 3, False)]


async def test_what_was_sent_oneway_is_confirmed_at_the_end(stage: Stage, store: RemoteOffsetStore) -> None:
    """One-way requests may be lost without a trace, so the last ones are sent again with an answer."""
    store.update(A0, 3)
    store.update(A1, 4)
    await store.persist([A0, A1])
    await store.persist([A0, A1], confirmed=True)
    await store.persist([A0, A1], confirmed=True)
    assert commits(stage.brokers["broker-a"]) == [(0, 3, False), (1, 4, True), (1, 4, False)]


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_change_during_the_storing_is_stored_next(
    stage: Stage, store: RemoteOffsetStore, confirmed: bool
) -> None:
    answered = trio.Event()
    broker = stage.brokers["broker-a"]
    broker.on(UPDATE, after(answered, stage.stores["broker-a"]))
    store.update(A0, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: store.persist([A0], confirmed=True))
        await broker.wait_seen(UPDATE)
        store.update(A0, 4)
        answered.set()
    await store.persist([A0], confirmed=confirmed)
    await broker.wait_seen(UPDATE, 2)
    assert commits(broker) == [(0, 3, False), (0, 4, False)]


async def test_two_at_once_send_a_queues_offsets_in_their_order(stage: Stage, store: RemoteOffsetStore) -> None:
    """The first is held up; the second, with a newer offset, must not overtake it."""
    answered = trio.Event()
    broker = stage.brokers["broker-a"]
    broker.on(UPDATE, after(answered, stage.stores["broker-a"]))
    store.update(A0, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: store.persist([A0], confirmed=True))
        await broker.wait_seen(UPDATE)
        store.update(A0, 4)
        store.update(B0, 8)
        nursery.start_soon(lambda: store.persist([A0, B0], confirmed=True))
        await stage.brokers["broker-b"].wait_seen(UPDATE)  # another broker is not held up
        await settled()
        assert commits(broker) == [(0, 3, False)]
        answered.set()
    assert commits(broker) == [(0, 3, False), (0, 4, False)]
    assert stage.stores["broker-a"].committed["readers", "orders", 0] == 4


async def test_a_queue_that_fails_is_sent_again_and_holds_up_no_other(
    stage: Stage, store: RemoteOffsetStore, caplog: pytest.LogCaptureFixture
) -> None:
    broker = stage.brokers["broker-a"]
    broker.on(UPDATE, refuse(ResponseCode.SYSTEM_ERROR))
    for queue in (A0, A1, B0):
        store.update(queue, 3)
    with caplog.at_level(logging.WARNING):
        await store.persist([A0, A1, B0], confirmed=True)
    assert "storing offsets at broker-a failed, and is tried again: broker-a" in caplog.text
    assert stage.stores["broker-a"].committed == {("readers", "orders", 1): 3}
    assert stage.stores["broker-b"].committed == {("readers", "orders", 0): 3}
    await store.persist([A0, A1, B0], confirmed=True)
    assert commits(broker) == [(0, 3, False), (1, 3, False), (0, 3, False)]


async def test_a_broker_that_is_away_costs_one_try_and_one_line(
    stage: Stage, client: Client, store: RemoteOffsetStore, caplog: pytest.LogCaptureFixture
) -> None:
    await client._session.routes.refresh("orders")
    await stage.brokers["broker-a"].stop()
    for queue in (A0, A1, B0, B1):
        store.update(queue, 3)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await store.persist([A0, A1, B0, B1])
    lines = [record for record in caplog.records if "storing offsets at broker-a failed" in record.getMessage()]
    assert len(lines) == 1
    await stage.brokers["broker-b"].wait_seen(UPDATE, 2)
    await stage.brokers["broker-a"].start()
    await store.persist([A0, A1, B0, B1])
    await stage.brokers["broker-a"].wait_seen(UPDATE, 2)
    assert sorted(commits(stage.brokers["broker-a"])) == [(0, 3, False), (1, 3, True)]
    assert len(commits(stage.brokers["broker-b"])) == 2


async def test_an_offset_whose_sending_failed_is_sent_again_though_it_is_the_old_one(
    stage: Stage, store: RemoteOffsetStore
) -> None:
    """The broker may hold the value whose answer did not come."""
    broker = stage.brokers["broker-a"]
    store.update(A0, 5)
    await store.persist([A0], confirmed=True)
    broker.on(UPDATE, refuse(ResponseCode.SYSTEM_ERROR))
    store.update(A0, 9)
    await store.persist([A0], confirmed=True)
    store.update(A0, 5, increase_only=False)
    await store.persist([A0])
    await broker.wait_seen(UPDATE, 3)
    assert commits(broker)[-1] == (0, 5, False)


async def test_many_queues_are_stored_a_bounded_number_at_once(stage: Stage, client: Client) -> None:
    stage.topic("wide", queues=3 * COMMITS_AT_ONCE)
    store = RemoteOffsetStore(QueueOffsets(client._session, "readers", timeout=3.0), client._session.problems)
    queues = [MessageQueue("wide", "broker-a", number) for number in range(3 * COMMITS_AT_ONCE)]
    for queue in queues:
        store.update(queue, 1)
    open_now, most, go = 0, 0, trio.Event()

    async def counted(request: Command, peer: Peer) -> Command | None:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await go.wait()
        open_now -= 1
        answer = stage.stores["broker-a"](request, peer)
        assert isinstance(answer, Command)
        return answer

    broker = stage.brokers["broker-a"]
    broker.on(UPDATE, stage.stores["broker-a"])  # the first goes alone
    broker.always(UPDATE, counted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: store.persist(queues, confirmed=True))
        await broker.wait_seen(UPDATE, 1 + COMMITS_AT_ONCE)
        await settled()
        assert len(broker.of(UPDATE)) == 1 + COMMITS_AT_ONCE
        go.set()
    assert most == COMMITS_AT_ONCE
    assert len(stage.stores["broker-a"].committed) == len(queues)


async def test_the_brokers_offset_is_read_and_known_from_then_on(stage: Stage, store: RemoteOffsetStore) -> None:
    stage.stores["broker-a"].committed["readers", "orders", 0] = 12
    assert await store.stored(A0) == 12
    assert store.known(A0) == 12
    await store.persist([A0])
    assert commits(stage.brokers["broker-a"]) == []
    assert await store.stored(A1) is None
    assert store.known(A1) is None


async def test_a_zero_that_a_broker_may_have_made_up_is_stored(stage: Stage, store: RemoteOffsetStore) -> None:
    stage.stores["broker-a"].committed["readers", "orders", 0] = 0
    assert await store.stored(A0) == 0
    await store.persist([A0], confirmed=True)
    await store.persist([A0])
    await settled()
    assert commits(stage.brokers["broker-a"]) == [(0, 0, False)]


async def test_offsets_that_a_crashed_broker_lost_are_sent_again(
    stage: Stage, store: RemoteOffsetStore, jumping_clock: MockClock
) -> None:
    broker = stage.brokers["broker-a"]
    store.update(A0, 3)
    for _ in range(13):  # a minute
        await store.persist([A0])
        await trio.sleep(5)
    await broker.wait_seen(UPDATE, 2)
    assert commits(broker) == [(0, 3, False), (0, 3, False)]


async def test_the_question_leaves_it_to_the_broker_whether_a_young_queue_starts_at_0(
    stage: Stage, store: RemoteOffsetStore
) -> None:
    """Java's consumers do not send `setZeroIfNotFound` either."""
    await store.stored(A0)
    [question] = stage.brokers["broker-a"].of(QUERY)
    assert QueryConsumerOffset.from_command(question).set_zero_if_not_found is None


async def test_a_negative_offset_counts_as_none(stage: Stage, store: RemoteOffsetStore) -> None:
    stage.stores["broker-a"].committed["readers", "orders", 0] = -1
    assert await store.stored(A0) is None


async def test_an_offset_that_cannot_be_known_is_raised(stage: Stage, store: RemoteOffsetStore) -> None:
    stage.brokers["broker-a"].on(QUERY, refuse(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(ResponseError):
        await store.stored(A0)


async def test_another_consumers_progress_replaces_what_memory_has(stage: Stage, store: RemoteOffsetStore) -> None:
    """An orderly consumer reads the offset again under its lock; a pull must not commit the older one."""
    committed = stage.stores["broker-a"].committed
    committed["readers", "orders", 0] = 12
    await store.stored(A0)
    committed["readers", "orders", 0] = 20
    assert await store.stored(A0) == 20
    assert store.known(A0) == 20


async def test_a_change_stored_during_the_question_stays(stage: Stage, store: RemoteOffsetStore) -> None:
    """The answer is older than what this consumer has stored since."""
    stage.stores["broker-a"].committed["readers", "orders", 0] = 12
    await store.stored(A0)
    old = OffsetFound(12).to_command()
    asked = trio.Event()
    stage.brokers["broker-a"].on(QUERY, after(asked, answer(old)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.stored, A0)
        await stage.brokers["broker-a"].wait_seen(QUERY, 2)
        store.update(A0, 15)
        await store.persist([A0], confirmed=True)
        asked.set()
    assert store.known(A0) == 15


async def test_a_frozen_offset_that_is_stored_stays(stage: Stage, store: RemoteOffsetStore) -> None:
    store.freeze(A0, 3)
    await store.persist([A0], confirmed=True)
    stage.stores["broker-a"].committed["readers", "orders", 0] = 12
    assert await store.stored(A0) == 12
    assert store.known(A0) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda store: store.update(A0, 15), 15),
        (lambda store: store.freeze(A0, 3), 3),
        (lambda store: store.forget(A0), None),
    ],
)
async def test_a_change_during_the_question_stays(
    stage: Stage, store: RemoteOffsetStore, change: Callable[[RemoteOffsetStore], None], expected: int | None
) -> None:
    stage.stores["broker-a"].committed["readers", "orders", 0] = 12
    await store.stored(A0)
    answered = trio.Event()
    stage.brokers["broker-a"].on(QUERY, after(answered, stage.stores["broker-a"]))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.stored, A0)
        await stage.brokers["broker-a"].wait_seen(QUERY, 2)
        change(store)
        answered.set()
    assert store.known(A0) == expected


async def test_a_change_that_is_not_stored_yet_stays(stage: Stage, store: RemoteOffsetStore) -> None:
    stage.stores["broker-a"].committed["readers", "orders", 0] = 12
    store.update(A0, 15)
    assert await store.stored(A0) == 12
    assert store.known(A0) == 15


async def test_a_forgotten_queue_stays_forgotten_when_its_sending_ends(stage: Stage, store: RemoteOffsetStore) -> None:
    answered = trio.Event()
    broker = stage.brokers["broker-a"]
    broker.on(UPDATE, after(answered, stage.stores["broker-a"]))
    store.update(A0, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: store.persist([A0], confirmed=True))
        await broker.wait_seen(UPDATE)
        store.forget(A0)
        store.update(A0, 1)  # ours again, from another start
        answered.set()
    assert store.known(A0) == 1
    await store.persist([A0], confirmed=True)
    assert commits(broker)[-1] == (0, 1, False)


async def test_a_broker_that_does_not_answer_holds_up_no_more_than_the_timeout(
    stage: Stage, store: RemoteOffsetStore, jumping_clock: MockClock
) -> None:
    stage.brokers["broker-a"].always(UPDATE, lambda request, peer: None)
    for queue in (A0, A1):
        store.update(queue, 3)
    started = trio.current_time()
    await store.persist([A0, A1], confirmed=True)
    assert trio.current_time() - started == pytest.approx(3.0, abs=0.5)
