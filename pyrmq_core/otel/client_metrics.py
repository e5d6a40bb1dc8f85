"""The metrics of a client: OpenTelemetry's names for messaging, and the project's own where it has none.

messaging.client.operation.duration    histogram, s     each try of a send, and its failure by code
messaging.client.sent.messages         counter          messages of tries, with the error of failed tries
messaging.client.consumed.messages     counter          messages passed to handlers or returned by polls
messaging.process.duration             histogram, s     each call of a handler
pyrmq.client.send.in_flight            up-down counter  tries that have not ended
pyrmq.client.send.retries              counter          tries after the first of a send
pyrmq.client.responses                 counter          answers by request and code (`rpc_hooks`)
pyrmq.client.pull.bytes                histogram, By    sizes of pulls that found messages (`rpc_hooks`)
pyrmq.client.consumer.lag              gauge            messages of a queue behind this process's last pull of it,
                                                        which may be old (`rpc_hooks`)

Metrics with `(rpc_hooks)` need the hook in `Client(..., rpc_hooks=[...])`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyrmq_core.client.consumer.consume.hooks import ConsumeContext
from pyrmq_core.client.producer.send.hooks import SendContext
from pyrmq_core.otel.api import metrics
from pyrmq_core.otel.attributes import (
    DESTINATION,
    ERROR,
    GROUP,
    PARTITION,
    SYSTEM,
    Attributes,
    add_server,
    code_name,
    of_process,
    of_send,
    request_name,
)
from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command

# The bounds that OpenTelemetry's conventions advise for durations.
DURATION_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
SIZE_BOUNDS: Final = tuple(float(1 << power) for power in range(8, 24, 2))
# The most queues whose lag is kept. It limits the memory of a client that reads every topic.
QUEUES_KEPT: Final = 10_000
PULLS: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

LagKey = tuple[str, str, str, str]


class ClientMetrics:
    """The OpenTelemetry instruments of a client, and the functions that record values with them."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._duration = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of a try of a send.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages of tries of sends.")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages passed to handlers, or returned by polls."
        )
        self._process = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Duration of a call of a handler.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._in_flight = meter.create_up_down_counter(
            "pyrmq.client.send.in_flight", "{try}", "Tries of sends that have not ended."
        )
        self._retries = meter.create_counter("pyrmq.client.send.retries", "{try}", "Tries after the first of a send.")
        self._responses = meter.create_counter(
            "pyrmq.client.responses", "{response}", "Answers of servers by request and code."
        )
        self._pulled = meter.create_histogram(
            "pyrmq.client.pull.bytes",
            "By",
            "Sizes of pulls that found messages.",
            explicit_bucket_boundaries_advisory=SIZE_BOUNDS,
        )
        # A lag is kept when pulls stop: the consumer may be stuck, and not only closed or without the queue.
        self._lag: dict[LagKey, int] = {}
        meter.create_observable_gauge(
            "pyrmq.client.consumer.lag",
            [self._observe_lag],
            "{message}",
            "Messages of a queue behind this process's last pull of it, which may be old.",
        )

    def send_began(self, context: SendContext) -> None:
        self._in_flight.add(1, {SYSTEM: "rocketmq", DESTINATION: context.topic})
        if context.attempt > 1:
            self._retries.add(1, {SYSTEM: "rocketmq", DESTINATION: context.topic})

    def send_ended(self, context: SendContext) -> None:
        self._in_flight.add(-1, {SYSTEM: "rocketmq", DESTINATION: context.topic})
        attributes = of_send(context)
        self._duration.record(context.seconds, attributes)
        self._sent.add(context.payload.count, attributes)

    def processed(self, context: ConsumeContext) -> None:
        attributes = of_process(context)
        self._process.record(context.seconds, attributes)
        self._consumed.add(len(context.messages), attributes)

    def answered(self, address: str, request: Command, answer: Command) -> None:
        attributes: Attributes = {"pyrmq.request": request_name(request.code), "pyrmq.code": code_name(answer.code)}
        add_server(attributes, address)
        if answer.code:
            attributes[ERROR] = code_name(answer.code)
        self._responses.add(1, attributes)
        if request.code in PULLS:
            self._pull_answered(address, request, answer)

    def _pull_answered(self, address: str, request: Command, answer: Command) -> None:
        fields = request.ext
        topic, group, queue = (fields.get(name, "") for name in ("topic", "consumerGroup", "queueId"))
        if len(answer.body):
            self._pulled.record(len(answer.body), {SYSTEM: "rocketmq", DESTINATION: topic, GROUP: group})
        key = (group, topic, address, queue)
        try:
            lag = int(answer.ext["maxOffset"]) - int(answer.ext["nextBeginOffset"])
        except (KeyError, ValueError):
            return
        if key in self._lag or len(self._lag) < QUEUES_KEPT:
            self._lag[key] = max(0, lag)

    def _observe_lag(self, options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for (group, topic, address, queue), lag in list(self._lag.items()):
            attributes: Attributes = {SYSTEM: "rocketmq", DESTINATION: topic, GROUP: group, PARTITION: queue}
            add_server(attributes, address)
            yield metrics.Observation(lag, attributes)
