"""`rocketmq_timing_messages`: our broker's page and 5.4.0's show the same after the same timer messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from pyrmq_core import Message
from pyrmq_core.blocking import Admin, EmbeddedCluster, Producer
from tests.otel.pages import parsed, text_of
from tests.support.apache import boot_cluster, free_port
from tests.support.maven import ApacheUnavailable
from tests.support.terminal import soon

METRIC = "rocketmq_timing_messages"
HOUR = timedelta(hours=1)
SETTINGS = {
    "metricsExporterType": "PROM",
    "metricsPromExporterHost": "127.0.0.1",
    "recallMessageEnable": "true",
    "timerFlushIntervalMs": "500",
}
LABELS = {
    "cluster": "DefaultCluster",
    "node_type": "broker",
    "node_id": "broker-a",
    "storage_type": "local",
    "storage_medium": "disk",
}
OF_EXPORTER = "otel_scope_name"


@dataclass(frozen=True)
class Measured:
    """A broker with a page of metrics."""

    nameserver: str
    port: int

    def timing(self) -> dict[str, float]:
        """Returns the metric by topic, and checks its other labels."""
        by_topic = {}
        for labels, number in parsed(text_of(self.port)).get(METRIC, []):
            own = {name: value for name, value in labels.items() if name not in ("topic", OF_EXPORTER)}
            assert own == LABELS
            by_topic[labels["topic"]] = number
        return by_topic


@pytest.fixture(params=["ours", "5.4.0"])
def measured(request: pytest.FixtureRequest) -> Iterator[Measured]:
    port = free_port((0,))
    settings = {**SETTINGS, "metricsPromExporterPort": str(port)}
    if request.param == "ours":
        with EmbeddedCluster(brokers=1, settings=settings) as cluster:
            yield Measured(cluster.nameserver, port)
        return
    try:
        with boot_cluster("5.4.0", ("broker-a",), broker_settings=settings) as apache:
            yield Measured(apache.nameserver.address, port)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))


def test_waiting_messages_are_counted_by_their_topic(measured: Measured) -> None:
    with (
        Admin(nameserver=measured.nameserver, timeout=20) as admin,
        Producer("P", nameserver=measured.nameserver, send_timeout=20) as producer,
    ):
        for topic in ("orders", "prices", "near"):
            admin.create_topic(topic, queues=1)
        sent = [producer.send(Message("orders", b"x", delay=HOUR)) for _ in range(3)]
        for _ in range(2):
            producer.send(Message("prices", b"x", delay=HOUR))
        producer.send(Message("near", b"x", delay=timedelta(seconds=3)))
        soon(lambda: measured.timing() == {"orders": 3, "prices": 2, "near": 1})
        soon(lambda: measured.timing() == {"orders": 3, "prices": 2, "near": 0})  # delivered
        assert sent[0].recall_handle is not None
        producer.recall("orders", sent[0].recall_handle)
        soon(lambda: measured.timing() == {"orders": 2, "prices": 2, "near": 0})
