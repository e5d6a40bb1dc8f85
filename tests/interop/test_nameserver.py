"""Java's brokers and mqadmin of both releases on our NameServer, which runs as a process of its own.

clusterList and topicRoute are in `test_java_on_our_servers`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Producer
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.properties_text import parse_java_properties
from pyrmq_core.protocol.java.string_hash import string_hash_code
from pyrmq_core.protocol.requests.nameserver.get_route_info import GetRouteInfo, RouteInfo
from pyrmq_core.protocol.requests.nameserver.kv_config import GetKvConfig, KvConfig
from pyrmq_core.protocol.routes.route import BrokerData, TopicRouteData
from tests.support.apache import NEWEST_AND_LONG_OLDER, VERSIONS, ApacheBroker, ask, boot_broker, registered_brokers
from tests.support.java_programs import mqadmin
from tests.support.maven import ApacheUnavailable

BOOTED = "The Name Server boot success. serializeType=JSON, address "
# A killed broker has to be gone long before its time-out of 120 s; ours takes milliseconds.
AT_ONCE = 40.0


@dataclass(frozen=True)
class Site:
    """Our NameServer, and a Java broker registered with it."""

    version: str
    nameserver: str
    broker: ApacheBroker

    def mqadmin(self, *arguments: str) -> str:
        return mqadmin(self.version, *arguments, nameserver=self.nameserver)


@contextmanager
def our_nameserver() -> Iterator[str]:
    command = [sys.executable, "-m", "pyrmq_core.servers.nameserver", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(BOOTED)
            yield line.removeprefix(BOOTED).strip()
        finally:
            process.kill()


@pytest.fixture(scope="module", params=NEWEST_AND_LONG_OLDER)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with our_nameserver() as nameserver:
        try:
            with boot_broker(request.param, nameserver, settings={"enableSlaveActingMaster": "false"}) as broker:
                yield Site(request.param, nameserver, broker)
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {request.param}: {reason}")


def route_of(nameserver: str, topic: str) -> TopicRouteData | None:
    answer = ask(nameserver, GetRouteInfo(topic).to_command())
    return RouteInfo.from_command(answer).route if answer.code == 0 else None


def wait_for(seconds: float, what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


def perm(nameserver: str, topic: str) -> int:
    route = route_of(nameserver, topic)
    assert route is not None
    return route.queue_datas[0].perm


def test_a_java_broker_registers_with_all_its_topics(site: Site) -> None:
    assert registered_brokers(site.nameserver) == {"broker-a": {site.broker.address}}
    route = route_of(site.nameserver, "TBW102")
    assert route is not None
    (broker,), (queues,) = route.broker_datas, route.queue_datas
    assert broker == BrokerData("DefaultCluster", "broker-a", {0: site.broker.address})
    assert (queues.perm, queues.read_queue_nums, queues.write_queue_nums) == (7, 8, 8)


def test_a_topic_made_on_it_is_routed(site: Site) -> None:
    site.mqadmin("updateTopic", "-t", "Made", "-c", "DefaultCluster", "-r", "3", "-w", "5")
    wait_for(60, "the route of a new topic", lambda: route_of(site.nameserver, "Made") is not None)
    route = route_of(site.nameserver, "Made")
    assert route is not None
    assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].write_queue_nums) == (3, 5)
    assert "Made" in site.mqadmin("topicList").split()
    site.mqadmin("deleteTopic", "-t", "Made", "-c", "DefaultCluster")
    assert route_of(site.nameserver, "Made") is None


def test_kv_configuration_by_mqadmin(site: Site) -> None:
    site.mqadmin("updateKvConfig", "-s", "NS", "-k", "key", "-v", "some value")
    answer = ask(site.nameserver, GetKvConfig("NS", "key").to_command())
    assert KvConfig.from_command(answer) == KvConfig("some value")
    site.mqadmin("deleteKvConfig", "-s", "NS", "-k", "key")
    assert ask(site.nameserver, GetKvConfig("NS", "key").to_command()).code == 22


def test_write_permission_by_mqadmin(site: Site) -> None:
    """Repeats commands: a broker that registers anew meanwhile, with a later DataVersion, restores its permissions."""

    def says(command: str, expected: int) -> bool:
        site.mqadmin(command, "-b", "broker-a")
        return perm(site.nameserver, "SELF_TEST_TOPIC") == expected

    assert perm(site.nameserver, "SELF_TEST_TOPIC") == 6
    wait_for(60, "the write permission is taken", lambda: says("wipeWritePerm", 4))
    wait_for(60, "the write permission is given back", lambda: says("addWritePerm", 6))


def test_settings_by_mqadmin(site: Site) -> None:
    assert "orderMessageEnable" in site.mqadmin("getNamesrvConfig")
    site.mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    settings = parse_java_properties(bytes(ask(site.nameserver, Command(RequestCode.GET_NAMESRV_CONFIG)).body).decode())
    assert settings["orderMessageEnable"] == "true"


def test_an_order_configuration_by_mqadmin_is_what_producers_honour(site: Site) -> None:
    site.mqadmin("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    site.mqadmin("updateTopic", "-t", "Ordered", "-c", "DefaultCluster", "-r", "4", "-w", "4", "-o", "true")
    site.mqadmin("updateOrderConf", "-t", "Ordered", "-m", "put", "-v", "broker-a:3")
    assert "broker-a:3" in site.mqadmin("updateOrderConf", "-t", "Ordered", "-m", "get")
    with Producer("g", nameserver=site.nameserver, send_timeout=15) as producer:
        assert [queue.queue_id for queue in producer.message_queues("Ordered")] == [0, 1, 2]
        for number in range(6):
            key = f"customer-{number}"
            stored = producer.send(Message("Ordered", b"x", sharding_key=key)).message_queue
            assert stored.queue_id == abs(string_hash_code(key)) % 3
    site.mqadmin("updateOrderConf", "-t", "Ordered", "-m", "delete")
    route = route_of(site.nameserver, "Ordered")
    assert route is not None
    assert route.order_topic_conf is None


def test_a_slave_stays_when_its_master_is_killed_and_the_master_comes_back(site: Site) -> None:
    settings = {"brokerId": "1", "brokerRole": "SLAVE", "brokerName": "broker-a"}
    with boot_broker(site.version, site.nameserver, "broker-a-slave", settings=settings) as slave:
        both = {"broker-a": {site.broker.address, slave.address}}
        wait_for(60, "master and slave in the route", lambda: registered_brokers(site.nameserver) == both)
        site.broker.kill()
        wait_for(
            AT_ONCE, "the slave alone", lambda: registered_brokers(site.nameserver) == {"broker-a": {slave.address}}
        )
        route = route_of(site.nameserver, "SELF_TEST_TOPIC")
        assert route is not None
        assert route.broker_datas[0].master is None
        assert route.queue_datas[0].perm == 6
        site.broker.restart()
        wait_for(60, "both again", lambda: registered_brokers(site.nameserver) == both)
        slave.kill()
        wait_for(
            AT_ONCE,
            "the master alone",
            lambda: registered_brokers(site.nameserver) == {"broker-a": {site.broker.address}},
        )
        slave.restart()
        wait_for(60, "both once more", lambda: registered_brokers(site.nameserver) == both)
        route = route_of(site.nameserver, "SELF_TEST_TOPIC")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: site.broker.address, 1: slave.address}
    wait_for(
        AT_ONCE,
        "the killed slave gone",
        lambda: registered_brokers(site.nameserver) == {"broker-a": {site.broker.address}},
    )


def test_a_broker_that_ends_in_order_or_is_killed_leaves_at_once(site: Site) -> None:
    """Runs last: the broker is gone afterwards, and back for the next module."""
    site.broker.terminate()
    wait_for(AT_ONCE, "no broker", lambda: registered_brokers(site.nameserver) == {})
    assert route_of(site.nameserver, "TBW102") is None
    site.broker.restart()
    site.broker.kill()
    wait_for(AT_ONCE, "no broker", lambda: registered_brokers(site.nameserver) == {})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_java_broker_registers_with_several_nameservers_and_lives_with_one(version: str) -> None:
    with our_nameserver() as first:
        try:
            with our_nameserver() as second, boot_broker(version, f"{first};{second}") as broker:
                for nameserver in (first, second):
                    assert registered_brokers(nameserver) == {"broker-a": {broker.address}}
        except ApacheUnavailable as reason:
            pytest.skip(f"Apache RocketMQ {version}: {reason}")
