"""The recorded names of a 5.4.0 broker's metrics, compared with a real one."""

from __future__ import annotations

import pytest
import trio

from tests.otel.pages import parsed, text_of
from tests.otel.test_broker_names import recorded
from tests.support.apache import boot_cluster, free_port
from tests.support.maven import ApacheUnavailable
from tests.support.metric_jobs import exercise, names_on

# What OpenTelemetry's exporter adds to all samples, and a metric of its own.
OF_EXPORTER = "otel_scope_name"
TARGET = "target_info"
# Those of clients that have gone when the page is read.
GONE = {"rocketmq_consumer_connections", "rocketmq_producer_connections"}
COLLECT_SECONDS = 60  # the real one observes pop's and groups' figures at intervals


@pytest.mark.soak
async def test_the_recorded_names_are_those_of_the_real_broker() -> None:
    port = free_port((0,))
    settings = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": str(port),
        "metricsPromExporterHost": "127.0.0.1",
        "timerFlushIntervalMs": "1000",
    }
    booted = boot_cluster("5.4.0", ("broker-a",), broker_settings=settings)
    try:
        cluster = await trio.to_thread.run_sync(booted.__enter__)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    try:
        await exercise(cluster.nameserver.address)
        names: dict[str, set[str]] = {}
        with trio.move_on_after(COLLECT_SECONDS):
            while recorded().keys() - GONE - names.keys():
                text = await trio.to_thread.run_sync(text_of, port)
                for name, labels in names_on(text).items():
                    names.setdefault(name, set()).update(labels - {OF_EXPORTER})
                await trio.sleep(1)
    finally:
        await trio.to_thread.run_sync(lambda: booted.__exit__(None, None, None))
    halves = parsed(text)["rocketmq_half_messages"]
    assert [(own["topic"], number) for own, number in halves] == [("orders", 1)], "of three, one has no end"
    names.pop(TARGET, None)
    expected = recorded()
    assert {name: labels for name, labels in names.items() if name not in GONE} == {
        name: labels for name, labels in expected.items() if name not in GONE
    }
