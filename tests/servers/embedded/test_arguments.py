"""Wrong arguments of a cluster are refused by name, when it is made, or before it is yielded; both faces alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyrmq_core import Admin, InvalidArgument, InvalidState, blocking
from pyrmq_core.testing import EmbeddedCluster, TopicConfig

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"brokers": 0}, "brokers=0: a number from 1 to 26"),
    ({"brokers": 27}, "brokers=27: a number from 1 to 26"),
    ({"brokers": -1}, "brokers=-1: a number from 1 to 26"),
    ({"brokers": "broker-a"}, "brokers='broker-a': a number from 1 to 26, or a list"),
    ({"brokers": ["one", "one"]}, "or a list of different names"),
    ({"brokers": ["../one"]}, "brokers=.'../one'.: a number"),
    ({"slaves": -1}, "slaves=-1: the number of slaves of each broker is wanted, 0 to 9"),
    ({"slaves": 10}, "slaves=10: the number"),
    ({"slaves": "1"}, "slaves='1': the number"),
    ({"slaves": True}, "slaves=True: the number"),
    ({"sync": True}, "sync=True: a send would wait for a slave, and there is none; use slaves=1 or more"),
    ({"slaves": 1, "sync": True, "settings": {"brokerRole": "ASYNC_MASTER"}}, "sync=True and .*brokerRole=ASYNC_M"),
    ({"settings": {"brokerRole": "SLAVE"}}, "settings: brokerRole=SLAVE: masters have slaves; use slaves="),
    ({"settings": {"brokerId": "1"}}, "settings: brokerId is set by the cluster, for each server; use slaves="),
    ({"settings": {"haListenPort": "1"}}, "settings: haListenPort is set by the cluster, for each server; use slaves="),
    ({"settings": {"haMasterAddress": "a:1"}}, "settings: haMasterAddress is set by the cluster.*; use slaves="),
    ({"brokers": ["one", "one-1"], "slaves": 1}, "brokers=.'one', 'one-1'.: one-1 is the name of a slave, too"),
    ({"brokers": ["one"], "nameservers": ["one-1", "two"], "slaves": 1}, "one-1 names a broker and a NameServer"),
    ({"nameservers": 0}, "nameservers=0: a number from 1 to 26"),
    ({"nameservers": []}, "nameservers=..: a number from 1 to 26"),
    ({"brokers": ["one"], "nameservers": ["one", "two"]}, "one names a broker and a NameServer"),
    ({"brokers": ["nameserver"]}, "nameserver names a broker and a NameServer"),
    ({"topics": ["orders"]}, "topics=.'orders'.: a mapping"),
    ({"topics": {"orders": 0}}, "topics: orders=0; a number of queues from 1 to 65535 or a TopicConfig"),
    ({"topics": {"orders": "8"}}, "topics: orders='8'; a number of queues"),
    ({"topics": {"two words": 8}}, "topic 'two words'"),
    ({"topics": {"orders": TopicConfig("payments")}}, "topics: orders has the TopicConfig of payments"),
    ({"settings": {"flushDiskTyp": "SYNC_FLUSH"}}, "settings: there is no such setting: flushDiskTyp .did you mean fl"),
    ({"settings": {"maxStoreBytes": 0}}, "settings: maxStoreBytes=0; a text is wanted"),
    ({"settings": {"maxStoreBytes": "much"}}, "maxStoreBytes is 'much'"),
    ({"settings": {"brokerName": "one"}}, "settings: brokerName is set by the cluster, for each server; use brokers="),
    ({"settings": {"storePathRootDir": "/"}}, "storePathRootDir is set by the cluster.*; use directory="),
    ({"nameserver_settings": {"orderMessageEnabled": "true"}}, "orderMessageEnabled .did you mean orderMessageEnable"),
    ({"nameserver_settings": {"orderMessageEnable": "yes"}}, "orderMessageEnable=yes: true or false"),
    ({"nameserver_settings": {"listenPort": "9876"}}, "nameserver_settings: listenPort .* use port="),
    ({"nameservers": 2, "nameserver_settings": {"kvConfigPath": "kv"}}, "kvConfigPath .* use directory="),
]


@pytest.mark.parametrize("face", [EmbeddedCluster, blocking.EmbeddedCluster], ids=["trio", "blocking"])
@pytest.mark.parametrize(("arguments", "text"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_is_named_when_the_cluster_is_made(
    face: type[Any], arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        face(**arguments)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        (TopicConfig("TBW102"), "topic TBW102 of broker-a: .* conflict with system topic"),
        (TopicConfig("orders", perm=99), "topic orders of broker-a: perm .* is 99"),
        (TopicConfig("orders", attributes={"queue.type": "Round"}), "topic orders of broker-a: queue.type is 'Round'"),
    ],
)
async def test_a_topic_that_brokers_refuse_is_named_before_the_block(topic: TopicConfig, text: str) -> None:
    cluster = EmbeddedCluster(topics={"good": 1, topic.topic: topic})
    with pytest.raises(InvalidArgument, match=text):
        async with cluster:
            raise AssertionError("the block began")
    assert (cluster.brokers, cluster.nameservers) == ({}, {})
    assert not cluster.directory.exists()


async def test_a_name_that_no_server_has_is_refused_with_those_that_are_there() -> None:
    async with EmbeddedCluster(nameservers=2) as cluster:
        for act in (cluster.kill, cluster.stop, cluster.start):
            with pytest.raises(InvalidArgument, match="'nameserver': nameserver-a, nameserver-b, broker-a are there"):
                await act("nameserver")
        with pytest.raises(InvalidArgument, match="'nameserver': nameserver-a"):
            cluster.control(105, lambda request, peer: None, server="nameserver")  # type: ignore[arg-type, return-value]
        with pytest.raises(InvalidArgument, match="broker-a are the brokers; kill ends a NameServer"):
            await cluster.power_cut("nameserver-a")


async def test_a_server_runs_or_is_ended_once() -> None:
    async with EmbeddedCluster() as cluster:
        for name in ("nameserver", "broker-a"):
            with pytest.raises(InvalidState, match=f"{name} is running"):
                await cluster.start(name)
        with pytest.raises(InvalidState, match="ForgetfulFiles"):
            await cluster.power_cut("broker-a")
        assert list(cluster.brokers) == ["broker-a"]  # it goes on
        for name in ("broker-a", "nameserver"):
            await cluster.kill(name)
            with pytest.raises(InvalidState, match=f"{name} is not running"):
                await cluster.stop(name)


async def test_topics_are_there_at_every_nameserver_when_the_block_begins(tmp_path: Path) -> None:
    batch = TopicConfig("rows", 4, 2, attributes={"queue.type": "BatchCQ"})
    settings = {"autoCreateTopicEnable": "false"}
    for queues in (8, 16):  # a kept store has the topics already: they are changed, or left as they are
        async with EmbeddedCluster(
            2, nameservers=2, topics={"orders": queues, "rows": batch}, settings=settings, directory=tmp_path
        ) as cluster:
            for address in cluster.nameservers.values():
                async with Admin(nameserver=address) as admin:
                    for topic, counts in (("orders", (queues, queues)), ("rows", (4, 2))):
                        queue_datas = (await admin.route(topic)).queue_datas
                        assert {data.broker_name for data in queue_datas} == {"broker-a", "broker-b"}
                        assert {(data.read_queue_nums, data.write_queue_nums) for data in queue_datas} == {counts}
                    kept = await admin.topic_config("rows")
                    assert {config.attributes["queue.type"] for config in kept.values()} == {"BatchCQ"}
                    assert "TBW102" not in await admin.topics.list()
