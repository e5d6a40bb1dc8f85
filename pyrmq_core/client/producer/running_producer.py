"""The parts of a running producer, opened and closed in order."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import trio

from pyrmq_core.client.client_session import CLOSE_SECONDS, ClientSession
from pyrmq_core.client.producer.bulk.accumulator import Accumulator, Batching
from pyrmq_core.client.producer.bulk.in_flight import InFlight, PendingSend
from pyrmq_core.client.producer.message_trace import Tracer
from pyrmq_core.client.producer.request_reply import Requests
from pyrmq_core.client.producer.send.fault_detector import run_detector
from pyrmq_core.client.producer.send.fault_latency import FaultLatency, FaultLatencySettings
from pyrmq_core.client.producer.send.hooks import ProducerHook, ProducerHooks
from pyrmq_core.client.producer.send.send_errors import unexpected
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.producer.send.targets import Target
from pyrmq_core.client.producer.settings import SendSettings
from pyrmq_core.client.producer.transactions import TransactionListener, Transactions
from pyrmq_core.model import Message
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.messages.namespaces import without_namespace
from pyrmq_core.protocol.messages.payload import Payload

# client/trace/AsyncTraceDispatcher.java: a producer of its own sends trace messages.
TRACE_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ProducerSetup:
    """A producer's arguments, checked."""

    settings: SendSettings
    send_timeout: float
    in_flight_bounds: tuple[int, int]
    batching: Batching | None
    transaction_listener: TransactionListener | None
    hooks: tuple[ProducerHook, ...]
    trace_topic: str | None
    fault_latency: FaultLatencySettings | None

    def __post_init__(self) -> None:
        ProducerHooks(self.hooks)  # raises for a wrong hook now, not when the producer starts


@dataclass(frozen=True, slots=True)
class RunningProducer:
    """A producer's sender and the parts that send through it."""

    client: ClientSession
    sender: Sender
    in_flight: InFlight
    accumulator: Accumulator | None
    requests: Requests
    transactions: Transactions
    tracer: Tracer | None

    def begin(
        self, message: Message, payload: Payload, to: Target, seconds: float, pending: PendingSend, *, alone: bool
    ) -> None:
        """Sends in the background a message that has entered, together with others if it may."""
        try:
            if self.accumulator is not None and not alone and self.accumulator.takes(message, payload):
                self.accumulator.add(message, payload, to, pending)
            else:
                self.in_flight.start(payload, to, seconds, (pending,))
        except Exception as error:
            self.in_flight.end((pending,), unexpected(payload.topic, error))

    def abandon(self) -> None:
        """Ends all sends under way; each pending send gets its error."""
        if self.accumulator is not None:
            self.accumulator.abandon()
        self.in_flight.abandon()

    async def drain(self) -> None:
        """Waits until nothing is under way."""
        if self.accumulator is not None:
            self.accumulator.flush()
        await self.in_flight.drain()


@asynccontextmanager
async def open_parts(client: ClientSession, setup: ProducerSetup) -> AsyncIterator[RunningProducer]:
    """Registers the group for the time of the block; raises `InvalidState` if the client has a producer of it."""
    settings = replace(setup.settings, unit_mode=client.unit_mode)
    client.register_producer(settings.producer_group)
    try:
        async with open_owned_nursery() as nursery:
            tracer = None if setup.trace_topic is None else Tracer(setup.trace_topic)
            hooks = ProducerHooks(setup.hooks if tracer is None else [*setup.hooks, tracer])
            faults = _fault_latency(client, setup, nursery)
            sender = Sender(client, settings, hooks=hooks, faults=faults)
            in_flight = InFlight(nursery, sender, *setup.in_flight_bounds)
            accumulator = None
            if setup.batching is not None:
                accumulator = Accumulator(in_flight, setup.batching, timeout=setup.send_timeout)
                nursery.start_soon(accumulator.run)
            parts = RunningProducer(
                client=client,
                sender=sender,
                in_flight=in_flight,
                accumulator=accumulator,
                requests=Requests(client, sender),
                transactions=Transactions(client, sender, nursery, setup.transaction_listener, hooks),
                tracer=tracer,
            )
            trace_sender = _trace_sender(client, settings)
            if tracer is not None:
                nursery.start_soon(tracer.run, trace_sender)
            try:
                yield parts
            finally:
                parts.abandon()
                parts.transactions.close()
                if tracer is not None:
                    with trio.move_on_after(CLOSE_SECONDS, shield=True):
                        await tracer.flush(trace_sender)
    finally:
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await client.unregister_producer(settings.producer_group)


def _fault_latency(client: ClientSession, setup: ProducerSetup, nursery: trio.Nursery) -> FaultLatency | None:
    if setup.fault_latency is None:
        return None
    faults = FaultLatency(setup.fault_latency, draw=random.randrange)
    if setup.settings.start_detector_enable:
        nursery.start_soon(run_detector, client, faults)
    return faults


def _trace_sender(client: ClientSession, settings: SendSettings) -> Sender:
    group = without_namespace(settings.producer_group, settings.namespace)
    return Sender(client, SendSettings(f"_INNER_TRACE_PRODUCER-{group}-PRODUCE-{next(TRACE_NUMBERS)}"))
