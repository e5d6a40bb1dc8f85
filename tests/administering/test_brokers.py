"""Brokers, topics and NameServers, administered on our own cluster, also while a broker is down."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio

from pyrmq_core import (
    Admin,
    BrokerNotFound,
    InvalidArgument,
    Message,
    NoRoute,
    Producer,
    ResponseError,
    blocking,
)
from pyrmq_core.protocol.requests.figures.stats_data import BrokerStats, StatsPeriod, ViewBrokerStats
from pyrmq_core.testing import Command, CutConnection, EmbeddedCluster, Peer, RequestCode, ResponseCode, refusal
from tests.support.broker_admin_jobs import BrokerAdminJobs
from tests.support.consumer_jobs import fresh
from tests.support.waiting import POLL_SECONDS


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


class TestOurs(BrokerAdminJobs):
    @pytest.fixture
    async def nameserver(self, cluster: EmbeddedCluster) -> str:
        return cluster.nameserver


async def cut(_request: Command, _peer: Peer) -> None:
    raise CutConnection


async def refuse(_request: Command, _peer: Peer) -> Command:
    return refusal(ResponseCode.NO_PERMISSION, "not yours")


async def test_a_broker_that_is_down_has_its_row_with_the_error(cluster: EmbeddedCluster) -> None:
    topic = fresh("topic")
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic(topic, queues=1)
        for code in RequestCode:
            cluster.control(code, cut, server="broker-b")
        up, down = await admin.brokers.list()
        stats = await admin.topics.stats(topic)
        assert await admin.topics.groups(topic) == ()
    assert (up.reachable, down.reachable) == (True, False)
    assert (down.version, down.put_tps, down.get_tps, down.disk_ratio, down.booted) == (None,) * 5
    assert down.address in str(down.error)
    assert [queue.broker_name for queue in stats.queues] == ["broker-a"]
    assert down.address in str(stats.failures["broker-b"])


async def test_slaves_have_rows_of_their_own() -> None:
    async with EmbeddedCluster(slaves=1) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        await cluster.wait_for_slaves()
        master, slave = await admin.brokers.list()
        assert (master.broker_id, slave.broker_id) == (0, 1)
        assert (master.is_master, slave.is_master, slave.reachable) == (True, False, True)
        assert slave.address == cluster.slaves["broker-a-1"]
        leading = await admin.brokers.ha_status("broker-a")
        following = await admin.brokers.ha_status("broker-a", broker_id=1)
        assert leading.master
        assert len(leading.connections) == 1
        assert not following.master
        assert following.client is not None
        assert following.client.master_address
        assert (await admin.brokers.config("broker-a", broker_id=1))["brokerId"] == "1"


async def test_a_change_that_one_broker_refuses_is_made_at_the_others(cluster: EmbeddedCluster) -> None:
    cluster.control(RequestCode.UPDATE_BROKER_CONFIG, refuse, server="broker-a")
    async with Admin(nameserver=cluster.nameserver) as admin:
        with pytest.raises(ResponseError, match=r"broker-a .*not yours") as raised:
            await admin.brokers.update_config({"fileReservedTime": "33"})
        assert raised.value.__notes__ == ["changed: broker-b; not changed: broker-a"]
        assert (await admin.brokers.config("broker-b"))["fileReservedTime"] == "33"
        with pytest.raises(ResponseError) as alone:
            await admin.brokers.update_config({"fileReservedTime": "33"}, broker="broker-a")
        assert not hasattr(alone.value, "__notes__")


async def test_a_setting_that_is_not_listed_can_be_sent_all_the_same(cluster: EmbeddedCluster) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        with pytest.raises(InvalidArgument, match="lists no setting"):
            await admin.brokers.update_config({"noSuchSetting": "1"}, broker="broker-a")
        received: list[bytes] = []

        async def note(request: Command, _peer: Peer) -> Command:
            received.append(bytes(request.body))
            return refusal(ResponseCode.INVALID_PARAMETER, "none of mine")

        cluster.control(RequestCode.UPDATE_BROKER_CONFIG, note)
        with pytest.raises(ResponseError, match="none of mine"):
            await admin.brokers.update_config({"noSuchSetting": "1"}, broker="broker-a", force=True)
    assert received == [b"noSuchSetting=1\n"]


async def test_figures_count_what_is_sent(cluster: EmbeddedCluster) -> None:
    """A rate of 10 s, and the sums of a minute, are there once samples go back so far."""
    topic = fresh("topic")
    async with (
        Admin(nameserver=cluster.nameserver) as admin,
        Producer(fresh("senders"), nameserver=cluster.nameserver) as producer,
    ):
        await admin.create_topic(topic, queues=1)
        with trio.fail_after(60):
            while not (row := (await admin.brokers.list())[0]).put_tps:
                await producer.send(Message(topic, b"x"))
                await trio.sleep(POLL_SECONDS)
        assert row.put_tps < 1000
        assert row.messages_put_today is not None
        assert row.messages_put_today > 1
        with trio.fail_after(60):
            while not (stats := await admin.brokers.stats("broker-a", "TOPIC_PUT_NUMS", topic)) or not stats.minute.sum:
                await producer.send(Message(topic, b"x"))
                await trio.sleep(POLL_SECONDS)
        assert stats.minute.tps > 0
        assert (await admin.topics.stats(topic)).put_tps
        rates = await admin.topics.rates(topic, ["nobody"])
        assert (rates.put_tps > 0, dict(rates.get_tps), dict(rates.failures)) == (True, {"nobody": 0.0}, {})


async def test_rates_of_a_topic_are_its_brokers_statistics(cluster: EmbeddedCluster) -> None:
    rates = {"TOPIC_PUT_NUMS tenant%T": 2.0, "GROUP_GET_NUMS tenant%T@tenant%G": 1.5}

    is_down = False

    async def figure(request: Command, peer: Peer) -> Command:
        asked = ViewBrokerStats.from_command(request)
        return BrokerStats(StatsPeriod(tps=rates[f"{asked.stats_name} {asked.stats_key}"])).to_command()

    async def figure_or_cut(request: Command, peer: Peer) -> Command:
        if is_down:
            raise CutConnection
        return await figure(request, peer)

    cluster.control(RequestCode.VIEW_BROKER_STATS_DATA, figure, server="broker-a")
    cluster.control(RequestCode.VIEW_BROKER_STATS_DATA, figure_or_cut, server="broker-b")
    async with Admin(nameserver=cluster.nameserver, namespace="tenant") as admin:
        await admin.create_topic("T", queues=1)
        topic_rates = await admin.topics.rates("T", ["G"])
        assert (topic_rates.put_tps, dict(topic_rates.get_tps), dict(topic_rates.failures)) == (4.0, {"G": 3.0}, {})
        is_down = True
        topic_rates = await admin.topics.rates("T")
        assert (topic_rates.put_tps, dict(topic_rates.get_tps), list(topic_rates.failures)) == (2.0, {}, ["broker-b"])


async def test_figures_of_topics_leave_no_routes_to_poll(cluster: EmbeddedCluster) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("T", queues=1)
    async with Admin(nameserver=cluster.nameserver) as admin:
        assert (await admin.topics.stats("T")).queues
        await admin.topics.groups("T")
        await admin.topics.rates("T")
        assert "T" not in admin.topics._servers.session.routes.known_topics


async def test_a_namespace_stands_before_topics_and_groups(cluster: EmbeddedCluster) -> None:
    async with Admin(nameserver=cluster.nameserver, namespace="tenant") as admin:
        await admin.create_topic("T", queues=1)
        assert {queue.topic for queue in (await admin.topics.stats("T")).queues} == {"T"}
        assert await admin.topics.update_perm("T", 4) == {"broker-a": (6, 4), "broker-b": (6, 4)}
        await admin.topics.set_order("T", {"broker-a": 1})
        assert await admin.topics.order("T") == {"broker-a": 1}
    async with Admin(nameserver=cluster.nameserver) as admin:
        assert await admin.kv_values("ORDER_TOPIC_CONFIG") == {"tenant%T": "broker-a:1"}
        assert len((await admin.topics.stats("tenant%T")).queues) == 2


async def test_a_permission_that_no_nameserver_hears_of_is_reported(cluster: EmbeddedCluster) -> None:
    async with Admin(nameserver=cluster.nameserver, timeout=0.5) as admin:
        await admin.create_topic("T", queues=1)
        for code in (RequestCode.REGISTER_BROKER, RequestCode.REGISTER_TOPIC_IN_NAMESRV):
            cluster.control(code, refuse)
        with pytest.raises(
            NoRoute, match=r"T is changed on broker-a, but NameServer .* has not heard so from broker-a"
        ):
            await admin.topics.update_perm("T", 4, broker="broker-a")


async def test_the_settings_of_a_topic_come_from_older_brokers_too(cluster: EmbeddedCluster) -> None:
    async def is_unknown(request: Command, peer: Peer) -> Command:
        return refusal(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "as 4.9 answers")

    async with Admin(nameserver=cluster.nameserver) as admin:
        await admin.create_topic("T", queues=3)
        expected = await admin.topic_config("T")
        cluster.control(RequestCode.GET_TOPIC_CONFIG, is_unknown)
        assert await admin.topic_config("T") == expected
        assert {config.write_queue_nums for config in expected.values()} == {3}


async def test_an_order_of_another_form_is_named(cluster: EmbeddedCluster) -> None:
    async with Admin(nameserver=cluster.nameserver) as admin:
        for text in ("broker-a", "broker-a:x", ":3", "broker-a:1,broker-b:1", f"broker-a:{'9' * 5000}"):
            await admin.put_kv("ORDER_TOPIC_CONFIG", "T", text)
            with pytest.raises(InvalidArgument, match="the order configuration of T"):
                await admin.topics.order("T")


async def test_without_brokers_or_nameservers_the_error_says_so() -> None:
    async with EmbeddedCluster(brokers=1) as cluster, Admin(nameserver=cluster.nameserver) as admin:
        await cluster.stop("broker-a")
        assert await admin.brokers.list() == ()
        with pytest.raises(BrokerNotFound, match="knows no master broker"):
            await admin.brokers.clean_unused_topics()
        with pytest.raises(InvalidArgument, match="knows none"):
            await admin.brokers.config("broker-a")
    async with Admin(nameserver="") as admin:
        keep = partial(admin.topics.keep_manifest, "orders-committed", "orders", "broker-a")
        for call in (admin.nameservers.config, admin.brokers.list, keep):
            with pytest.raises(Exception, match="no NameServer is named"):
                await call()


async def test_a_nameserver_that_is_away_is_named_and_the_rest_is_there() -> None:
    async with (
        EmbeddedCluster(nameservers=2) as cluster,
        Admin(nameserver=list(cluster.nameservers.values())) as admin,
    ):
        first, second = cluster.nameservers.values()
        await cluster.kill("nameserver-b")
        configs = await admin.nameservers.config()
        assert list(configs.answers) == [first]
        assert second in str(configs.failures[second])


def test_the_blocking_face() -> None:
    with blocking.EmbeddedCluster(brokers=1) as cluster, blocking.Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("T", queues=2)
        (row,) = admin.brokers.list()
        assert row.reachable
        assert len(admin.topics.stats("T").queues) == 2
        assert admin.nameservers.config().answers.keys() == {cluster.nameserver}
