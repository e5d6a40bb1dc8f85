"""The spans of messages, by OpenTelemetry's conventions: "create", "send" and "process".

Each try of a send is a "send" span, and each call of a handler a "process" span. Both belong to the message's "create"
span, whose context is in the message's properties (W3C's `traceparent` and `tracestate`), as in the Java
instrumentation. So Java and Python consumers continue the same trace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.client.producer.send.hooks import SendContext
from pyrmq_core.model import Message, MessageExt
from pyrmq_core.otel.api import context as otel_context
from pyrmq_core.otel.api import propagate, trace
from pyrmq_core.otel.attributes import (
    BATCH_COUNT,
    BODY_SIZE,
    DESTINATION,
    ERROR,
    KEYS,
    MESSAGE_ID,
    NAMESPACE,
    OPERATION,
    OPERATION_TYPE,
    PARTITION,
    SYSTEM,
    TAG,
    of_process,
    of_send,
)
from pyrmq_core.protocol.messages.batch import iterate_batch_body
from pyrmq_core.protocol.messages.properties import decode_java_utf8, decode_properties

# The most messages of one request or call that a span links to. OpenTelemetry's SDK keeps 128 links by default.
MOST_LINKS: Final = 128
# The key under which the properties of a hook's context have the span of a call.
OPEN_SPAN: Final = "pyrmq_core.otel.span"


class _Open(NamedTuple):
    span: trace.Span
    within: otel_context.Context
    before: otel_context.Context


class Spans:
    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def created(self, message: Message) -> Message:
        """Returns the message with the context of its own "create" span, which is a child of the caller's span."""
        with self._tracer.start_span(
            f"create {message.topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                SYSTEM: "rocketmq",
                OPERATION: "create",
                OPERATION_TYPE: "create",
                DESTINATION: message.topic,
                BODY_SIZE: len(message.body),
                **({TAG: message.tags} if message.tags else {}),
                **({KEYS: _words(message.keys)} if message.keys else {}),
            },
        ) as span:
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
        return replace(message, properties={**message.properties, **carrier}) if carrier else message

    def sent(self, context: SendContext) -> None:
        payload, ended = context.payload, time.time_ns()
        parent, links = otel_context.Context(), list[trace.Link]()
        if payload.batch:
            links = _links(_properties_in(payload.body))
        else:
            parent = propagate.extract(context.properties, otel_context.Context())
        span = self._tracer.start_span(
            f"send {context.topic}",
            context=parent,
            kind=trace.SpanKind.CLIENT,
            links=links,
            start_time=ended - int(context.seconds * 1e9),
            attributes={
                **of_send(context),
                OPERATION_TYPE: "send",
                PARTITION: f"{context.queue.broker_name}:{context.queue.queue_id}",
                BODY_SIZE: len(payload.body),
                "messaging.rocketmq.client_group": context.producer_group,
                **({BATCH_COUNT: payload.count} if payload.batch else {}),
                **({NAMESPACE: context.namespace} if context.namespace else {}),
                **({MESSAGE_ID: context.results[0].msg_id} if context.results and not payload.batch else {}),
                **({"messaging.rocketmq.message.attempt": context.attempt} if context.attempt > 1 else {}),
            },
        )
        if context.error is not None:
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(context.error)))
        span.end(ended)

    def process_began(self, context: ConsumeContext) -> None:
        """Begins the span of a handler's call, and makes it current in the handler's task or thread."""
        messages, parent, links = context.messages, otel_context.Context(), list[trace.Link]()
        if len(messages) == 1:
            parent = propagate.extract(messages[0].properties, otel_context.Context())
        else:
            links = _links([message.properties for message in messages])
        span = self._tracer.start_span(
            f"process {context.queue.topic}",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes={
                **of_process(context),
                OPERATION_TYPE: "process",
                PARTITION: f"{context.queue.broker_name}:{context.queue.queue_id}",
                **({NAMESPACE: context.namespace} if context.namespace else {}),
                **({BATCH_COUNT: len(messages)} if len(messages) > 1 else _of_message(messages[0])),
            },
        )
        before = otel_context.get_current()
        within = trace.set_span_in_context(span, before)
        otel_context.attach(within)
        context.properties[OPEN_SPAN] = _Open(span, within, before)

    def process_ended(self, context: ConsumeContext) -> None:
        begun = context.properties.pop(OPEN_SPAN, None)
        if not isinstance(begun, _Open):
            return
        span, within, before = begun
        try:
            self._end(span, context)
        finally:  # even if an exporter raises, the span is not left current for the thread's next work
            if otel_context.get_current() is within:  # false if another task ends the span of a poll
                otel_context.attach(before)

    def _end(self, span: trace.Span, context: ConsumeContext) -> None:
        attributes = of_process(context)
        if ERROR in attributes:
            span.set_attribute(ERROR, attributes[ERROR])
            span.set_status(trace.Status(trace.StatusCode.ERROR, str(context.error or attributes[ERROR])))
            if context.error is not None:
                span.record_exception(context.error)
        span.end()


def _of_message(message: MessageExt) -> dict[str, str | int | list[str]]:
    return {
        MESSAGE_ID: message.msg_id,
        BODY_SIZE: len(message.body),
        **({TAG: message.tags} if message.tags else {}),
        **({KEYS: _words(message.keys)} if message.keys else {}),
    }


def _words(keys: object) -> list[str]:
    return (
        keys.split() if isinstance(keys, str) else [str(key) for key in keys] if isinstance(keys, list | tuple) else []
    )


def _properties_in(body: bytes | memoryview) -> list[dict[str, str]]:
    properties: list[dict[str, str]] = []
    for item in iterate_batch_body(body):
        if len(properties) == MOST_LINKS:
            break
        properties.append(decode_properties(decode_java_utf8(item.properties)))
    return properties


def _links(properties: Sequence[Mapping[str, str]]) -> list[trace.Link]:
    spans = (
        trace.get_current_span(propagate.extract(carrier, otel_context.Context()))
        for carrier in properties[:MOST_LINKS]
    )
    return [trace.Link(span.get_span_context()) for span in spans if span.get_span_context().is_valid]
