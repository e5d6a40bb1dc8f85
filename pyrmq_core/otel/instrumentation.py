"""`Instrumentation`: a hook for producers, consumers and clients that reports metrics and traces."""

from __future__ import annotations

from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.client.producer.send.hooks import SendContext
from pyrmq_core.model import Message
from pyrmq_core.otel.api import metrics, trace
from pyrmq_core.otel.client_metrics import ClientMetrics
from pyrmq_core.otel.spans import Spans
from pyrmq_core.protocol.framing.command import Command

NAME = "pyrmq_core"


class Instrumentation:
    """A hook that reports metrics and traces by OpenTelemetry's conventions for messaging.

    Pass it to `Producer(..., hooks=[otel])`, `PushConsumer(..., hooks=[otel])`, `LitePullConsumer(..., hooks=[otel])`
    and `Client(..., rpc_hooks=[otel])`. A process needs only one. Without arguments it uses OpenTelemetry's global
    providers.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        metrics: bool = True,
        traces: bool = True,
    ) -> None:
        self._metrics = ClientMetrics(_meter(meter_provider)) if metrics else None
        self._spans = Spans(trace.get_tracer(NAME, tracer_provider=tracer_provider)) if traces else None

    def message_created(self, message: Message) -> Message | None:
        """Returns the message with its trace context as property `traceparent`, or None if tracing is switched off."""
        return None if self._spans is None else self._spans.created(message)

    def send_message_before(self, context: SendContext) -> None:
        """Counts one try to send a message as in flight."""
        if self._metrics is not None:
            self._metrics.send_began(context)

    def send_message_after(self, context: SendContext) -> None:
        """Records the metrics and the span of one try of a send."""
        if self._metrics is not None:
            self._metrics.send_ended(context)
        if self._spans is not None:
            self._spans.sent(context)

    def consume_message_before(self, context: ConsumeContext) -> None:
        """Begins the span of a handler's call. It is the current span while the handler runs."""
        if self._spans is not None:
            self._spans.process_began(context)

    def consume_message_after(self, context: ConsumeContext) -> None:
        """Records the metrics of a handler's call and ends its span."""
        try:
            if self._metrics is not None:
                self._metrics.processed(context)
        finally:
            if self._spans is not None:
                self._spans.process_ended(context)

    def do_before_request(self, address: str, request: Command) -> Command | None:
        """Leaves the request unchanged, by returning None."""
        return None

    def do_after_response(self, address: str, request: Command, answer: Command) -> None:
        """Counts the answer by its code. For a pull, also records the body's size and the queue's lag."""
        if self._metrics is not None:
            self._metrics.answered(address, request, answer)


def _meter(provider: metrics.MeterProvider | None) -> metrics.Meter:
    return metrics.get_meter(NAME, meter_provider=provider)
