"""Work that grows with the tables goes in steps: no step holds the loop, and changes between them are not lost."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import trio

from pyrmq_core.network import Peer
from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.nameserver import NameServerConfig
from pyrmq_core.servers.nameserver.service import NameServer
from pyrmq_core.servers.nameserver.tables import RouteTables, removal
from pyrmq_core.servers.nameserver.tables import admin_changes as outside
from pyrmq_core.servers.nameserver.tables import queries as lookups
from pyrmq_core.servers.nameserver.tables.state import BROKERS_PER_STEP, TOPICS_PER_STEP
from pyrmq_core.servers.protocol.registration import finished
from tests.servers.nameserver.desk import Desk, json_body, peer, registration
from tests.servers.nameserver.longest_step import LongestStep
from tests.servers.nameserver.table_steps import register

TOPICS = 50_000
# The largest part of the work that one step may do. Of 25 steps each does a twenty-fifth, on a machine without noise.
SHARE = 0.2


@pytest.fixture(autouse=True)
def no_garbage_of_others() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def desk_with(nursery: trio.Nursery, topics: int, of: Peer) -> Desk:
    """Returns a NameServer where one broker has so many topics."""
    desk = Desk()
    desk.server.nursery = nursery
    names = [f"topic-{number}" for number in range(topics)]
    requested = registration("many", "h:1", topics=names)
    finished(desk.server._apply(requested, requested.body(), None, of))
    return desk


async def test_requests_over_all_topics_hold_up_no_other() -> None:
    """One broker with all the topics serves every request, since to register it takes longest."""
    requests: list[tuple[int, dict[str, str], str]] = [
        (205, {"brokerName": "many"}, "wipeTopicCount"),
        (327, {"brokerName": "many"}, "addTopicCount"),
        (206, {}, ""),
        (224, {"cluster": "DefaultCluster"}, ""),
        (311, {}, ""),
    ]
    async with trio.open_nursery() as nursery:
        desk = desk_with(nursery, TOPICS, peer())
        for code, ext, counted in requests:
            longest = LongestStep()
            trio.lowlevel.add_instrument(longest)
            answer = await desk.question(code, ext)
            trio.lowlevel.remove_instrument(longest)
            assert answer.code == 0, code
            assert longest.steps >= TOPICS // TOPICS_PER_STEP, code
            assert longest.share < SHARE, code
            if counted:
                assert answer.ext[counted] == str(TOPICS)
            elif code != 311:
                assert len(json_body(answer)["topicList"]) == TOPICS


async def test_a_broker_with_very_many_topics_leaves_in_steps_and_no_route_shows_it_meanwhile() -> None:
    longest, mine = LongestStep(), peer()
    async with trio.open_nursery() as nursery:
        desk = desk_with(nursery, TOPICS, mine)
        trio.lowlevel.add_instrument(longest)
        await trio.lowlevel.checkpoint()
        desk.server.connection_closed(mine)
        assert await desk.route(f"topic-{TOPICS - 1}") is None
        assert desk.server.tables.topic_queue_table
    trio.lowlevel.remove_instrument(longest)
    assert longest.steps >= TOPICS // TOPICS_PER_STEP
    assert longest.share < SHARE
    assert not desk.server.tables.topic_queue_table
    assert desk.server.tables.topic_bytes == 0


async def test_a_broker_that_comes_back_while_its_topics_are_taken_away_keeps_those_it_has_now() -> None:
    mine = peer()
    async with trio.open_nursery() as nursery:
        desk = desk_with(nursery, 20_000, mine)
        desk.server.connection_closed(mine)
        assert desk.server.tables.leaving == {"many"}
        answer = await desk.register("many", "h:1", topics=["topic-3", "new"], of=peer())
        assert answer.code == 0
    assert list(desk.server.tables.topic_queue_table) == ["topic-3", "new"]
    assert desk.server.tables.leaving == set()


async def test_a_broker_that_leaves_while_its_topics_are_taken_in_leaves_none_behind() -> None:
    desk, mine = Desk(), peer()
    requested = registration("many", "h:1", topics=[f"topic-{number}" for number in range(20_000)])
    steps = desk.server._apply(requested, requested.body(), b"digest", mine)
    while len(desk.server.tables.topic_queue_table) < 5_000:
        next(steps)
    desk.server.connection_closed(mine)
    finished(steps)
    tables = desk.server.tables
    assert (tables.topic_queue_table, tables.broker_live_table, tables.broker_addr_table) == ({}, {}, {})
    assert (tables.topic_bytes, tables.cluster_addr_table, tables.names) == (0, {}, {})


async def test_a_topic_deleted_while_topics_are_taken_in_comes_back_with_the_next_registration() -> None:
    desk, mine = Desk(), peer()
    requested = registration("many", "h:1", topics=[f"topic-{number}" for number in range(20_000)])
    steps = desk.server._apply(requested, requested.body(), b"digest", mine)
    while len(desk.server.tables.topic_queue_table) < 5_000:
        next(steps)
    desk.server.tell(outside.delete_topic(desk.server.tables, "topic-1"))
    finished(steps)
    assert await desk.route("topic-1") is None
    assert not desk.server._knows(requested.header, b"digest")
    await desk.ask(requested.to_command(), mine)
    assert await desk.route("topic-1") is not None


async def expired(brokers: int) -> LongestStep:
    """Returns the steps in which so many silent brokers of one connection expire."""
    longest = LongestStep()
    server = NameServer(NameServerConfig(listen_port=0, max_registered_brokers=brokers))
    async with trio.open_nursery() as nursery:
        server.nursery = nursery
        for number in range(brokers):
            register(server.tables, f"b{number}", f"h:{number}", topics=["T", f"t{number}"], at=-200_000)
        trio.lowlevel.add_instrument(longest)
        await trio.lowlevel.checkpoint()
        server.scan()
    trio.lowlevel.remove_instrument(longest)
    assert not server.tables.broker_live_table
    assert not server.tables.topic_queue_table
    return longest


async def test_very_many_silent_brokers_of_one_connection_expire_in_steps() -> None:
    """Each one searched all brokers for its name: 5,000 took two seconds in which no request was answered.

    Four times as many take four times the work, and took sixteen times. Noise can only add: one of three has to hold.
    """
    growths: list[float] = []
    while not growths or (growths[-1] > 8 and len(growths) < 3):
        many = await expired(5_000)
        assert many.steps >= 5_000 // BROKERS_PER_STEP
        assert many.share < SHARE
        growths.append(many.all_seconds / (await expired(1_250)).all_seconds)
    assert min(growths) < 8, growths


def test_a_broker_that_gives_a_sign_of_life_while_others_expire_stays() -> None:
    tables = RouteTables()
    for number in range(500):
        register(tables, f"b{number}", f"h:{number}", topics=["T"], at=0)
    steps = removal.scan(tables, 200_000)
    next(steps)
    register(tables, "b499", "h:499", topics=["T"], at=200_000)
    finished(steps)
    assert list(tables.broker_addr_table) == ["b499"]
    assert list(tables.topic_queue_table) == ["T"]


async def test_a_route_over_very_many_brokers_is_encoded_in_steps_as_it_is_at_once() -> None:
    desk = Desk()
    for number in range(1_000):
        register(desk.server.tables, f"b{number}", f"h:{number}", topics=["T"], over=object(), filters=[f"f:{number}"])
    await desk.question(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b1:4"})
    await desk.question(318, body=b"orderMessageEnable=true\n")
    whole = lookups.route(desk.server.tables, "T")
    assert whole is not None
    for version in (0, 479):
        answer = await desk.question(105, {"topic": "T"}, version=version)
        route = TopicRouteData.from_json(answer.body)
        assert route.order_topic_conf == "b1:4"
        assert route.broker_datas == whole.broker_datas
        assert route.queue_datas == whole.queue_datas
        assert route.filter_server_table == whole.filter_server_table
    info = json_body(await desk.question(106))
    assert info == json_body(lookups.cluster_info(desk.server.tables).to_command())


async def test_what_one_stranger_registers_is_bounded_and_keeps_no_broker_out() -> None:
    desk, stranger = Desk(maxRegisteredBrokers=50), peer()
    codes = [(await desk.register(f"b{n}", f"h:{n}", topics=["T"], of=stranger)).code for n in range(60)]
    assert codes == [0] * 50 + [1] * 10
    refused = await desk.register("b99", "h:99", of=stranger)
    assert "50 at most (maxRegisteredBrokers)" in (refused.remark or "")
    assert (await desk.register("b1", "h:1", topics=["T"], of=stranger)).code == 0
    assert (await desk.register("honest", "h:100", of=peer())).code == 0


async def test_addresses_and_clusters_of_one_name_are_bounded() -> None:
    desk = Desk()
    codes = [(await desk.register("b", f"h:{n}", n, topics=["T"])).code for n in range(105)]
    assert codes == [0] * 100 + [1] * 5
    codes = [(await desk.register("c", "h:1", topics=["T"], cluster=f"C{n}")).code for n in range(20)]
    assert codes == [0] * 16 + [1] * 4


async def test_topics_are_bounded_by_what_they_take() -> None:
    desk, mine = Desk(maxRegisteredTopicBytes=100_000), peer()
    assert (await desk.register("b", "h:1", topics=[f"t{n}" for n in range(100)], of=mine)).code == 0
    before = desk.server.tables.topic_bytes
    full = await desk.register("c", "h:2", topics=[f"u{n}" for n in range(100)])
    assert full.code == 1
    assert "100000 at most (maxRegisteredTopicBytes)" in (full.remark or "")
    assert "c" not in desk.server.tables.broker_addr_table
    assert desk.server.tables.topic_bytes == before
    assert (await desk.register("b", "h:1", topics=[f"t{n}" for n in range(100)], version=2, of=mine)).code == 0
    desk.server.connection_closed(mine)
    assert (await desk.register("c", "h:2", topics=[f"u{n}" for n in range(100)])).code == 0


async def test_mappings_of_topics_that_no_broker_has_are_not_kept() -> None:
    desk = Desk()
    infos = {name: {"topic": name, "bname": "b", "x": "y" * 50} for name in ("T", "nowhere")}
    await desk.register("b", "h:1", topics=["T"], infos=infos)
    assert list(desk.server.tables.topic_queue_mapping_info_table) == ["T"]
    await desk.question(216, {"topic": "T"})
    assert desk.server.tables.topic_bytes == 0
