"""Work that grows with the tables: its answers, its effects, and the bounds of the tables."""

from __future__ import annotations

import pytest

from pyrmq_core.protocol.routes.route import TopicRouteData
from pyrmq_core.servers.nameserver import handlers
from pyrmq_core.servers.nameserver.tables import TableRules
from pyrmq_core.servers.nameserver.tables import queries as lookups
from tests.servers.nameserver.desk import Desk, json_body, peer
from tests.servers.nameserver.table_steps import register

TOPICS = 20_000


async def test_requests_over_all_topics_and_a_broker_that_leaves_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, mine = Desk(), peer()
    assert (await desk.register("many", "h:1", topics=[f"topic-{n}" for n in range(TOPICS)], of=mine)).code == 0
    for code, counted in ((205, "wipeTopicCount"), (327, "addTopicCount")):
        assert (await desk.question(code, {"brokerName": "many"})).ext[counted] == str(TOPICS)
    for code in (206, 224):
        topics = json_body(await desk.question(code, {"cluster": "DefaultCluster"}))["topicList"]
        assert len(topics) == TOPICS
    monkeypatch.setattr(handlers, "MAX_FRAME_BYTES", 1000)
    refused = await desk.question(206)
    assert (refused.code, "ask for less" in (refused.remark or "")) == (1, True)
    desk.server.connection_closed(mine)
    assert (desk.server.tables.topic_queue_table, desk.server.tables.topic_bytes) == ({}, 0)
    assert (await desk.register("many", "h:1", topics=["new"], of=peer())).code == 0
    assert list(desk.server.tables.topic_queue_table) == ["new"]


async def test_a_route_over_very_many_brokers_has_all_of_them() -> None:
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


async def test_mappings_that_are_stored_already_take_no_more_room() -> None:
    desk, mine = Desk(maxRegisteredTopicBytes=10_000), peer()

    async def code(filler: int, version: int) -> int:
        infos = {"T": {"topic": "T", "bname": "b", "x": "y" * filler}}
        return (await desk.register("b", "h:1", topics=["T"], infos=infos, version=version, of=mine)).code

    assert [await code(2000, 1), await code(2000, 2), await code(2200, 3), await code(2400, 4)] == [0, 0, 0, 1]
    assert desk.server.tables.topic_bytes < 10_000
    desk.server.tables.rules = TableRules(max_topic_bytes=5000)
    assert [await code(2200, 4), await code(2000, 5), await code(2200, 6)] == [0, 0, 1]


async def test_mappings_of_topics_that_no_broker_has_are_not_kept() -> None:
    desk = Desk()
    infos = {name: {"topic": name, "bname": "b", "x": "y" * 50} for name in ("T", "nowhere")}
    await desk.register("b", "h:1", topics=["T"], infos=infos)
    assert list(desk.server.tables.topic_queue_mapping_info_table) == ["T"]
    await desk.question(216, {"topic": "T"})
    assert desk.server.tables.topic_bytes == 0
