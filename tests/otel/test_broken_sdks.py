"""An SDK of OpenTelemetry that raises: sends, handlers and the spans of other messages go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import copy_context
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import Meter, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from pyrmq_core import ConsumeContext, ConsumeFromWhere, ConsumeReturnType, Message, MessageExt, MessageQueue
from pyrmq_core.blocking import Client, EmbeddedCluster, Producer, PushConsumer
from pyrmq_core.client.consumer.consume.hooks import ConsumerHooks
from pyrmq_core.otel import Instrumentation


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


class Broken(SpanProcessor, SpanExporter, Sampler):
    """A part of an SDK that raises wherever it is called."""

    def _raise(self, *_: object, **__: object) -> Any:
        raise ZeroDivisionError("broken")

    on_start = on_end = export = should_sample = _raise

    def shutdown(self) -> None: ...

    def get_description(self) -> str:
        return "broken"


class BrokenAtTheEnd(SpanProcessor):
    """A processor that raises for each span that ends."""

    def on_end(self, span: ReadableSpan) -> None:
        raise ZeroDivisionError("broken")


class BrokenMeter(NoOpMeter):
    """A meter whose instruments raise."""

    def create_counter(self, name: str, *_: Any, **__: Any) -> Any:
        class Instrument:
            add = record = Broken()._raise

        return Instrument()

    create_up_down_counter = create_histogram = create_counter


class BrokenMeters(NoOpMeterProvider):
    def get_meter(self, name: str, *_: Any, **__: Any) -> Meter:
        return BrokenMeter(name)


def broken_traces(part: str) -> TracerProvider:
    provider = TracerProvider(sampler=Broken()) if part == "sampler" else TracerProvider()
    if part == "processor":
        provider.add_span_processor(Broken())
    elif part == "exporter":
        provider.add_span_processor(SimpleSpanProcessor(Broken()))
    return provider


@pytest.mark.parametrize("part", ["sampler", "processor", "exporter", "instruments"])
def test_an_sdk_that_raises_harms_no_send_and_no_handler(cluster: EmbeddedCluster, part: str) -> None:
    meters = BrokenMeters() if part == "instruments" else MeterProvider()
    hook = Instrumentation(tracer_provider=broken_traces(part), meter_provider=meters)
    topic, group = f"broken_{part}", f"broken_readers_{part}"
    with Client(nameserver=cluster.nameserver, rpc_hooks=[hook]) as client:
        with Producer("g", client=client, hooks=[hook]) as producer:
            assert producer.send(Message(topic, b"0")).queue_offset == 0
            producer.send_soon(Message(topic, b"1"), queue=producer.message_queues(topic)[0]).result(60)
            producer.send_batch([Message(topic, b"2"), Message(topic, b"3")])
        bodies: list[bytes] = []
        with PushConsumer(
            group, client=client, hooks=[hook], consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            consumer.subscribe(topic)

            def handler(messages: Sequence[MessageExt]) -> None:
                bodies.extend(message.body for message in messages)
                if len(bodies) >= 4:
                    consumer.stop()

            consumer.run(handler)
    assert sorted(bodies) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("part", ["processor", "instruments"])
def test_an_sdk_that_raises_leaves_no_span_current(part: str) -> None:
    """The handler's thread goes on with other messages, whose spans must not become children of this one."""
    meters = BrokenMeters() if part == "instruments" else MeterProvider()
    provider = TracerProvider()
    if part == "processor":
        provider.add_span_processor(BrokenAtTheEnd())
    hooks = ConsumerHooks([Instrumentation(tracer_provider=provider, meter_provider=meters)])
    message = MessageExt("orders", "broker-a", 0, 0, b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, 0, 0, "", "")
    call = ConsumeContext("readers", None, (message,), MessageQueue("orders", "broker-a", 0))

    def handled() -> None:
        hooks.before(call)
        assert trace.get_current_span().get_span_context().is_valid
        hooks.after(call.ended(ConsumeReturnType.SUCCESS, 0.1))
        assert trace.get_current_span() is trace.INVALID_SPAN

    copy_context().run(handled)
