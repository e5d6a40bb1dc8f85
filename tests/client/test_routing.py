"""Routing as values: publish lists, the walk over queues, keys, borrowed routes, NameServer addresses."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.client.routing.name_server_choice import NameServerChoice, parse_nameservers
from pyrmq_core.client.routing.publish_info import (
    TopicPublishInfo,
    borrowed_route,
    publish_queues,
    reading_address,
    subscribe_queues,
)
from pyrmq_core.errors import BodyError, InvalidArgument, NoRoute
from pyrmq_core.model import MessageQueue
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData

names = st.sampled_from(["broker-a", "broker-b", "broker-c"])


def broker(name: str, addrs: dict[int, str] | None = None) -> BrokerData:
    return BrokerData("DefaultCluster", name, {0: f"{name}:10911"} if addrs is None else addrs)


def queues_of(topic: str, *pairs: tuple[str, int]) -> list[MessageQueue]:
    return [MessageQueue(topic, name, queue_id) for name, queue_id in pairs]


def shown(queues: tuple[MessageQueue, ...]) -> str:
    return " ".join(f"{queue.broker_name}-{queue.queue_id}" for queue in queues)


# --- Publish lists: topicRouteData2TopicPublishInfo of 5.3.3, run by hand on Java


def test_the_publish_list_has_writable_brokers_with_a_master_by_name() -> None:
    route = TopicRouteData(
        queue_datas=tuple(
            QueueData(name, 2, 2, perm) for name, perm in [("b3", 6), ("b1", 6), ("b2", 4), ("b4", 6), ("b5", 2)]
        ),
        broker_datas=(broker("b1"), broker("b2"), broker("b3"), broker("b4", {1: "slave:1"}), broker("b5")),
    )
    assert shown(publish_queues("T", route)) == "b1-0 b1-1 b3-0 b3-1 b5-0 b5-1"


def test_a_broker_without_addresses_is_not_written_to() -> None:
    route = TopicRouteData(queue_datas=(QueueData("b1", 2, 2, 6),), broker_datas=())
    assert publish_queues("T", route) == ()


def test_the_order_configuration_wins_over_everything() -> None:
    """`b2:2;b1:1`: this order, whatever permissions and masters say."""
    route = TopicRouteData(
        queue_datas=(QueueData("b1", 8, 8, 4),), broker_datas=(broker("b1", {1: "s:1"}),), order_topic_conf="b2:2;b1:1"
    )
    assert shown(publish_queues("T", route)) == "b2-0 b2-1 b1-0"


@pytest.mark.parametrize(("conf", "expected"), [("b2:2;", "b2-0 b2-1"), (";", ""), ("b1:0", "")])
def test_order_configurations_that_java_takes(conf: str, expected: str) -> None:
    assert shown(publish_queues("T", TopicRouteData(order_topic_conf=conf))) == expected


@pytest.mark.parametrize("conf", ["b2", "b2:x", "b2:", "b1:1;b2:-1", "b1:1 ;b2:2"])
def test_an_order_configuration_that_cannot_be_read_is_reported(conf: str) -> None:
    with pytest.raises(BodyError, match="order configuration of T"):
        publish_queues("T", TopicRouteData(order_topic_conf=conf))


def test_an_empty_order_configuration_is_none() -> None:
    route = TopicRouteData(queue_datas=(QueueData("b1", 1, 1, 6),), broker_datas=(broker("b1"),), order_topic_conf="")
    assert shown(publish_queues("T", route)) == "b1-0"


def test_readers_see_readable_queues_and_need_no_master() -> None:
    route = TopicRouteData(
        queue_datas=(QueueData("b2", 3, 1, 4), QueueData("b1", 1, 5, 6), QueueData("b3", 9, 9, 2)),
        broker_datas=(broker("b1"), broker("b2", {1: "slave:1"}), broker("b3")),
    )
    assert shown(subscribe_queues("T", route)) == "b1-0 b2-0 b2-1 b2-2"


@pytest.mark.parametrize(("read", "allowed", "expected"), [(8, 4, 4), (2, 4, 2), (4, 16, 4), (8, 1, 1)])
def test_borrowed_queues_are_the_fewer_of_both(read: int, allowed: int, expected: int) -> None:
    """`min(defaultTopicQueueNums, readQueueNums)` for both counts."""
    template = TopicRouteData(queue_datas=(QueueData("b1", read, 99, 7),), broker_datas=(broker("b1"),))
    (data,) = borrowed_route(template, allowed).queue_datas
    assert (data.read_queue_nums, data.write_queue_nums) == (expected, expected)


@pytest.mark.parametrize(
    ("addrs", "expected"),
    [({0: "m:1", 1: "s:1"}, "m:1"), ({2: "s2:1", 1: "s1:1"}, "s1:1"), ({}, None)],
)
def test_reading_prefers_the_master_then_the_first_slave(addrs: dict[int, str], expected: str | None) -> None:
    assert reading_address(broker("b", addrs)) == expected


# --- The walk: ThreadLocalIndex and selectOneMessageQueue


def test_the_counter_wraps_from_2147483647_to_0() -> None:
    """ThreadLocalIndex: state 2147483646 gives 2147483647, then 0."""
    queues = [MessageQueue("T", "a", number) for number in range(7)]
    info = TopicPublishInfo("T", queues, counter_start=2147483646)
    assert [info.select_one_message_queue().queue_id for _ in range(3)] == [2147483647 % 7, 0, 1]


@given(st.integers(-(2**40), 2**40), st.lists(names, min_size=1, max_size=12), st.integers(1, 30))
def test_the_walk_takes_every_queue_in_turn_whatever_it_starts_with(start: int, brokers: list[str], steps: int) -> None:
    queues = [MessageQueue("T", name, number) for number, name in enumerate(brokers)]
    info = TopicPublishInfo("T", queues, counter_start=start)
    queue_ids = [info.select_one_message_queue().queue_id for _ in range(steps)]
    wraps = (start & 0x7FFFFFFF) + steps >= 0x7FFFFFFF
    if not wraps:
        assert queue_ids == [(queue_ids[0] + step) % len(queues) for step in range(steps)]
    assert all(0 <= number < len(queues) for number in queue_ids)


@given(st.integers(-(2**40), 2**40), st.lists(names, min_size=1, max_size=12), names)
def test_after_a_failure_another_broker_is_found_within_one_cycle(start: int, brokers: list[str], last: str) -> None:
    queues = [MessageQueue("T", name, number) for number, name in enumerate(brokers)]
    chosen = TopicPublishInfo("T", queues, counter_start=start).select_one_message_queue(last)
    # Where the counter wraps, Java's walk skips queues once, too, so that its cycle may miss the others.
    if set(brokers) != {last} and not (start & 0x7FFFFFFF) + len(queues) >= 0x7FFFFFFF:
        assert chosen.broker_name != last
    assert chosen in queues


def test_the_last_broker_is_skipped_in_the_order_of_the_list() -> None:
    queues = queues_of("T", ("a", 0), ("a", 1), ("b", 0), ("b", 1))
    info = TopicPublishInfo("T", queues, counter_start=-1)
    assert str(info.select_one_message_queue("a")) == "T/b/0"
    assert str(info.select_one_message_queue("a")) == "T/b/1"
    assert str(info.select_one_message_queue("b")) == "T/a/0"


def test_the_only_broker_is_tried_again_on_its_next_queue() -> None:
    info = TopicPublishInfo("T", queues_of("T", ("a", 0), ("a", 1)), counter_start=-1)
    # A whole cycle finds no other broker; then the next queue is taken.
    assert str(info.select_one_message_queue("a")) == "T/a/0"


def test_a_walk_of_ones_own_does_not_move_the_shared_one() -> None:
    info = TopicPublishInfo("T", queues_of("T", ("a", 0), ("a", 1), ("a", 2)), counter_start=-1, borrowed=True)
    own = info.interleaved(1)
    assert str(own.select_one_message_queue()) == "T/a/2"
    assert own.borrowed
    assert str(info.select_one_message_queue()) == "T/a/0"


def test_interleaved_queues_are_queue_0_of_each_broker_then_queue_1() -> None:
    queues = queues_of("T", ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0))
    info = TopicPublishInfo("T", queues, counter_start=5, order_topic=True, without_master=("d",))
    own = info.interleaved(-1)
    assert [str(own.select_one_message_queue()) for _ in range(7)] == [
        "T/a/0",
        "T/b/0",
        "T/c/0",
        "T/a/1",
        "T/b/1",
        "T/b/2",
        "T/a/0",
    ]
    assert (own.order_topic, own.borrowed, own.without_master) == (True, False, ("d",))
    assert info.queues == tuple(queues)


def test_interleaved_queues_keep_the_brokers_of_an_order_configuration() -> None:
    info = TopicPublishInfo("T", queues_of("T", ("b", 0), ("b", 1), ("a", 0)), counter_start=0)
    assert list(map(str, info.interleaved(0).queues)) == ["T/b/0", "T/a/0", "T/b/1"]


@given(st.dictionaries(names, st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**31 - 100))
def test_writers_with_counters_in_a_row_share_brokers_by_their_numbers_of_queues(
    counts: dict[str, int], base: int
) -> None:
    """Each queue has one writer; where brokers have equally many queues, their writers differ by one at most."""
    queues = [MessageQueue("T", name, number) for name in sorted(counts) for number in range(counts[name])]
    if not queues:
        return
    info = TopicPublishInfo("T", queues, counter_start=0)
    chosen = [info.interleaved(base + writer).select_one_message_queue() for writer in range(len(queues))]
    assert sorted(chosen, key=str) == sorted(queues, key=str)
    if len(set(counts.values())) == 1:
        for writers in range(1, len(chosen) + 1):
            brokers = Counter(queue.broker_name for queue in chosen[:writers])
            shares = [brokers[name] for name in counts]
            assert max(shares) - min(shares) <= 1


def test_no_queue_at_all_names_the_topic_and_why() -> None:
    info = TopicPublishInfo("orders", (), counter_start=0)
    with pytest.raises(NoRoute, match=r"topic orders has no queue to write to: .* no master, or it is read-only"):
        info.select_one_message_queue()
    with pytest.raises(NoRoute, match="orders"):
        info.queue_of_key("k")


# --- Keys: SelectMessageQueueByHash


@pytest.mark.parametrize(("key", "expected"), [("order-1", 6), ("order-2", 5), ("1001", 0), ("", 0)])
def test_a_key_finds_the_queue_that_java_finds(key: str, expected: int) -> None:
    """`abs(hashCode % 8)` with Java's hash codes and Java's remainder."""
    info = TopicPublishInfo("T", [MessageQueue("T", "a", number) for number in range(8)], counter_start=0)
    assert info.queue_of_key(key).queue_id == expected


def java_queue_of_key(key: str, count: int) -> int:
    """Returns `Math.abs(key.hashCode() % count)`, step by step as Java does it."""
    code = 0
    encoded = key.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(encoded), 2):
        code = (31 * code + int.from_bytes(encoded[index : index + 2], "big")) & 0xFFFFFFFF
    signed = code - 2**32 if code >= 2**31 else code
    return abs(signed) % count  # Java's remainder has the dividend's sign; abs takes it away


@given(st.text(max_size=20), st.integers(1, 40))
def test_keys_go_where_javas_arithmetic_puts_them(key: str, count: int) -> None:
    info = TopicPublishInfo("T", [MessageQueue("T", "a", number) for number in range(count)], counter_start=0)
    assert info.queue_of_key(key).queue_id == java_queue_of_key(key, count)


# --- NameServer addresses and choice


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        (" a:1 ; b:2;;", ("a:1", "b:2")),
        (["a:1", " b:2 "], ("a:1", "b:2")),
        ("a:1;a:1", ("a:1",)),
        ("[::1]:9876", ("[::1]:9876",)),
        ("http://host:80", ("host:80",)),
        ("", ()),
        (" ; ", ()),
    ],
)
def test_nameserver_lists_are_read(given: str | list[str], expected: tuple[str, ...]) -> None:
    assert parse_nameservers(given) == expected


@pytest.mark.parametrize("given", ["localhost", "a:b", "a:", ":9876", "a:0", "a:65536", "a:1,b:2", "a:1;b", "a b:1"])
def test_what_is_no_nameserver_list_is_reported(given: str) -> None:
    with pytest.raises(InvalidArgument, match=r"NameServer address .* is not host:port"):
        parse_nameservers(given)


@given(st.lists(st.integers(1, 65535).map(lambda port: f"h:{port}"), min_size=1, unique=True), st.integers())
def test_the_choice_stays_inside_the_list_and_comes_round(addresses: list[str], start: int) -> None:
    choice = NameServerChoice.starting_at(addresses, start)
    seen = []
    for _ in addresses:
        seen.append(choice.address)
        choice = choice.next()
    assert sorted(seen) == sorted(addresses)
    assert choice.address == seen[0]


def test_every_text_of_this_room_is_one_line() -> None:
    with pytest.raises(NoRoute) as caught:
        TopicPublishInfo("T", (), counter_start=0).select_one_message_queue()
    assert not re.search(r"\s{2,}|\n", str(caught.value))
