"""The broker's page for Prometheus: read by Prometheus' own parser, compared with RocketMQ 5.4.0's, and attacked."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import generate_latest

from pyrmq_core import ConsumeFromWhere, InvalidArgument, Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, PopConsumer, Producer, PullConsumer, PushConsumer
from pyrmq_core.network.byte_server import BytePort
from pyrmq_core.otel import Instrumentation
from pyrmq_core.servers.broker.settings.broker_config import BrokerConfig
from pyrmq_core.servers.exporter import server as exporter
from pyrmq_core.servers.exporter.server import MAX_CONNECTIONS
from tests.otel.pages import Page, free_port, page_with, parsed, text_of
from tests.otel.test_broker_names import recorded

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def nameserver_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def cluster(port: int, nameserver_port: int) -> Iterator[EmbeddedCluster]:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    of_nameserver = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(nameserver_port)}
    options: dict[str, Any] = {"topics": {"orders": 2}, "settings": settings, "nameserver_settings": of_nameserver}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exporter, "PATIENCE_SECONDS", 0.3)
        with EmbeddedCluster(**options) as cluster:
            yield cluster


def test_figures_of_topics_groups_and_connections(cluster: EmbeddedCluster, port: int) -> None:
    with Producer("g", nameserver=cluster.nameserver) as producer:
        for _ in range(20):
            producer.send(Message("orders", b"x" * 100), queue=producer.message_queues("orders")[0])
        with PullConsumer("late", nameserver=cluster.nameserver) as late:
            late.commit(late.message_queues("orders")[0], 5)
        with PushConsumer(
            "readers", nameserver=cluster.nameserver, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            consumer.subscribe("orders")
            got: list[int] = []
            run = threading.Thread(target=consumer.run, args=(lambda messages: got.append(len(messages)),))
            run.start()
            page_with(port, "rocketmq_messages_out_total", 20, topic="orders", consumer_group="readers")
            page = page_with(port, "rocketmq_consumer_connections", 1, consumer_group="readers", consume_mode="push")
            consumer.stop()
            run.join(30)
    for name in ("rocketmq_consumer_connections", "rocketmq_producer_connections"):
        assert {frozenset(labels) for labels, _ in page[name]} == {frozenset(recorded()[name])}
    common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
    assert ({**common, "topic": "orders", "is_system": "false"}, 20.0) in page["rocketmq_messages_in_total"]
    lag = {own["consumer_group"]: value for own, value in page["rocketmq_consumer_lag_messages"]}
    assert lag["late"] == 15
    ages = {own["consumer_group"]: value for own, value in page["rocketmq_consumer_lag_latency_milliseconds"]}
    assert 0 < ages["late"] < 60_000
    (producers,) = page["rocketmq_producer_connections"]
    assert (producers[0]["language"], producers[0]["version"]) == ("python", "v5_3_3")


def test_figures_of_pops(cluster: EmbeddedCluster, port: int) -> None:
    """Two messages are popped, and one of them is acknowledged. The other one becomes visible again."""
    with Admin(nameserver=cluster.nameserver) as admin:
        admin.create_topic("jobs", queues=1)
    with Producer("g", nameserver=cluster.nameserver) as producer:
        producer.send(Message("jobs", b"x"))
        producer.send(Message("jobs", b"y"))
    own = {"consumer_group": "workers", "topic": "jobs"}
    with PopConsumer("workers", nameserver=cluster.nameserver) as consumer:
        (acknowledged,) = consumer.receive("jobs", 1, invisible=600)
        acknowledged.ack()
        assert len(consumer.receive("jobs", 1, invisible=1)) == 1
        page_with(port, "rocketmq_pop_revive_retry_messages_total", 1, **own, put_status="PUT_OK")
    # What became visible again is acknowledged, too, and its checkpoint is over.
    page_with(port, "rocketmq_pop_revive_out_message_total", 1, **own, revive_message_type="ACK")
    page_with(port, "rocketmq_pop_revive_out_message_total", 1, **own, revive_message_type="CK")
    for kind in ("CK", "ACK"):
        page_with(port, "rocketmq_pop_revive_in_message_total", 2, **own, revive_message_type=kind, put_status="PUT_OK")
    page = page_with(port, "rocketmq_pop_revive_lag_milliseconds", 0)
    assert [value for _, value in page["rocketmq_pop_revive_latency_milliseconds"]] == [0] * 8


def test_a_hostile_name_stays_in_its_label(cluster: EmbeddedCluster, port: int) -> None:
    """Offsets may be committed for any group's name; the page stays one that can be read."""
    with PullConsumer("%a-b|c", nameserver=cluster.nameserver) as consumer:
        consumer.commit(consumer.message_queues("orders")[0], 1)
    page_with(port, "rocketmq_consumer_lag_messages", 19, consumer_group="%a-b|c")


@pytest.mark.parametrize(("path", "method", "status"), [("/nothing", "GET", 404), ("/metrics", "POST", 405)])
def test_other_requests_are_refused(cluster: EmbeddedCluster, port: int, path: str, method: str, status: int) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert refused.value.code == status
    refused.value.close()


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("server", ["broker", "nameserver"])
@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 10_000, bytes(range(256)) * 40, GET * 2_000],
    ids=["silent", "long", "garbage", "slow reader"],
)
def test_strangers_do_not_keep_prometheus_out(
    cluster: EmbeddedCluster, port: int, nameserver_port: int, server: str, sent: bytes
) -> None:
    """More connections than the port holds, silent or wrong, or that read nothing; the server itself goes on too."""
    asked, metric = {
        "broker": (port, "rocketmq_topic_number"),
        "nameserver": (nameserver_port, "rocketmq_nameserver_topic_number"),
    }[server]
    strangers = []
    try:
        for _ in range(2 * MAX_CONNECTIONS):
            stranger = socket.socket()
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.settimeout(0.005)
            strangers.append(stranger)
            try:
                stranger.connect(("127.0.0.1", asked))
                stranger.sendall(sent)
            except OSError:
                continue
        deadline = time.monotonic() + 60
        while True:
            try:
                assert metric in text_of(asked)
                break
            except OSError:
                assert time.monotonic() < deadline, "the page cannot be had"
                time.sleep(0.2)
        with Producer("g", nameserver=cluster.nameserver) as producer:
            producer.send(Message("others", b"x"))
    finally:
        for stranger in strangers:
            stranger.close()


async def test_a_connection_that_its_peer_closed_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "PATIENCE_SECONDS", 3600.0)
    async with trio.open_nursery() as nursery:
        bound: BytePort = await nursery.start(
            partial(exporter.serve_metrics, lambda: iter(()), "127.0.0.1", 0, common={})
        )
        for text in (GET, b"", GET[:10]):
            for _ in range(MAX_CONNECTIONS):
                async with await trio.open_tcp_stream(bound.host, bound.port) as stream:
                    await stream.send_all(text)
                    if text == GET:
                        assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200 ")
        async with await trio.open_tcp_stream(bound.host, bound.port) as stream:
            await stream.send_all(GET)
            assert (await stream.receive_some(100)).startswith(b"HTTP/1.1 200 ")
        nursery.cancel_scope.cancel()


def test_it_is_off_by_default_and_wrong_settings_are_refused() -> None:
    assert not BrokerConfig().exports_metrics
    assert BrokerConfig().metrics_prom_exporter_host == "127.0.0.1"
    for wrong in ({"metricsExporterType": "OTLP_GRPC"}, {"metricsPromExporterPort": "70000"}):
        with pytest.raises(InvalidArgument):
            BrokerConfig().with_settings(wrong)


# --- The board


def queries() -> list[str]:
    board = json.loads((ROOT / "examples" / "grafana_board.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def faults(query: str, page: Page) -> list[str]:
    """Returns the metrics and the labels of a query that the page does not have."""
    problems = []
    grouped = {name for names in re.findall(r"by \(([^)]*)\)", query) for name in names.replace(" ", "").split(",")}
    for metric, _, matched in re.findall(
        r"\b((?:rocketmq|messaging)_\w+)(\{([^}]*)\})?", re.sub(r"by \([^)]*\)", "", query)
    ):
        if metric not in page:
            problems.append(metric)
            continue
        labels = {name for own, _ in page[metric] for name in own}
        used = grouped | set(re.findall(r"(\w+)=", matched))
        problems += [f"{metric}: {name}" for name in sorted(used - labels)]
    return problems


def test_the_boards_queries_find_what_is_exported(cluster: EmbeddedCluster, port: int, nameserver_port: int) -> None:
    otel = Instrumentation(meter_provider=MeterProvider([PrometheusMetricReader()]))
    with Producer("g", nameserver=cluster.nameserver, hooks=[otel]) as producer:
        producer.send(Message("orders", b"x"))
        stop_after: list[object] = []
        with PushConsumer(
            "board", nameserver=cluster.nameserver, hooks=[otel], consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            consumer.subscribe("orders")
            run = threading.Thread(target=consumer.run, args=(stop_after.append,))
            run.start()
            page_with(port, "rocketmq_consumer_connections", 1, consumer_group="board")
            page = page_with(port, "rocketmq_consumer_lag_messages", 0, consumer_group="board")
            for name, samples in (parsed(text_of(nameserver_port)) | parsed(generate_latest().decode())).items():
                page[name] = page.get(name, []) + samples
            consumer.stop()
            run.join(30)
    assert len(queries()) >= 12
    # Without a failure no sample has an error.
    assert [fault for query in queries() for fault in faults(query, page) if not fault.endswith(": error_type")] == []
    assert faults('sum by (x) (rocketmq_topic_number{y="1"})', page) == [
        "rocketmq_topic_number: x",
        "rocketmq_topic_number: y",
    ]
    assert faults("rate(rocketmq_unknown_total[1m])", page) == ["rocketmq_unknown_total"]
