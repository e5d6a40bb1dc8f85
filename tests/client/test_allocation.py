"""The allocation of queues to a group's members, compared with Java's classes (tests/golden/java_allocations.json)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    InvalidArgument,
    MessageQueue,
)
from pyrmq_core.client.consumer.rebalance.strategies import sort_client_ids, sort_queues
from tests.support import golden
from tests.support.group_vectors import ALLOCATIONS, BeforeAt, comparable, our_allocation

COMPLETE: list[AllocateMessageQueueStrategy] = [
    AllocateMessageQueueAveragely(),
    AllocateMessageQueueAveragelyByCircle(),
    AllocateMessageQueueConsistentHash(),
    AllocateMessageQueueConsistentHash(virtual_nodes=1),
    AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), BeforeAt()),
]
ALL = [*COMPLETE, AllocateMessageQueueByMachineRoom(["hz"])]


def named(strategy: AllocateMessageQueueStrategy) -> str:
    return strategy.name


def test_every_vector_of_java() -> None:
    rows = golden.load(ALLOCATIONS)
    assert len(rows) == 180
    for row in rows:
        assert our_allocation(row["given"]) == comparable(row["java"]), row["given"]


def test_the_vectors_have_every_kind() -> None:
    """Without these the comparison above would show little."""
    rows = golden.load(ALLOCATIONS)
    queues_and_ids = [(len(row["given"]["queues"]), len(row["given"]["ids"])) for row in rows]
    assert sum(queues < ids for queues, ids in queues_and_ids) > 30
    assert sum(queues > 2 * ids for queues, ids in queues_and_ids) > 30
    for name in ("MACHINE_ROOM", "MACHINE_ROOM_NEARBY-AVG", "MACHINE_ROOM_NEARBY-CONSISTENT_HASH", "CONFIG"):
        shared = [row for row in rows if not isinstance(row["java"][name], str) and any(row["java"][name])]
        assert len(shared) > 40, name
    assert any(len(set(row["given"]["ids"])) < len(row["given"]["ids"]) for row in rows)


QUEUES = st.lists(
    st.builds(MessageQueue, st.just("T"), st.sampled_from(["hz@a", "hz@b", "sh@a", "bj@a"]), st.integers(0, 20)),
    min_size=1,
    unique=True,
).map(sort_queues)
IDS = st.lists(
    st.tuples(st.sampled_from(["hz", "sh"]), st.integers(0, 30)).map(lambda parts: f"{parts[0]}@{parts[1]}"),
    min_size=1,
    unique=True,
).map(sort_client_ids)


@pytest.mark.parametrize("strategy", COMPLETE, ids=named)
@given(queues=QUEUES, ids=IDS)
def test_every_queue_has_one_owner(
    strategy: AllocateMessageQueueStrategy, queues: list[MessageQueue], ids: list[str]
) -> None:
    owned = [queue for client_id in ids for queue in strategy.allocate("g", client_id, queues, ids)]
    assert sort_queues(owned) == queues


@pytest.mark.parametrize("strategy", COMPLETE[:2], ids=named)
@given(queues=QUEUES, ids=IDS)
def test_shares_differ_by_one_at_most(
    strategy: AllocateMessageQueueStrategy, queues: list[MessageQueue], ids: list[str]
) -> None:
    sizes = {len(strategy.allocate("g", client_id, queues, ids)) for client_id in ids}
    assert max(sizes) - min(sizes) <= 1


@given(queues=QUEUES, ids=IDS.filter(lambda ids: len(ids) > 1))
def test_a_member_that_leaves_moves_only_its_own_queues(queues: list[MessageQueue], ids: list[str]) -> None:
    ring = AllocateMessageQueueConsistentHash()
    *rest, _ = ids
    for client_id in rest:
        before = ring.allocate("g", client_id, queues, ids)
        assert set(before) <= set(ring.allocate("g", client_id, queues, rest))


def test_a_hash_of_your_own() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(4)]

    def last_digit(key: str) -> int:
        return int(key.rstrip("]")[-1])  # a queue's id, and 0 for the only node of a member

    ring = AllocateMessageQueueConsistentHash(1, last_digit)
    assert ring.allocate("g", "a", queues, ["a", "b"]) == ()
    assert list(ring.allocate("g", "b", queues, ["a", "b"])) == queues  # both stand at 0: the later one stays


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["b-2", "b-10", "b-1"], ["b-1", "b-10", "b-2"]),
        (["a", "B", "_", "A"], ["A", "B", "_", "a"]),
        (["\ue000", "\U0001f600"], ["\U0001f600", "\ue000"]),  # two surrogates stand before U+E000
        (["ab", "a", ""], ["", "a", "ab"]),
    ],
)
def test_names_stand_in_the_order_of_utf_16(names: list[str], expected: list[str]) -> None:
    assert sort_client_ids(names) == expected
    queues = [MessageQueue("T", name, 0) for name in names]
    assert [queue.broker_name for queue in sort_queues(queues)] == expected
    by_topic = [MessageQueue(name, "b", 0) for name in names]
    assert [queue.topic for queue in sort_queues(by_topic)] == expected


def test_queue_ids_are_numbers() -> None:
    queues = [MessageQueue("T", "b", number) for number in (10, 9, 100, 2)]
    assert [queue.queue_id for queue in sort_queues(queues)] == [2, 9, 10, 100]


QUEUE = MessageQueue("T", "hz@b", 0)


@pytest.mark.parametrize("strategy", ALL, ids=named)
def test_wrong_arguments(strategy: AllocateMessageQueueStrategy) -> None:
    def refused(client_id: str, queues: Sequence[MessageQueue], ids: Sequence[str], text: str) -> None:
        with pytest.raises(InvalidArgument, match=text):
            strategy.allocate("g", client_id, queues, ids)

    refused("", [QUEUE], ["hz@1"], "client_id is empty")
    refused("hz@1", [], ["hz@1"], "queues is empty")
    refused("hz@1", [QUEUE], [], "client_ids is empty")
    assert strategy.allocate("g", "hz@2", [QUEUE], ["hz@1"]) == ()
    assert strategy.allocate("", "hz@1", [QUEUE], ["hz@1"]) == (QUEUE,)  # Java does not look at the group


def wrong(value: object) -> Any:
    return value


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: AllocateMessageQueueConsistentHash(0), "virtual_nodes=0"),
        (lambda: AllocateMessageQueueConsistentHash(True), "virtual_nodes=True"),
        (lambda: AllocateMessageQueueConsistentHash(10, hash_function=wrong(5)), "hash_function=5"),
        (lambda: AllocateMessageQueueByConfig(wrong(["T"])), "queue='T'"),
        (lambda: AllocateMessageQueueByConfig(wrong(None)), "queues=None"),
        (lambda: AllocateMessageQueueByMachineRoom("hz"), r"rooms='hz'.*\['hz'\]"),
        (lambda: AllocateMessageQueueByMachineRoom(wrong([1])), "one of rooms=1"),
        (lambda: AllocateMachineRoomNearby(wrong(None), BeforeAt()), "strategy=None"),
        (lambda: AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), wrong(None)), "resolver=None"),
    ],
)
def test_wrong_settings(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make()


@pytest.mark.parametrize(("queue", "client_id"), [(MessageQueue("T", "b", 0), "hz@1"), (QUEUE, "10.0.0.1")])
def test_a_broker_or_member_without_a_room(queue: MessageQueue, client_id: str) -> None:
    nearby = AllocateMachineRoomNearby(AllocateMessageQueueAveragely(), BeforeAt())
    with pytest.raises(InvalidArgument, match=r"machine room of .* is empty"):
        nearby.allocate("g", client_id, [queue], [client_id])


def test_configured_queues_of_another_topic_stay_out() -> None:
    mine, other = MessageQueue("T", "b", 7), MessageQueue("U", "b", 0)
    by_config = AllocateMessageQueueByConfig([other, mine])
    assert by_config.allocate("g", "c", [QUEUE], ["c"]) == (mine,)
    assert by_config.allocate("g", "c", [MessageQueue("%RETRY%g", "b", 0)], ["c"]) == ()
