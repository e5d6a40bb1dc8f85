"""Routes: Java's four spellings, the answers of a real NameServer, and invalid bodies."""

from __future__ import annotations

import ast
import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core.errors import BodyError
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.routes.route import BrokerData, QueueData, TopicRouteData, order_counts
from pyrmq_core.protocol.routes.topic_config import MAX_QUEUES_PER_TOPIC
from tests.protocol.strategies import HOSTS, INT32, TEXT
from tests.support import golden

ADDRESSES = {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
QUEUES = (QueueData("broker-a", 4, 4, 6),)
PLAIN = TopicRouteData(QUEUES, (BrokerData("DefaultCluster", "broker-a", ADDRESSES),))
FULL = TopicRouteData(
    QUEUES,
    (BrokerData("DefaultCluster", "broker-a", ADDRESSES, zone_name='区/<z>"q"'),),
    order_topic_conf="broker-a:4;broker-b:4",
    topic_queue_mapping_by_broker={},
)


@pytest.mark.parametrize(
    ("title", "route"),
    [("route nonstd", PLAIN), ("route std", PLAIN), ("route2 nonstd", FULL), ("route2 std", FULL)],
)
def test_javas_routes(title: str, route: TopicRouteData) -> None:
    assert TopicRouteData.from_json(golden.vectors()[title].encode()) == route


def test_our_route_is_javas_to_the_byte() -> None:
    assert PLAIN.to_json().decode() == golden.vectors()["route std"]
    assert PLAIN.to_json(bare_ids=True).decode() == golden.vectors()["route nonstd"]


def probes() -> list[tuple[str, bytes]]:
    """Returns every route that a real NameServer answered.

    Lines are `## title | type 0 | header | body b'...'`.
    """
    rows = []
    for line in golden.text("namesrv_probe.txt").splitlines():
        match = re.match(r"## (.*?) \| type \d \| .* \| body (b'.*')$", line)
        if match and b"brokerDatas" in ast.literal_eval(match[2]):
            rows.append((match[1], ast.literal_eval(match[2])))
    return rows


@pytest.mark.parametrize(("title", "body"), probes(), ids=lambda value: value if isinstance(value, str) else "")
def test_routes_of_a_real_nameserver(title: str, body: bytes) -> None:
    route = TopicRouteData.from_json(body)
    assert route.broker_datas
    for broker in route.broker_datas:
        assert all(re.fullmatch(r"[\d.]+:\d+", address) for address in broker.broker_addrs.values())
        assert {queue.broker_name for queue in route.queue_datas} <= {"broker-a", "broker-b", broker.broker_name}
    assert TopicRouteData.from_json(route.to_json()) == route


def test_there_were_probes_with_bare_keys() -> None:
    bodies = dict(probes())
    assert len(bodies) >= 4
    assert b"{0:" in bodies["route v0"]
    assert TopicRouteData.from_json(bodies["route v0"]) == TopicRouteData.from_json(bodies["route v479"])
    assert TopicRouteData.from_json(bodies["route v0"]).broker_datas[0].master == "127.0.0.1:10911"


def test_the_spelling_of_4_8_and_older() -> None:
    text = b'{"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":1,"topicSynFlag":3,"writeQueueNums":1}]}'
    assert TopicRouteData.from_json(text).queue_datas == (QueueData("a", 1, 1, 6, 3),)


def test_absent_parts_are_empty() -> None:
    assert TopicRouteData.from_json(b"{}") == TopicRouteData()
    assert TopicRouteData.from_json(b'{"brokerDatas":null,"queueDatas":null,"filterServerTable":null}') == (
        TopicRouteData()
    )


COUNTS = st.integers(0, MAX_QUEUES_PER_TOPIC)
QUEUE_DATAS = st.builds(QueueData, TEXT, COUNTS, COUNTS, INT32, INT32)
BROKER_DATAS = st.builds(
    BrokerData, TEXT, TEXT, st.dictionaries(st.integers(0, 2**31), HOSTS, max_size=3), st.booleans(), st.none() | TEXT
)
ROUTES = st.builds(
    TopicRouteData,
    st.lists(QUEUE_DATAS, max_size=3).map(tuple),
    st.lists(BROKER_DATAS, max_size=3).map(tuple),
    st.none() | TEXT,
    st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=2),
    st.none() | st.dictionaries(TEXT, TEXT, max_size=2),
)


@given(ROUTES)
def test_routes_survive(route: TopicRouteData) -> None:
    assert TopicRouteData.from_json(route.to_json()) == route
    assert TopicRouteData.from_json(route.to_json(bare_ids=True)) == route


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["brokerName", "perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "brokerAddrs", "cluster", "zoneName"]
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["queueDatas", "brokerDatas", "orderTopicConf", "filterServerTable", "topicQueueMappingByBroker"]
        ),
        JSON | st.lists(st.dictionaries(NAMES, JSON, max_size=6), max_size=2),
    )
)
def test_members_of_wrong_types_give_body_errors_only(members: dict[str, object]) -> None:
    with contextlib.suppress(BodyError):
        TopicRouteData.from_json(dumps(members)).to_json()


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"",
        b'{"queueDatas":[{}]}',
        b'{"queueDatas":7}',
        b'{"queueDatas":[7]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"y"}}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":[]}]}',
        b'{"queueDatas":[{"brokerName":"a","perm":Infinity,"readQueueNums":1,"writeQueueNums":1}]}',
        b'{"filterServerTable":7}',
        b'{"filterServerTable":{"a":7}}',
        b'{"filterServerTable":{"a":"xyz"}}',
        b'{"topicQueueMappingByBroker":[]}',
        b'{"queueDatas":[{"brokerName":"a","perm":1e999,"readQueueNums":1,"writeQueueNums":1}]}',
    ],
)
def test_what_is_no_route_is_reported(body: bytes) -> None:
    with pytest.raises(BodyError, match="route"):
        TopicRouteData.from_json(body)


def route_of(queues: object = 4, address: object = "127.0.0.1:10911", brokers: int = 1, **more: object) -> bytes:
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": queues, "writeQueueNums": queues}
    broker = {"brokerName": "a", "brokerAddrs": {"0": address}, "cluster": "C"}
    return dumps({"queueDatas": [queue] * brokers, "brokerDatas": [broker], **more})


@pytest.mark.parametrize("queues", [20_000_000, 2**31 - 1, 65_536, -1, 10**300, "9" * 4000, 1e300, "1_0", " 4"])
def test_a_number_of_queues_that_no_topic_has_is_named(queues: object) -> None:
    with pytest.raises(BodyError, match="route"):
        TopicRouteData.from_json(route_of(queues))


def test_the_queues_of_all_brokers_are_bounded() -> None:
    assert len(TopicRouteData.from_json(route_of(65_535, brokers=4)).queue_datas) == 4
    with pytest.raises(BodyError, match="327675 queues; 262144 at most"):
        TopicRouteData.from_json(route_of(65_535, brokers=5))


@pytest.mark.parametrize("address", ["a:" + "9" * 5000, "a:65536", "a:-1", "a", "", ":1", "a:\u0661", None, 7])
def test_an_address_that_cannot_be_one_is_named(address: object) -> None:
    with pytest.raises(BodyError, match="not host:port"):
        TopicRouteData.from_json(route_of(address=address))


@pytest.mark.parametrize("address", ["a.b-c:0", "[fd00::2]:10911", "fd00::2:10911", "10.0.0.1:65535"])
def test_addresses_that_servers_have(address: str) -> None:
    assert TopicRouteData.from_json(route_of(address=address)).broker_datas[0].master == address


def test_order_counts() -> None:
    assert order_counts("T", "a:4;b:0;") == [("a", 4), ("b", 0)]
    many = ";".join(["a:65535"] * 5)
    for conf in ("a:9000000000", "a:" + "9" * 5000, "a:x", "a", "a:-1", many):
        with pytest.raises(BodyError, match=r"order configuration of T|262144 at most"):
            order_counts("T", conf)
