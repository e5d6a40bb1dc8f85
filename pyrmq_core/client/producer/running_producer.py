"""`RunningProducer`: a producer at work, whose parts are opened and closed in order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import trio

from pyrmq_core.client.client_session import CLOSE_SECONDS, ClientSession
from pyrmq_core.client.producer.batch_member import BatchMember, message_of
from pyrmq_core.client.producer.bulk.accumulator import Accumulator
from pyrmq_core.client.producer.bulk.batch_sends import BatchSends
from pyrmq_core.client.producer.bulk.pending_sends import InFlight, PendingSend
from pyrmq_core.client.producer.bulk.unseen_failures import UnseenFailures
from pyrmq_core.client.producer.message_trace import Tracer
from pyrmq_core.client.producer.producer_settings import ProducerSettings
from pyrmq_core.client.producer.request_reply import RequestSender
from pyrmq_core.client.producer.send.fault_latency import FaultLatency
from pyrmq_core.client.producer.send.hooks import ProducerHooks
from pyrmq_core.client.producer.send.receipt import unexpected
from pyrmq_core.client.producer.send.send_options import Target
from pyrmq_core.client.producer.send.sender import Sender
from pyrmq_core.client.producer.trace_dispatcher import PRODUCE, open_tracing
from pyrmq_core.client.producer.transactions import Transactions
from pyrmq_core.errors import RocketMQError
from pyrmq_core.network import open_owned_nursery
from pyrmq_core.protocol.framing.codes import ResponseCode
from pyrmq_core.protocol.messages.payload import Payload
from pyrmq_core.protocol.requests.broker.offsets import GetMaxOffset


@dataclass(frozen=True, slots=True)
class RunningProducer:
    client: ClientSession
    sender: Sender
    in_flight: InFlight
    unseen: UnseenFailures
    batches: BatchSends
    accumulator: Accumulator | None
    requests: RequestSender
    transactions: Transactions
    tracer: Tracer | None

    def begin(self, payload: Payload | BatchMember, to: Target, seconds: float, pending: PendingSend) -> None:
        """Sends a message in the background, within `seconds`. The caller has reserved room for it in `in_flight`.

        `pending` receives the result. A `BatchMember` joins a shared request, which has the producer's timeout instead.
        """
        try:
            if isinstance(payload, tuple):
                accumulator = self.accumulator
                assert accumulator is not None, "an encoder makes members of batches for a producer that has some"
                accumulator.add(payload, to, pending)
            else:
                self.in_flight.start(payload, to, seconds, (pending,))
        except Exception as error:
            self.in_flight.end((pending,), unexpected(message_of(payload).topic, error))

    def abandon(self) -> None:
        if self.accumulator is not None:
            self.accumulator.abandon()
        self.in_flight.abandon()

    async def drain(self) -> None:
        if self.accumulator is not None:
            self.accumulator.flush()
        await self.batches.drain()
        await self.in_flight.drain()

    def longest_seconds(self, now: float) -> float:
        return max(self.in_flight.longest_seconds(now), self.batches.longest_seconds(now))


@asynccontextmanager
async def open_parts(client: ClientSession, settings: ProducerSettings[Any]) -> AsyncIterator[RunningProducer]:
    """Opens a producer's parts and registers its group. Raises `InvalidState` if the client has it already."""
    client.register_producer(settings.producer_group, transactional=settings.transaction_listener is not None)
    unseen = UnseenFailures(settings.group)
    try:
        async with open_owned_nursery() as nursery:
            tracer = None if settings.trace_topic is None else Tracer(settings.trace_topic)
            hooks = ProducerHooks(settings.hooks if tracer is None else [*settings.hooks, tracer])
            faults = _fault_latency(client, settings, nursery)
            sender = Sender(client, settings, hooks=hooks, faults=faults)
            batches, bounds = settings.batches, (settings.max_in_flight, settings.max_in_flight_bytes)
            in_flight = InFlight(nursery, sender, *bounds, batching=batches is not None)
            accumulator = None
            if batches is not None:
                accumulator = Accumulator(in_flight, batches, timeout=settings.send_timeout)
                nursery.start_soon(accumulator.run)
            parts = RunningProducer(
                client=client,
                sender=sender,
                in_flight=in_flight,
                unseen=unseen,
                batches=BatchSends(nursery, sender, in_flight),
                accumulator=accumulator,
                requests=RequestSender(client, sender),
                transactions=Transactions(client, sender, nursery, settings.transaction_listener, hooks),
                tracer=tracer,
            )
            async with open_tracing(tracer, nursery, client, settings.group, PRODUCE):
                try:
                    yield parts
                finally:
                    parts.abandon()
                    parts.transactions.close()
    finally:
        unseen.report()
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await client.unregister_producer(settings.producer_group)


def _fault_latency(
    client: ClientSession, settings: ProducerSettings[Any], nursery: trio.Nursery
) -> FaultLatency | None:
    if not settings.send_latency_fault_enable:
        return None
    faults = FaultLatency(settings.fault_latency, draw=random.randrange)
    if settings.start_detector_enable:
        nursery.start_soon(run_detector, client, faults)
    return faults


EVERY_SECONDS: Final = 3.0
PROBE_TIMEOUT_SECONDS: Final = 0.2


async def run_detector(client: ClientSession, faults: FaultLatency) -> None:
    while True:
        await trio.sleep(EVERY_SECONDS)
        async with trio.open_nursery() as nursery:
            for broker_name in faults.due(trio.current_time()):
                nursery.start_soon(_probe, client, faults, broker_name)


async def _probe(client: ClientSession, faults: FaultLatency, broker_name: str) -> None:
    topic = next(iter(client.routes.topics), None)
    try:
        master = client.routes.broker(broker_name).master
    except RocketMQError:
        master = None
    if master is None or topic is None:
        faults.remove(broker_name)
        return
    try:
        question = GetMaxOffset(topic, 0, broker_name=broker_name)
        answer = await client.call(master, question.to_command(), timeout=PROBE_TIMEOUT_SECONDS)
    except RocketMQError:
        return
    if answer.code == ResponseCode.SUCCESS:
        faults.reached(broker_name)
