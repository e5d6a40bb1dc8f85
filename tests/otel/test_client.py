"""Metrics and traces of clients, as OpenTelemetry's SDK sees them in memory; a trace goes on in the next program."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pyrmq_core import (
    ConsumeFromWhere,
    Message,
    MessageExt,
    SendFailed,
    aio,
)
from pyrmq_core.blocking import Client, EmbeddedCluster, LitePullConsumer, Producer, PullConsumer, PushConsumer
from pyrmq_core.otel import Instrumentation
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import refusal

Messages = Sequence[MessageExt]
FIRST = ConsumeFromWhere.FIRST_OFFSET


class Seen:
    """An instrumentation whose spans and metrics are kept in memory."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.tracer = provider.get_tracer("test")
        self.hook = Instrumentation(tracer_provider=provider, meter_provider=MeterProvider([self._reader]))

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def points(self, metric: str) -> list[Any]:
        """Returns the points of a metric; none of one that nothing was recorded for."""
        data: Any = self._reader.get_metrics_data()
        scopes = [] if data is None else [scope for part in data.resource_metrics for scope in part.scope_metrics]
        return [
            point
            for scope in scopes
            for kept in scope.metrics
            if kept.name == metric
            for point in kept.data.data_points
        ]


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    topics = {"orders": 1, "batches": 1, "polled": 1, "refused": 1, "loops": 1}
    with EmbeddedCluster(topics=topics, settings={"messageDelayLevel": "1s"}) as cluster:  # retries come after 1 s
        yield cluster


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.context
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def consumed(cluster: EmbeddedCluster, topic: str, seen: Seen, handler: Any, count: int = 1) -> None:
    """Runs a handler until it has so many messages; it may fail the first time."""
    done = 0
    with PushConsumer(
        f"readers_{topic}",
        nameserver=cluster.nameserver,
        consume_from_where=FIRST,
        hooks=[seen.hook],
        consume_message_batch_max_size=16,
    ) as consumer:
        consumer.subscribe(topic)

        def handled(messages: Messages) -> None:
            nonlocal done
            handler(messages)
            done += len(messages)
            if done >= count:
                consumer.stop()

        consumer.run(handled)


def test_a_trace_goes_on_from_the_caller_to_the_handler_and_to_what_it_sends(
    cluster: EmbeddedCluster, seen: Seen
) -> None:
    with Producer("g", nameserver=cluster.nameserver, hooks=[seen.hook]) as producer:
        with seen.tracer.start_as_current_span("request") as request:
            sent = producer.send(Message("orders", b"x", tags="paid", keys=["a", "b"]))

        def handler(messages: Messages) -> None:
            assert messages[0].properties["traceparent"].split("-")[1] == f"{request.get_span_context().trace_id:032x}"
            producer.send(Message("batches", b"from the handler"))

        consumed(cluster, "orders", seen, handler)
    (create,), (send,), (process,) = (
        seen.spans("create orders"),
        seen.spans("send orders"),
        seen.spans("process orders"),
    )
    (followed,) = seen.spans("create batches")
    assert parent_of(create) == (request.get_span_context().trace_id, request.get_span_context().span_id)
    assert parent_of(send) == parent_of(process) == ids(create)
    assert parent_of(followed) == ids(process)
    assert (create.kind, send.kind, process.kind) == (
        trace.SpanKind.PRODUCER,
        trace.SpanKind.CLIENT,
        trace.SpanKind.CONSUMER,
    )
    assert send.attributes is not None
    assert process.attributes is not None
    host, port = cluster.brokers["broker-a"].split(":")
    assert dict(send.attributes) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "broker-a:0",
        "messaging.message.id": sent.msg_id,
        "messaging.message.body.size": 1,
        "messaging.rocketmq.client_group": "g",
        "server.address": host,
        "server.port": int(port),
    }
    assert process.attributes["messaging.consumer.group.name"] == "readers_orders"
    assert process.attributes["messaging.rocketmq.message.keys"] == ("a", "b")
    assert process.attributes["messaging.rocketmq.message.tag"] == "paid"


def test_a_batch_is_linked_to_the_spans_of_its_messages(cluster: EmbeddedCluster, seen: Seen) -> None:
    with Producer("g", nameserver=cluster.nameserver, hooks=[seen.hook]) as producer:
        producer.send_batch([Message("batches", b"%d" % number) for number in range(3)])
        producer.send_batch_soon([Message("batches", b"soon")] * 2).result(60)
    first, second = seen.spans("send batches")
    created = [ids(span) for span in seen.spans("create batches")]
    assert len(created) == 5, "each message has one span of its own"
    linked = [(link.context.trace_id, link.context.span_id) for span in (first, second) for link in span.links]
    assert linked == created
    assert first.attributes is not None
    assert first.attributes["messaging.batch.message_count"] == 3


def test_a_refused_send_is_reported_by_its_code(cluster: EmbeddedCluster, seen: Seen) -> None:
    async def refuse(*_: Any) -> Any:
        return refusal(13, "no")

    with (
        Client(nameserver=cluster.nameserver, rpc_hooks=[seen.hook]) as client,
        Producer("g", client=client, hooks=[seen.hook]) as producer,
    ):
        cluster.control(RequestCode.SEND_MESSAGE_V2, refuse, times=1)
        with pytest.raises(SendFailed):
            producer.send(Message("refused", b"x"))
        producer.send(Message("refused", b"y"))
    failed, stored = seen.points("messaging.client.operation.duration")
    assert (failed.attributes["error.type"], failed.count) == ("MESSAGE_ILLEGAL", 1)
    assert ("error.type" in stored.attributes, stored.count) == (False, 1)
    assert {
        point.attributes.get("error.type"): point.value for point in seen.points("messaging.client.sent.messages")
    } == {
        "MESSAGE_ILLEGAL": 1,
        None: 1,
    }
    assert [point.value for point in seen.points("pyrmq.client.send.in_flight")] == [0]
    answers = {
        (point.attributes["pyrmq.request"], point.attributes["pyrmq.code"]): point.value
        for point in seen.points("pyrmq.client.responses")
    }
    assert answers["SEND_MESSAGE_V2", "MESSAGE_ILLEGAL"] == answers["SEND_MESSAGE_V2", "SUCCESS"] == 1
    (span, _) = seen.spans("send refused")
    assert not span.status.is_ok


def test_retries_are_counted(cluster: EmbeddedCluster, seen: Seen) -> None:
    async def busy(*_: Any) -> Any:
        return refusal(14, "not now")

    cluster.control(RequestCode.SEND_MESSAGE_V2, busy, times=1)
    with Producer("g", nameserver=cluster.nameserver, hooks=[seen.hook]) as producer:
        producer.send(Message("refused", b"x"))
    assert [point.value for point in seen.points("pyrmq.client.send.retries")] == [1]


def test_handlers_polls_and_pulls_are_measured(cluster: EmbeddedCluster, seen: Seen) -> None:
    with Producer("g", nameserver=cluster.nameserver) as producer:
        for _ in range(40):
            producer.send(Message("polled", b"x" * 100))
    tries = 0

    def fails_once(messages: Messages) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ZeroDivisionError

    with Client(nameserver=cluster.nameserver, rpc_hooks=[seen.hook]) as client:
        with PullConsumer("lag", client=client) as reader:
            (queue,) = reader.message_queues("polled")
            reader.pull(queue, 0, max_messages=8)
        with LitePullConsumer("polls", client=client, hooks=[seen.hook], consume_from_where=FIRST) as poller:
            poller.assign([queue])
            assert poller.poll()
            poller.poll(0.1)
    (lag,) = [
        point
        for point in seen.points("pyrmq.client.consumer.lag")
        if point.attributes["messaging.consumer.group.name"] == "lag"
    ]
    assert (lag.value, lag.attributes["messaging.destination.partition.id"]) == (32, "0")
    assert seen.points("pyrmq.client.pull.bytes")[0].sum > 8 * 100
    assert sum(point.value for point in seen.points("messaging.client.consumed.messages")) == 40
    consumed(cluster, "polled", seen, fails_once, count=40)
    by_error = {
        point.attributes.get("error.type"): point.count
        for point in seen.points("messaging.process.duration")
        if point.attributes["messaging.consumer.group.name"] == "readers_polled"
    }
    assert by_error["ZeroDivisionError"] == 1
    assert by_error[None] >= 1
    failed = [span for span in seen.spans("process polled") if not span.status.is_ok and span.events]
    assert failed[0].events[0].name == "exception"


def test_a_cancelled_send_is_not_in_flight_for_ever(cluster: EmbeddedCluster, seen: Seen) -> None:
    arrived = threading.Event()

    async def silent(*_: Any) -> None:
        arrived.set()

    async def main() -> None:
        async with aio.Producer("g", nameserver=cluster.nameserver, hooks=[seen.hook]) as producer:
            message = Message("refused", b"x")
            send = asyncio.create_task(producer.send(message, select=lambda queues, _: queues[0], timeout=60))
            assert await asyncio.to_thread(arrived.wait, 60)
            send.cancel()
            with pytest.raises(asyncio.CancelledError):
                await send

    control = cluster.control(RequestCode.SEND_MESSAGE_V2, silent)
    asyncio.run(main())
    control.remove()
    assert [point.value for point in seen.points("pyrmq.client.send.in_flight")] == [0]


def test_an_asyncio_handler_runs_in_its_span(cluster: EmbeddedCluster, seen: Seen) -> None:
    async def main() -> None:
        options: dict[str, Any] = {"nameserver": cluster.nameserver, "hooks": [seen.hook]}
        async with (
            aio.Producer("g", **options) as producer,
            aio.PushConsumer("loops", **options, consume_from_where=FIRST) as consumer,
        ):
            await consumer.subscribe("loops")
            with seen.tracer.start_as_current_span("request"):
                await producer.send(Message("loops", b"x"))
                await producer.send_batch([Message("batches", b"y")])

            async def handler(messages: Messages) -> None:
                with seen.tracer.start_as_current_span("work"):
                    await asyncio.sleep(0)
                await consumer.stop()

            await consumer.run(handler)

    asyncio.run(main())
    (request,), (process,), (work,) = seen.spans("request"), seen.spans("process loops"), seen.spans("work")
    assert parent_of(work) == ids(process)
    assert ids(process)[0] == ids(request)[0]
    assert parent_of(seen.spans("create batches")[0]) == ids(request)


@pytest.mark.parametrize("traceparent", ["", "00-nonsense", "00-" + "f" * 32 + "-" + "0" * 16 + "-01", "x" * 1000])
def test_a_wrong_context_in_a_message_begins_a_trace_of_its_own(
    cluster: EmbeddedCluster, seen: Seen, traceparent: str
) -> None:
    topic = f"wrong{len(traceparent)}"
    with Producer("g", nameserver=cluster.nameserver) as producer:
        producer.send(Message(topic, b"x", properties={"traceparent": traceparent or "-"}))
    threads: set[int] = set()
    consumed(cluster, topic, seen, lambda _: threads.add(threading.get_ident()))
    (process,) = seen.spans(f"process {topic}")
    assert process.parent is None
    assert threads


def test_halves_can_be_left_out(cluster: EmbeddedCluster) -> None:
    quiet = Instrumentation(metrics=False, traces=False)
    message = Message("orders", b"x")
    assert quiet.message_created(message) is None
    with Producer("g", nameserver=cluster.nameserver, hooks=[quiet]) as producer:
        producer.send(message)


def test_without_the_library_the_extra_is_named_and_nothing_is_loaded() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
import pyrmq_core
pyrmq_core.Producer, pyrmq_core.PushConsumer
try:
    from pyrmq_core.otel import Instrumentation
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip().endswith('pip install "pyrmq-spark[otel]"')
    assert done.stdout.startswith("MissingLibrary pyrmq_core.otel needs opentelemetry")
    loaded = "import sys, pyrmq_core; pyrmq_core.Producer; print('opentelemetry' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True, timeout=30).strip() == "False"
