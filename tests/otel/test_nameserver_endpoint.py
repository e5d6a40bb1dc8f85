"""The NameServer's page for Prometheus."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from pyrmq_core import InvalidArgument, Message, NetworkError, RoutingError
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from pyrmq_core.protocol.routes.topic_config import NO_VERSION
from pyrmq_core.servers.exporter.rpc_latency import RpcLatency
from pyrmq_core.servers.nameserver import NameServerConfig, run_nameserver
from pyrmq_core.servers.nameserver.exported import MOST_ADDRESSES, NameServerMetrics
from pyrmq_core.servers.nameserver.service import NameServer
from pyrmq_core.servers.nameserver.tables import BrokerAddrInfo
from pyrmq_core.servers.nameserver.tables.state import BrokerLiveInfo
from tests.otel.pages import Page, free_port, page_with, parsed, text_of
from tests.servers.nameserver.serving import nameserver

SETTINGS: dict[str, Any] = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def cluster(port: int) -> Iterator[EmbeddedCluster]:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    with EmbeddedCluster(brokers=2, topics={"orders": 2}, nameserver_settings=settings) as cluster:
        yield cluster


def value(page: Page, metric: str, **labels: str) -> float:
    (figure,) = (number for own, number in page[metric] if labels.items() <= own.items())
    return figure


def test_brokers_topics_and_requests_are_counted(cluster: EmbeddedCluster, port: int) -> None:
    with Producer("g", nameserver=cluster.nameserver) as producer, Admin(nameserver=cluster.nameserver) as admin:
        producer.send(Message("orders", b"x"))
        with pytest.raises(RoutingError):
            admin.route("nowhere")
        page = page_with(
            port,
            "rocketmq_rpc_latency_milliseconds_count",
            1,
            request_code="get_routeinfo_by_topic",
            response_code="topic_not_exist",
        )
    assert value(page, "rocketmq_nameserver_broker_number", cluster="DefaultCluster") == 2
    assert value(page, "rocketmq_nameserver_live_broker_number") == 2
    assert value(page, "rocketmq_nameserver_cluster_number") == 1
    assert value(page, "rocketmq_nameserver_connections") == 4  # two brokers, a producer, an Admin
    assert value(page, "rocketmq_nameserver_topic_number") > 1
    ages = page["rocketmq_nameserver_broker_heartbeat_age_milliseconds"]
    assert {(own["broker_name"], own["broker_id"], own["address"]) for own, _ in ages} == {
        (name, "0", address) for name, address in cluster.brokers.items()
    }
    assert all(0 <= age < 40_000 for _, age in ages)
    latency = {
        "request_code": "register_broker",
        "response_code": "success",
        "result": "success",
        "is_long_polling": "false",
    }
    assert value(page, "rocketmq_rpc_latency_milliseconds_count", **latency) >= 2
    assert value(page, "rocketmq_rpc_latency_milliseconds_bucket", le="+Inf", **latency) >= 2
    for samples in page.values():
        assert all(own["node_type"] == "nameserver" and own["node_id"] == cluster.nameserver for own, _ in samples)


def test_brokers_that_leave_are_counted_by_the_reason(cluster: EmbeddedCluster, port: int) -> None:
    cluster.stop("broker-b")
    page = page_with(port, "rocketmq_nameserver_broker_removed_total", 1, reason="unregistered")
    assert value(page, "rocketmq_nameserver_broker_removed_total", reason="silent") == 0
    assert value(page, "rocketmq_nameserver_live_broker_number") == 1


@pytest.mark.parametrize("names", [("no such", 'quo"te\n\\'), ("名", "{}=,")])
async def test_hostile_names_are_escaped(names: tuple[str, str]) -> None:
    async with nameserver(**SETTINGS) as (running, _):
        cluster, address = names
        live = BrokerLiveInfo(0, 120_000, NO_VERSION, None, None)
        running.tables.put_live(BrokerAddrInfo(cluster, address), live)
        port = int(running.metrics_address.rpartition(":")[2])
        page = parsed(await trio.to_thread.run_sync(text_of, port))
    ((labels, _),) = page["rocketmq_nameserver_broker_heartbeat_age_milliseconds"]
    assert (labels["cluster"], labels["address"]) == names


async def test_of_very_many_brokers_those_silent_for_longest_are_shown() -> None:
    server = NameServer(NameServerConfig().with_settings({"listenPort": "0"}))
    live = BrokerLiveInfo(0, 120_000, NO_VERSION, None, None)
    for number in range(MOST_ADDRESSES + 500):
        key = BrokerAddrInfo(f"c{number}", f"10.0.0.1:{number}")
        server.tables.put_live(key, replace(live, last_update_ms=-number))
        server.tables.join_cluster(key.cluster, f"b{number}")
    families = {family.name: family for family in NameServerMetrics(server, RpcLatency(), lambda: 0).families()}
    ages = list(families["rocketmq_nameserver_broker_heartbeat_age_milliseconds"].samples)
    assert len(ages) == MOST_ADDRESSES
    assert ages[0].labels[0] == f"c{MOST_ADDRESSES + 499}"
    clusters = list(families["rocketmq_nameserver_broker_number"].samples)
    assert len(clusters) == MOST_ADDRESSES + 1
    assert clusters[-1] == (("other",), 500)


async def test_a_port_that_is_taken_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        config = NameServerConfig().with_settings({**SETTINGS, "listenPort": "0", "metricsPromExporterPort": str(port)})
        fault = f"metricsPromExporterPort={port}: cannot listen on"
        with trio.fail_after(60), pytest.raises(NetworkError, match=fault):
            await run_nameserver(config)


async def test_it_is_off_by_default_and_wrong_settings_are_refused() -> None:
    async with nameserver() as (running, _):
        assert running.metrics_address == ""
    async with nameserver(**SETTINGS) as (running, _):
        assert running.metrics_address.startswith("127.0.0.1:")
        opened = partial(urllib.request.urlopen, f"http://{running.metrics_address}/", timeout=10)
        answer = await trio.to_thread.run_sync(opened)
        answer.close()
    for wrong in ({"metricsExporterType": "LOG"}, {"metricsPromExporterPort": "70000"}):
        with pytest.raises(InvalidArgument):
            NameServerConfig().with_settings(wrong)
