"""Tests of `Admin.brokers`, `topics` and `nameservers` that run alike on our servers and each release of RocketMQ."""

from __future__ import annotations

import pytest
import trio

from pyrmq_core import Admin, InvalidArgument, Message, MessageQueue, Producer, PullConsumer, ResponseError
from pyrmq_core.model import Permission, TopicConfig
from pyrmq_core.protocol.requests.broker.topic_admin import UpdateTopic
from tests.support.apache import ask
from tests.support.consumer_jobs import fresh
from tests.support.waiting import POLL_SECONDS, until_readable

ROUTE_SECONDS = 60.0
# 5.4.0 answers 306 with a NullPointerException of its own while a queue of any topic has no file yet.
NO_FILE = "MappedFile.getReadPosition()"


async def one_of_each(nameserver: str, topic: str) -> None:
    """Stores a message in each queue of a topic with two queues at both brokers."""
    async with Producer(fresh("senders"), nameserver=nameserver, send_timeout=20) as producer:
        for queue in [MessageQueue(topic, name, place) for name in ("broker-a", "broker-b") for place in (0, 1)]:
            await producer.send(Message(topic, b"x"), queue=queue)
    await until_readable(nameserver, topic, 4)


class BrokerAdminJobs:
    """The tests; a class below has the fixture `nameserver`, of a cluster with broker-a and broker-b."""

    # 4.9 returns neither the settings of one topic nor its rate.
    has_topic_config = True

    @pytest.fixture
    def nameserver(self) -> str:
        raise NotImplementedError

    async def test_every_broker_has_its_row(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            rows = await admin.brokers.list()
            info = await admin.cluster_info()
            assert [(row.cluster, row.broker_name, row.broker_id) for row in rows] == [
                ("DefaultCluster", "broker-a", 0),
                ("DefaultCluster", "broker-b", 0),
            ]
            for row in rows:
                assert row.address == info.broker_addr_table[row.broker_name].master
                assert row.error is None
                assert row.reachable
                assert row.is_master
                assert row.version is not None
                assert row.version[0] in "45"
                assert row.booted is not None
                assert row.disk_ratio is not None
                assert 0 <= row.disk_ratio <= 1
            assert await admin.brokers.list(cluster="DefaultCluster") != ()
            with pytest.raises(InvalidArgument, match="no cluster is named Elsewhere"):
                await admin.brokers.list(cluster="Elsewhere")

    async def test_messages_of_today_are_counted(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            await admin.create_topic(topic, queues=2)
            before = {row.broker_name: row.messages_put_today for row in await admin.brokers.list()}
            await one_of_each(nameserver, topic)
            after = {row.broker_name: row.messages_put_today for row in await admin.brokers.list()}
            for name in ("broker-a", "broker-b"):
                put, had = after[name], before[name]
                assert put is not None
                assert had is not None
                assert put - had >= 2  # other tests of a shared cluster may send, too

    async def test_settings_are_read_and_changed(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            first = {name: await admin.brokers.config(name) for name in ("broker-a", "broker-b")}
            assert first["broker-a"]["brokerName"] == "broker-a"
            assert await admin.brokers.update_config({"fileReservedTime": "71"}) == ("broker-a", "broker-b")
            assert await admin.brokers.update_config({"fileReservedTime": "70"}, broker="broker-b") == ("broker-b",)
            changed = {name: await admin.brokers.config(name) for name in first}
            assert {name: own_settings["fileReservedTime"] for name, own_settings in changed.items()} == {
                "broker-a": "71",
                "broker-b": "70",
            }
            for name, settings in first.items():
                await admin.brokers.update_config({"fileReservedTime": settings["fileReservedTime"]}, broker=name)
            with pytest.raises(InvalidArgument, match=r"lists no setting fileReservedTimes; nothing is changed"):
                await admin.brokers.update_config({"fileReservedTimes": "1", "fileReservedTime": "1"})
            assert (await admin.brokers.config("broker-a"))["fileReservedTime"] == first["broker-a"]["fileReservedTime"]
            with pytest.raises(InvalidArgument, match="settings is empty"):
                await admin.brokers.update_config({})

    async def test_brokers_are_named_or_addressed(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            address = (await admin.brokers.list())[1].address
            assert (await admin.brokers.config(address))["brokerName"] == "broker-b"
            with pytest.raises(InvalidArgument, match=r"no broker is named broker-x; .* broker-a, broker-b"):
                await admin.brokers.config("broker-x")
            with pytest.raises(InvalidArgument, match=r"no server with the id 7 .*it has 0$"):
                await admin.brokers.runtime_info("broker-a", broker_id=7)
            with pytest.raises(InvalidArgument, match="give one of them"):
                await admin.brokers.clean_unused_topics(broker="broker-a", cluster="DefaultCluster")

    async def test_brokers_clean_up(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            assert await admin.brokers.clean_unused_topics() == ("broker-a", "broker-b")
            try:
                cleaned = await admin.brokers.clean_expired_queues(cluster="DefaultCluster")
            except ResponseError as error:
                if NO_FILE not in str(error):
                    raise
            else:
                assert cleaned == ("broker-a", "broker-b")
            assert await admin.brokers.delete_expired_logs(broker="broker-a") == ("broker-a",)

    async def test_a_figure_that_nothing_has_counted(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            await admin.create_topic(topic, queues=2)
            assert await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", topic) is None
            await one_of_each(nameserver, topic)
            assert await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", topic) is not None

    async def test_a_broker_is_closed_for_writing_and_opened(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            await admin.create_topic(topic, queues=1)

            async def permissions() -> dict[str, int]:
                return {queue.broker_name: int(queue.perm) for queue in (await admin.route(topic)).queue_datas}

            (topics,) = (await admin.brokers.wipe_write_perm("broker-a")).values()
            assert topics >= 1
            assert await permissions() == {"broker-a": 4, "broker-b": 6}
            assert list((await admin.brokers.add_write_perm("broker-a")).values()) == [topics]
            assert await permissions() == {"broker-a": 6, "broker-b": 6}
            with pytest.raises(InvalidArgument, match="no broker is named nowhere"):
                await admin.brokers.wipe_write_perm("nowhere")

    async def test_offsets_groups_and_clusters_of_a_topic(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic, group = fresh("topic"), fresh("group")
            await admin.create_topic(topic, queues=2)
            empty = await admin.topics.stats(topic)
            assert [queue.messages for queue in empty.queues.values()] == [0, 0, 0, 0]
            assert {queue.last_updated for queue in empty.queues.values()} == {None}
            await one_of_each(nameserver, topic)
            async with PullConsumer(group, nameserver=nameserver, timeout=20) as consumer:
                await consumer.commit_offsets(dict.fromkeys(await consumer.message_queues(topic), 1))
            stats = await admin.topics.stats(topic)
            assert list(stats.queues) == sorted(
                MessageQueue(topic, name, place) for name in ("broker-a", "broker-b") for place in (0, 1)
            )
            assert {(queue.min_offset, queue.max_offset) for queue in stats.queues.values()} == {(0, 1)}
            assert all(queue.last_updated is not None for queue in stats.queues.values())
            assert (stats.messages, dict(stats.failures)) == (4, {})
            assert (stats.put_tps is not None) is self.has_topic_config
            assert await admin.topics.groups(topic) == (group,)
            rates = await admin.topics.rates(topic, [group])
            assert (rates.put_tps >= 0, list(rates.get_tps), dict(rates.failures)) == (True, [group], {})
            assert await admin.topics.clusters(topic) == ("DefaultCluster",)

    async def test_a_topic_that_one_broker_has(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            address = (await admin.brokers.list())[0].address
            creation = UpdateTopic.of(TopicConfig(topic, 3, 3, 6)).to_command()
            assert (await trio.to_thread.run_sync(ask, address, creation)).code == 0
            with trio.fail_after(ROUTE_SECONDS):
                while topic not in await admin.topics.list():  # noqa: ASYNC110 - a NameServer's route
                    await trio.sleep(POLL_SECONDS)
            stats = await admin.topics.stats(topic)
            assert [str(queue) for queue in stats.queues] == [f"{topic}/broker-a/{place}" for place in range(3)]
            assert dict(stats.failures) == {}
            assert await admin.topics.update_perm(topic, 4) == {"broker-a": (6, 4)}
            assert await admin.topics.groups(topic) == ()

    async def test_permissions_change_and_nothing_else_does(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            await admin.create_topic(topic, queues=2, read_queues=3, order=True)
            assert await admin.topics.update_perm(topic, 4) == {"broker-a": (6, 4), "broker-b": (6, 4)}
            assert await admin.topics.update_perm(topic, Permission.WRITE, broker="broker-b") == {"broker-b": (4, 2)}
            route = {queue.broker_name: queue for queue in (await admin.route(topic)).queue_datas}
            assert {name: int(queue.perm) for name, queue in route.items()} == {"broker-a": 4, "broker-b": 2}
            assert {(queue.read_queue_nums, queue.write_queue_nums) for queue in route.values()} == {(3, 2)}
            await admin.topics.update_perm(topic, 6, cluster="DefaultCluster")
            if self.has_topic_config:
                configs = await admin.topic_config(topic)
                assert all(config.order for config in configs.values())
            for wrong in (0, 1, 7, -1):
                with pytest.raises(InvalidArgument, match="perm="):
                    await admin.topics.update_perm(topic, wrong)
            with pytest.raises(InvalidArgument, match=r"is not on the broker .* broker-a of DefaultCluster"):
                await admin.topics.update_perm(topic, 6, broker="broker-x")

    async def test_the_order_of_a_topic(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            topic = fresh("topic")
            await admin.create_topic(topic, queues=2, order=True)
            assert await admin.topics.order(topic) == {"broker-a": 2, "broker-b": 2}
            await admin.topics.set_order(topic, {"broker-a": 2, "broker-b": 1})
            assert await admin.topics.order(topic) == {"broker-a": 2, "broker-b": 1}
            await admin.nameservers.update_config({"orderMessageEnable": "true"})
            try:
                assert (await admin.route(topic)).order_topic_conf == "broker-a:2;broker-b:1"
            finally:
                await admin.nameservers.update_config({"orderMessageEnable": "false"})
            await admin.topics.delete_order(topic)
            assert await admin.topics.order(topic) is None
            await admin.topics.delete_order(topic)
            for wrong in ({}, {"broker-a": 0}, {"a:b": 1}, {"": 1}):
                with pytest.raises(InvalidArgument, match="queues="):
                    await admin.topics.set_order(topic, wrong)

    async def test_settings_of_nameservers(self, nameserver: str) -> None:
        async with Admin(nameserver=nameserver, timeout=20) as admin:
            configs = await admin.nameservers.config()
            assert list(configs.answers) == [nameserver]
            first = configs.answers[nameserver]["orderMessageEnable"]
            other = "false" if first == "true" else "true"
            await admin.nameservers.update_config({"orderMessageEnable": other})
            assert (await admin.nameservers.config()).answers[nameserver]["orderMessageEnable"] == other
            await admin.nameservers.update_config({"orderMessageEnable": first})
            with pytest.raises(InvalidArgument, match="lists no setting orderMessage; nothing is changed"):
                await admin.nameservers.update_config({"orderMessage": "true"})
